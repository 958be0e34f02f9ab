"""Every figure once, from invented numbers; as a script it saves them all into a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sag_research import viz

NAMES = ("look|src|ok", "edit|src|ok", "test|test|test-fail", "test|test|test-pass",
         "look|$x_1^2$|ok")  # fmt: skip


def runs(n: int = 200) -> tuple[list[Any], Any]:
    """Token sequences and outcomes, some of them unknown."""
    rng = np.random.default_rng(4)
    failed = (rng.random(n) < 0.5).astype(float)
    weight = {0.0: [4, 2, 1, 2, 1], 1.0: [4, 2, 3, 0, 1]}
    sequences = [rng.choice(5, rng.integers(2, 12), p=np.array(weight[bad]) / 10) for bad in failed]
    failed[:7] = np.nan
    return sequences, failed


STEP, X = np.arange(1, 13), np.linspace(0.05, 0.95, 8)


def risk() -> Any:
    values = np.sqrt(STEP) / 4
    return viz.plot_risk(values, low=values - 0.1, high=values + 0.1, threshold=0.7, alarm=9,
                         fork=3, step_set=(4, 5), title="a_1$b_2$ <x>")  # fmt: skip


def auroc() -> Any:
    table = pd.DataFrame({"step": STEP, "auroc": 0.5 + STEP / 100, "n": 900 - 70 * STEP})
    table["low"], table["high"] = table["auroc"] - 0.05, table["auroc"] + 0.05
    both = [table.assign(model="stack"), table.assign(model="hazard")]
    return viz.plot_auroc_by_step(pd.concat(both))


def leakage() -> Any:
    table = {"model": ["stack", "hazard"], "random": [0.7, 0.6], "group": [0.62, 0.49]}
    return viz.plot_leakage(pd.DataFrame(table))


def cost() -> Any:
    return viz.plot_cost_saved({"stack": (X / 3, X / 4)}, random=0.4, alpha=0.05,
                               points={"stack": (0.04, 0.06)})  # fmt: skip


FIGURES: dict[str, Callable[[], Any]] = {
    "sankey": lambda: viz.plot_prefix_sankey(*runs(), NAMES, depth=4),
    "lift": lambda: viz.plot_lift(*runs(), NAMES, steps=10),
    "risk": risk,
    "auroc": auroc,
    "reliability": lambda: viz.plot_reliability(X, X**1.1, STEP[:8], X - 0.1, X + 0.1, ece=0.02),
    "leakage": leakage,
    "incidence": lambda: viz.plot_incidence(STEP, STEP / 24, STEP / 30, alive=900 - 70 * STEP),
    "cost": cost,
    "decision": lambda: viz.plot_decision_curve(X, {"stack": 0.5 - X / 2}, 0.5, p_star=0.4),
}


if __name__ == "__main__":
    import matplotlib as mpl

    mpl.use("Agg")
    for name, draw in FIGURES.items():
        ax = draw()
        for suffix in ("pdf", "svg", "png"):
            viz.save_figure(ax, Path(sys.argv[1]) / f"{name}.{suffix}")
