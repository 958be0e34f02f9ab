"""Both trees in a real JupyterLab: alive with a kernel, and what a saved notebook still shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser import OfflinePage
from tests.notebooks.jupyter import PATIENCE, open_notebook, output_of, run_cell, running_lab

SHOTS = Path(__file__).parents[1] / "screenshots"
HOSTILE = "<img src=x onerror=alert(1)>"
CELLS = (
    f"""
    import numpy as np
    import sag_research as sag
    from sag_research.deadend import Prefixes
    from sag_research.lab import bundled

    rng = np.random.default_rng(7)
    names = ["look|src|ok", "edit|src|ok", "test|none|test-fail", {HOSTILE!r}]
    names += [f"v{{i}}|src|ok" for i in range(40)]
    weight = 1 / np.arange(1, len(names) + 1)
    runs = [[names[i] for i in rng.choice(len(names), 12, p=weight / weight.sum())]
            for _ in range(3000)]
    outcomes = rng.choice(["failure", "success", "unknown"], 3000).tolist()
    explorer = Prefixes.from_tokens(runs, outcomes, rng.integers(0, 300, 3000).tolist()).explore()
    sizes = []
    send = explorer.send
    def counted(message):
        sizes.append(len(message["data"]["nodes"]["parent"]))
        send(message)
    explorer.send = counted

    ws = sag.open(":memory:")
    ws.ingest(bundled("crates"))
    run = ws.runs()["run_id"].iloc[0]
    for i in range(6):
        ws.fork(run, step=i, run_id=f"fork-{{i}}", intervention={{"hint": {HOSTILE!r}}})
    tree = ws.lineage("fork-3").show()
    """,
    "explorer",
    "print(explorer.selected, len(explorer.runs_), explorer.run, explorer.min_runs, sizes)",
    "explorer.selected = ['edit|src|ok', 'look|src|ok']; explorer.view = 'tree'",
    "print(explorer.stop_, len(explorer.runs_), explorer.view)",
    "tree",
    "print(tree.selected)",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    with running_lab(tmp_path, CELLS) as address:
        yield address


def shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def said(page: Page, number: int, wanted: str) -> str:
    """Run a cell until it says what is wanted: a click takes its time to reach Python."""
    for _ in range(20):
        run_cell(page, number)
        text = output_of(page, number)
        if re.fullmatch(wanted, text):
            return text
        page.wait_for_timeout(250)
    pytest.fail(f"{text!r} is not {wanted!r}")


def test_both_trees_in_jupyterlab(lab: str, offline_page: OfflinePage) -> None:
    offline_page.allow(lab)
    page = offline_page.page
    page.set_viewport_size({"width": 1400, "height": 900})
    open_notebook(page, lab)
    run_cell(page, 0)
    run_cell(page, 1)
    page.wait_for_selector(".sag-prefixes .node", timeout=PATIENCE)
    explored(page)
    run_cell(page, 5)
    page.wait_for_selector(".sag-lineage .node", timeout=PATIENCE)
    walked(page)
    assert page.locator(".sag-tree img").count() == 0
    # beside the live views stand their pages, which wait for a notebook without a kernel
    assert page.locator(".sag-saved").count() == 2
    assert not any(one.is_visible() for one in page.locator(".sag-saved").all())
    dark(page)
    assert offline_page.blocked == []
    assert offline_page.console_errors == []
    assert offline_page.page_errors == []
    reloaded(page, offline_page)


def explored(page: Page) -> None:
    tree = page.locator(".sag-prefixes")
    stage, side = tree.locator(".sag-stage"), tree.locator(".sag-side")
    tree.scroll_into_view_if_needed()
    shoot(page, "lab_prefixes")
    tree.locator(".node[data-node='1'] .box").click()
    assert side.locator("h3").inner_text() == "look src ok"
    count = int(side.locator("dd").first.inner_text().replace(",", ""))
    side.locator("ul button").first.click()
    said(page, 2, rf"\['look\|src\|ok'\] {count} run-\d+ 10 \[\]")
    # what the page does not hold comes from the kernel, and never more than it may
    stage.press("Enter")
    tree.locator("svg text.faint", has_text="step 1").first.wait_for(timeout=PATIENCE)
    stage.press("ArrowRight")
    stage.press("Enter")
    page.wait_for_function("document.querySelectorAll('.sag-crumbs button').length === 3")
    shoot(page, "lab_prefixes_zoomed")
    tree.locator("input[type=range]").fill("25")
    text = said(page, 2, r"\['look\|src\|ok', 'look\|src\|ok'\] \d+ run-\d+ 25 \[[\d, ]+\]")
    sizes = [int(size) for size in re.findall(r"\d+", text.rpartition("[")[2])]
    assert all(0 < size <= 2_000 for size in sizes)
    tree.get_by_role("button", name="Flow of steps").click()
    tree.locator("svg text.faint", has_text="step 2").first.wait_for(timeout=PATIENCE)
    assert tree.locator("svg text.faint", has_text="step 1").count() == 0
    shoot(page, "lab_flow_zoomed")
    stage.press("Backspace")
    tree.locator("svg text.faint", has_text="step 1").first.wait_for(timeout=PATIENCE)
    stage.press("Backspace")
    assert tree.locator(".sag-crumbs").inner_text().strip() == "all runs"
    tree.get_by_role("button", name="Flow of steps").click()
    tree.locator("[data-stop='0'] .box").click()
    count = int(side.locator("dd").first.inner_text().replace(",", ""))
    said(page, 4, rf"\(0, 'look\|src\|ok'\) {count} sankey")
    run_cell(page, 3)  # Python chooses
    page.wait_for_function(
        "document.querySelector('.sag-prefixes .sag-side h3').textContent === 'look src ok'"
        " && document.querySelector('.sag-prefixes .sag-side ol')?.children.length === 2"
    )
    shoot(page, "lab_prefixes_chosen")


def walked(page: Page) -> None:
    tree = page.locator(".sag-lineage")
    tree.scroll_into_view_if_needed()
    said(page, 6, "fork-3")
    tree.locator(".node .name", has_text="fork-5").locator("..").click()
    assert HOSTILE in tree.locator(".sag-side").inner_text()
    said(page, 6, "fork-5")
    tree.locator(".sag-stage").press("ArrowLeft")
    said(page, 6, "crates-.+")
    shoot(page, "lab_lineage")


def dark(page: Page) -> None:
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', "
                  "{theme: 'JupyterLab Dark'})")  # fmt: skip
    page.wait_for_selector("body[data-jp-theme-light='false']", state="attached")
    page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=PATIENCE)
    paper = "getComputedStyle(document.querySelector('.sag-lineage')).backgroundColor"
    page.wait_for_function(f"{paper} === 'rgb(27, 31, 35)'")
    shoot(page, "lab_lineage_dark")


def reloaded(page: Page, offline: OfflinePage) -> None:
    """Open the saved notebook again, with its kernel gone."""
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.evaluate("window.jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
    offline.console_errors.clear()  # a kernel that is gone is complained about by the notebook
    page.reload()
    frames = page.locator(".sag-saved iframe")
    frames.first.wait_for(timeout=PATIENCE)
    for number, heading in enumerate(["Beginnings that runs share", "Forks of crates"]):
        frame = frames.nth(number)
        frame.scroll_into_view_if_needed()
        inner: Any = frame.element_handle().content_frame()
        inner.wait_for_selector(".sag-tree .node", timeout=PATIENCE)
        assert inner.locator(".sag-title").inner_text().startswith(heading)
        assert frame.is_visible()
    shoot(page, "lab_trees_without_kernel")
