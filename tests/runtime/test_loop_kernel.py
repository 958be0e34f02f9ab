"""Loops in a notebook's kernel: a later cell stops what an earlier one began; nothing leaks."""

from __future__ import annotations

import nbformat
from nbclient import NotebookClient

CELLS = (
    """
import asyncio
from sag_research.runtime import CancelToken, Runtime, graph, graph_step, plan, this_node
rt = Runtime()

async def tick(n):
    await asyncio.sleep(0.001)
    return n + 1

ticking = graph("ticking").node("n", tick)

@plan(max_iterations=10**9)
def count(n):
    last = n + 20
    while n < last or forever:
        n = (yield from graph_step(ticking, n))["n"].unwrap()
    return n

forever = False
print(rt.loop(count, 0))
""",
    "print(await rt.aloop(count, 0))",
    "forever = True\nhandle = rt.start(count, 0)\nprint(handle.status)",
    """
handle.cancel("Stop")
try:
    handle.result(30)
except Exception as error:
    print(type(error).__name__, handle.status)
""",
    """
task = asyncio.create_task(rt.aloop(count, 0, cancel=(token := CancelToken())))
print("begun")
""",
    """
token.cancel("Stop")
[error] = await asyncio.gather(task, return_exceptions=True)
print(type(error).__name__)
try:
    this_node()
except Exception as error:
    print(type(error).__name__)
await rt.aclose()
print(rt)
""",
)


def test_cells_start_and_stop_loops() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    printed = ["".join(out["text"] for out in cell["outputs"]) for cell in notebook.cells]
    assert [text.split("\n")[:-1] for text in printed] == [
        ["20"],
        ["20"],
        ["running"],
        ["LoopCancelledError cancelled"],
        ["begun"],
        ["LoopCancelledError", "UsageError", "Runtime(0 workers, 0 loops, closed)"],
    ]
