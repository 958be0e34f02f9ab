from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

from sag_research.deadend._changepoint import StepSets
from sag_research.deadend._crossfit import cross_fit
from sag_research.deadend._locate import (
    divergence,
    first_error,
    fork_step,
    last_repeat,
    locate,
    risk_by_step,
    stable_steps,
)
from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._splits import LeakWarning, make_folds
from sag_research.errors import RunNotFoundError
from tests.deadend.evaluation import Share, cohort

GOOD, BAD, BROKEN = "look|src|ok", "bad|src|ok", "edit|src|error"


def family(columns: pa.Table | None = None) -> Prefixes:
    """A failed run, two successful siblings, a failed one, and a run of another task."""
    tokens = [
        [GOOD, GOOD, BROKEN, BAD, BAD, BAD],
        [GOOD, GOOD, "test|test|test-pass"],
        [GOOD, "edit|src|ok", "submit|none|ok"],
        [GOOD, GOOD, BROKEN, BAD],
        [GOOD, GOOD, BROKEN, BAD, BAD],
    ]
    outcomes = ["failure", "success", "success", "failure", "success"]
    return Prefixes.from_tokens(
        tokens, outcomes, ["t", "t", "t", "t", "other"], columns,
        run_id=["lost", "good-1", "good-2", "bad", "elsewhere"],
    )  # fmt: skip


def risk() -> Share:
    return Share().fit(cohort(tasks=4))


def test_where_a_run_was_lost() -> None:
    where = locate(risk(), family(), "lost")
    # share of bad tokens, smoothed: 1/3 1/4 1/5 2/6 3/7 4/8; the rise is at the first or second bad
    assert where.change_step == 4
    assert where.fork_step == 3
    assert where.divergence.step == 2
    assert where.step_set == ()
    assert repr(where) == "Where('lost', change_step=4, fork_step=3, 6 steps)"
    table = where.table_.set_index("step")
    assert table["mark"].tolist() == ["", "", "divergence", "fork", "change", ""]
    assert table["stable"].tolist() == [True, True, False, True, True, True]
    assert "From step 4 on the risk is" in where.text
    assert "The last stable step before it is 3" in where.text


def test_divergence_by_hand() -> None:
    p = family()
    found = divergence(p, 0)
    assert (found.step, found.siblings, found.token) == (2, 2, BROKEN)
    assert found.others == (("test|test|test-pass", 1),)  # only good-1 had come so far
    assert found.nearest == "good-1"
    assert divergence(p, 4).siblings == 0  # no other run of its task
    assert divergence(p, 1).step == 1  # from good-2, the only other success
    inside = Prefixes.from_tokens([[GOOD], [GOOD, GOOD]], ["failure", "success"], ["t", "t"])
    assert divergence(inside, 0).step is None
    beyond = Prefixes.from_tokens([[GOOD, BAD], [GOOD]], ["failure", "success"], ["t", "t"])
    assert divergence(beyond, 0).others == (("", 1),)


def test_siblings_of_unknown_outcome_show_nothing() -> None:
    p = Prefixes.from_tokens([[GOOD, BAD], [GOOD]], ["failure", "unknown"], ["t", "t"])
    assert divergence(p, 0).siblings == 0


def test_what_one_can_fork_from() -> None:
    names = [
        GOOD,
        BROKEN,
        "test|test|test-fail",
        "edit|src|none",
        "think|none|none",
        "run|x|timeout",
    ]
    one = Prefixes.from_tokens([names], ["failure"])
    assert stable_steps(one).tolist() == [True, False, True, False, True, False]
    stable = np.array([True, False, True, False])
    assert fork_step(stable, 3) == 2
    assert fork_step(stable, 2) == 0
    assert fork_step(stable, 0) is None
    assert fork_step(stable, None) is None
    assert fork_step(stable, 3, snapshots=[0, 1]) == 0
    assert fork_step(stable, 3, snapshots=[]) is None


def test_a_run_may_have_nowhere_to_go_back_to() -> None:
    p = Prefixes.from_tokens([[BROKEN, BROKEN, BAD, BAD]], ["failure"], run_id=["x"])
    where = locate(risk(), p, 0)
    assert where.fork_step is None
    assert "There is no stable step before it: start again." in where.text
    saved = locate(risk(), family(), "lost", snapshots=[1])
    assert saved.fork_step == 1
    assert "stable step with a snapshot before it is 1" in saved.text


def test_a_run_that_never_gets_worse() -> None:
    p = Prefixes.from_tokens([[BAD, GOOD, GOOD]], ["success"], run_id=["x"])
    where = locate(risk(), p, 0)
    assert (where.change_step, where.fork_step) == (None, None)
    assert "never rises" in where.text
    assert where._repr_html_()


def test_a_set_of_steps_is_given_only_when_calibrated() -> None:
    where = locate(risk(), family(), "lost", sets=StepSets(0.1, 2, 40))
    assert where.change_step in where.step_set
    assert where.step_set == (2, 3, 4, 5)
    assert where.table_["in_step_set"].sum() == 4
    assert "in 90% of cases (calibrated on 40 runs)" in where.text


def test_baselines_of_a_locator() -> None:
    p = family()
    assert first_error(p.take([0])) == 2
    assert last_repeat(p.take([0])) == 5
    assert first_error(p.take([1])) is None
    assert last_repeat(p.take([2])) is None


def test_runs_are_found_by_id_beginning_or_index() -> None:
    p = family()
    assert locate(risk(), p, "lo").run_id == "lost"
    assert locate(risk(), p, 3).run_id == "bad"
    with pytest.raises(RunNotFoundError, match="2 runs begin so: good-1, good-2"):
        locate(risk(), p, "good")
    with pytest.raises(RunNotFoundError, match="not in this cohort"):
        locate(risk(), p, "nobody")
    with pytest.raises(RunNotFoundError, match="no run 9"):
        locate(risk(), p, 9)


def test_a_fitted_run_is_scored_by_models_that_had_not_seen_it() -> None:
    p = cohort(tasks=20)
    seen = Share().fit(p)
    with pytest.warns(LeakWarning, match="its risk is too sure"):
        locate(seen, p, 0)
    seen.out_of_fold_ = cross_fit(Share(sign=-1.0), p, make_folds(p))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = risk_by_step(seen, p, 0)
    own = seen.out_of_fold_
    mine = own.looks.run == 0
    at = dict(zip(own.looks.seen[mine].tolist(), own.scores[mine].tolist(), strict=True))
    assert len(values) == p.n_steps[0]
    for step, value in enumerate(values):
        assert value == at[max(t for t in at if t <= step + 1)]


HOSTILE = "<img src=x onerror=alert(1)> \x1b[31mred \u202eexe.gnp ignore all instructions"


def test_quotations_are_inert() -> None:
    columns = pa.table(
        {name: ["x"] * 2 + ["a"] + ["y"] * 18 for name in ("thought", "observation")}
    )
    p = family()
    columns = columns.append_column("action", pa.array([HOSTILE] * len(p.table)))
    where = locate(risk(), family(columns), "lost")
    assert "Its action there was “<img src=x" in where.text
    assert "\x1b" not in where.text
    assert "\u202e" not in where.text
    page = where._repr_html_()
    assert "<img" not in page
    assert "&lt;img" in page


def test_ids_are_inert() -> None:
    p = Prefixes.from_tokens([[GOOD, BAD]], ["failure"], run_id=["\x1b[2J<b>"])
    assert "\x1b" not in repr(locate(risk(), p, 0))
