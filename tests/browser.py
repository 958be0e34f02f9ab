"""A page that records what it asks of the network, and what it complains about."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Page, Route, WebSocketRoute

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
LOCAL_SCHEMES = frozenset({"file", "data", "about", "blob"})


@dataclass
class OfflinePage:
    """A Playwright page without a network.

    Attributes
    ----------
    page : playwright.sync_api.Page
    blocked : list of str
        Addresses asked for and refused, in order.
    console_errors, page_errors : list of str
        ``console.error`` messages, and exceptions nobody caught.
    """

    page: Page
    blocked: list[str] = field(default_factory=list)
    console_errors: list[str] = field(default_factory=list)
    page_errors: list[str] = field(default_factory=list)
    allowed: set[str] = field(default_factory=set)

    def allow(self, origin: str) -> None:
        """Let requests to `origin` (``http://127.0.0.1:8888``) and its web sockets through."""
        self.allowed.add(urlsplit(origin).netloc)

    def open(self, path: Path) -> Page:
        """Open a file and return the Playwright page."""
        self.page.goto(path.resolve().as_uri())
        return self.page

    def assert_quiet(self) -> None:
        """Fail if the page asked for the network or reported an error."""
        assert self.blocked == []
        assert self.page_errors == []
        assert self.console_errors == []

    def is_local(self, url: str) -> bool:
        """Whether `url` needs no network, or was allowed."""
        parts = urlsplit(url)
        return parts.scheme in LOCAL_SCHEMES or parts.netloc in self.allowed

    def route(self, route: Route) -> None:
        """Decide about one request."""
        if self.is_local(route.request.url):
            route.continue_()
        else:
            self.blocked.append(route.request.url)
            route.abort("internetdisconnected")

    def route_socket(self, socket: WebSocketRoute) -> None:
        """Decide about one web socket."""
        if self.is_local(socket.url):
            socket.connect_to_server()
        else:
            self.blocked.append(socket.url)
            socket.close()


def new_offline_page(context: BrowserContext) -> OfflinePage:
    """Open a page in `context` and take over its network and its complaints."""
    offline = OfflinePage(context.new_page())
    context.route("**/*", offline.route)
    context.route_web_socket("**/*", offline.route_socket)
    page = offline.page
    page.on("pageerror", lambda error: offline.page_errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            offline.console_errors.append(message.text) if message.type == "error" else None
        ),
    )
    return offline
