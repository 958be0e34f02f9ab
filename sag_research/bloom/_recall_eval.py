"""Recall measured: does it find what helps, what does it cost, and does it foresee failure."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sag_research._text import escape, html_table
from sag_research.bloom._recall import Recall, recall
from sag_research.bloom._recall_corpus import Corpus
from sag_research.bloom._recall_index import RecallIndex
from sag_research.bloom._recall_metrics import (
    Interval,
    area,
    mean_interval,
    ndcg,
    precision,
    reciprocal_rank,
)
from sag_research.bloom._recall_prompt import estimate_tokens
from sag_research.bloom._recall_rankers import METHODS, Ranker, ranker_of
from sag_research.errors import MissingDataError, NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RecallEvaluation", "evaluate_recall", "half_of"]

Mask = NDArray[np.bool_]
DEPTH: Final = 10
"""nDCG looks so far down; as many neighbours speak for the outcome."""
METRICS: Final = ("precision", "mrr", "ndcg", "useful", "auroc", "tokens", "ms")


class HasIndex(Protocol):
    """A workspace, or whatever has an index of runs."""

    @property
    def recall_index(self) -> RecallIndex:
        """What is remembered."""


class Asked(NamedTuple):
    """One query and how one method did; NaN where a question does not apply."""

    method: str
    seen: int
    run: int
    task: str
    precision: float
    mrr: float
    ndcg: float
    useful: float
    tokens: float
    ms: float
    risk: float
    """Share of failures among the nearest runs of other tasks; NaN without any."""
    failed: float


def half_of(task_id: str) -> Literal["tune", "report"]:
    """Say to which half of the tasks a task belongs, for good: by a digest of its id.

    Examples
    --------
    >>> half_of("a"), half_of("b")
    ('tune', 'report')
    """
    odd = hashlib.blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=1).digest()[0] & 1
    return "report" if odd else "tune"


def evaluate_recall(
    ws: HasIndex,
    *,
    seen: Sequence[int] = (2, 4, 6, 9),
    k: int = 5,
    methods: Sequence[str] | None = None,
    half: Literal["tune", "report"] | None = None,
    queries: int | None = None,
    max_tokens: int = 400,
    resamples: int = 2_000,
    seed: int = 0,
) -> RecallEvaluation:
    """Ask for each run, after some steps, which past runs to remember, and judge the answers.

    A query is a run that has taken so many steps and has some left. The other runs are the memory,
    each whole, without the run's own relatives. Two questions are kept apart. *Retrieval*: a run
    is relevant if it is of the same task. *Prediction*: runs of the same task are left out, and
    the share of failures among the ten nearest is compared with the run's own outcome.

    Parameters
    ----------
    ws : Workspace
    seen : sequence of int
        Numbers of steps.
    k : int
        For precision@k and useful-hit@k.
    methods : sequence of str, optional
        Of ``recall recall-entities recall-words recall-order bm25 embedding sag-rule
        sag-rule-ranked full-history random``; default: all whose packages are installed (others
        are named in ``.missing``).
    half : {"tune", "report"}, optional
        Only queries of one half of the tasks, see :func:`half_of`; the memory stays whole.
    queries : int, optional
        Only so many queries for each number of steps, drawn by `seed`.
    max_tokens : int
        Budget of recall's prompt.
    resamples, seed : int
        Of the bootstrap over tasks.

    Returns
    -------
    RecallEvaluation

    Raises
    ------
    NotEnoughDataError
        If no run has another run of its task to remember.

    Notes
    -----
    Words and entities are weighed over all runs without regard to labels, the query's half
    included. A run without another of its task is no query of retrieval, one of unknown outcome
    none of prediction. Tokens are estimated (:func:`estimate_tokens`): of recall's prompt, of the
    whole texts of the k runs of a text retriever, of all other runs for the full history. Each
    method answers a query before the next query comes, so that the times are interleaved.

    Chance is a little below .5 in the AUROC: without a run's own task the others' rate of failure
    is turned the other way. Compare with the method ``random``, which is one draw.
    """
    if not seen or min(seen) < 1 or k < 1:
        raise UsageError("seen and k start at 1")
    index = ws.recall_index
    corpus = Corpus.read(index)
    rankers, missing = _rankers(corpus, METHODS if methods is None else methods, methods is None)
    judge = _Judge(corpus, k, max_tokens)
    rows: list[Asked] = []
    for count in sorted(set(seen)):
        askers = judge.askers(count, half)
        if queries is not None and len(askers) > queries:
            drawn = np.random.default_rng((seed, count)).choice(askers, queries, replace=False)
            askers = sorted(drawn.tolist())
        for run in askers:
            rows += (judge.ask(name, ranker, run, count) for name, ranker in rankers.items())
    if not any(row.ndcg == row.ndcg for row in rows):
        raise NotEnoughDataError(
            "no run has another run of its task to remember",
            fix="several runs a task are needed, each longer than the steps that are seen",
        )
    return RecallEvaluation(rows, k=k, missing=missing, half=half, resamples=resamples, seed=seed)


def _rankers(
    corpus: Corpus, methods: Sequence[str], lenient: bool
) -> tuple[dict[str, Ranker], tuple[str, ...]]:
    made: dict[str, Ranker] = {}
    missing = []
    for name in dict.fromkeys(methods):
        try:
            made[name] = ranker_of(name, corpus)
        except MissingDataError:
            if not lenient:
                raise
            missing.append(name)
    return made, tuple(missing)


class _Judge:
    """Puts the same questions to every method."""

    def __init__(self, corpus: Corpus, k: int, max_tokens: int) -> None:
        self._index = corpus.index
        self._corpus, self._k, self._max_tokens = corpus, k, max_tokens
        self._tokens = [sum(map(estimate_tokens, texts)) for texts in corpus.texts]

    def askers(self, seen: int, half: str | None) -> list[int]:
        """Return the runs that have more steps than were seen, forks left out."""
        return [
            number
            for number, run in enumerate(self._index.runs)
            if run.usable and run.parent_id is None and len(self._corpus.texts[number]) > seen
            and (half is None or half_of(run.task_id or run.run_id) == half)
        ]  # fmt: skip

    def ask(self, method: str, ranker: Ranker, run: int, seen: int) -> Asked:
        """Ask one method about one run, and judge."""
        begun = time.perf_counter()
        scores = ranker.scores(run, seen)
        took = (time.perf_counter() - begun) * 1e3
        index = self._index
        others = index.usable & ~index.relatives(run)
        same = index.of_task(run)
        outcome = index.outcomes
        order = _order(scores, others)
        relevant, n_relevant = same[order], int(np.count_nonzero(same & others))
        helped = int(np.count_nonzero(same & others & (outcome == 1)))
        found = order[outcome[order] == 1][: self._k]
        far = _order(scores, others & ~same & (outcome >= 0))[:DEPTH]
        known, nan = outcome[run] >= 0, float("nan")
        return Asked(
            method, seen, run, index.runs[run].task_id or index.runs[run].run_id,
            precision(relevant, self._k) if n_relevant else nan,
            reciprocal_rank(relevant) if n_relevant else nan,
            ndcg(relevant, DEPTH, n_relevant) if n_relevant else nan,
            float(same[found].any()) if helped else nan,
            self._cost(method, run, seen, order, others), took,
            float((outcome[far] == 0).mean()) if known and len(far) else nan,
            float(outcome[run] == 0) if known else nan,
        )  # fmt: skip

    def _cost(self, method: str, run: int, seen: int, order: Any, others: Mask) -> float:
        if method == "full-history":
            return float(sum(self._tokens[number] for number in np.flatnonzero(others).tolist()))
        if method == "recall":
            return float(estimate_tokens(self._recall(run, seen).prompt(self._max_tokens)))
        return float(sum(self._tokens[number] for number in order[: self._k].tolist()))

    def _recall(self, run: int, seen: int) -> Recall:
        step = int(self._corpus.steps[run][seen - 1])
        return recall(self._index, run=self._index.runs[run].run_id, step=step, k=self._k)


def _order(scores: Any, allowed: Mask) -> NDArray[np.int64]:
    """Return what may be returned, best first; the first in the log wins a tie."""
    near = np.flatnonzero(allowed & (scores > 0))
    return near[np.argsort(-scores[near].round(9), kind="stable")]


class RecallEvaluation:
    """How well past runs were remembered.

    Attributes
    ----------
    rows : list of Asked
        Every query of every method.
    missing : tuple of str
        Methods that were left out because a package is not installed.
    half : {"tune", "report"} or None
        The half of the tasks that the queries are from.
    """

    def __init__(
        self,
        rows: Sequence[Asked],
        *,
        k: int,
        missing: tuple[str, ...],
        half: Literal["tune", "report"] | None,
        resamples: int,
        seed: int,
    ) -> None:
        self.rows = list(rows)
        self.k, self.missing, self.half = k, missing, half
        self._resamples, self._seed = resamples, seed

    def __repr__(self) -> str:
        queries = {(row.seen, row.run) for row in self.rows}
        tasks = {row.task for row in self.rows}
        which = f", half {self.half!r}" if self.half else ""
        return (
            f"RecallEvaluation({len(self.methods)} methods, {len(queries)} queries of "
            f"{len(tasks)} tasks{which})"
        )

    def _repr_html_(self) -> str:
        table = self.summary_.round(3)
        rows = [list(row) for row in table.itertuples(index=False)]
        return f"<div><b>{escape(repr(self))}</b>{html_table(list(table.columns), rows)}</div>"

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order they were asked."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    def value(self, method: str, metric: str, seen: int) -> Interval:
        """Return one figure: its value, 95 % interval, and the queries and tasks behind it."""
        chosen = [row for row in self.rows if row.method == method and row.seen == seen]
        if not chosen or metric not in METRICS:
            raise UsageError(
                f"no {metric!r} of {method!r} at {seen}", fix=f"metrics: {', '.join(METRICS)}"
            )
        settings = {"resamples": self._resamples, "seed": self._seed}
        if metric == "auroc":
            kept = [row for row in chosen if row.risk == row.risk]
            risks, failed = [row.risk for row in kept], [row.failed for row in kept]
            return area(risks, failed, [row.task for row in kept], **settings)
        kept = [row for row in chosen if getattr(row, metric) == getattr(row, metric)]
        values = [getattr(row, metric) for row in kept]
        if metric == "ms":
            middle = float(np.median(values)) if values else float("nan")
            low, high = np.percentile(values, (2.5, 97.5)) if values else (middle, middle)
            return Interval(middle, float(low), float(high), len(kept), 0)
        return mean_interval(values, [row.task for row in kept], **settings)

    @property
    def table_(self) -> pd.DataFrame:
        """One row a figure: ``method seen metric value low high n tasks``.

        ``precision`` (at k), ``mrr``, ``ndcg`` (at 10) and ``useful`` (a success of the same task
        among the k first successes) judge retrieval; ``auroc`` (failures told from successes by
        the ten nearest runs of other tasks; .5 is chance) prediction; ``tokens`` and ``ms`` (the
        median, with the middle 95 % of the queries) are the cost. Intervals resample tasks.
        """
        import pandas as pd

        rows = [
            (method, seen, metric, *self.value(method, metric, seen))
            for method in self.methods
            for seen in self._seen
            for metric in METRICS
        ]
        columns = ["method", "seen", "metric", "value", "low", "high", "n", "tasks"]
        return pd.DataFrame.from_records(rows, columns=columns)

    @property
    def summary_(self) -> pd.DataFrame:
        """One row a method and number of steps, one column a metric: values without intervals."""
        wide = self.table_.pivot(index=["seen", "method"], columns="metric", values="value")
        order = [(seen, method) for seen in self._seen for method in self.methods]
        counts = self.table_[self.table_["metric"] == "ndcg"].set_index(["seen", "method"])["n"]
        wide.insert(0, "n", counts)
        return wide.reindex(order).reset_index()[["seen", "method", "n", *METRICS]]

    def differences(self, than: Iterable[str], metric: str = "ndcg") -> pd.DataFrame:
        """Compare recall with other methods on the same queries.

        Returns
        -------
        DataFrame
            One row a method and number of steps: ``method seen metric value low high n tasks``,
            the mean of recall's value less the other's.
        """
        import pandas as pd

        if metric not in ("precision", "mrr", "ndcg", "useful"):
            raise UsageError(f"no differences of {metric!r}", fix="precision, mrr, ndcg or useful")
        of = {(row.method, row.seen, row.run): row for row in self.rows}
        rows = []
        for method in than:
            for seen in self._seen:
                pairs = [
                    (getattr(row, metric) - getattr(of[method, seen, row.run], metric), row.task)
                    for (name, count, _), row in of.items()
                    if name == "recall" and count == seen and (method, seen, row.run) in of
                ]
                kept = [pair for pair in pairs if pair[0] == pair[0]]
                interval = mean_interval(
                    [pair[0] for pair in kept], [pair[1] for pair in kept],
                    resamples=self._resamples, seed=self._seed,
                )  # fmt: skip
                rows.append((method, seen, metric, *interval))
        columns = ["method", "seen", "metric", "value", "low", "high", "n", "tasks"]
        return pd.DataFrame.from_records(rows, columns=columns)

    @property
    def _seen(self) -> list[int]:
        return sorted({row.seen for row in self.rows})
