"""Stopping an agent and watching it write, in a real JupyterLab: from a button, from a cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser import OfflinePage
from tests.notebooks.jupyter import PATIENCE, open_notebook, output_of, run_cell, running_lab

HOSTILE = "<img src=x onerror=alert(1)>"
CELLS = (
    f"""
    import threading
    import sag_research as sag
    from sag_research.llm import Chunk, Reply, Scripted, ToolCall
    from sag_research.runtime import start_react, this_node
    from sag_research.viz import token_view

    gate = threading.Event()

    class Writer(Scripted):
        def stream(self, request):
            for number in range(100_000):
                yield Chunk(text=f"word{{number}} {HOSTILE} ")
                gate.wait(0.05)

    ws = sag.open(":memory:")
    def begin(name):
        return start_react(Writer([]), [], "write", store=ws, run=name, sink=view)
    """,
    "view = token_view('At work')\nfirst = begin('first')\nfirst.show()",
    "view",  # below the button, which would move while the text grows
    "print(len(view.texts_['first']) > 0, first.status)",
    "second = begin('second')\nsecond.show()",
    "second.cancel('a second cell')\nprint(second.wait(30), second.status)",
    """
    def ended(name):
        *_, end = ws.store.read(name)
        return end.type, end.payload["reason"]
    print(ended("first"), ended("second"), ws.verify().ok)
    """,
    """
    call = ToolCall(name="here", arguments={})
    @sag.tool
    def here() -> str:
        return this_node().graph_id
    result = sag.react(Scripted([Reply(calls=(call,)), "done"]), [here], "g")
    print(result.steps[0].observation, end=" ")
    try:
        this_node()
    except sag.SagError as error:
        print(error.what)
    """,
    """
    try:
        this_node()
    except sag.SagError as error:
        print("still", error.what)
    """,
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    with running_lab(tmp_path, CELLS) as address:
        yield address


def test_an_agent_is_stopped_by_its_button_and_by_a_cell(
    lab: str, offline_page: OfflinePage
) -> None:
    offline_page.allow(lab)
    page = offline_page.page
    open_notebook(page, lab)
    for number in (0, 1, 2):
        run_cell(page, number)
    _words_come(page, "first")
    run_cell(page, 3)
    assert "True running" in output_of(page, 3)
    button = page.locator(".jp-CodeCell").nth(1).locator("button.jupyter-button")
    button.click()
    page.wait_for_function(_label(1, "cancelled"), timeout=PATIENCE)
    assert button.is_disabled()

    run_cell(page, 4)
    _words_come(page, "second")
    run_cell(page, 5)
    assert "True cancelled" in output_of(page, 5)
    page.wait_for_function(_label(4, "cancelled"), timeout=PATIENCE)
    run_cell(page, 6)
    told = output_of(page, 6)
    assert "('run.cancelled', 'the Stop button was pressed')" in told
    assert "('run.cancelled', 'a second cell')" in told
    assert told.endswith("True")

    for number in (7, 8):
        run_cell(page, number)
    assert "act there is no node here" in output_of(page, 7)
    assert "still there is no node here" in output_of(page, 8)
    assert page.locator(".sag-tokens img").count() == 0  # what the model wrote stayed text
    assert not offline_page.page_errors


def _words_come(page: Page, route: str) -> None:
    """Wait until the text of a conversation has grown twice."""
    text = f"document.querySelector('.sag-tokens-text[data-route={route}]')?.textContent ?? ''"
    page.wait_for_function(f"({text}).includes('word1 {HOSTILE}')", timeout=PATIENCE)
    length = page.evaluate(f"({text}).length")
    page.wait_for_function(f"({text}).length > {length}", timeout=PATIENCE)


def _label(cell: int, text: str) -> str:
    cells = "document.querySelectorAll('.jp-Notebook .jp-CodeCell')"
    return f"{cells}[{cell}].querySelector('.widget-label')?.textContent === '{text}'"
