"""The live drawing in a real JupyterLab: chosen, streamed from another process, shown again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser import OfflinePage
from tests.notebooks.jupyter import PATIENCE, open_notebook, output_of, run_cell, running_lab

SHOTS = Path(__file__).parents[1] / "screenshots"
HOSTILE = "<img src=x onerror=\\'window.alerted=1\\'>"
WRITER = """
import sys, time
from sag_research import Event, Run, SQLiteEventStore
with SQLiteEventStore(sys.argv[1]) as store:
    run = sys.argv[2]
    if not store.has_run(run):
        store.create_run(Run(run_id=run, task_id="live", goal="follow me"))
        sys.exit()
    for n in range(80):
        if n == 40:
            store.fork(run, at=store.head(run).position, run_id="branch")
        for name in (run, "branch") if n >= 40 else (run,):
            step = {"action": f"cat shop/m{n % 9}.py", "observation": f"line {n}"}
            store.append(Event(run_id=name, type="agent.step", payload=step))
        time.sleep(0.1)
    for name in (run, "branch"):
        store.append(Event(run_id=name, type="run.completed", payload={"exit_status": "done"}))
"""
CELLS = (
    f"""
    import subprocess, sys, time
    from pathlib import Path
    import sag_research as sag
    from sag_research.viz import BloomView, scene
    ws = sag.open("study")
    run = ws.add({{"task_id": "t1", "repo": "acme/shop", "steps": [
        {{"action": f"cat shop/m{{i % 7}}.py", "observation": "KeyError: '{HOSTILE}'"}}
        for i in range(30)]}})
    Path("writer.py").write_text({WRITER!r}, encoding="utf-8")
    def write():
        return subprocess.Popen([sys.executable, "writer.py", "study/log.sqlite", "live"])
    """,
    "view = BloomView(scene(ws.bloom(run).nx), height=480)\nview",
    "view",
    "print('chosen', view.selected)",
    "view.selected = 'run:' + run",
    "assert write().wait() == 0\nlive = ws.watch('live', height=480)\nlive",
    """
    writer = write()
    until = time.monotonic() + 60
    while writer.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    print('writer', writer.returncode)
    """,
    "print(live.wait(60), live.status, live.n_events, live.runs)",
)
ROOTS = "[...document.querySelectorAll('.sag-live > .sag')]"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    with running_lab(tmp_path, CELLS) as address:
        yield address


@pytest.fixture
def page(lab: str, offline_page: OfflinePage) -> Page:
    """The notebook, open; every drawing is noted with the time at which it came."""
    offline_page.allow(lab)
    page = offline_page.page
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.add_init_script(
        """window.drawn = [];
        document.addEventListener("sag-drawn", (event) => {
            const roots = [...document.querySelectorAll(".sag-live > .sag")];
            window.drawn.push([roots.indexOf(event.target), event.detail, performance.now()]);
        });"""
    )
    open_notebook(page, lab)
    return page


def test_drawn_chosen_streamed_and_shown_again(
    page: Page, lab: str, offline_page: OfflinePage
) -> None:
    run_cell(page, 0)
    run_cell(page, 1)
    wait_painted(page, 0)
    run_cell(page, 2)
    wait_painted(page, 1)
    shot(page, "bloom_view")
    choose_by_click(page)
    stream(page)
    shown = state(page)
    save(page)
    open_notebook(page, lab)
    page.wait_for_function(f"{ROOTS}.length === 3 && {ROOTS}.every(r => r.dataset.painted)",
                           timeout=PATIENCE)  # fmt: skip
    assert state(page) == shown
    shot(page, "bloom_view_reloaded")
    assert page.evaluate("window.alerted") is None
    assert page.locator(".sag img").count() == 0
    assert offline_page.blocked == []
    assert offline_page.page_errors == []
    assert offline_page.console_errors == []


def test_without_its_kernel_the_notebook_still_shows_the_last_state(
    page: Page, lab: str, offline_page: OfflinePage
) -> None:
    run_cell(page, 0)
    run_cell(page, 1)
    wait_painted(page, 0)
    assert not page.locator(".sag-saved").is_visible()  # while the live one is there
    page.evaluate(
        """window.jupyterapp.shell.currentWidget.content.widgets[3].model.sharedModel.setSource(
            "view.scene = scene(ws.bloom(run, neighbours=0).nx, title='the last state')\\n" +
            "view.flush(); view.save()")"""
    )
    run_cell(page, 3)
    page.wait_for_function(f"{ROOTS}[0].dataset.cursor === '1'", timeout=PATIENCE)
    save(page)
    page.evaluate("window.jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")
    open_notebook(page, lab)
    saved = page.wait_for_selector(".sag-saved iframe", state="visible", timeout=PATIENCE)
    assert saved is not None
    frame = saved.content_frame()
    assert frame is not None
    frame.wait_for_function("document.documentElement.dataset.painted !== undefined")
    assert frame.locator("strong").first.inner_text() == "the last state"
    shot(page, "bloom_view_without_kernel")
    assert page.locator(".sag-live").count() == 0
    assert page.evaluate("window.alerted") is None
    assert offline_page.page_errors == []
    # JupyterLab says that the widget itself is gone; nothing else may be said
    assert {"widget model not found" in text for text in offline_page.console_errors} <= {True}


def choose_by_click(page: Page) -> None:
    """Click a mark in the first view: Python is told, and the second view shows it, and back."""
    x, y = page.evaluate(
        f"""() => {{
            const root = {ROOTS}[0];
            const canvas = root.querySelector(".sag-canvas canvas");
            canvas.scrollIntoView({{ block: "center" }});
            const [box, key] = [canvas.getBoundingClientRect(), root.bloom.keys()
                .filter(key => key.startsWith("event:"))[20]];
            const place = root.bloom.at(key);
            return [box.x + place.x, box.y + place.y];
        }}"""
    )
    page.mouse.click(x, y)
    for number in (0, 1):
        heading = f"{ROOTS}[{number}].querySelector('.sag-inspector h2').textContent"
        page.wait_for_function(f"{heading} !== 'How to read this'", timeout=PATIENCE)
    run_cell(page, 3)
    page.wait_for_function(
        "/chosen (event|entity|run):/.test("
        "document.querySelectorAll('.jp-CodeCell')[3].textContent)", timeout=PATIENCE
    )  # fmt: skip
    shot(page, "bloom_view_chosen")
    run_cell(page, 4)
    for number in (0, 1):
        page.wait_for_function(
            f"{ROOTS}[{number}].querySelector('.sag-inspector h2').textContent.startsWith('run ')",
            timeout=PATIENCE,
        )


def stream(page: Page) -> None:
    """Another process writes while a cell is busy: it is drawn, at most once a second."""
    run_cell(page, 5)
    wait_painted(page, 2)
    started = page.evaluate("performance.now()")
    page.evaluate(
        """window.jupyterapp.shell.currentWidget.content.activeCellIndex = 6;
        void window.jupyterapp.commands.execute("notebook:run-cell");"""
    )
    page.wait_for_function(
        f"window.drawn.filter(d => d[0] === 2 && d[2] > {started}).length >= 3", timeout=PATIENCE
    )
    busy = page.evaluate(
        "window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.status"
    )
    assert busy == "busy"
    shot(page, "bloom_view_live")
    page.wait_for_function(
        "document.querySelectorAll('.jp-CodeCell')[6].textContent.includes('writer 0')",
        timeout=PATIENCE,
    )
    run_cell(page, 7)
    # created, 80 steps, its end; the fork's first event, 40 steps, its end
    assert "True completed 124 ['live', 'branch']" in output_of(page, 7)
    times = [d[2] for d in page.evaluate("window.drawn") if d[0] == 2 and d[2] > started]
    assert len(times) <= (times[-1] - times[0]) / 1000 + 2
    shot(page, "bloom_view_streamed")


def state(page: Page) -> Any:
    """What each view shows: its version, its lanes, what is chosen."""
    return page.evaluate(
        f"""{ROOTS}.map(root => [
            root.dataset.cursor, root.querySelector("strong").textContent,
            root.querySelector(".sag-notes").textContent,
            root.querySelector(".sag-inspector").textContent,
        ])"""
    )


def wait_painted(page: Page, number: int) -> None:
    page.wait_for_function(f"{ROOTS}[{number}]?.dataset.painted", timeout=PATIENCE)


def save(page: Page) -> None:
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")


def shot(page: Page, name: str) -> None:
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")
