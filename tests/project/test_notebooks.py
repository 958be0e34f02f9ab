"""Committed notebooks are executed, comparable, and free of one machine's traces.

nbval runs a cell without an execution count but compares nothing, so a stripped notebook would
pass whatever it prints. These checks see to it that every output can be compared.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project.source import ROOT

MAX_BYTES = 300_000
TRACES = {
    "a memory address": re.compile(r"\bat 0x[0-9a-fA-F]{6,}|<[^>\n]* 0x[0-9a-fA-F]{6,}"),
    "a home folder": re.compile(
        r"(?<![\w.])/(home|Users)/[\w.-]+|(?<![\w.])/root\b|[A-Z]:\\Users\\"
    ),
    "a path of one machine": re.compile(
        r"(?<![\w.:/])/(tmp|var|opt|usr|mnt|srv|work|workspace|private)/[\w.-]+"
    ),
}
# Agents work in containers: these paths are what they saw, not where the notebook ran.
SEEN_BY_AGENTS = ("/testbed",)

Notebook = dict[str, Any]


def check_notebook(path: Path) -> list[str]:
    """List what is wrong with the notebook at `path`."""
    size = path.stat().st_size
    notebook = json.loads(path.read_text(encoding="utf-8"))
    found = [f"{size} bytes, more than {MAX_BYTES}"] if size >= MAX_BYTES else []
    if "widgets" in notebook["metadata"]:
        found.append("widget state in the metadata")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    counts = [cell.get("execution_count") for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"execution counts are {counts}: run all cells in order, in a fresh kernel")
    found += check_ids(notebook)
    found += [f"cell {n}: {what}" for n, cell in enumerate(code) for what in check_outputs(cell)]
    return found


def check_ids(notebook: Notebook) -> list[str]:
    """Cells need ids that are there and differ, so that diffs follow a cell."""
    ids = [cell.get("id") for cell in notebook["cells"]]
    if not all(isinstance(name, str) and name for name in ids):
        return ["a cell has no id"]
    return [] if len(set(ids)) == len(ids) else ["two cells have one id"]


def check_outputs(cell: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with one code cell's outputs."""
    expected = "raises-exception" in cell.get("metadata", {}).get("tags", ())
    for output in cell["outputs"]:
        if output["output_type"] == "error" and not expected:
            yield f"error output {output.get('ename')}"
        for text in texts_of(output):
            for word in SEEN_BY_AGENTS:
                text = text.replace(word, "")
            yield from (what for what, pattern in TRACES.items() if pattern.search(text))


def texts_of(output: dict[str, Any]) -> Iterator[str]:
    """The texts of one output that a reader sees (images and scripts of libraries are not)."""
    for name in ("text", "evalue", "traceback"):
        yield joined(output.get(name, ""))
    for mime, value in output.get("data", {}).items():
        if mime in {"text/plain", "text/html", "text/markdown"}:
            yield re.sub(
                r"(?is)<script\b.*?</script>|srcdoc=(\"[^\"]*\"|'[^']*')", "", joined(value)
            )


def joined(value: str | list[str]) -> str:
    """Notebook files hold a text as one string or as a list of lines."""
    return value if isinstance(value, str) else "".join(value)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name
)
def test_notebook_is_executed_and_clean(path: Path) -> None:
    assert check_notebook(path) == []


GOOD: Notebook = {
    "cells": [
        {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# Title"},
        {
            "cell_type": "code",
            "id": "one",
            "metadata": {},
            "source": "print(1)",
            "execution_count": 1,
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1/7 at /testbed/a\n"]}
            ],
        },
        {
            "cell_type": "code",
            "id": "two",
            "metadata": {},
            "source": "x",
            "execution_count": 2,
            "outputs": [
                {
                    "output_type": "execute_result",
                    "execution_count": 2,
                    "metadata": {},
                    "data": {
                        "text/plain": "Scene(2)",
                        "text/html": ["<p>see https://a.org/home/x"],
                    },
                }
            ],
        },
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def write_notebook(path: Path, change: Callable[[Notebook], object]) -> Path:
    """Write the good notebook with one change."""
    notebook = copy.deepcopy(GOOD)
    change(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def test_a_good_notebook_is_let_through(tmp_path: Path) -> None:
    assert check_notebook(write_notebook(tmp_path / "a.ipynb", lambda _: None)) == []


def _set(*keys: Any) -> Callable[[Notebook], object]:
    *path, last, value = keys

    def change(notebook: Notebook) -> None:
        target: Any = notebook
        for key in path:
            target = target[key]
        target[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (_set("cells", 1, "execution_count", None), "execution counts"),
        (_set("cells", 2, "execution_count", 7), "execution counts"),
        (_set("cells", 1, "id", ""), "no id"),
        (lambda notebook: notebook["cells"][1].pop("id"), "no id"),
        (_set("cells", 1, "id", "two"), "one id"),
        (_set("metadata", "widgets", {}), "widget state"),
        (_set("cells", 1, "source", "x" * MAX_BYTES), "bytes"),
        (_set("cells", 1, "outputs", 0, {"output_type": "error", "ename": "E"}), "error output"),
        (_set("cells", 1, "outputs", 0, "text", "<a.B at 0x7f00deadbeef>"), "memory address"),
        (_set("cells", 1, "outputs", 0, "text", ["in /ho", "me/ann/x.py"]), "home folder"),
        (_set("cells", 2, "outputs", 0, "data", "text/plain", "'/tmp/a1/log'"), "one machine"),
        (_set("cells", 2, "outputs", 0, "data", "text/html", "<td>/Users/ann<td>"), "home folder"),
    ],
)
def test_a_bad_notebook_is_found(
    tmp_path: Path, change: Callable[[Notebook], object], finding: str
) -> None:
    found = check_notebook(write_notebook(tmp_path / "a.ipynb", change))
    assert len(found) == 1
    assert finding in found[0]
