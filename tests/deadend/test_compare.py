from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from sag_research.deadend import _metrics as m
from sag_research.deadend._compare import compare, pass_at_k
from sag_research.errors import NotEnoughDataError, UsageError
from tests.deadend.evaluation import cohort


def test_pass_at_k_is_the_mean_over_all_choices() -> None:
    for n in range(1, 7):
        for c in range(n + 1):
            attempts = [1] * c + [0] * (n - c)
            for k in range(1, n + 1):
                drawn = [any(some) for some in combinations(attempts, k)]
                assert pass_at_k(c, n, k) == pytest.approx(np.mean(drawn))
    assert math.isnan(pass_at_k(1, 2, 3))
    with pytest.raises(UsageError):
        pass_at_k(3, 2, 1)


def frame() -> pd.DataFrame:
    rows = []
    outcomes = {  # task: outcomes of model a, of model b
        "t1": ("ss", "sf"),
        "t2": ("sf", "ff"),
        "t3": ("ff", "f"),
        "t4": ("s", "u"),
        "t5": ("", "s"),
    }
    words = {"s": "success", "f": "failure", "u": "unknown"}
    for task, cells in outcomes.items():
        for model, cell in zip("ab", cells, strict=True):
            rows += [(task, model, words[letter]) for letter in cell]
    return pd.DataFrame(rows, columns=["task_id", "model", "outcome"])


def test_table_by_hand() -> None:
    found = compare(frame())
    a, b = (found.table_.set_index("model").loc[name] for name in "ab")
    assert (a["n"], a["n_tasks"], a["n_success"], a["n_failure"], a["n_unknown"]) == (7, 4, 4, 3, 0)
    assert (b["n"], b["n_tasks"], b["n_success"], b["n_failure"], b["n_unknown"]) == (7, 4, 2, 4, 1)
    assert a["rate"] == pytest.approx(4 / 7)
    assert (a["wilson_low"], a["wilson_high"]) == pytest.approx(m.wilson(4, 7))
    assert b["rate"] == pytest.approx(2 / 6)  # unknown is no failure
    # pass@2 over the tasks with two known runs: t1 1, t2 1, t3 0
    assert a["pass_2"] == pytest.approx(2 / 3)
    assert a["n_pass_2"] == 3
    assert a["pass_1"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert math.isnan(a["pass_4"])
    assert repr(found) == "Comparison(by 'model': 2 values, 14 runs, ≤ 4 tasks)"
    assert "0.571 [" in found._repr_html_()


def test_paired_difference_by_hand() -> None:
    # common tasks t1, t2, t3: 1 - .5, .5 - 0, 0 - 0
    row = compare(frame()).paired_.iloc[0]
    assert (row["one"], row["other"], row["n_tasks"]) == ("a", "b", 3)
    assert row["difference"] == pytest.approx(1 / 3)
    assert row["low"] <= 1 / 3 <= row["high"]
    assert row["p"] == row["p_holm"]


def test_a_common_task_cancels_difficulty() -> None:
    """A model that was given easy tasks is not better for that."""
    random = np.random.default_rng(0)
    rows = []
    for task in range(60):
        easy = task < 30
        for model, runs in (("lucky", 6 if easy else 2), ("other", 2 if easy else 6)):
            good = random.random(runs) < (0.9 if easy else 0.2)
            rows += [(f"t{task}", model, "success" if g else "failure") for g in good]
    found = compare(pd.DataFrame(rows, columns=["task_id", "model", "outcome"]))
    rate = found.table_.set_index("model")["rate"]
    assert rate["lucky"] - rate["other"] > 0.25
    row = found.paired_.iloc[0]
    assert row["low"] < 0 < row["high"]


def test_clustered_interval_is_wider_than_wilsons() -> None:
    rows = [(f"t{t}", "a", "success" if t % 2 else "failure") for t in range(20) for _ in range(8)]
    row = compare(pd.DataFrame(rows, columns=["task_id", "model", "outcome"])).table_.iloc[0]
    assert row["high"] - row["low"] > 2 * (row["wilson_high"] - row["wilson_low"])


def test_holm_over_all_pairs() -> None:
    p = cohort(model=["m1", "m2", "m3", "m4"] * 40)
    paired = compare(p).paired_
    assert len(paired) == 6
    assert paired["p_holm"].tolist() == pytest.approx(m.holm(paired["p"]).tolist())


def test_no_common_task_no_difference() -> None:
    rows = [("t1", "a", "success"), ("t2", "b", "failure")]
    row = compare(pd.DataFrame(rows, columns=["task_id", "model", "outcome"])).paired_.iloc[0]
    assert row["n_tasks"] == 0
    assert row[["difference", "low", "high", "p", "p_holm"]].isna().all()
    one = [("t1", "a", "success"), ("t1", "b", "failure")]
    row = compare(pd.DataFrame(one, columns=["task_id", "model", "outcome"])).paired_.iloc[0]
    assert row["difference"] == 1.0
    assert row[["low", "high", "p"]].isna().all()


def test_runs_without_a_task_are_not_of_one_task() -> None:
    rows = [
        (None, "a", "success"),
        (None, "b", "failure"),
        ("", "a", "success"),
        ("t", "a", "failure"),
    ]
    found = compare(pd.DataFrame(rows, columns=["task_id", "model", "outcome"]))
    assert found.table_.set_index("model")["n_tasks"].to_dict() == {"a": 3, "b": 1}
    assert found.paired_["n_tasks"][0] == 0


def test_refusals() -> None:
    with pytest.raises(UsageError, match="no column 'agent'"):
        compare(frame(), by="agent")
    with pytest.raises(NotEnoughDataError, match="none of 14 runs is known"):
        compare(frame().assign(outcome="unknown"))


def test_a_missing_value_is_a_value_of_its_own() -> None:
    runs = pd.DataFrame(
        {"task_id": ["a", "b"], "model": [None, "m"], "outcome": ["success", "failure"]}
    )
    assert compare(runs, by="model").table_["model"].tolist() == ["", "m"]
