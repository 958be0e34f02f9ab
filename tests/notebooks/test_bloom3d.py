"""The view in space in a real JupyterLab: with WebGL (by software), and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import FLAGS, OfflinePage, new_offline_page
from tests.notebooks.jupyter import PATIENCE, open_notebook, output_of, run_cell, running_lab
from tests.support import find_chromium

SCREENSHOTS = Path(__file__).resolve().parents[1] / "screenshots"
HOSTILE = "<img src=x onerror=alert(1)>"
CELLS = (
    f"""
    import sag_research as sag
    from sag_research.viz import scene
    from sag_research.viz._bloom3d import Bloom3D
    ws = sag.open(":memory:")
    looks = ["grep -n price shop/cart.py", "cat shop/cart.py", "sed -i s/1/2/ a.py", "pytest -q"]
    for name in "abc":
        ws.add({{"task_id": "t", "model": name, "repo": "acme/shop", "steps": [
            {{"thought": "{HOSTILE}", "action": looks[i % 4],
             "observation": "ValueError: {HOSTILE} in shop/price.py" if i % 3 else "ok"}}
            for i in range(12)]}})
    picture = scene(ws.bloom().nx)
    view = Bloom3D(picture, height=480)
    """,
    "view",
    "print(view.selected)",
    "view.selected = next(n.id for n in picture.nodes if n.kind == 'Error')",
    "view.force = True",
    "view.force = False\nview.scene = scene(ws.bloom(ws.runs().run_id[0]).nx)\nprint(view.scene)",
    "view.close()",
    "explorer = ws.explore()\nexplorer.in_space.value = True\nexplorer",
    "print(explorer.place.step, explorer.view.selected == explorer.drawing.space.selected)",
    "explorer.show_step(explorer.place.run, explorer.place.position + 1)",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    with running_lab(tmp_path, CELLS) as address:
        yield address


@pytest.fixture
def webgl_page(chromium: Browser) -> Iterator[OfflinePage]:
    yield from _page_with(chromium, "--enable-unsafe-swiftshader")


@pytest.fixture
def plain_page(chromium: Browser) -> Iterator[OfflinePage]:
    yield from _page_with(chromium, "--disable-3d-apis")


def _page_with(chromium: Browser, flag: str) -> Iterator[OfflinePage]:
    """Open a page of a browser that draws WebGL by software, or has none."""
    executable = find_chromium()
    browser = chromium.browser_type.launch(executable_path=executable, args=[*FLAGS, flag])
    context = browser.new_context(service_workers="block")
    yield new_offline_page(context)
    browser.close()


def test_in_space(lab: str, webgl_page: OfflinePage) -> None:
    page = _opened(lab, webgl_page)
    _drawn(page, "space")
    page.wait_for_timeout(1000)
    labels = page.locator(".sag-space-label:visible")
    assert labels.count() >= 5
    assert _apart(page)
    _picture(page, "bloom3d")

    first = _first_step(page)
    place = page.evaluate(f"{_ROOT}.sagPicture.placeOf({first!r})")
    page.locator(".sag-space-gl canvas").click(position=place)
    page.wait_for_function(f"{_ROOT}.dataset.chosen !== ''", timeout=PATIENCE)
    run_cell(page, 2)
    assert output_of(page, 2) == first
    assert "step 0" in page.locator(".sag-space-said").inner_text()

    run_cell(page, 3)
    page.wait_for_function(
        f"{_ROOT}.querySelector('.sag-space-said').textContent.includes('Error')"
    )
    page.locator(".sag-space").focus()
    before = page.evaluate(f"{_ROOT}.dataset.chosen")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"{_ROOT}.dataset.chosen !== {before!r}")
    page.wait_for_timeout(500)
    _picture(page, "bloom3d-chosen")

    run_cell(page, 4)
    page.wait_for_function(f"{_ROOT}.dataset.force === 'cooled'", timeout=PATIENCE)
    page.wait_for_timeout(500)
    _picture(page, "bloom3d-force")
    page.evaluate(
        "window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    run_cell(page, 5)
    assert "Scene(timeline" in output_of(page, 5)
    page.wait_for_selector(".sag-space.sag-dark")
    _drawn(page, "space")
    page.wait_for_timeout(1000)
    _picture(page, "bloom3d-dark")

    _inert(page)
    run_cell(page, 6)
    page.wait_for_function("document.querySelectorAll('.sag-space').length === 0")
    _explorer_in_space(page)
    assert webgl_page.console_errors == []
    assert webgl_page.page_errors == []


def _explorer_in_space(page: Page) -> None:
    """What is clicked in space is what the inspector shows, and the other way round."""
    run_cell(page, 7)
    _drawn(page, "space")
    page.wait_for_timeout(1000)
    place = page.evaluate(f"{_ROOT}.sagPicture.placeOf({_first_step(page)!r})")
    page.locator(".sag-space-gl canvas").click(position=place)
    page.wait_for_function(
        "[...document.querySelectorAll('.sag-x h4')].some(h => h.textContent === 'Observation')"
    )
    run_cell(page, 8)
    assert output_of(page, 8) == "0 True"
    run_cell(page, 9)
    page.wait_for_function(
        f"{_ROOT}.querySelector('.sag-space-said').textContent.includes('step 1')"
    )
    page.wait_for_timeout(500)
    SCREENSHOTS.mkdir(exist_ok=True)
    page.locator(".jp-OutputArea", has=page.locator(".sag-space")).last.screenshot(
        path=SCREENSHOTS / "explorer-space.png"
    )


def test_flat_without_webgl(lab: str, plain_page: OfflinePage) -> None:
    page = _opened(lab, plain_page)
    _drawn(page, "flat")
    assert "offers no WebGL" in page.locator(".sag-space-note").inner_text()
    page.locator(".sag-space-stage canvas").first.wait_for()
    page.wait_for_timeout(500)
    _picture(page, "bloom3d-flat")
    run_cell(page, 3)
    page.wait_for_function(f"{_ROOT}.textContent.includes('ValueError')")
    _inert(page)
    assert plain_page.console_errors == []
    assert plain_page.page_errors == []


_ROOT = "document.querySelector('.sag-space')"


def _opened(lab: str, offline: OfflinePage) -> Page:
    offline.allow(lab)
    offline.page.set_viewport_size({"width": 1280, "height": 900})
    open_notebook(offline.page, lab)
    for number in (0, 1):
        run_cell(offline.page, number)
    return offline.page


def _drawn(page: Page, how: str) -> None:
    page.wait_for_function(f"{_ROOT}?.dataset.drawn === {how!r}", timeout=PATIENCE)


def _first_step(page: Page) -> str:
    """Key of the first step of the run that stands in front."""
    return str(page.evaluate(f"{_ROOT}.sagPicture.find((kind) => kind === 'Step')"))


def _apart(page: Page) -> bool:
    """Whether no visible label covers another."""
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('.sag-space-label')]
            .filter((label) => label.style.visibility === 'visible')
            .map((label) => { const b = label.getBoundingClientRect();
                              return [b.left, b.top, b.right, b.bottom]; })"""
    )
    pairs = [(a, b) for n, a in enumerate(boxes) for b in boxes[:n]]
    return not any(
        a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 1 and b[1] < a[3] - 1
        for a, b in pairs
    )


def _inert(page: Page) -> None:
    assert page.locator(".sag-space img").count() == 0
    assert page.evaluate("window.alerted") is None


def _picture(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    page.locator(".sag-space").screenshot(path=SCREENSHOTS / f"{name}.png")
