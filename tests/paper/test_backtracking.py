"""The backtracking table: from a result file, or from a small experiment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sag_research import open as open_workspace
from sag_research.errors import MissingDataError
from sag_research.paper import Cohort, StudyError
from sag_research.paper._backtracking import backtracking

RESULT = Path(__file__).resolve().parents[2] / "benchmarks/results/backtracking.json"


def cohort(folder: Path, seed: int = 0) -> Cohort:
    with open_workspace(":memory:") as ws:
        return Cohort(ws, {}, seed=seed, folder=folder)


def test_from_a_result_file(tmp_path: Path) -> None:
    shutil.copy(RESULT, tmp_path / "b.json")
    table = backtracking(cohort(tmp_path), file="b.json")
    assert {"world", "policy", "monitor", "arm", "n", "rate", "gain"} <= set(table)
    assert (table["n"] > 0).all()
    assert table[table["arm"] == "continue"]["gain"].isna().all()
    assert table[table["arm"] == "fork"]["gain"].notna().all()


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{}", encoding="utf-8")
    (tmp_path / "c.json").write_text("{", encoding="utf-8")
    for name, error in (
        ("no.json", MissingDataError),
        ("b.json", StudyError),
        ("c.json", StudyError),
    ):
        with pytest.raises(error):
            backtracking(cohort(tmp_path), file=name)
    with pytest.raises(StudyError, match="no arm"):
        backtracking(cohort(tmp_path), arms=["pray"])


def test_arms_are_played_on_the_same_units(tmp_path: Path) -> None:
    asked = {"tasks": 2, "attempts": 2, "arms": ["fork"]}
    table = backtracking(cohort(tmp_path), **asked)
    assert table["arm"].tolist() == ["continue", "fork"]
    assert table["n"].tolist() == [4, 4]
    assert table["n_tasks"].tolist() == [2, 2]
    alone, fork = table["rate"].tolist()
    assert table["gain"].iloc[1] == pytest.approx(fork - alone)
    assert table["backtracks"].iloc[0] == 0
    assert table.equals(backtracking(cohort(tmp_path), **asked))
