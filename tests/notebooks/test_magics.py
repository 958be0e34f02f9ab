"""The magics in a real kernel, asked by the messages that JupyterLab sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

PATIENCE = 60
HOSTILE = "<img src=x onerror=alert(1)>"
SETUP = f"""
%load_ext sag_research
import sag_research as sag
ws = sag.open(":memory:")
for number in range(30):
    ws.add({{"task_id": f"t{{number}}", "model": {HOSTILE!r}, "steps": [{{"action": "ls"}}]}})
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingKernelClient]:
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder))
        manager, client = start_new_kernel(startup_timeout=PATIENCE, cwd=str(folder))
    try:
        assert run(client, SETUP)["status"] == "ok"
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client: BlockingKernelClient, code: str) -> dict[str, Any]:
    """Run a cell; returns status, and what came: text, error stream and mime bundle."""
    told: dict[str, Any] = {"stdout": "", "stderr": "", "data": {}, "kinds": []}

    def heard(message: dict[str, Any]) -> None:
        content = message["content"]
        told["kinds"].append(message["msg_type"])
        if message["msg_type"] == "stream":
            told[content["name"]] += content["text"]
        elif message["msg_type"] == "execute_result":
            told["data"] = content["data"]

    reply = client.execute_interactive(code, output_hook=heard, timeout=PATIENCE)
    return told | {"status": reply["content"]["status"]}


def complete(client: BlockingKernelClient, code: str, at: int) -> tuple[list[str], str]:
    """Ask for completions; returns the texts, and what they would replace."""
    asked = client.complete(code, at)
    while (reply := client.get_shell_msg(timeout=PATIENCE))["parent_header"]["msg_id"] != asked:
        pass
    content = reply["content"]
    return content["matches"], code[content["cursor_start"] : content["cursor_end"]]


def test_a_cell_of_sql(kernel: BlockingKernelClient) -> None:
    shown = run(kernel, "%%sag --rows 2\nSELECT model, task_id FROM runs ORDER BY seq")
    assert set(shown["data"]) == {"text/plain", "text/html"}
    assert "2 of 30 rows shown" in shown["data"]["text/html"]
    assert "&lt;img src=x" in shown["data"]["text/html"]
    assert HOSTILE not in shown["data"]["text/html"]
    kept = (
        run(kernel, "least = 1\n")["status"],
        run(kernel, "%%sag found <<  --params\nSELECT task_id FROM runs WHERE n_steps >= :least"),
    )
    assert kept[0] == "ok"
    assert kept[1]["stdout"] == "found: 30 rows × 1 columns (task_id)\n"
    assert run(kernel, "type(found).__name__")["data"]["text/plain"] == "'DataFrame'"


def test_an_error_is_one_line(kernel: BlockingKernelClient) -> None:
    told = run(kernel, "%%sag\nSELECT nope FROM runs")
    assert told["status"] == "error"  # "run all" stops there
    assert "error" not in told["kinds"]  # no traceback is shown
    assert told["stderr"].startswith("UsageError: DuckDB refused the query at line 1, column 8")
    assert len(told["stderr"].splitlines()) == 1


@pytest.mark.parametrize(
    ("code", "mark", "offered", "replaced"),
    [
        ("%sag wo", "", "workspace", "wo"),
        ("x = 1\n%sag runs outc", "", "outcome", "outc"),
        ("%%sag rows <<\nSELECT s.th\nFROM steps AS s", "s.th", "thought", "th"),
        ("%%sag\nSELECT * FROM ment", "", "mentions", "ment"),
    ],
)
def test_the_kernel_completes(
    kernel: BlockingKernelClient, code: str, mark: str, offered: str, replaced: str
) -> None:
    at = code.index(mark) + len(mark) if mark else len(code)
    matches, fragment = complete(kernel, code, at)
    assert offered in matches
    assert fragment == replaced


def test_other_cells_are_completed_as_before(kernel: BlockingKernelClient) -> None:
    matches, _ = complete(kernel, "ws.ru", 5)
    assert any(match.endswith("runs") for match in matches)
