"""Behaviour features: numbers worked by hand, and the same numbers step by step."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from sag_research.deadend import Prefixes
from sag_research.deadend import _behaviour as module
from sag_research.deadend._behaviour import BehaviourStream, behaviour, behaviour_names
from sag_research.deadend._step import SeenStep
from tests.deadend.features import cohort, of_texts, seen_steps

NAMES = behaviour_names()


def features(prefixes: Prefixes) -> dict[str, list[float]]:
    """Feature name to its value after each step of the first run."""
    rows = behaviour(prefixes, prefixes.take([0]).every_step())
    return {name: rows[:, i].astype(float).tolist() for i, name in enumerate(NAMES)}


def test_names_are_unique_and_about_a_hundred() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert 90 <= len(NAMES) <= 160


def test_numbers_worked_by_hand() -> None:
    run = of_texts(
        ["cat src/a.py", "sed -i s/x/y/ src/a.py", "pytest tests/test_a.py", "cat src/a.py"],
        ["look|src|ok", "edit|src|ok", "test|test|test-fail", "look|src|ok"],
        thought=["maybe", "", "fixed, it works", ""],
        observation=["one\ntwo", "", "1 failed", "one\ntwo"],
    )
    f = features(run)
    assert f["number of steps"] == [1, 2, 3, 4]
    assert f["share of verb look"] == pytest.approx([1, 1 / 2, 1 / 3, 2 / 4])
    assert f["share of object test"] == pytest.approx([0, 0, 1 / 3, 1 / 4])
    assert f["share of result test-fail"] == pytest.approx([0, 0, 1 / 3, 1 / 4])
    assert f["share of errors"] == pytest.approx([0, 0, 1 / 3, 1 / 4])
    assert f["steps since edits"] == [1, 0, 1, 2]  # none yet: the steps seen
    assert f["steps since fails"] == [1, 2, 0, 1]
    assert f["steps since fine"] == [0, 0, 1, 0]
    assert f["tests per edits"] == pytest.approx([0, 0, 1, 1])
    assert f["last observation"] == pytest.approx(np.log1p([7, 0, 8, 7]).tolist())
    assert f["thought so far"] == pytest.approx(np.log1p([5, 5, 20, 20]).tolist())
    assert f["lines per step"] == pytest.approx(np.log1p([2, 1, 1, 5 / 4]).tolist())
    assert f["share of hedging words"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert f["share of success words"] == pytest.approx([0, 0, 2 / 3, 2 / 4])
    assert f["share of repeats"] == pytest.approx([0, 0, 0, 1 / 4])
    assert f["share of new token"] == pytest.approx([1, 1, 1, 3 / 4])
    # two tokens once, one twice: log 4 - (2 log 2) / 4
    assert f["entropy of tokens"][3] == pytest.approx(math.log(4) - math.log(2) / 2)


def test_files_worked_by_hand() -> None:
    run = of_texts(
        ["cat src/a.py tests/test_a.py", "touch repro.py", "sed -i s/x/y/ src/a.py"],
        ["look|src|ok", "create|repro|ok", "edit|src|ok"],
    )
    f = features(run)
    # sed's own s/x/y/ looks like a path as well: 2, 3, 5 mentions of 2, 3, 4 paths
    assert f["number of new path"] == [2, 3, 4]
    assert f["share of paths"] == pytest.approx([2, 3 / 2, 5 / 3])
    assert f["share of test paths"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert f["own tests per paths"] == pytest.approx([1 / 2, 2 / 3, 2 / 5])  # test_a.py, repro.py
    assert f["edits per edited paths"] == pytest.approx([0, 1, 1])
    assert f["steps since new path"] == [0, 0, 0]


def test_shares_of_the_last_five_steps() -> None:
    tokens = ["edit|src|ok"] * 3 + ["look|src|ok"] * 5
    f = features(Prefixes.from_tokens([tokens], ["unknown"]))
    assert f["recent share of verb edit"] == pytest.approx([1, 1, 1, 3 / 4, 3 / 5, 2 / 5, 1 / 5, 0])
    assert f["share of verb edit"][-1] == pytest.approx(3 / 8)


def test_an_exit_code_is_an_error_and_none_is_not() -> None:
    columns = pa.table({"exit_code": pa.array([None, 0, 2], pa.int64())})
    run = Prefixes.from_tokens([["run|src|ok"] * 3], ["unknown"], columns=columns)
    assert features(run)["number of errors"] == [0, 0, 1]


def test_steps_without_text_have_the_features_of_their_tokens() -> None:
    bare, empty = cohort(text=False, seed=3), cohort(seed=3)
    names = ("thought", "action", "observation")
    columns = pa.table({name: [""] * len(empty.table) for name in names})
    tokens = [[bare.table.names[c] for c in run] for run in bare.sequences()]
    filled = Prefixes.from_tokens(tokens, bare.runs["outcome"].tolist(), columns=columns)
    looks = bare.every_step()
    rows = behaviour(bare, looks)
    assert np.array_equal(rows, behaviour(filled, looks))
    assert rows.std(axis=0).astype(bool).sum() > 40  # and there is something in them


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_gives_the_same_numbers(seed: int) -> None:
    prefixes = cohort(tasks=6, seed=seed, text=seed != 2, longest=25)
    for run in range(len(prefixes)):
        stream = BehaviourStream()
        live = np.vstack([stream.observe(step) for step in seen_steps(prefixes, run)])
        alone = prefixes.take([run])
        assert np.array_equal(live, behaviour(alone, alone.every_step()))


def test_a_feature_does_not_know_the_future() -> None:
    whole = cohort(tasks=1, runs=1, seed=1, longest=40)
    cut = Prefixes(whole.runs, whole.start, whole.start + 4, whole.table)
    first = whole.every_step()
    four = [np.asarray(column)[:4] for column in first]
    fresh = cohort(tasks=1, runs=1, seed=1, longest=40)
    assert np.array_equal(behaviour(cut, type(first)(*four)), behaviour(fresh, type(first)(*four)))


def test_a_part_of_a_cohort_has_the_same_features_in_any_order_of_asking() -> None:
    first, second = cohort(seed=5), cohort(seed=5)
    late = second.take([20, 3])
    asked_late = behaviour(late, late.every_step())
    everything = behaviour(first, first.every_step())
    chosen = first.take([20, 3])
    rows = np.isin(np.arange(len(first.table)), chosen.rows(chosen.every_step()))
    assert np.array_equal(np.sort(asked_late, axis=0), np.sort(everything[rows], axis=0))
    assert np.array_equal(behaviour(second, second.every_step()), everything)


def test_hostile_text_is_only_counted() -> None:
    text = "\ud800 <script>alert(1)</script> \x1b[31m ../../etc/passwd " + "a/" * 5000
    step = SeenStep("look|src|ok", text, text, text, 1.0)
    assert np.isfinite(BehaviourStream().observe(step)).all()


def test_the_version_is_a_digest_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    before = module.behaviour_version()
    monkeypatch.setattr(module, "_TEXT", module._TEXT + "# another\n")
    assert module.behaviour_version() != before
