"""What a cohort and a design cannot carry, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from sag_research.deadend._backtest_run import Judged
from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._splits import Fold

__all__ = ["length_cap", "notes_on"]

REPEATS = 5
CLUSTERS = 20
CAP_SHARE = 0.05


def length_cap(prefixes: Prefixes) -> tuple[int, int] | None:
    """Return the greatest number of steps and how many runs have it, if that looks like a cap.

    A cap is taken to be there when at least 1 run in 20, and at least 5, end at exactly the
    greatest length. What ends there has failed by decree, so that length predicts failure for a
    reason that is in the harness and not in the run.

    Examples
    --------
    >>> tokens = [["a"] * n for n in (3, 4, 9, 9, 9, 9, 9)]
    >>> length_cap(Prefixes.from_tokens(tokens, ["success"] * 2 + ["failure"] * 5))
    (9, 5)
    """
    longest = int(prefixes.n_steps.max(initial=0))
    count = int((prefixes.n_steps == longest).sum())
    shorter = len(prefixes) - count
    is_cap = shorter and count >= max(5, CAP_SHARE * len(prefixes))
    return (longest, count) if is_cap else None


def notes_on(
    prefixes: Prefixes, folds: Sequence[Fold], clusters: int, judged: Mapping[str, Judged]
) -> tuple[str, ...]:
    """Say what limits the numbers of a backtest."""
    return tuple(_notes(prefixes, folds, clusters, judged))


def _notes(
    prefixes: Prefixes, folds: Sequence[Fold], clusters: int, judged: Mapping[str, Judged]
) -> Iterator[str]:
    repeats = len({fold.repeat for fold in folds})
    if repeats < REPEATS:
        yield (
            f"{repeats} partition{'s' if repeats > 1 else ''} into folds: another would change "
            f"AUROC by some hundredths; give repeats={REPEATS} or more before claiming anything"
        )
    if clusters < CLUSTERS:
        yield f"{clusters} clusters to resample: intervals are too narrow"
    cap = length_cap(prefixes)
    if cap is not None:
        steps, count = cap
        failed = int(prefixes.failed[prefixes.n_steps == steps].sum())
        yield (
            f"{count} of {len(prefixes)} runs end at exactly {steps} steps ({failed} failed): that "
            "looks like a cap, so length tells the outcome"
        )
    silent = [
        name
        for name, one in judged.items()
        if one.thresholds and math.inf in [t.value for t in one.thresholds]
    ]
    if silent:
        worst = max(sum(t.value == math.inf for t in judged[name].thresholds) for name in silent)
        yield f"no alarm in up to {worst} of {len(folds)} folds for {', '.join(silent)}"
