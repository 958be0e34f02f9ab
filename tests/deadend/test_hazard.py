from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import beta
from sklearn.base import clone

from sag_research.deadend._hazard import HazardRisk, shrunk_interval
from sag_research.deadend._prefixes import Looks, Prefixes
from sag_research.deadend._step import SeenStep
from sag_research.errors import NotEnoughDataError, UsageError


def cohort(lengths: list[int], outcomes: str, **more: list[str]) -> Prefixes:
    words = {"f": "failure", "s": "success", "u": "unknown"}
    return Prefixes.from_tokens(
        [["a"] * n for n in lengths], [words[letter] for letter in outcomes], **more
    )


def test_hazard_by_hand() -> None:
    # steps left after 1: runs 0-3; after 2: runs 1-3; after 3: run 3 alone
    p = cohort([2, 3, 3, 4], "ssff")
    risk = HazardRisk(strength=2.0).fit(p)
    expected = [(2 + 1) / (4 + 2), (2 + 1) / (3 + 2), (1 + 1) / (1 + 2)]
    table = risk.table_
    assert table["n"].tolist() == [4, 3, 1]
    assert table["failed"].tolist() == [2, 2, 1]
    assert table["risk"].tolist() == pytest.approx(expected)
    # past the longest run there is nothing but the base rate
    long = cohort([99], "u")
    looks = Looks(np.array([0, 0, 0, 0, 0]), np.array([1, 2, 3, 4, 99]))
    assert risk.predict(long, looks).tolist() == pytest.approx([*expected, 0.5, 0.5])


def test_unknown_runs_and_looks_after_the_outcome_do_not_count() -> None:
    p = cohort([4, 4, 4], "sfu", known_at_step=[2, None, None])
    table = HazardRisk().fit(p).table_
    assert table["n"].tolist() == [2, 2, 1]
    assert table["failed"].tolist() == [1, 1, 1]


def test_one_outcome_alone_is_refused() -> None:
    with pytest.raises(NotEnoughDataError, match="both are needed"):
        HazardRisk().fit(cohort([3, 3], "ff"))


def test_interval_is_the_beta_distribution_s() -> None:
    low, high = shrunk_interval([0, 3, 7], [0, 3, 20], [0.4, 0.4, 0.2], 10.0)
    a, b = np.array([4, 7, 9]), np.array([6, 6, 21])
    assert low == pytest.approx(beta.ppf(0.025, a, b))
    assert high == pytest.approx(beta.ppf(0.975, a, b))


def test_groups_by_hand() -> None:
    lengths = [3] * 8
    model = ["m"] * 4 + ["w"] * 4
    repo = ["r", "r", "q", "q"] * 2
    p = cohort(lengths, "fffsfsss", model=model, repo=repo)
    k = 2.0
    risk = HazardRisk(strength=k, groups=("repo", "model")).fit(p)
    base = {"": 4 / 8, "m": (3 + k * 0.5) / (4 + k)}
    base["r/m"] = (2 + k * base["m"]) / (2 + k)
    at_2 = {"": (4 + k * base[""]) / (8 + k)}
    prior = expit(logit(at_2[""]) + logit(base["m"]) - logit(base[""]))
    at_2["m"] = (3 + k * prior) / (4 + k)
    prior = expit(logit(at_2["m"]) + logit(base["r/m"]) - logit(base["m"]))
    at_2["r/m"] = (2 + k * prior) / (2 + k)
    assert risk.predict(p, Looks(np.array([0]), np.array([2])))[0] == pytest.approx(at_2["r/m"])
    # a new repository of model m takes what the model says, a new model what all runs say
    q = cohort([3, 3], "uu", model=["m", "z"], repo=["new", "r"])
    after_2 = risk.predict(q, Looks(np.array([0, 1]), np.array([2, 2])))
    assert after_2.tolist() == pytest.approx([at_2["m"], at_2[""]])


def test_groups_that_are_missing() -> None:
    p = cohort([3, 3], "fs")
    with pytest.raises(UsageError, match="no column 'task_family'"):
        HazardRisk(groups=("task_family",)).fit(p)
    p.runs["task_family"] = ["x", "y"]
    risk = HazardRisk(groups=("task_family",)).fit(p)
    plain = cohort([3], "u")
    assert risk.predict(plain).tolist() == [0.5] * 3


def test_a_stream_gives_what_predict_gives() -> None:
    p = cohort([2, 5, 9, 4], "sffs", model=["m", "m", "w", "w"])
    risk = HazardRisk(groups=("model",)).fit(p)
    for index, model in enumerate(["m", "m", "w", "w"]):
        stream = risk.begin(model=model)
        one = p.take([index])
        assert [stream.observe(SeenStep("a")) for _ in range(one.n_steps[0])] == (
            risk.predict(one).tolist()
        )
    assert risk.begin().observe(SeenStep("a")) == risk.risk_[0, 1]


def test_saved_state_restores_the_numbers() -> None:
    p = cohort([2, 5, 9, 4], "sffs", model=["m", "m", "w", "w"])
    risk = HazardRisk(groups=("model",)).fit(p)
    again = clone(risk)
    again.fitted_runs_ = risk.fitted_runs_
    again._restore(*risk._state())
    assert again.predict(p).tolist() == risk.predict(p).tolist()
    assert again.table_.equals(risk.table_)


def test_plot_takes_and_returns_axes() -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert HazardRisk().fit(cohort([2, 5, 9, 4], "sffs")).plot(ax) is ax
    assert len(ax.lines[0].get_xdata()) == 8
