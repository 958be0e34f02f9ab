"""A batch in a real JupyterLab: its bar moves, its Stop button stops it, the rest is carried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import OfflinePage
from tests.notebooks.jupyter import PATIENCE, open_notebook, output_of, run_cell, running_lab

SHOTS = Path(__file__).parents[1] / "screenshots"
CELLS = (
    """
    import threading
    import sag_research as sag
    from sag_research.lab import play_batch
    from sag_research.viz import progress_view, start_batch, token_view
    gate = threading.Event()
    tokens = token_view("Answers")
    def work(told):
        def slowly(row):
            told(row)
            gate.wait(0.2)
        return play_batch("log.sqlite", "crates", 200, scenarios=["easy"], told=slowly)
    """,
    "batch = start_batch(work, 200, 'crates <img src=x onerror=alert(1)>')\n"
    "progress_view(batch, tokens)",
    "print(batch.wait(30), batch.status, 0 < batch.progress.done < 200)",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    with running_lab(tmp_path, CELLS) as address:
        yield address


def test_a_batch_is_followed_and_stopped(lab: str, offline_page: OfflinePage) -> None:
    offline_page.allow(lab)
    page = offline_page.page
    open_notebook(page, lab)
    run_cell(page, 0)
    run_cell(page, 1)
    counts = "document.querySelector('.widget-html-content')?.textContent ?? ''"
    page.wait_for_function(f"/: [1-9][0-9]* of 200 runs/.test({counts})", timeout=PATIENCE)
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / "batch_view.png")
    button = page.locator(".jp-CodeCell").nth(1).locator("button.jupyter-button")
    button.click()
    labels = "[...document.querySelectorAll('.widget-label')].map(label => label.textContent)"
    stopped = f"{labels}.includes('cancelled')"
    page.wait_for_function(stopped, timeout=PATIENCE)
    run_cell(page, 2)
    assert output_of(page, 2) == "True cancelled True"
    assert page.locator(".widget-html-content img").count() == 0
    assert page.locator(".sag-tokens").count() == 1
    assert offline_page.page_errors == []
    assert offline_page.console_errors == []
