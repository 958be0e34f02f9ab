"""The site builds without a warning, holds every public name, and asks nothing of the network."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sag_research
from sag_research import errors
from tests.docs.pages import DOCS, ROOT

if TYPE_CHECKING:
    from tests.browser import OfflinePage

ELSEWHERE = re.compile(r"(?:https?:|wss?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
FETCHED = {
    "img": ("src", "srcset"), "script": ("src",), "iframe": ("src",), "source": ("src", "srcset"),
    "video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "object": ("data",),
    "input": ("src",), "image": ("href",), "use": ("href",), "form": ("action",),
}  # fmt: skip
KEPT_LINKS = {"canonical", "alternate", "next", "prev"}  # they name pages, and fetch nothing


class Fetches(HTMLParser):
    """What a page makes a browser fetch, scripts apart."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.found += [values[name] for name in FETCHED.get(tag, ()) if name in values]
        if tag == "link" and not KEPT_LINKS & set(values.get("rel", "").split()):
            self.found.append(values.get("href", ""))
        self.found += urls_of_style(values.get("style", ""))


def urls_of_style(style: str) -> list[str]:
    return [one or other for one, other in IN_STYLE.findall(style)]


def fetched_from_elsewhere(site: Path) -> list[str]:
    """List what the pages and styles of a site fetch from another place."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".svg"}:
            text = path.read_text(encoding="utf-8")
            parser = Fetches()
            parser.feed(text)
            urls = parser.found + urls_of_style("".join(re.findall(r"(?s)<style.*?</style>", text)))
        elif path.suffix == ".css":
            urls = urls_of_style(path.read_text(encoding="utf-8"))
        else:
            continue
        name = path.relative_to(site).as_posix()
        found += [f"{name}: {url}" for url in urls if ELSEWHERE.match(url)]
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; nothing of it may come from the network, so the proxies lead nowhere."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    return folder


def test_every_page_of_docs_is_built_and_in_the_navigation(site: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w/-]+\.md", navigation))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == written | {"research.md", "benchmarks.md"}
    assert [name for name in listed if not (site / name).with_suffix(".html").is_file()] == []


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8")))


def rooms() -> list[tuple[str, str]]:
    """The pages of the reference, each with the module that it describes."""
    pages = sorted((DOCS / "api").glob("*.md"))
    found = [
        (page.stem, re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.M)) for page in pages
    ]
    return [(name, module) for name, modules in found for module in modules]


def test_every_public_name_is_described(site: Path) -> None:
    missing = [
        f"{room}.{name}"
        for page, room in rooms()
        for name in importlib.import_module(room).__all__
        if f"{room}.{name}" not in anchors(site / "api" / f"{page}.html")
    ]
    assert missing == []
    described = {room for _, room in rooms()}
    assert {f"sag_research.{room}" for room in sag_research._ROOM_OF.values()} <= described
    index = (site / "api" / "index.html").read_text(encoding="utf-8")
    assert [name for name in sag_research.__all__ if f"<code>{name}</code>" not in index] == []


def test_every_room_has_a_page() -> None:
    package = ROOT / "sag_research"
    there = {path.parent.name for path in package.glob("[a-z]*/__init__.py")} | {
        path.stem for path in package.glob("[a-z]*.py")
    }
    assert there - {"cli"} <= {room.split(".")[1] for _, room in rooms()}  # `cli` has `--help`


def test_every_error_has_its_entry() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part for part in re.split(r"(?m)^## ", text)[1:]}
    known = [
        name
        for name in errors.__all__
        if isinstance(getattr(errors, name), type) and issubclass(getattr(errors, name), Exception)
    ]
    assert len(known) >= 17
    assert [name for name in known if name not in parts] == []
    for name in known:
        raised = f"errors.{name}:" in parts[name] or name == "SagError"
        assert raised, f"{name}: no example raises it"
        assert "*Fix:*" in parts[name] or name == "SagError"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 50
    assert fetched_from_elsewhere(site) == []
    scripts = {path.name for path in (site / "javascripts").iterdir()}
    assert scripts == {"iframe-worker.js"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://unpkg.com/x"></script>'),
        ("a.html", '<link rel="stylesheet" href="//fonts.example/x.css">'),
        ("a.html", '<link rel="preconnect" href="https://fonts.example">'),
        ("a.html", '<p style="background: url(http://x.example/a.png)">'),
        ("a.html", '<style>@import "https://x.example/a.css";</style>'),
        ("a.svg", '<svg><image href="https://x.example/a.png"/></svg>'),
        ("a.css", "a { background: url('https://x.example/a.png') }"),
    ],
)
def test_what_is_fetched_is_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert len(fetched_from_elsewhere(tmp_path)) == 1


def test_a_link_fetches_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="https://x.example">x</a><img src="a.png">')
    assert fetched_from_elsewhere(tmp_path) == []


def test_the_search_works_on_a_file_and_without_a_network(
    site: Path, offline_page: OfflinePage
) -> None:
    page = offline_page.open(site / "how-to" / "copies.html")
    page.get_by_role("heading", name="Which runs are copies").wait_for()
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("dead end")
    page.locator(".md-search-result__item").first.wait_for()
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url(lambda url: "copies.html" not in url)
    page.goto((site / "concepts.html").as_uri())
    shown = page.evaluate("[...document.images].map((one) => one.complete && one.naturalWidth > 0)")
    assert len(shown) >= 9
    assert all(shown)
    offline_page.assert_quiet()
