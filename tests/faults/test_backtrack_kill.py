"""A process that is killed in the middle of going back: carried on, it goes the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

KILLS = 8


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What became of runs that were killed at points of every kind."""
    command = [sys.executable, "-m", "tests.faults.backtracks", str(KILLS), "5"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    cases: dict[str, Any] = json.loads(done.stdout)
    return cases


def test_the_undisturbed_runs_are_what_they_should_be(found: dict[str, Any]) -> None:
    for case in ("plain", "recorded"):
        whole = found[case]["whole"]
        assert len(whole["places"]) == 3
        assert whole["runs"] == ["r", "r~back1", "r~back2", "r~back3"]
    assert found["exhausted"]["whole"]["places"]
    assert sum(map(len, _own_steps(found["exhausted"]["whole"]))) == 10
    assert found["abort"]["whole"]["own"][-2:] == ["deadend.predicted", "run.abandoned"]


def _own_steps(whole: dict[str, Any]) -> list[list[Any]]:
    kept = [0, *(0 if step is None else step + 1 for step, _, _ in whole["places"])]
    return [steps[n:] for steps, n in zip(whole["steps"], kept, strict=True)]


def test_every_process_died_and_was_carried_on(found: dict[str, Any]) -> None:
    points = Counter()
    for case in found.values():
        for one in case["killed"]:
            assert (one["killed"], one["again"]) == (-9, 0)
            assert one["verified"]
            points[one["point"].split(" ")[0]] += one["middle"]
    # before and after each kind of write, and inside the fork's transaction
    assert {"append_many<", "append_many>", "append<", "append>", "fork<", "fork>"} <= set(points)
    assert sum(points.values()) > 2 * KILLS


def test_the_lineage_is_that_of_the_undisturbed_run(found: dict[str, Any]) -> None:
    for case in found.values():
        for one in case["killed"]:
            for what in ("runs", "places", "steps", "said"):
                assert one[what] == case["whole"][what], (one["point"], what)


def test_nothing_is_written_twice(found: dict[str, Any]) -> None:
    for case in found.values():
        for one in case["killed"]:
            assert one["own"] == case["whole"]["own"], one["point"]


def test_digests_are_equal_where_no_turn_was_cut_in_two(found: dict[str, Any]) -> None:
    """An ask that was made stays in the log, and is made again: it was paid for twice."""
    equal = Counter()
    for name, case in found.items():
        for one in case["killed"]:
            same = one["digests"] == case["whole"]["digests"]
            assert same or name == "recorded", one["point"]
            equal[name] += same
    assert 0 < equal["recorded"] < len(found["recorded"]["killed"])
