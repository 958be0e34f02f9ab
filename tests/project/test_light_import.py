"""Looking at runs must not wait for packages that only fitting, drawing or checking need."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("sklearn", "scipy", "jsonschema", "rdflib", "pandas", "matplotlib",
         "networkx", "pyvis", "starlette", "uvicorn", "httpx", "openai", "playwright")  # fmt: skip


def test_a_workspace_is_opened_without_heavy_packages() -> None:
    code = (
        "import sys, json, sag_research.workspace, sag_research.cli;"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert json.loads(done.stdout) == []
