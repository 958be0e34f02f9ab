from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sag_research.deadend import _splits as s
from sag_research.deadend._prefixes import Prefixes
from sag_research.errors import LeakError, MissingDataError, NotEnoughDataError, UsageError
from tests.deadend.evaluation import cohort


def test_groups_stay_whole_and_each_run_is_tested_once_a_repeat() -> None:
    p = cohort()
    folds = s.make_folds(p, folds=4, repeats=2, seed=3)
    assert len(folds) == 8
    groups = p.groups()
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        assert len(fold.train) + len(fold.test) == len(p)
        rate = p.failed[fold.test].mean()
        assert abs(rate - p.failed.mean()) < 0.1
    for repeat in (0, 1):
        tested = np.concatenate([f.test for f in folds if f.repeat == repeat])
        assert sorted(tested) == list(range(len(p)))
    first, second = (frozenset(f.test) for f in (folds[0], folds[4]))
    assert first != second


def test_many_groups_are_dealt_as_evenly_as_they_are_weighed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    tasks = [f"t{task}" for task in range(300) for _ in range(random.integers(1, 7))]
    outcomes = random.choice(["success", "failure"], len(tasks)).tolist()
    p = Prefixes.from_tokens([["a"]] * len(tasks), outcomes, tasks)
    monkeypatch.setattr("sag_research.deadend._splits.MANY_GROUPS", 100)
    folds = s.group_folds(p, folds=5, repeats=2, seed=4)
    assert len(folds) == 10
    for repeat in range(2):
        tested = np.concatenate([fold.test for fold in folds if fold.repeat == repeat])
        assert sorted(tested.tolist()) == list(range(len(p)))
    for fold in folds:
        groups = p.groups()
        assert not set(groups[fold.train]) & set(groups[fold.test])
        assert abs(len(fold.test) - len(p) / 5) <= 6
        assert abs(p.failed[fold.test].sum() - p.failed.sum() / 5) <= 4
    again = s.group_folds(p, folds=5, repeats=2, seed=4)
    assert all((a.test == b.test).all() for a, b in zip(folds, again, strict=True))
    assert not (folds[0].test[:20] == folds[5].test[:20]).all()


def test_the_same_seed_gives_the_same_folds() -> None:
    p = cohort()
    one, two = (s.make_folds(p, seed=5) for _ in range(2))
    assert all(np.array_equal(a.test, b.test) for a, b in zip(one, two, strict=True))
    other = s.make_folds(p, seed=6)
    assert any(not np.array_equal(a.test, b.test) for a, b in zip(one, other, strict=True))


def test_any_column_can_be_the_group() -> None:
    customer = [f"c{i % 10}" for i in range(160)]
    p = cohort(customer=customer)
    for fold in s.make_folds(p, group_by="customer", folds=5):
        names = p.runs["customer"]
        assert not set(names[fold.train]) & set(names[fold.test])
    with pytest.raises(UsageError, match="no column 'nobody'"):
        s.make_folds(p, group_by="nobody")


def test_leave_one_out_names_what_is_left_out() -> None:
    p = cohort(model=["m1", "m2"] * 80)
    folds = s.make_folds(p, "leave", "model")
    assert [f.name for f in folds] == ["model m1", "model m2"]
    assert (p.runs["model"].iloc[folds[0].test] == "m1").all()
    assert (p.runs["model"].iloc[folds[0].train] == "m2").all()


def test_too_few_groups_are_refused() -> None:
    with pytest.raises(NotEnoughDataError, match=r"the cohort has 3.*give folds=3"):
        s.make_folds(cohort(tasks=3))
    with pytest.raises(NotEnoughDataError, match="collect runs of more tasks"):
        s.make_folds(cohort(tasks=1, runs=12), folds=2)
    with pytest.raises(UsageError, match="1 folds"):
        s.make_folds(cohort(), folds=1)


def test_one_outcome_is_refused() -> None:
    p = Prefixes.from_tokens([["a"] * 3] * 4, ["success"] * 4)
    with pytest.raises(NotEnoughDataError, match="both are needed"):
        s.make_folds(p, folds=2)


def test_random_split_is_refused_unless_asked_for() -> None:
    p = cohort()
    with pytest.raises(LeakError, match="allow_leak=True"):
        s.make_folds(p, "random")
    folds = s.make_folds(p, "random", allow_leak=True)
    groups = p.groups()
    assert any(set(groups[f.train]) & set(groups[f.test]) for f in folds)
    with pytest.raises(UsageError, match="no split 'sideways'"):
        s.make_folds(p, "sideways")


def test_time_goes_forward() -> None:
    days = [f"2026-01-{1 + i % 28:02d}T00:00:00Z" for i in range(40)]
    p = cohort(tasks=40, runs=1, started_at=days)
    started = s._started(p)
    folds = s.make_folds(p, "time", folds=3)
    assert len(folds) == 3
    for fold in folds:
        assert started[fold.train].max() < started[fold.test].min()
    tested = np.concatenate([f.test for f in folds])
    assert len(set(tested)) == len(tested)


def test_time_leaves_out_the_past_of_tested_tasks() -> None:
    days = [f"2026-01-{1 + i:02d}T00:00:00Z" for i in range(8)]
    tasks = ["a", "b", "a", "b", "c", "d", "e", "f"]
    p = Prefixes.from_tokens([["x"] * 3] * 8, ["success", "failure"] * 4, tasks, started_at=days)
    fold = s.make_folds(p, "time", folds=2)[0]
    assert not set(p.runs["task_id"][fold.train]) & set(p.runs["task_id"][fold.test])


def test_time_needs_timestamps() -> None:
    with pytest.raises(MissingDataError, match="160 of 160 runs have no started_at"):
        s.make_folds(cohort(), "time")
    p = cohort(tasks=4, runs=1, started_at=["2026-01-01"] * 4, signal=0.0)
    with pytest.raises(NotEnoughDataError, match="1 different start times"):
        s.time_folds(p, 2)


def texts(words: list[str]) -> pa.Table:
    return pa.table({"thought": words, "action": words, "observation": words})


def test_copies_in_other_tasks_are_found_by_their_text() -> None:
    tokens, outcomes = [["a", "b"]] * 3, ["success", "failure", "success"]
    same = Prefixes.from_tokens(tokens, outcomes, columns=texts(["u", "v", "u", "v", "u", "w"]))
    with pytest.warns(s.LeakWarning, match="2 of 3 runs are word for word in another task_id"):
        assert s.warn_of_copies(same) == 2
    # the same steps of one task are no leak of a split by task
    one = Prefixes.from_tokens(tokens, outcomes, ["t", "t", "t"], same.table.columns)
    assert s.warn_of_copies(one) == 0
    # text moved across a border between steps is another text
    moved = Prefixes.from_tokens(tokens[:2], outcomes[:2], columns=texts(["u", "v", "uv", ""]))
    assert s.warn_of_copies(moved) == 0


def test_copies_without_text_must_be_too_long_for_chance() -> None:
    p = cohort(tasks=30, runs=1)
    assert s.warn_of_copies(p) == 0
    short = Prefixes.from_tokens([["a", "b"]] * 6, ["success", "failure"] * 3)
    assert s.warn_of_copies(short) == 0
    names = [[p.table.names[t] for t in run] for run in p.sequences()]
    longest = max(names, key=len)
    again = Prefixes.from_tokens(
        [*names, longest], [*p.runs["outcome"], "failure"], [*p.runs["task_id"], "copy"]
    )
    with pytest.warns(s.LeakWarning, match="2 of 31"):
        assert s.warn_of_copies(again) == 2
