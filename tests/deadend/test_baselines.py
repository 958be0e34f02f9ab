"""Baselines, by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sag_research.deadend import Prefixes, StepTable
from sag_research.deadend._baselines import (
    CapRisk,
    CharactersRisk,
    EntityRuleRisk,
    MajorityRisk,
    PriorRisk,
    RepeatRisk,
)
from sag_research.errors import MissingDataError
from tests.deadend.features import cohort, of_texts, seen_steps


def runs_of(lengths: list[int], outcomes: str) -> Prefixes:
    """Runs of so many steps; F failed, S succeeded, U unknown."""
    words = {"F": "failure", "S": "success", "U": "unknown"}
    return Prefixes.from_tokens([["a"] * n for n in lengths], [words[c] for c in outcomes])


def test_majority_is_the_share_of_failures_among_known_runs() -> None:
    p = runs_of([2, 2, 2, 2, 2], "FSSSU")
    risk = MajorityRisk().fit(p)
    assert set(risk.predict(p)) == {0.25}
    assert risk.table_.to_dict("list") == {"n": [4], "risk": [0.25]}


def test_cap_is_the_75th_percentile_of_training_lengths() -> None:
    p = runs_of([2, 4, 6, 8, 10], "FSFSF")
    risk = CapRisk().fit(p)
    assert risk.cap_ == 8.0
    long = runs_of([12], "U")
    assert risk.predict(long)[[0, 1, 3, 7, 9]].tolist() == [0, 0.2, 0.4, 0.8, 1.0]
    assert np.flatnonzero(risk.native_alarm(long, long.every_step()))[0] == 7  # after step 8
    assert not risk.calibrated


def test_repeat_counts_the_most_frequent_exact_action() -> None:
    p = of_texts(["ls", "cat a", "ls", "cat a ", "ls", "x"], ["look|src|ok"] * 6)
    fitted = RepeatRisk().fit(runs_of([2, 2], "FS"))
    assert fitted.predict(p).tolist() == [1, 1, 2, 2, 3, 3]
    assert fitted.native_alarm(p, p.every_step()).tolist() == [False] * 4 + [True] * 2
    stream = fitted.begin()
    assert [stream.observe(step) for step in seen_steps(p, 0)] == [1, 1, 2, 2, 3, 3]


def test_repeat_takes_tokens_where_there_is_no_text() -> None:
    p = Prefixes.from_tokens([["a", "b", "a"]], ["unknown"])
    assert RepeatRisk().fit(runs_of([2, 2], "FS")).predict(p).tolist() == [1, 1, 2]


def test_characters_learns_the_sign() -> None:
    def said(chars: list[int], outcomes: list[str]) -> Prefixes:
        blank = [""] * (2 * len(chars))
        texts = ["x" * n for n in chars for _ in range(2)]
        columns = pa.table({"thought": texts, "action": blank, "observation": blank})
        return Prefixes.from_tokens([["a", "a"]] * len(chars), outcomes, columns=columns)

    chars = [10, 20, 30, 1000, 2000, 3000]
    for outcome, other in (("failure", "success"), ("success", "failure")):
        p = said(chars, [outcome] * 3 + [other] * 3)
        risk = CharactersRisk().fit(p)
        first = risk.predict(p, p.looks())
        assert (np.diff(first) < 0).all() == (outcome == "failure")
        assert first.mean() == pytest.approx(0.5, abs=0.02)


def test_characters_needs_texts() -> None:
    with pytest.raises(MissingDataError):
        CharactersRisk().fit(cohort(text=False))


def test_prior_shrinks_each_group_to_the_wider_one() -> None:
    p = Prefixes.from_tokens(
        [["a", "b"]] * 8, ["failure"] * 3 + ["success"] + ["failure"] + ["success"] * 3,
        model=["m1"] * 4 + ["m2"] * 4, repo=["r1", "r1", "r2", "r2"] * 2,
    )  # fmt: skip
    risk = PriorRisk(by=("model", "repo"), strength=4.0).fit(p)
    base = 4 / 8
    m1 = (3 + 4 * base) / (4 + 4)
    m1r1 = (2 + 4 * m1) / (2 + 4)
    assert risk.rates_[("m1",)] == (4, 3, m1)
    assert risk.predict(p)[0] == pytest.approx(m1r1)
    new = Prefixes.from_tokens(
        [["a", "b"]] * 2, ["unknown"] * 2, model=["m1", "m9"], repo=["r7"] * 2
    )
    assert risk.predict(new, new.looks()).tolist() == [m1, base]
    assert risk.table_["group"].tolist()[0] == "all"


def named(runs: list[list[list[str]]], outcomes: str, kind: str = "past") -> Prefixes:
    """Runs whose steps name these entities."""
    p = runs_of([len(run) for run in runs], outcomes)
    steps = [step for run in runs for step in run]
    names = sorted({name for step in steps for name in step})
    ids = np.array([names.index(n) for step in steps for n in step], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, steps)])
    table = StepTable(p.table.tokens, p.table.names, entities=(offsets, ids, names))
    frame = p.runs.assign(run_id=kind + p.runs["run_id"])
    return Prefixes(frame, p.start, p.stop, table)


def test_entity_rule_is_the_failure_rate_of_runs_that_share_two_names() -> None:
    past = named(
        [
            [["git"], ["a", "b"]],  # failed
            [["git", "a"], ["c"]],  # failed
            [["git"], ["a"], ["d"]],  # succeeded
            [["git"], ["z"]],  # succeeded
        ],
        "FFSS",
    )
    risk = EntityRuleRisk().fit(past)
    new = named([[["git"], ["a"], ["b"], ["unheard", "of"]]], "U", "new")
    n, bad = risk.matches(new, new.every_step())
    assert n.tolist() == [0, 3, 3, 3]  # one name is not enough; then all that name git and a
    assert bad.tolist() == [0, 2, 2, 2]
    # nothing matches: the base rate, and no alarm
    assert risk.predict(new).tolist() == pytest.approx([0.5, 2 / 3, 2 / 3, 2 / 3])
    assert not risk.native_alarm(new, new.every_step()).any()
    low = EntityRuleRisk(threshold=0.6).fit(past)
    assert low.native_alarm(new, new.every_step()).tolist() == [False, True, True, True]


def test_entity_rule_reads_the_whole_past_run_and_not_its_last_look_only() -> None:
    past = named([[["x"], ["x"], ["a", "b"]], [["q"], ["q"]]], "FS")
    new = named([[["a", "b"], ["a"]]], "U", "new")
    assert EntityRuleRisk().fit(past).matches(new, new.every_step())[0].tolist() == [1, 1]


def test_entity_rule_never_matches_a_run_with_itself() -> None:
    past = named([[["a", "b"], ["a"]], [["a", "b"], ["b"]]], "FS")
    n, bad = EntityRuleRisk().fit(past).matches(past, past.looks())
    assert n.tolist() == [1, 1]
    assert bad.tolist() == [0, 1]  # each sees the other one


def test_entity_rule_needs_entities() -> None:
    with pytest.raises(MissingDataError, match="entities=True"):
        EntityRuleRisk().fit(cohort())


def test_entities_of_a_part_of_a_table() -> None:
    whole = named([[["z", "y"], ["q"]], [["a", "b"], ["c"]], [["a"], ["b"]]], "SFS")
    part = whole.take([2])
    risk = EntityRuleRisk().fit(whole.take([0, 1]))
    assert risk.matches(part, part.every_step())[0].tolist() == [0, 1]


def test_names_in_texts_stand_in_where_no_step_mentions_an_entity() -> None:
    def said(actions: list[str], outcome: str, run: str) -> Prefixes:
        p = of_texts(actions, ["call|none|ok"] * len(actions))
        none = (np.zeros(len(actions) + 1, np.int64), np.empty(0, np.int32), ())
        table = StepTable(p.table.tokens, p.table.names, p.table.columns, none)
        return Prefixes(p.runs.assign(run_id=run, outcome=outcome), p.start, p.stop, table)

    past = said(
        ["get user_id Smith", "book Boston x", "find Denver", "see nothing"], "failure", "p"
    )
    bad = past.runs.assign(run_id="f")
    good = past.runs.assign(run_id="s", outcome="success")
    import pandas as pd

    both = Prefixes(
        pd.concat([bad, good], ignore_index=True), np.array([0, 2]), np.array([2, 4]), past.table
    )
    risk = EntityRuleRisk().fit(both)
    assert set(risk.names_) == {"user_id", "Smith", "Boston", "Denver"}
    new = said(["user_id Smith", "ok"], "unknown", "new")
    assert [x.tolist() for x in risk.matches(new, new.every_step())] == [[1, 1], [1, 1]]
