"""The graph in a real JupyterLab: a real server, a real kernel and a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import OfflinePage
from tests.notebooks.jupyter import open_notebook, run_all, running_lab

CELLS = (
    """
    import sag_research as sag
    ws = sag.open(":memory:")
    run = ws.add({"task_id": "t1", "repo": "acme/shop", "steps": [
        {"action": f"cat shop/m{i}.py", "observation": "KeyError: '<img src=x onerror=alert(1)>'"}
        for i in range(30)]})
    """,
    "ws.bloom(run).show(height=500)",
    "ws.sql('SELECT run_id, outcome FROM runs')",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """JupyterLab with one notebook; its address."""
    with running_lab(tmp_path, CELLS) as address:
        yield address


def test_the_graph_is_drawn_in_jupyterlab(lab: str, offline_page: OfflinePage) -> None:
    offline_page.allow(lab)
    page = offline_page.page
    open_notebook(page, lab)
    run_all(page)
    frame = page.wait_for_selector("iframe[title='Bloomed graph']", timeout=90_000)
    assert frame is not None
    inner = frame.content_frame()
    assert inner is not None
    inner.wait_for_selector("canvas", timeout=30_000)
    inner.wait_for_function("document.documentElement.dataset.painted !== undefined")
    # the cells after the graph are drawn too: nothing of the frame leaked into the notebook
    page.wait_for_function("document.querySelectorAll('.jp-OutputArea-output table').length >= 1")
    assert not offline_page.page_errors
    assert page.evaluate("window.alerted") is None
