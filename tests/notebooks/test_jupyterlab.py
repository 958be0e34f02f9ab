"""The graph in a real JupyterLab: a real server, a real kernel and a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser import OfflinePage

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
    """Start JupyterLab on a folder with one notebook; yields the notebook's address."""
    work, runtime = tmp_path / "work", tmp_path / "runtime"
    work.mkdir()
    cells = [new_code_cell(dedent(cell).strip()) for cell in CELLS]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, work / "graph.ipynb")
    folders = {name: str(tmp_path / name.lower()) for name in ("CONFIG", "DATA")}
    environment = os.environ | {f"JUPYTER_{k}_DIR": v for k, v in folders.items()}
    environment |= {"JUPYTER_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
        "--ip=127.0.0.1", "--expose-app-in-browser", f"--ServerApp.root_dir={work}",
    ]  # fmt: skip
    log = tmp_path / "lab.log"
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        try:
            info = _wait_for_server(server, runtime, log)
            yield f"{info['url']}lab/tree/graph.ipynb?token={info['token']}"
        finally:
            server.terminate()
            server.wait(30)


def _wait_for_server(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> dict[str, str]:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        for path in runtime.glob("jpserver-*.json"):
            text = path.read_text(encoding="utf-8")
            if text.strip().endswith("}"):
                return dict(json.loads(text))
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")


def test_the_graph_is_drawn_in_jupyterlab(lab: str, offline_page: OfflinePage) -> None:
    offline_page.allow(lab)
    page = offline_page.page
    page.goto(lab)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    page.wait_for_function(
        "window.jupyterapp.shell.currentWidget?.context?.sessionContext?.session?.kernel?.status"
        " === 'idle'",
        timeout=90_000,
    )
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
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
