"""What is quoted was measured, and BENCHMARKS.md is what the result files say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["check_numbers", "benchmarks_page"])
def test_the_checks_pass(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / f"{name}.py"), "--check"],
        check=False, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_every_benchmark_with_a_result_has_its_rows() -> None:
    told = script("benchmarks_page").page()
    # these have tables of their own: RESEARCH.md, docs/corpus.md; or back a sentence alone
    elsewhere = {"backtracking", "changed_files", "extraction_quality", "growth"}
    results = {file.stem for file in (ROOT / "benchmarks" / "results").glob("*.json")}
    for name in results - elsewhere:
        if not name.endswith("-quick"):
            assert f"## {name}\n" in told


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The checker over a folder of our own."""
    checker = script("check_numbers")
    results = tmp_path / "results"
    results.mkdir()
    (results / "speed.json").write_text(json.dumps({"a": [0.1234, True], "b": {"c": 2345.6}}))
    for name, path in (("ROOT", tmp_path), ("RESULTS", results), ("QUOTED", tmp_path / "q.toml")):
        monkeypatch.setattr(checker, name, path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "RESEARCH.md").write_text("")
    return checker


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("`benchmarks/speed.py`: .12 and 0.123, 12.3 %, 2,345.6, 2.35 thousand", 0),
        ("`benchmarks/speed.py`: .13", 1),
        ("`benchmarks/speed.py`: 1.0", 1),  # true is no number
        ("`benchmarks/other.py`: .12", 1),
        ("no benchmark is named: .12", 1),
        ("no number: 12 runs, 3.11.2, `0.77`, [a](0.77), v1.2", 0),
        ("# A\n`benchmarks/speed.py`\n## B\n.12", 0),
        ("# A\n`benchmarks/speed.py`\n# B\n.12", 1),
        ("# A\n.55", 0),
    ],
)
def test_what_is_quoted(
    study: ModuleType, capsys: pytest.CaptureFixture[str], text: str, problems: int
) -> None:
    (study.ROOT / "README.md").write_text(text, encoding="utf-8")
    study.QUOTED.write_text('["README.md"."A"]\nnumbers = [".55"]\nsource = "a setting"\n')
    assert study.main() == problems
    assert bool(capsys.readouterr().out) == bool(problems)


def test_every_exception_is_used() -> None:
    checker = script("check_numbers")
    import tomllib

    allowed = tomllib.loads(checker.QUOTED.read_text(encoding="utf-8"))
    found = {
        (one.where, one.section, one.number) for p in checker.texts() for one in checker.quotes(p)
    }
    for where, sections in allowed.items():
        for section, told in sections.items():
            assert told["source"]
            for number in told["numbers"]:
                assert (where, section, number) in found
