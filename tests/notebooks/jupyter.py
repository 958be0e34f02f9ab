"""A real JupyterLab on a folder of its own, for tests that look at it in a browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Page

PATIENCE = 90_000  # milliseconds
_IDLE = (
    "window.jupyterapp.shell.currentWidget?.context?.sessionContext?.session?.kernel?.status"
    " === 'idle'"
)


@contextmanager
def running_lab(folder: Path, cells: Sequence[str]) -> Iterator[str]:
    """Start JupyterLab on a folder with one notebook; yields the notebook's address."""
    work, runtime, log = folder / "work", folder / "runtime", folder / "lab.log"
    work.mkdir()
    code = [new_code_cell(dedent(cell).strip()) for cell in cells]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=code, metadata={"kernelspec": kernel}), work / "graph.ipynb")
    folders = {name: str(folder / name.lower()) for name in ("CONFIG", "DATA")}
    environment = os.environ | {f"JUPYTER_{k}_DIR": v for k, v in folders.items()}
    _ask_for_no_news(folder / "config")
    environment |= {"JUPYTER_RUNTIME_DIR": str(runtime), "HOME": str(folder)}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
        "--ip=127.0.0.1", "--expose-app-in-browser", f"--ServerApp.root_dir={work}",
    ]  # fmt: skip
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            info = _wait_for_server(server, runtime, log)
            yield f"{info['url']}lab/tree/graph.ipynb?token={info['token']}"
        finally:
            _stop(server)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, and then make it: it may wait for a kernel that does not answer."""
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _ask_for_no_news(config: Path) -> None:
    """Answer JupyterLab's question about news, which stands over the page until it is answered."""
    settings = config / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    path = settings / "notification.jupyterlab-settings"
    path.write_text('{"fetchNews": "false", "checkForUpdates": false}', encoding="utf-8")


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


def open_notebook(page: Page, address: str) -> None:
    """Open the notebook and wait for its kernel."""
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=PATIENCE)
    page.wait_for_function(_IDLE, timeout=PATIENCE)


def run_all(page: Page) -> None:
    """Begin to run all cells."""
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")


def run_cell(page: Page, number: int) -> None:
    """Run one cell, and wait until it is done."""
    page.evaluate(
        """number => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            notebook.activeCellIndex = number;
            notebook.deselectAll();
            return window.jupyterapp.commands.execute('notebook:run-cell');
        }""",
        number,
    )


def output_of(page: Page, number: int) -> str:
    """Return the text that stands under a cell."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    return "\n".join(cell.locator(".jp-OutputArea-output").all_inner_texts()).strip()
