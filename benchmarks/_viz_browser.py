"""What a browser shows, and when: pages opened in Chromium, clicks, a notebook in JupyterLab."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.browser import FLAGS, new_offline_page
from tests.notebooks.jupyter import open_notebook, run_cell, running_lab
from tests.support import find_chromium

OURS = "() => Number(document.documentElement.dataset.painted) || null"
PYVIS = "() => window.network?.physics?.ready ? performance.now() : null"
PICTURE = "() => [...document.images].every(one => one.complete) && performance.now()"

PLACES = """n => {
    const [root, canvas] = [ROOT, document.querySelector(".sag-canvas canvas")];
    canvas.scrollIntoView({ block: "nearest" });
    const box = canvas.getBoundingClientRect();
    const found = root.keys().filter(key => key.startsWith("event:")).slice(1, -1)
        .map(key => root.at(key))
        .filter(({ x, y }) => x > 8 && y > 8 && x < box.width - 8 && y < box.height - 8);
    return Array.from({ length: n }, (_, i) => found[Math.floor((i + 0.5) * found.length / n)])
        .map(({ x, y }) => [box.x + x, box.y + y]);
}"""
LISTEN = """() => {
    const text = () => TEXT;
    const before = text();
    window.clicked = new Promise((resolve, reject) => document.querySelector(".sag-canvas")
        .addEventListener("pointerdown", () => {
            const began = performance.now();
            const look = () => {
                const took = performance.now() - began;
                if (text() && text() !== before) resolve(took);
                else if (took > 20000) reject(new Error("no other step is described"));
                else requestAnimationFrame(look);
            };
            look();
        }, { capture: true, once: true }));
}"""
IN_PAGE = "document.querySelector('.sag-inspector').innerText"
IN_LAB = """[...document.querySelectorAll('.sag-x')]
    .filter(one => one.offsetParent && [...one.querySelectorAll('h4')]
        .some(head => head.textContent === 'Observation'))
    .map(one => one.textContent).join('')"""

CELLS = (
    """
    import sag_research as sag
    ws = sag.open(":memory:")
    for run in range(12):
        ws.add({"task_id": f"t{run}", "model": "m", "repo": "acme/shop", "steps": [
            {"thought": f"step {n} of run {run}", "action": f"cat shop/m{n % 7}.py",
             "observation": f"line {n}: KeyError in shop/m{(n + run) % 9}.py " * 20}
            for n in range(30)]})
    """,
    "ws.explore()",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the Chromium that the tests use."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def tab(browser: Browser, allowed: str = "") -> Iterator[Page]:
    """Open a tab with nothing cached and no network."""
    context = browser.new_context(service_workers="block", viewport={"width": 1400, "height": 1000})
    offline = new_offline_page(context)
    if allowed:
        offline.allow(allowed)
    yield offline.page
    context.close()


def seconds_until(browser: Browser, path: Path, shown: str, limit: float) -> float | None:
    """Time from the beginning of the navigation until `shown`; None after the limit."""
    with tab(browser) as page:
        try:
            page.goto(path.as_uri(), wait_until="commit", timeout=limit * 1e3)
            return float(page.wait_for_function(shown, timeout=limit * 1e3).json_value()) / 1e3
        except TimeoutError:
            return None


def click_times(page: Page, n: int, root: str, text: str) -> list[float]:
    """Click n steps in turn; seconds from each press until another one is described.

    One more is clicked before: while none is chosen, pointing alone describes.
    """
    took = []
    for x, y in page.evaluate(PLACES.replace("ROOT", root), n + 1):
        page.evaluate(LISTEN.replace("TEXT", text))
        page.mouse.click(x, y)
        took.append(float(page.evaluate("window.clicked")) / 1e3)
    return took[1:]


def clicks_in_page(browser: Browser, path: Path, n: int) -> list[float]:
    """Click n steps of an exported page."""
    with tab(browser) as page:
        page.goto(path.as_uri())
        page.wait_for_function(OURS)
        return click_times(page, n, "window.bloom", IN_PAGE)


def clicks_in_lab(browser: Browser, n: int) -> list[float]:
    """Click n steps of an explorer in JupyterLab."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_lab(Path(folder), CELLS) as lab,
        tab(browser, lab) as page,
    ):
        open_notebook(page, lab)
        for number in range(len(CELLS)):
            run_cell(page, number)
        page.wait_for_selector(".sag[data-painted]")
        # the last cell's drawing, once it stands where it will stay
        page.wait_for_timeout(1_000)
        return click_times(page, n, "document.querySelector('.sag').bloom", IN_LAB)
