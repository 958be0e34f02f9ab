from __future__ import annotations

from collections import Counter
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.base import clone

from sag_research.deadend._markov import MarkovRisk
from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._step import SeenStep

FEWER = settings(max_examples=40)  # an example takes tens of milliseconds
RUNS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), min_size=1, max_size=8)


def cohort(runs: list[list[str]]) -> Prefixes:
    runs = [list("abz"), list("caz"), *runs]
    return Prefixes.from_tokens(runs, [("failure", "success")[i % 2] for i in range(len(runs))])


class ByHand:
    """One class's Markov model: dictionaries of distinct runs."""

    def __init__(self, runs: list[list[str]], orders: int, kappa: float, size: int) -> None:
        self.orders, self.kappa, self.size = orders, kappa, size
        self.counts: Counter[tuple[str, ...]] = Counter()
        for run in runs:
            seen = set()
            for at in range(len(run) - 1):
                history = ["^", *run[:at]]
                for k in range(min(orders, len(history)) + 1):
                    seen.add((*history[len(history) - k :], run[at]))
            self.counts.update(seen)

    def rate(self, prefix: list[str]) -> float:
        history, token = ["^", *prefix[:-1]], prefix[-1]
        rate = 1.0 / self.size
        for k in range(min(self.orders, len(history)) + 1):
            context = tuple(history[len(history) - k :])
            total = sum(n for gram, n in self.counts.items() if gram[:-1] == context)
            rate = (self.counts[(*context, token)] + self.kappa * rate) / (total + self.kappa)
        return rate


@FEWER
@given(RUNS, st.lists(st.sampled_from("abc"), min_size=1, max_size=8))
def test_the_log_ratio_written_out(runs: list[list[str]], prefix: list[str]) -> None:
    train = cohort(runs)
    model = MarkovRisk(orders=2, kappa=1.5, min_runs=1, folds=0).fit(train)
    names = np.array(train.table.names)
    texts = [names[codes].tolist() for codes in train.sequences()]
    size = len(model.alphabet_)
    classes = [
        ByHand([t for t, y in zip(texts, train.failed, strict=True) if y == bad], 2, 1.5, size)
        for bad in (1, 0)
    ]
    steps = [
        log(classes[0].rate(prefix[:seen]) / classes[1].rate(prefix[:seen]))
        for seen in range(1, len(prefix) + 1)
        if set(prefix[:seen]) <= set(model.alphabet_.names)
    ]
    one = Prefixes.from_tokens([prefix], ["unknown"])
    found = model.log_ratio(one, one.every_step())[: len(steps)]
    assert found == pytest.approx(np.cumsum(steps), abs=1e-10)


@FEWER
@given(RUNS, RUNS)
def test_a_stream_gives_what_predict_gives(runs: list[list[str]], others: list[list[str]]) -> None:
    model = MarkovRisk(orders=2, min_runs=2).fit(cohort(runs))
    new = Prefixes.from_tokens([[*run, "new"] for run in others], ["unknown"] * len(others))
    streamed, ratios = [], []
    for run in others:
        stream, raw = model.begin(), model.begin()
        streamed += [stream.observe(SeenStep(token)) for token in [*run, "new"]]
        ratios += [raw.push(SeenStep(token)) for token in [*run, "new"]]
    assert streamed == model.predict(new).tolist()
    assert ratios == model.log_ratio(new, new.every_step()).tolist()


def test_some_looks_alone_give_the_same() -> None:
    p = cohort([list("abcabcab"), list("cbcz"), list("aaaa")])
    model = MarkovRisk(min_runs=1).fit(p)
    everywhere = p.every_step()
    all_of_them = dict(
        zip(zip(*map(np.ndarray.tolist, everywhere), strict=True), model.predict(p), strict=True)
    )
    some = p.looks([3, 7])
    for key, risk in zip(
        zip(*map(np.ndarray.tolist, some), strict=True), model.predict(p, some), strict=True
    ):
        assert all_of_them[key] == risk


def test_the_ratio_is_clipped() -> None:
    runs = [list("ab" * 60)] * 20 + [list("cd" * 60)] * 20
    p = Prefixes.from_tokens(runs, ["failure"] * 20 + ["success"] * 20)
    model = MarkovRisk(clip=15.0).fit(p)
    ratio = model.log_ratio(p, p.looks([60]))
    assert ratio[0] == 15.0
    assert ratio[-1] == -15.0


def test_probabilities_without_folds_start_at_the_base_rate() -> None:
    p = cohort([list("aaz"), list("bbz"), list("ccz"), list("abz")])
    model = MarkovRisk(min_runs=1, folds=0).fit(p)
    looks = p.every_step()
    base = p.failed.mean()
    expected = expit(model.log_ratio(p, looks) + np.log(base / (1 - base)))
    assert model.predict(p) == pytest.approx(expected)


def test_probabilities_are_scaled_on_tasks_left_out() -> None:
    # within a task the outcome is written in the tokens, but each task has tokens of its own: the
    # ratio separates runs of tasks seen, and says nothing of others
    runs, outcomes, tasks = [], [], []
    for task in range(30):
        for _ in range(6):
            runs += [[f"good{task}"] * 6, [f"bad{task}"] * 6]
            outcomes += ["success", "failure"]
            tasks += [f"t{task}"] * 2
    p = Prefixes.from_tokens(runs, outcomes, tasks=tasks)
    model = MarkovRisk().fit(p)
    ratio = model.log_ratio(p, p.looks([5]))
    assert ratio[1] - ratio[0] > 1.0
    assert model.predict(p).std() < 0.02
    shared = Prefixes.from_tokens([["good"] * 6, ["bad"] * 6] * 180, ["success", "failure"] * 180,
                                  tasks=[f"t{n % 30}" for n in range(360)])  # fmt: skip
    scaled = MarkovRisk().fit(shared).predict(shared, shared.looks([5]))
    assert scaled[0] < 0.05
    assert scaled[1] > 0.95


def test_one_task_alone_is_scaled_by_runs() -> None:
    runs = [list("ab" * 5)] * 20 + [list("cd" * 5)] * 20
    p = Prefixes.from_tokens(runs, ["failure"] * 20 + ["success"] * 20, tasks=["t"] * 40)
    risk = MarkovRisk().fit(p).predict(p, p.looks([5]))
    assert risk[0] > 0.9
    assert risk[-1] < 0.1


def test_fit_does_not_depend_on_what_other_runs_share_the_table() -> None:
    p = cohort([list("abcabcab"), list("cbcz"), list("aaaa"), list("bbbb")])
    part = p.take([0, 1, 2, 3])
    names = np.array(p.table.names)
    alone = Prefixes.from_tokens(
        [names[codes].tolist() for codes in part.sequences()], list(part.runs["outcome"])
    )
    one, other = MarkovRisk(min_runs=1).fit(part), MarkovRisk(min_runs=1).fit(alone)
    assert one.predict(part).tolist() == other.predict(alone).tolist()


def test_saved_state_restores_the_numbers() -> None:
    p = cohort([list("abcabc"), list("abcz"), list("bcaz")])
    model = MarkovRisk(min_runs=1).fit(p)
    again = clone(model)
    again.fitted_runs_ = model.fitted_runs_
    again._restore(*model._state())
    assert again.predict(p).tolist() == model.predict(p).tolist()
    assert again.table_.equals(model.table_)


def test_runs_of_two_steps_only() -> None:
    p = Prefixes.from_tokens([["a", "z"], ["b", "z"]] * 5, ["failure", "success"] * 5)
    model = MarkovRisk(orders=3, min_runs=1).fit(p)
    assert np.isfinite(model.predict(p)).all()


def test_plot_takes_and_returns_axes() -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    model = MarkovRisk(min_runs=1).fit(cohort([list("abcabc")]))
    assert model.plot(ax, top=1) is ax
    assert len(ax.patches) == 2
