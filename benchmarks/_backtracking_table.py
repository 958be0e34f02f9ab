"""What ``backtracking.py`` counts: rates, paired differences, and whether acting pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from sag_research.deadend import wilson

Row = dict[str, Any]
RESAMPLES = 2000
SEED = 7


def rate(good: int, n: int) -> dict[str, float | int | None]:
    """Give a share with its Wilson interval at 95 %."""
    if not n:
        return {"n": 0, "rate": None, "low": None, "high": None}
    low, high = wilson(good, n)
    return {"n": n, "rate": round(good / n, 3)} | _bounds(float(low), float(high))


def arm_row(rows: Sequence[Row], arm: str) -> Row:
    """Describe one arm: success, and what it took."""
    own = [row for row in rows if row["arm"] == arm]
    found = rate(sum(row["success"] for row in own), len(own))
    return {"arm": arm, **found} | {
        name: _mean(row[name] for row in own) for name in ("steps", "tokens", "cost", "backtracks")
    }


def paired(rows: Sequence[Row], arm: str, other: str, of: str = "success") -> Row:
    """Give the mean difference of two arms over the same tasks and seeds; tasks are resampled."""
    value = {(r["task"], r["seed"], r["arm"]): r[of] for r in rows}
    gains: dict[str, list[float]] = {}
    for task, seed in sorted({(task, seed) for task, seed, _ in value}):
        mine, theirs = value[task, seed, arm], value[task, seed, other]
        if mine is not None and theirs is not None:
            gains.setdefault(task, []).append(float(mine) - float(theirs))
    whole = [gain for gain in gains.values() if gain]
    if not whole:
        return {"n": 0, "difference": None, "low": None, "high": None}
    low, high = _resampled(whole, lambda chosen: float(np.mean(np.concatenate(chosen))))
    mean = float(np.mean(np.concatenate([np.array(gain) for gain in whole])))
    n = sum(map(len, whole))
    return {"n": n, "difference": round(mean, 3)} | _bounds(low, high)


def pays(rows: Sequence[Row], arm: str) -> Row:
    """Tell what acting on an alarm did to runs that would have failed, and to those that would not.

    Of the units whose alarm was raised: precision is the share that fails when nothing is done,
    ``r`` the share of those that the arm rescues, ``d`` the share of the others that it damages.
    Acting pays where precision is above ``p* = d / (r + d)``.
    """
    alone = {(r["task"], r["seed"]): r for r in rows if r["arm"] == "continue" and r["alarm"]}
    acted = {(r["task"], r["seed"]): r for r in rows if r["arm"] == arm}
    units = [(key[0], not alone[key]["success"], acted[key]["success"]) for key in sorted(alone)]
    lost = [unit for unit in units if unit[1]]
    fine = [unit for unit in units if not unit[1]]
    by_task: dict[str, list[tuple[str, bool, bool]]] = {}
    for unit in units:
        by_task.setdefault(unit[0], []).append(unit)
    found: Row = {
        "arm": arm,
        "precision": rate(len(lost), len(units)),
        "r": rate(sum(unit[2] for unit in lost), len(lost)),
        "d": rate(sum(not unit[2] for unit in fine), len(fine)),
        "p_star": {"value": _p_star(units), "low": None, "high": None},
    }
    if found["p_star"]["value"] is not None:
        low, high = _resampled(list(by_task.values()), _p_star_of)
        found["p_star"] |= _bounds(low, high)
    return found


def _p_star_of(chosen: list[Any]) -> float:
    value = _p_star([unit for units in chosen for unit in units])
    return float("nan") if value is None else value


def _p_star(units: Sequence[tuple[str, bool, bool]]) -> float | None:
    lost = [won for _, fails, won in units if fails]
    fine = [won for _, fails, won in units if not fails]
    if not lost or not fine:
        return None
    r, d = sum(lost) / len(lost), sum(not won for won in fine) / len(fine)
    return None if r + d == 0 else round(d / (r + d), 3)


def _resampled(groups: Sequence[Any], of: Callable[[list[Any]], float]) -> tuple[float, float]:
    rng = np.random.default_rng(SEED)
    n = len(groups)
    values = [of([groups[i] for i in rng.integers(0, n, n)]) for _ in range(RESAMPLES)]
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def _bounds(low: float, high: float) -> dict[str, float]:
    return {"low": round(low, 3), "high": round(high, 3)}


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    if not known or any(value is None for value in known):
        return None  # what is unknown in one is unknown in the mean
    return round(float(np.mean([value for value in known if value is not None])), 2)
