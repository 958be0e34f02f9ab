"""The browser path from a notebook cell, where an event loop is running already."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

CELLS = (
    """
    import asyncio
    from sag_research.lab.export_job import Careful, ExportJobWorld, TaskRequest, run_task

    assert asyncio.get_running_loop().is_running()
    world = ExportJobWorld("transient")
    request = TaskRequest(id="task-1", origin=world.origin, delivery="browser")
    report = run_task("task", Careful(), request, timeout=5)
    print(report.status, report.total_cents, world.retries)
    """,
    """
    again = await asyncio.to_thread(run_task, "task", Careful())
    world.close()
    print(again == report)
    """,
)


@pytest.mark.usefixtures("portal_browser")
def test_r28_a_task_with_a_browser_runs_in_a_notebook_cell(tmp_path: Path) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new_notebook(
        cells=[new_code_cell(dedent(cell).strip()) for cell in CELLS],
        metadata={"kernelspec": kernel},
    )
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=180, kernel_name="python3", resources=where).execute()
    outputs = [nbformat.from_dict(cell).outputs[0].text for cell in notebook.cells]
    assert outputs == ["completed 2450 1\n", "True\n"]
    assert (tmp_path / "task" / "download.csv").read_text(encoding="utf-8").endswith(",2450\n")
    assert (tmp_path / "task" / "browser.png").read_bytes().startswith(b"\x89PNG")
