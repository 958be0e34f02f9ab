"""Every public bug report that this project must survive has tests that exist; nbval's are here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.project.named import missing
from tests.project.source import ROOT

REPORTS = Path(__file__).with_name("field_reports.toml")
ADDRESS = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+")


def reports(path: Path = REPORTS) -> dict[str, dict[str, Any]]:
    """The reports by id."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", sorted(reports()))
def test_a_report_has_tests_that_exist(number: str) -> None:
    report = reports()[number]
    assert report["says"].strip()
    assert report["tests"]
    assert [fault for node in report["tests"] if (fault := missing(node))] == []
    assert all(ADDRESS.fullmatch(address) for address in report["urls"])
    assert report["urls"] or report.get("source")


def test_no_report_is_left_out() -> None:
    numbered = {number for number in reports() if re.fullmatch(r"B\d+", number)}
    assert len(numbered) == 31
    assert set(reports()) - numbered == {"activegraph"}


def test_a_test_that_is_gone_is_noticed() -> None:
    here = "tests/project/test_field_reports.py"
    assert missing(f"{here}::test_a_test_that_is_gone_is_noticed") == ""
    assert missing(f"{here}::TestB41") == ""
    assert missing(f"{here}::TestB41::test_b41_chunks_of_a_stream_are_one_text") == ""
    for name in ("test_gone", "missing", "TestB41::test_gone", ""):
        assert missing(f"{here}::{name}")
    assert missing("tests/gone.py::test_a")


# ---- nbval


def cell(source: str, *outputs: dict[str, Any], number: int = 1) -> dict[str, Any]:
    return {
        "cell_type": "code", "id": f"c{number}", "metadata": {}, "source": source,
        "execution_count": number, "outputs": list(outputs),
    }  # fmt: skip


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def nbval(folder: Path, **notebooks: dict[str, Any]) -> dict[str, str]:
    """Compare notebooks of one cell as ``make notebooks`` does; the result of each."""
    for name, content in notebooks.items():
        notebook = {"cells": [content], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = re.search(
        r"^NBVAL\s*:=((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M
    )
    assert options is not None
    words = options[1].replace("\\\n", " ").split()
    words[words.index("tests/nbval.cfg")] = str(ROOT / "tests/nbval.cfg")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider", *words, "."],
        cwd=folder, check=False, capture_output=True, text=True, encoding="utf-8", timeout=150,
    )  # fmt: skip
    found = re.findall(r"^(PASSED|FAILED) (?:\S*/)?(\w+)\.ipynb::", done.stdout, re.MULTILINE)
    assert len(found) == len(notebooks), done.stdout[-2_000:]
    return {name: result for result, name in found}


CHUNKS = "import sys, time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.4)"
TWO = "from IPython.display import display\ndisplay(1)\nprint('at', '12:34:56')"


def shown(text: str) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": {"text/plain": text}}


class TestB41:
    """The chunks of a stream, compared one by one, differ from run to run."""

    def test_b41_chunks_of_a_stream_are_one_text(self, tmp_path: Path) -> None:
        assert nbval(
            tmp_path,
            whole=cell(CHUNKS, stream("0\n1\n2\n")),
            parts=cell(CHUNKS, stream("0\n"), stream("1\n2\n")),
            wrong=cell(CHUNKS, stream("0\n1\n3\n")),
        ) == {"whole": "PASSED", "parts": "PASSED", "wrong": "FAILED"}


class TestB42:
    """Outputs are counted before volatile parts of them are replaced."""

    def test_b42_an_output_that_is_missing_is_noticed(self, tmp_path: Path) -> None:
        assert nbval(
            tmp_path,
            same=cell(TWO, shown("1"), stream("at 01:02:03\n")),
            fewer=cell(TWO, stream("at 01:02:03\n")),
        ) == {"same": "PASSED", "fewer": "FAILED"}
