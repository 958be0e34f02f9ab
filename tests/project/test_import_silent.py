"""``import sag_research`` says nothing and loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.source import PACKAGE, ROOT, write_tree

HEAVY = ("pandas", "polars", "duckdb", "networkx", "matplotlib", "pyvis", "IPython")
PROBE = f"""
import sys
import {PACKAGE}
heavy = [name for name in {HEAVY!r} if name in sys.modules]
if heavy:
    print("loaded:", *heavy)
"""


def said_by_import(root: Path) -> str:
    """What a fresh interpreter prints when it imports the package under `root`."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROBE],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr + (f"exit {done.returncode}" if done.returncode else "")


def test_import_is_silent_and_light() -> None:
    assert said_by_import(ROOT) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('hello')", "hello"),
        ("import warnings\nwarnings.warn('old')", "old"),
        ("import networkx, matplotlib", "loaded: networkx matplotlib"),
        ("raise SystemExit(3)", "exit 3"),
    ],
)
def test_a_loud_or_heavy_import_is_found(tmp_path: Path, text: str, said: str) -> None:
    assert said in said_by_import(write_tree(tmp_path, {f"{PACKAGE}/__init__.py": text}))
