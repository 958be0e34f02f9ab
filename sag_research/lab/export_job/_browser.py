"""Fetching the exported file as a person would: through the portal, in a real Chromium."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from sag_research.errors import Caught, MissingDataError
from sag_research.lab.export_job.client import LARGEST_REPLY, Reply
from sag_research.lab.export_job.request import TaskRequest
from sag_research.runtime import this_node

__all__ = ["browser_fetch", "download_path", "find_chromium"]

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SLICE_MS: Final = 250
_WAIT_MS: Final = 8000


def download_path(directory: Path) -> Path:
    """Where the downloaded file is kept."""
    return directory / "download.csv"


def find_chromium() -> str:
    """Return the path of a Chromium: ``$SAG_CHROMIUM``, else the first usual name on ``PATH``.

    Raises
    ------
    MissingDataError
        If there is none; says what to install.
    """
    found = [path for name in _NAMES if (path := shutil.which(name)) is not None]
    chosen = os.environ.get("SAG_CHROMIUM") or (found[0] if found else "")
    if not chosen:
        raise MissingDataError(
            "the browser path needs Chromium",
            fix="apt-get install chromium, or name one in SAG_CHROMIUM",
        )
    return chosen


def browser_fetch(request: TaskRequest, directory: Path) -> Callable[[str], Reply]:
    """Return a function that fetches the file of a job into the directory.

    Everything that is missing is said now, before anything is asked of a model.

    Raises
    ------
    MissingDataError
        If Chromium or the package playwright is missing.
    """
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        raise MissingDataError(
            "the browser path needs the package playwright",
            fix="pip install 'sag-research[browser]'",
        ) from None
    chromium = find_chromium()

    def fetch(job_id: str) -> Reply:
        return _apart(_Visit(request, directory, chromium, job_id))

    return fetch


class _Visit:
    """One visit to the portal; runs on a thread of its own, where no event loop is."""

    def __init__(self, request: TaskRequest, directory: Path, chromium: str, job_id: str) -> None:
        self.request, self.directory = request, directory
        self.chromium, self.job_id = chromium, job_id
        self.left = threading.Event()

    def go(self) -> Reply:
        from playwright.sync_api import Error, sync_playwright

        try:
            with sync_playwright() as play:
                browser = play.chromium.launch(
                    executable_path=self.chromium, args=["--no-sandbox", "--disable-gpu"]
                )
                try:
                    return self._visit(browser.new_page())
                finally:
                    browser.close()
        except Error as error:
            first = str(error).strip().split("\n")[0][:200]
            return Reply(status="failed", code="BROWSER", message=first, retryable=True)

    def _visit(self, page: Any) -> Reply:
        page.set_default_timeout(_WAIT_MS)
        page.route("**/*", self._own_origin_only)
        query = urlencode({"tenant": self.request.tenant})
        page.goto(f"{self.request.origin}/portal?{query}")
        page.get_by_label("Job ID").fill(self.job_id)
        page.get_by_role("button", name="Find").click()
        link = page.get_by_role("link", name="Download CSV")
        if not self._appeared(page, link):
            page.screenshot(path=self.directory / "browser.png")
            return Reply(status="failed", code="NOT_COMPLETED", message="no file is offered")
        with page.expect_download() as waiting:
            link.click()
        path = download_path(self.directory)
        waiting.value.save_as(path)
        page.screenshot(path=self.directory / "browser.png")
        read = path.read_bytes()
        if len(read) > LARGEST_REPLY:
            return Reply(status="failed", code="REPLY_TOO_LARGE", message="the file is too large")
        data = {"jobId": self.job_id, "csv": read.decode("utf-8", "replace")}
        return Reply(status="success", data=data)

    def _own_origin_only(self, route: Any) -> None:
        parts = urlsplit(route.request.url)
        if f"{parts.scheme}://{parts.netloc}" == self.request.origin:
            route.continue_()
        else:
            route.abort()

    def _appeared(self, page: Any, link: Any) -> bool:
        page.wait_for_load_state()
        for _ in range(_WAIT_MS // _SLICE_MS):
            if self.left.is_set() or link.count():
                break
            if page.get_by_text(self.job_id).count():  # the page speaks of the job, without a file
                break
            page.wait_for_timeout(_SLICE_MS)
        return bool(link.count()) and not self.left.is_set()


def _apart(visit: _Visit) -> Reply:
    """Make a visit on a thread of its own; a cancelled node closes the browser and raises."""
    node = this_node()
    caught = Caught()
    replies: list[Reply] = []

    def work() -> None:
        with caught:
            replies.append(visit.go())

    thread = threading.Thread(target=work, name="export-portal", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_SLICE_MS / 1000)
        if node.cancelled:
            visit.left.set()
    node.check()
    if caught.error is not None:
        raise caught.error
    return replies[0]
