"""Figures and reports of a backtest: drawn from its own numbers, honest about leaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sag_research import viz
from sag_research.deadend import Backtest, OutOfFold, Prefixes, backtest
from sag_research.deadend import Looks as LooksAt
from sag_research.errors import UsageError
from sag_research.viz._figures_backtest import cost_curve

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


def cohort(n_tasks: int = 24, runs: int = 5, seed: int = 3) -> Prefixes:
    """Runs in which a failing test late in the run goes with failure."""
    rng = np.random.default_rng(seed)
    tokens, outcomes, tasks = [], [], []
    for task in range(n_tasks):
        for _ in range(runs):
            bad = rng.random() < 0.5
            odds = [0.5, 0.2, 0.3] if bad else [0.6, 0.3, 0.1]
            names = ["look|src|ok", "edit|src|ok", "test|test|test-fail"]
            tokens.append([str(name) for name in rng.choice(names, rng.integers(6, 20), p=odds)])
            outcomes.append("failure" if bad else "success")
            tasks.append(f"t{task}")
    return Prefixes.from_tokens(tokens, outcomes, tasks)


@pytest.fixture(scope="module")
def tested() -> Backtest:
    return backtest(cohort(), ["backoff", "hazard"], folds=3, baselines=(), draws=50)


def label(ax: Any, name: str) -> Any:
    return next(line for line in ax.get_lines() if line.get_label() == name)


def test_auroc_by_step_is_the_table(tested: Backtest) -> None:
    ax = viz.plot_backtest(tested, "auroc")
    table = tested.table_.set_index("model")
    line = label(ax, "backoff")
    assert line.get_xdata().tolist() == [5, 10]
    assert line.get_ydata().tolist() == table.loc["backoff", ["auroc_5", "auroc_10"]].tolist()
    drawn = {text.get_text() for text in ax.texts}
    assert f"{int(table.loc['backoff', 'n_10']):,}" in drawn


def test_cost_of_the_alarm_is_the_table(tested: Backtest) -> None:
    ax = viz.plot_backtest(tested, "cost", ["backoff"])
    row = tested.table_.set_index("model").loc["backoff"]
    points = [line.get_xydata().tolist() for line in ax.get_lines() if len(line.get_xdata()) == 1]
    assert points == [[[row["false_aborts"], row["steps_saved"]]]]


@pytest.mark.parametrize("what", viz.BACKTEST_FIGURES)
def test_every_figure_is_drawn_and_saved(tested: Backtest, what: str, tmp_path: Path) -> None:
    ax = viz.plot_backtest(tested, what)
    assert viz.save_figure(ax, tmp_path / "f.png").stat().st_size > 5_000
    assert ax.get_title() in {"", "backoff"}


def test_a_leak_is_stamped_on_the_figure() -> None:
    leaky = backtest(cohort(), ["hazard"], folds=3, split="random", allow_leak=True,
                     baselines=(), draws=20)  # fmt: skip
    for what in viz.BACKTEST_FIGURES:
        assert "LEAK" in viz.plot_backtest(leaky, what).get_title()


def test_wrong_names_are_refused(tested: Backtest) -> None:
    with pytest.raises(UsageError, match="one of auroc"):
        viz.plot_backtest(tested, "roc")
    with pytest.raises(UsageError, match="one of backoff, hazard"):
        viz.plot_backtest(tested, "cost", ["stack"])


def test_cost_curve_by_hand() -> None:
    prefixes = Prefixes.from_tokens(
        [["a"] * 10] * 4, ["success", "success", "failure", "failure"], ["s", "t", "u", "v"]
    )
    # two folds on different scales; in each, one success and one failure
    run, seen = np.repeat([0, 1, 2, 3], 2), np.tile([2, 4], 4)
    scores = np.array([0.1, 0.2, 80.0, 90.0, 0.3, 0.9, 60.0, 95.0])
    fold = np.repeat([0, 1, 0, 1], 2)
    oof = OutOfFold(prefixes, LooksAt(run, seen), scores, fold, np.zeros(8, np.int64))
    false_aborts, saved = cost_curve(oof, levels=2, most=1.0)
    # no success stopped: run 2 after 2 steps (.3 > .2), run 3 after 4 (95 > 90): 8 + 6 of 40
    # all may be stopped: every run after 2 steps
    assert false_aborts.tolist() == [0.0, 1.0]
    assert saved == pytest.approx([14 / 40, 32 / 40])


def test_report_says_the_same_in_lines_json_and_html(tmp_path: Path) -> None:
    report = viz.deadend_report(cohort(), ["backoff"], baselines=("hazard",), folds=3)
    lines = report.lines()
    assert lines[0].startswith("120 runs of 24 tasks with a known outcome")
    best = report.rows_.iloc[0]
    assert any(f"AUROC {best['auroc']:.2f} [" in line for line in lines)
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert {row["model"] for row in values["models"]} == {"backoff", "hazard"}
    page = report.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"{best['auroc']:.2f} [" in page
    assert page.count("<img ") >= 4
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_report_is_the_same_twice() -> None:
    first, again = (viz.deadend_report(cohort(), ["hazard"], baselines=(), folds=3) for _ in "ab")
    assert first.html() == again.html()
    assert first.lines() == again.lines()


def test_a_model_at_chance_is_called_so() -> None:
    rng = np.random.default_rng(0)
    tokens = [["look|src|ok"] * int(n) for n in rng.integers(6, 12, 90)]
    outcomes = [str(x) for x in rng.choice(["success", "failure"], 90)]
    blind = Prefixes.from_tokens(tokens, outcomes, [f"t{i // 3}" for i in range(90)])
    report = viz.deadend_report(blind, ["majority"], baselines=(), folds=3)
    assert "majority is not shown to be above chance" in " ".join(report.lines())
    assert "not shown to be above chance" in report.html()
    telling = viz.deadend_report(cohort(), ["backoff"], baselines=(), folds=3)
    assert "above chance" not in " ".join(telling.lines())
