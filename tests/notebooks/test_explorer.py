"""The explorer in a real JupyterLab: list, drawing, inspector, annotations, code, hostile texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.browser import OfflinePage
from tests.notebooks.jupyter import PATIENCE, open_notebook, output_of, run_cell, running_lab

SHOTS = Path(__file__).parents[1] / "screenshots"
CELLS = (
    r"""
    import sag_research as sag
    HOSTILE = (
        "<img src=x onerror=\"window.alerted=1\"> </script> \x1b[31mred\x1b[0m "
        "\u202egnp.exe \ud800 href=javascript:window.alerted=1"
    )
    ws = sag.open("study")
    for number in range(24):
        good = number % 2 == 1
        steps = [
            {"thought": f"look into module {k} {HOSTILE}",
             "action": f"cat shop/m{(number + k) % 5}.py" if k % 3 else "pytest tests/test_cart.py",
             "observation": HOSTILE + (" KeyError: 'total'" if k % 2 and not good else " 1 passed")}
            for k in range(9 + number % 4)
        ]
        if number == 0:
            steps[4]["observation"] = HOSTILE + "z" * 1_000_000
        ws.add({"task_id": f"shop-{number % 8}", "repo": "acme/shop",
                "model": f"model-{number % 3}", "goal": f"make the total right {HOSTILE}",
                "steps": steps, "outcome": "success" if good else "failure"})
    first = ws.sql("SELECT run_id FROM runs ORDER BY seq LIMIT 1").rows()[0][0]
    fork = ws.fork(first, step=5, intervention={"hint": "<b>look</b>"}).run_id
    ws.annotate(first, 1, code="loop", note=HOSTILE, by="you")
    """,
    "explorer = ws.explore()\nexplorer",
    "print(explorer, explorer.place, explorer.view.selected, explorer.scene)",
    "explorer.next_cell()",
    "print(sorted(ws.annotations()['by']))",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    with running_lab(tmp_path, CELLS) as address:
        yield address


def test_a_study_is_explored(lab: str, offline_page: OfflinePage) -> None:
    offline_page.allow(lab)
    page = offline_page.page
    page.set_viewport_size({"width": 1400, "height": 1500})
    open_notebook(page, lab)
    page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    for number in (0, 1):
        run_cell(page, number)
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(1)
    page.wait_for_selector(".sag[data-painted]", timeout=PATIENCE)
    runs = cell.locator("select").nth(3)
    _shoot(cell, "explorer-open")
    assert "1–25 of 25" in cell.inner_text()

    _filter(page, cell, runs)
    _click_a_step(page, cell)
    _look_at_tabs(page, cell)
    _lay_out_and_search(page, cell)
    _turn_in_space(page, cell)
    _annotate(page, cell)
    _write_code(page, cell)
    assert page.evaluate("window.alerted") is None
    assert page.locator(".jp-CodeCell img").count() == 0
    offline_page.assert_quiet()


def _shoot(cell: Locator, name: str) -> None:
    SHOTS.mkdir(exist_ok=True)
    cell.locator(".jp-OutputArea").screenshot(path=SHOTS / f"{name}.png")


def _filter(page: Page, cell: Locator, runs: Locator) -> None:
    cell.locator("select").nth(1).select_option("failure")
    page.wait_for_function(_says("1–12 of 12"), timeout=PATIENCE)
    assert all(text.startswith("✗") for text in runs.locator("option").all_inner_texts())
    cell.locator("select").nth(1).select_option("any outcome")
    page.wait_for_function(_says("1–25 of 25"), timeout=PATIENCE)


def _says(text: str) -> str:
    cells = "document.querySelectorAll('.jp-Notebook .jp-CodeCell')"
    return f"{cells}[1].innerText.includes({text!r})"


def _click_a_step(page: Page, cell: Locator) -> None:
    """Click the fourth step's mark on the canvas, and measure until its observation is there."""
    x, y = page.evaluate(
        """() => {
            const root = document.querySelector(".sag");
            const canvas = root.querySelector(".sag-canvas canvas");
            canvas.scrollIntoView({ block: "center" });
            const box = canvas.getBoundingClientRect();
            const key = root.bloom.keys().filter(key => key.startsWith("event:"))[5];
            const place = root.bloom.at(key);
            return [box.x + place.x, box.y + place.y];
        }"""
    )
    page.evaluate(
        """() => {
            window.clicked = new Promise(resolve => document.querySelector(".sag-canvas")
                .addEventListener("pointerdown", () => {
                    const began = performance.now();
                    const look = () => [...document.querySelectorAll(".sag-x h4")]
                        .some(one => one.textContent === "Observation" && one.offsetParent)
                        ? resolve(performance.now() - began) : requestAnimationFrame(look);
                    look();
                }, { capture: true, once: true }));
        }"""
    )
    page.mouse.click(x, y)
    took = page.evaluate("window.clicked")
    _shoot(cell, "explorer-step")
    print(f"click to inspector: {took:.0f} ms")  # a benchmark measures it; here it must come
    text = cell.inner_text()
    assert "Show all 1,000," in text
    assert "⟨U+202E⟩" in text
    assert "\x1b" not in text
    assert "<img src=x onerror" in text  # as text
    _shoot(cell, "explorer-step")
    cell.get_by_role("button", name="Show all 1,000,").click()
    page.wait_for_function(
        "[...document.querySelectorAll('.sag-x pre')].some(e => e.textContent.length > 1000000)",
        timeout=PATIENCE,
    )
    _shoot(cell, "explorer-unfolded")
    cell.get_by_role("button", name="Show less of").click()


def _tab(page: Page, cell: Locator, name: str) -> None:
    cell.locator(".lm-TabBar-tab", has_text=name).click()
    page.wait_for_timeout(400)
    _shoot(cell, f"explorer-{name.split()[0].lower()}")


def _look_at_tabs(page: Page, cell: Locator) -> None:
    _tab(page, cell, "Entities")
    assert "File|acme/shop|" in cell.inner_text()
    where = cell.locator("select:visible").last
    cell.locator("select", has_text="where else is").select_option(index=1)
    page.wait_for_function(_says("runs name it"), timeout=PATIENCE)
    assert where.count() == 1
    _tab(page, cell, "Payload")
    cell.locator(".sag-x summary", has_text="observation").click()
    assert "Show everything" in cell.inner_text()
    cell.locator("select", has_text="success").last.select_option(index=24)  # the fork
    page.wait_for_function(_says("forked from"), timeout=PATIENCE)
    _tab(page, cell, "Diff with parent")
    assert "events shared" in cell.inner_text()
    _tab(page, cell, "Table")
    _tab(page, cell, "Overview")


def _lay_out_and_search(page: Page, cell: Locator) -> None:
    cell.get_by_role("button", name="force").click()
    page.wait_for_timeout(1_000)
    _shoot(cell, "explorer-force")
    cell.get_by_role("button", name="timeline").click()
    search = cell.get_by_placeholder("Search runs, steps, entities")
    search.fill("test_cart")
    search.press("Enter")
    page.wait_for_function(_says("found for"), timeout=PATIENCE)
    _shoot(cell, "explorer-search")
    found = cell.locator("select", has_text="entity File")
    found.focus()
    found.press("End")
    cell.get_by_role("button", name="Go there").first.press("Enter")
    page.wait_for_function(_says("Observation"), timeout=PATIENCE)


def _turn_in_space(page: Page, cell: Locator) -> None:
    """The button shows the view in space (flat where there is no WebGL), and takes it back."""
    button = cell.get_by_role("button", name="3D", exact=True)
    button.press("Enter")
    space = "document.querySelector('.sag-space')"
    page.wait_for_function(f"() => {space}?.dataset.drawn !== undefined", timeout=PATIENCE)
    page.wait_for_timeout(1_000)
    _shoot(cell, "explorer-3d")
    button.press("Enter")
    page.wait_for_function(f"() => {space} === null", timeout=PATIENCE)
    page.wait_for_selector(".sag-canvas canvas", timeout=PATIENCE)


def _annotate(page: Page, cell: Locator) -> None:
    _tab(page, cell, "Annotations")
    cell.get_by_placeholder("e.g. wrong-file").fill("loop")
    cell.get_by_role("button", name="Annotate").press("Enter")
    page.wait_for_function(_says("Annotated step"), timeout=PATIENCE)
    _shoot(cell, "explorer-annotations")
    run_cell(page, 4)
    assert "['me', 'you']" in output_of(page, 4)


def _write_code(page: Page, cell: Locator) -> None:
    cell.get_by_role("button", name="Fork here").press("Enter")
    page.wait_for_function(
        "document.querySelector('.sag-code textarea').value.includes('ws.fork(')", timeout=PATIENCE
    )
    _shoot(cell, "explorer-code")
    run_cell(page, 3)
    cells = "window.jupyterapp.shell.currentWidget.content.widgets"
    page.wait_for_function(
        f"{cells}.some(c => c.model.sharedModel.getSource().startsWith('# a new run'))",
        timeout=PATIENCE,
    )
