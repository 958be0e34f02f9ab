from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from sag_research.deadend._backoff import BackoffRisk
from sag_research.deadend._hazard import HazardRisk, shrunk_interval
from sag_research.deadend._prefixes import Looks, Prefixes
from sag_research.deadend._step import SeenStep

FEWER = settings(max_examples=50)  # an example takes tens of milliseconds
RUNS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), min_size=1, max_size=8)


def cohort(runs: list[list[str]]) -> Prefixes:
    runs = [list("abz"), list("caz"), *runs]
    return Prefixes.from_tokens(runs, [("failure", "success")[i % 2] for i in range(len(runs))])


def by_hand(train: Prefixes, prefix: list[str], orders: int, kappa: float, min_runs: int) -> float:
    """Write the formula out, with sets of runs."""
    names = np.array(train.table.names)
    runs = [names[codes].tolist() for codes in train.sequences()]
    common = {t for t in names.tolist() if sum(t in run for run in runs) >= min_runs}
    short = [[t if t in common else "RARE" for t in run] for run in [*runs, prefix]]
    prefix = short.pop()
    looks = Looks(np.array([0]), np.array([len(prefix)]))
    risk = HazardRisk().fit(train).predict(Prefixes.from_tokens([prefix], ["unknown"]), looks)[0]
    for k in range(1, min(orders, len(prefix)) + 1):
        shows = [
            any(run[end - k : end] == prefix[-k:] for end in range(k, len(run))) for run in short
        ]
        n, failed = sum(shows), sum(bad for s, bad in zip(shows, train.failed, strict=True) if s)
        risk = (failed + kappa * risk) / (n + kappa)
    return float(risk)


@FEWER
@given(RUNS, st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), st.integers(1, 3))
def test_the_formula_written_out(runs: list[list[str]], prefix: list[str], min_runs: int) -> None:
    train = cohort(runs)
    model = BackoffRisk(orders=3, kappa=2.0, min_runs=min_runs).fit(train)
    one = Prefixes.from_tokens([prefix], ["unknown"])
    scores = model.predict(one)
    for seen in range(1, len(prefix) + 1):
        expected = by_hand(train, prefix[:seen], 3, 2.0, min_runs)
        assert scores[seen - 1] == pytest.approx(expected, abs=1e-12)


@FEWER
@given(RUNS, RUNS)
def test_a_stream_gives_what_predict_gives(runs: list[list[str]], others: list[list[str]]) -> None:
    model = BackoffRisk(orders=3, min_runs=2).fit(cohort(runs))
    new = Prefixes.from_tokens([[*run, "new"] for run in others], ["unknown"] * len(others))
    streamed = []
    for run in others:
        stream = model.begin()
        streamed += [stream.observe(SeenStep(token)) for token in [*run, "new"]]
    assert streamed == model.predict(new).tolist()


def test_order_matters() -> None:
    runs = [list("abz")] * 10 + [list("baz")] * 10
    p = Prefixes.from_tokens(runs, ["failure"] * 10 + ["success"] * 10)
    model = BackoffRisk(kappa=1.0).fit(p)
    after_two = model.predict(p, p.looks([2]))
    assert after_two[0] > 0.8
    assert after_two[-1] < 0.2


def test_a_loop_counts_as_one_run_and_unknown_runs_not_at_all() -> None:
    runs = [["a"] * 40, *[list("az")] * 3, *[["a"] * 9] * 5]
    p = Prefixes.from_tokens(runs, ["failure"] + ["success"] * 3 + ["unknown"] * 5)
    model = BackoffRisk(orders=1, min_runs=1).fit(p)
    [row] = model.table_.query("context == 'a'").to_dict("records")
    assert (row["n"], row["failed"]) == (4, 1)


def test_the_last_step_and_decided_looks_are_not_counted() -> None:
    runs = [["a", "b", "submit"], ["a", "b", "submit"]]
    p = Prefixes.from_tokens(runs, ["failure", "success"], known_at_step=[1, None])
    model = BackoffRisk(orders=1, min_runs=1).fit(p)
    table = model.table_.set_index("context")
    assert table["n"].to_dict() == {"a": 2, "b": 1}


def test_explanation_names_the_context_that_decided() -> None:
    runs = [list("xabz")] * 30 + [list("yabz")] * 30 + [list("cz")] * 10
    p = Prefixes.from_tokens(runs, ["failure"] * 30 + ["success"] * 40)
    model = BackoffRisk().fit(p)
    looks = Looks(np.array([0, 60, 60]), np.array([3, 1, 9]))
    strange = Prefixes.from_tokens([list("xab"), list("q")], ["unknown"] * 2)
    told = model.explain(strange, Looks(np.array([0, 1]), np.array([3, 1])))
    first, second = told.to_dict("records")
    # the last three steps weigh 30/50, the last two 60/80 of the remaining 20/50
    assert (first["context"], first["order"]) == ("x → a → b", 3)
    assert (first["n"], first["failed"]) == (30, 30)
    assert first["weight"] == pytest.approx(0.6)
    below = BackoffRisk(orders=2).fit(p).predict(strange)[2]
    low, high = shrunk_interval(30, 30, below, 20.0)
    assert (first["low"], first["high"]) == (pytest.approx(low), pytest.approx(high))
    assert first["risk"] == model.predict(strange)[2]
    # a token that no run shows: what decides is how many went on after one step
    assert (second["context"], second["order"], second["weight"]) == ("", 0, 1.0)
    assert (second["n"], second["failed"]) == (70, 30)
    assert len(model.explain(p, looks)) == 3


def test_weights_of_an_explanation_add_up() -> None:
    p = cohort([list("abcabc"), list("abcz"), list("bcaz")])
    model = BackoffRisk(orders=3, kappa=2.0, min_runs=1).fit(p)
    looks = p.every_step()
    found = model._find(p, looks)
    hazard = model.hazard_.predict(p, looks)
    ladder = model._ladder(found, hazard, model.hazard_.support(p, looks))
    assert ladder["weight"].sum(axis=0) == pytest.approx(1.0)
    rate = np.divide(
        ladder["failed"], ladder["n"], where=ladder["n"] > 0, out=hazard + 0 * ladder["n"]
    )
    rate[0] = hazard
    assert (ladder["weight"] * rate).sum(axis=0) == pytest.approx(model.predict(p, looks))


def test_saved_state_restores_the_numbers() -> None:
    p = cohort([list("abcabc"), list("abcz"), list("bcaz")])
    model = BackoffRisk(orders=3, min_runs=1).fit(p)
    again = clone(model)
    again.base_rate_, again.fitted_runs_ = model.base_rate_, model.fitted_runs_
    again._restore(*model._state())
    assert again.predict(p).tolist() == model.predict(p).tolist()
    assert again.table_.equals(model.table_)
    assert again.begin().observe(SeenStep("a")) == model.predict(p)[0]


def test_plot_takes_and_returns_axes() -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    model = BackoffRisk(min_runs=1).fit(cohort([list("abcabc")]))
    assert model.plot(ax, top=5) is ax
    assert len(ax.get_yticklabels()) == 5
