"""The evaluation protocol of PrefixGuard, on any labelled runs.

From the paper's description and its published evaluation code:

* every prefix of every run is an example, after 1, 2, … all of its steps, and all weigh alike;
* an example is positive if the run fails *and* at most ``horizon`` steps (3) are left;
* whole tasks go into fit, calibration or test; the split is repeated with several seeds;
* scores are judged by the area under the precision-recall curve over all test prefixes, and
  AUROC beside it;
* the alert threshold is the one with the best F1 on calibration prefixes; the first prefix of a
  run that reaches it is its first alert, and its position is a share of the run's length (1 where
  there is none).

Ours: the split fills exact shares of tasks in the order of their hashes, because small sets would
otherwise have empty parts; prefixes that already tell the outcome are left out; intervals resample
tasks; alerts under a budget of false alarms stand beside those at the best F1; and the scorers.
PrefixGuard's own (fields induced by a language model, learned events, recurrent or automaton
heads) are not rebuilt: typed steps are this package's tokens, heads are logistic regressions and
a table of states. So the numbers are those of the protocol, not of PrefixGuard's monitors. Its
observability ceiling is not computed.

References
----------
X. Huang, J. Hu, R. Roy, C. Wu, Y. Dong, X. Huang, "PrefixGuard: From LLM-Agent Traces to Online
Failure-Warning Monitors", arXiv 2605.06455.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research.errors import NotEnoughDataError
from sag_research.paper._prefixguard_heads import HEADS, Features
from sag_research.paper._spec import StudyError
from sag_research.paper._study import Cohort

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend import Prefixes

__all__ = ["prefixguard", "prefixguard_alerts", "prefixguard_curve"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Chosen = NDArray[np.bool_]

HORIZON: Final = 3
SHARES: Final = (0.6, 0.2)
"""Of the tasks: to fit, to calibrate; the rest is the test."""
DRAWS: Final = 200
DASHES: Final = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1)))


class Split(NamedTuple):
    """One split, and what one head says on it."""

    score: Floats
    """Of every example, the fitted ones included; shape (n_examples,)."""
    calibration: Chosen
    test: Chosen


class Protocol(NamedTuple):
    """All examples, and each head's scores under each split."""

    run: Ints
    seen: Ints
    positive: Chosen
    failed: Chosen
    """Of each run, shape (n_runs,)."""
    n_steps: Ints
    task: Ints
    scores: dict[str, list[Split]]


def run_protocol(cohort: Cohort, heads: Sequence[str], horizon: int, splits: int) -> Protocol:
    """Make the examples, split them, and score them with each head; once for the same question."""
    asked = ("prefixguard", tuple(heads), horizon, splits)
    return cohort.once(asked, lambda: _run(cohort, heads, horizon, splits))


def _run(cohort: Cohort, heads: Sequence[str], horizon: int, splits: int) -> Protocol:
    if strange := [name for name in heads if name not in HEADS]:
        raise StudyError(f"no head {strange[0]!r}", fix=f"some of {', '.join(HEADS)}")
    prefixes = cohort.prefixes(entities=False).labelled
    tasks = prefixes.groups()
    if len(np.unique(tasks)) < 3:
        raise NotEnoughDataError(
            "the protocol cannot be followed",
            why=f"{len(np.unique(tasks))} tasks do not fill three parts",
        )
    run, seen = _examples(prefixes)
    failed = prefixes.failed == 1
    positive = failed[run] & (prefixes.n_steps[run] - seen <= horizon)
    features = Features(prefixes, run, seen)
    scores: dict[str, list[Split]] = {name: [] for name in heads}
    for number in range(splits):
        part = _parts(prefixes, cohort.seed + number)[run]
        for name in heads:
            score = HEADS[name](features, positive, part == 0)
            scores[name].append(Split(score, part == 1, part == 2))
    return Protocol(run, seen, positive, failed, prefixes.n_steps, tasks, scores)


def _examples(prefixes: Prefixes) -> tuple[Ints, Ints]:
    """List every prefix, the whole run included, up to where the outcome stands in the run."""
    known = prefixes.runs["known_at_step"].to_numpy(dtype=np.float64, na_value=np.inf)
    last = np.minimum(prefixes.n_steps, known).astype(np.int64)
    run = np.repeat(np.arange(len(prefixes), dtype=np.int64), last)
    first = np.repeat(np.cumsum(last) - last, last)
    return run, np.arange(len(run), dtype=np.int64) - first + 1


def _parts(prefixes: Prefixes, seed: int) -> Ints:
    """Give each run 0 (fit), 1 (calibrate) or 2 (test), whole tasks together."""
    names = prefixes.runs["task_id"].astype(str)
    order = sorted(set(names), key=lambda task: sha256(f"{seed}:{task}".encode()).digest())
    fit = max(1, min(len(order) - 2, round(SHARES[0] * len(order))))
    calibrate = max(1, min(len(order) - fit - 1, round(SHARES[1] * len(order))))
    part = {task: (place >= fit) + (place >= fit + calibrate) for place, task in enumerate(order)}
    return np.array([int(part[task]) for task in names], np.int64)


def prefixguard(
    cohort: Cohort, heads: Sequence[str] = tuple(HEADS), horizon: int = HORIZON, splits: int = 3
) -> pd.DataFrame:
    """Ranking of prefixes: AUPRC and AUROC over all test prefixes, mean over splits.

    ``n`` counts test prefixes over all splits, ``n_runs`` test runs. ``auprc_sd`` is over splits;
    the interval resamples tasks. The AUPRC of chance is the ``prevalence``.
    """
    import pandas as pd

    found = run_protocol(cohort, heads, horizon, splits)
    rows = []
    for name, parts in found.scores.items():
        tests = [part.test for part in parts]
        values = np.array([_auprc(found, part) for part in parts])
        low, high = _interval(
            partial(_mean_auprc, found, parts),
            found.task, cohort.seed,
        )  # fmt: skip
        rows.append({
            "head": name, "n": int(sum(test.sum() for test in tests)),
            "n_runs": int(sum(len(np.unique(found.run[test])) for test in tests)),
            "n_splits": splits,
            "prevalence": float(np.mean([found.positive[test].mean() for test in tests])),
            "auprc": _mean(values), "auprc_low": low, "auprc_high": high,
            "auprc_sd": float(values.std(ddof=1)) if splits > 1 else math.nan,
            "auroc": float(np.mean([_auroc(found, part) for part in parts])),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _mean(values: Iterable[float]) -> float:
    """Return the mean of those that are known: a resample may hold no positive test prefix."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _mean_auprc(found: Protocol, parts: Sequence[Split], weight: Floats) -> float:
    return _mean(_auprc(found, part, weight) for part in parts)


def _auprc(found: Protocol, part: Split, weight: Floats | None = None) -> float:
    from sklearn.metrics import average_precision_score

    at = part.test if weight is None else part.test & (weight[found.task[found.run]] > 0)
    if not found.positive[at].any():
        return math.nan
    own = None if weight is None else weight[found.task[found.run[at]]]
    return float(average_precision_score(found.positive[at], part.score[at], sample_weight=own))


def _auroc(found: Protocol, part: Split) -> float:
    from sag_research.deadend import auroc

    return auroc(found.positive[part.test].astype(int), part.score[part.test])


def _interval(number: Callable[[Floats], float], task: Ints, seed: int) -> tuple[float, float]:
    """Resample tasks; the fitted scores are held."""
    n_tasks = int(task.max()) + 1
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(n_tasks, np.full(n_tasks, 1 / n_tasks), DRAWS).astype(np.float64)
    values = [number(weight) for weight in drawn]
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def prefixguard_alerts(
    cohort: Cohort,
    heads: Sequence[str] = tuple(HEADS),
    horizon: int = HORIZON,
    splits: int = 3,
    budget: float = 0.1,
) -> pd.DataFrame:
    """First alerts: whom they reach, whom they disturb, and how early they come.

    ``threshold`` is ``best F1`` or a budget of false alarms, both set on calibration runs.
    ``alerted`` is the share of failed test runs with an alert (n: ``n_failed``), ``false_alarms``
    that of the successful ones (n: ``n_succeeded``), ``position`` the mean place of the first
    alert in failed runs, as a share of their length, and ``lead`` the mean number of steps left
    after it where there was one. Runs of several splits count once for each.
    """
    import pandas as pd

    found = run_protocol(cohort, heads, horizon, splits)
    rules: dict[str, Callable[[Split], float]] = {
        "best F1": lambda part: _best_f1(found, part),
        f"{budget:.0%} false alarms": lambda part: _within(found, part, budget),
    }
    rows = []
    for name, parts in found.scores.items():
        for rule, threshold in rules.items():
            alerts = [_alerts(found, part, threshold(part)) for part in parts]
            run, first = (np.concatenate(both) for both in zip(*alerts, strict=True))
            rows.append({"head": name, "threshold": rule, **_row(found, run, first, cohort.seed)})
    return pd.DataFrame(rows)


def _best_f1(found: Protocol, part: Split) -> float:
    """Return the score with the best F1 on calibration prefixes; the lowest of equals."""
    score, positive = part.score[part.calibration], found.positive[part.calibration]
    order = np.argsort(-score, kind="stable")
    hits, raised = np.cumsum(positive[order]), np.arange(1, len(order) + 1)
    last = np.append(score[order][1:] != score[order][:-1], True)
    f1 = np.where(last, 2 * hits / (raised + positive.sum()), -1.0)
    best = len(f1) - 1 - int(np.argmax(f1[::-1]))
    return float(score[order][best])


def _within(found: Protocol, part: Split, budget: float) -> float:
    """Return the lowest threshold at which few enough successful calibration runs alert."""
    at = part.calibration & ~found.failed[found.run]
    runs, place = np.unique(found.run[at], return_inverse=True)
    top = np.full(len(runs), -np.inf)
    np.maximum.at(top, place, part.score[at])
    allowed = int(budget * len(runs))
    highest = np.sort(top)[::-1]
    return float(np.nextafter(highest[allowed], np.inf)) if allowed < len(highest) else -np.inf


def _alerts(found: Protocol, part: Split, threshold: float) -> tuple[Ints, Floats]:
    """Return the test runs, and after how many steps each alerts first; NaN for never."""
    runs = np.unique(found.run[part.test])
    fired = part.test & (part.score >= threshold)
    first = np.full(len(runs), np.inf)
    np.minimum.at(first, np.searchsorted(runs, found.run[fired]), found.seen[fired])
    return runs, np.where(np.isfinite(first), first, np.nan)


def _row(found: Protocol, run: Ints, first: Floats, seed: int) -> dict[str, Any]:
    failed, fired, task = found.failed[run], np.isfinite(first), found.task[run]
    row: dict[str, Any] = {"n_failed": int(failed.sum()), "n_succeeded": int((~failed).sum())}
    for name, kind in (("alerted", failed), ("false_alarms", ~failed)):
        low, high = _interval(partial(_weighted_share, task, kind, fired), found.task, seed)
        share = _share(kind.astype(float), fired)
        row |= {name: share, f"{name}_low": low, f"{name}_high": high}
    length = found.n_steps[run]
    place = np.where(fired, first, length) / length
    row["position"] = float(place[failed].mean()) if failed.any() else math.nan
    early = failed & fired
    row["lead"] = float((length - first)[early].mean()) if early.any() else math.nan
    return row


def _weighted_share(task: Ints, kind: Chosen, fired: Chosen, weight: Floats) -> float:
    return _share(weight[task] * kind, fired)


def _share(weight: Floats, what: Chosen) -> float:
    total = float(weight.sum())
    return float(weight[what].sum()) / total if total else math.nan


def prefixguard_curve(
    cohort: Cohort,
    ax: Axes,
    heads: Sequence[str] = tuple(HEADS),
    horizon: int = HORIZON,
    splits: int = 3,
) -> pd.DataFrame:
    """Precision over recall of test prefixes, mean over splits."""
    import pandas as pd
    from sklearn.metrics import precision_recall_curve

    found = run_protocol(cohort, heads, horizon, splits)
    recall = np.linspace(0.05, 1, 20)
    rows: list[tuple[str, int, float, float]] = []
    for name, parts in found.scores.items():
        curves = []
        for part in parts:
            precision, reached, _ = precision_recall_curve(
                found.positive[part.test], part.score[part.test]
            )
            # the best precision at this recall or beyond: no curve between points is made up
            best = np.maximum.accumulate(precision)
            curves.append([float(best[reached >= level].max()) for level in recall])
        n = int(sum(part.test.sum() for part in parts))
        mean = np.mean(curves, axis=0)
        dash = DASHES[len(rows) // len(recall) % len(DASHES)]
        rows += [(name, n, level, value) for level, value in zip(recall, mean, strict=True)]
        ax.plot(recall, mean, label=name, linestyle=dash)
    some = next(iter(found.scores.values()))
    chance = float(np.mean([found.positive[one.test].mean() for one in some]))
    ax.axhline(chance, color="#7c8b9a", linewidth=0.8, linestyle=":", label="chance")
    ax.set(xlabel="recall of positive prefixes", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    ax.set_title(f"n = {len(found.failed):,} runs", loc="right")
    ax.legend(loc="upper right")
    return pd.DataFrame(rows, columns=["head", "n", "recall", "precision"])
