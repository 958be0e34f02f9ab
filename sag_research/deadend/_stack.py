"""The default estimator: five kinds of evidence, weighed by how they do on unseen tasks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._backoff import BackoffRisk
from sag_research.deadend._crossfit import OutOfFold
from sag_research.deadend._forest import BehaviourRisk
from sag_research.deadend._hazard import HazardRisk
from sag_research.deadend._markov import MarkovRisk
from sag_research.deadend._metrics import auroc, wilson
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes, StepTable
from sag_research.deadend._text_model import TextRisk
from sag_research.errors import NotEnoughDataError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._model import Stream
    from sag_research.deadend._step import SeenStep

__all__ = ["PrefixRisk", "Similar", "inner_folds"]

EDGE = 1e-4
"""Parts' scores are kept this far from 0 and 1 before their logit is taken."""
BINS = 10
PARTS: tuple[type[RiskModel], ...] = (HazardRisk, BackoffRisk, MarkovRisk, BehaviourRisk, TextRisk)


def logit(scores: Floats) -> Floats:
    """Return the log odds of scores that are kept off 0 and 1."""
    kept = np.clip(scores, EDGE, 1 - EDGE)
    return np.asarray(np.log(kept / (1 - kept)))


def inner_folds(prefixes: Prefixes, by: str, folds: int, seed: int) -> Ints:
    """Return the fold of each run, shape (n_runs,): groups whole, failures spread evenly.

    There are fewer folds where there are fewer groups.

    Raises
    ------
    NotEnoughDataError
        If there is only one group.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    groups = prefixes.groups(by)
    folds = min(folds, len(np.unique(groups)))
    if folds < 2:
        raise NotEnoughDataError(
            "cannot fit 'stack'",
            why=f"all {len(prefixes)} runs are of one {by}; weights are learnt on unseen ones",
            fix="add runs of other tasks, or use a single model such as 'backoff'",
        )
    fold = np.zeros(len(prefixes), dtype=np.int64)
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    for number, (_, test) in enumerate(splitter.split(groups, prefixes.failed, groups)):
        fold[test] = number
    return np.unique(fold, return_inverse=True)[1].astype(np.int64)


class Weights(NamedTuple):
    """A logistic regression on the parts' log odds, each first scaled to unit variance."""

    mean: Floats
    scale: Floats
    coef: Floats
    """Of the scaled log odds."""
    intercept: float

    @classmethod
    def fit(cls, odds: Floats, failed: Floats, weight: Floats, strength: float) -> Weights:
        """Fit to scores that the parts gave to unseen runs.

        The penalty of inverse `strength` keeps the weights' ratios near those of single-part fits
        and pulls all of them to zero, more so the fewer runs there are. One slope, fitted with
        hardly any penalty, undoes the latter: the order of the risks stays, their scale is right.

        In the weights each run weighs 1, so that long runs do not rule. In the slope each look
        does: what a run weighs at a look depends on how long it will go on, which no prefix knows,
        and a probability under such weights would not be that of the prefix.
        """
        from sklearn.linear_model import LogisticRegression

        mean = np.average(odds, axis=0, weights=weight)
        scale = np.sqrt(np.average((odds - mean) ** 2, axis=0, weights=weight))
        scale[scale < 1e-9] = 1.0  # a part that says the same of all runs
        if len(np.unique(failed)) < 2:
            raise NotEnoughDataError("cannot weigh the parts", why="all these runs ended alike")
        scaled = (odds - mean) / scale
        coef = LogisticRegression(C=strength, max_iter=1000).fit(scaled, failed, weight).coef_[0]
        line = scaled @ coef
        unit = float(np.sqrt(np.average(line**2, weights=weight))) or 1.0
        slope = LogisticRegression(C=1.0).fit(line[:, None] / unit, failed)
        coef = coef * max(float(slope.coef_[0, 0]), 0.0) / unit
        return cls(mean, scale, coef, float(slope.intercept_[0]))

    def shares(self, odds: Floats) -> Floats:
        """Return what each part adds to the log odds of a mean run, shape (n_looks, n_parts)."""
        return (odds - self.mean) / self.scale * self.coef

    def risk(self, odds: Floats) -> Floats:
        """Return the risk, shape (n_looks,)."""
        return np.asarray(1 / (1 + np.exp(-(self.shares(odds).sum(axis=1) + self.intercept))))


class Similar(NamedTuple):
    """How the training runs ended that once had a similar score, given before they were seen.

    Scores are cut at their deciles. Each run counts once in each tenth that it ever was in.
    """

    cuts: Floats
    n: Ints
    failed: Ints
    low: Floats
    high: Floats
    """95 % Wilson interval of the share that failed."""

    @classmethod
    def of(cls, scores: Floats, run: Ints, failed: Floats) -> Similar:
        """Count; `failed` has one entry a score."""
        cuts = np.unique(np.quantile(scores, np.arange(1, BINS) / BINS, method="lower"))
        cuts = cuts[cuts < scores.max()]
        place = np.searchsorted(cuts, scores)
        pairs, first = np.unique(place * (int(run.max()) + 1) + run, return_index=True)
        tenth = pairs // (int(run.max()) + 1)
        n = np.bincount(tenth, minlength=len(cuts) + 1)
        bad = np.bincount(tenth, failed[first], minlength=len(cuts) + 1).astype(np.int64)
        bounds = np.array([wilson(int(k), int(m)) for k, m in zip(bad, n, strict=True)])
        return cls(cuts, n.astype(np.int64), bad, bounds[:, 0], bounds[:, 1])

    def at(self, scores: Floats) -> tuple[Ints, Ints, Floats, Floats]:
        """Return n, failed, low and high of the tenth that each score lies in."""
        place = np.searchsorted(self.cuts, scores)
        return self.n[place], self.failed[place], self.low[place], self.high[place]


class PrefixRisk(RiskModel):
    """P(failure | the steps so far), from five kinds of evidence.

    The parts are the hazard (how long), suffix back-off (what came last), the log ratio of two
    Markov models (which order), trees on behaviour (what was done), and the text. A strongly
    shrunk logistic regression weighs their log odds, and one slope sets the scale of the risk.

    Parameters
    ----------
    text : {"auto", True, False}
        Whether the text is a part; "auto" takes it where the cohort has any.
    folds : int
        Folds of tasks for scores of unseen runs.
    C : float
        Inverse penalty of the weights. Small: a part must earn its weight on many runs.
    trees, min_leaf : int
        See :class:`BehaviourRisk`. Fits that only give scores of unseen runs have half the trees.
    group_by : str
        Column that folds keep together.
    seed : int
        Seed of folds and trees.

    Attributes
    ----------
    parts_ : dict of str to RiskModel
        The parts, fitted on all runs.
    weights_ : Weights
    out_of_fold_ : OutOfFold
        Risk of each training run at the look grid, by models that saw none of its task.
    similar_ : Similar
        How training runs of a similar ``out_of_fold_`` score ended.

    Notes
    -----
    *Weights.* With K folds of tasks, each part is fitted K times on the other folds and scores the
    one left out. The weights are fitted on these scores, and applied to the parts fitted on all
    runs: K + 1 fits of each part.

    *Out-of-fold risk.* The scores above must not be re-used for it: the weights that would combine
    the parts' scores of fold k were learnt from scores of other folds, given by parts that had
    seen fold k. So for each pair of folds {j, k} the parts are fitted once more on the rest, which
    gives scores of j without k and of k without j. The weights for fold k are learnt from the
    scores of all j without k, and applied to the parts fitted without k. No label of a run's own
    task is in its risk, neither through a part nor through a weight nor through a scale. It takes
    K (K - 1) / 2 further fits, and is done when ``out_of_fold_`` is first asked for.

    References
    ----------
    D. H. Wolpert, "Stacked generalization", Neural Networks 5 (1992) 241-259.
    """

    name = "stack"

    def __init__(
        self,
        text: bool | str = "auto",
        folds: int = 4,
        C: float = 0.003,
        trees: int = 200,
        min_leaf: int = 20,
        group_by: str = "task_id",
        seed: int = 0,
    ) -> None:
        self.text, self.folds, self.C = text, folds, C
        self.trees, self.min_leaf = trees, min_leaf
        self.group_by, self.seed = group_by, seed

    # ------------------------------------------------------------------ fit and predict

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self._forget()
        fold = inner_folds(prefixes, self.group_by, self.folds, self.seed)
        text = self._reads_text(prefixes)
        parts = self._make_parts(text)
        odds = np.empty((len(looks.run), len(parts)))
        for number in range(int(fold.max()) + 1):
            at = fold[looks.run] == number
            parts = self._fit_inner(prefixes.take(fold != number), text)
            odds[at] = _odds(parts, prefixes, Looks(looks.run[at], looks.seen[at]))
        self.weights_ = Weights.fit(odds, failed, weight, self.C)
        self.parts_ = {n: part.fit(prefixes) for n, part in self._make_parts(text).items()}
        self.part_auroc_ = np.array(
            [auroc(failed, column, weight, fold[looks.run]) for column in odds.T]
        )
        self.part_similar_ = [Similar.of(column, looks.run, failed) for column in odds.T]
        self._training = _Training(prefixes, looks, fold, odds)

    def _forget(self) -> None:
        for name in ("_training", "_out_of_fold", "_similar"):
            if hasattr(self, name):
                delattr(self, name)

    def _reads_text(self, prefixes: Prefixes) -> bool:
        if self.text in (True, False):
            return bool(self.text)
        if self.text != "auto":
            raise UsageError(f"text={self.text!r}", fix="say True, False or 'auto'")
        table = prefixes.table
        return table.has_text and any(
            map(any, map(table.text, ("thought", "action", "observation")))
        )

    def _make_parts(self, text: bool, inner: bool = False) -> dict[str, RiskModel]:
        trees = max(self.trees // 2, 1) if inner else self.trees
        made = [HazardRisk(), BackoffRisk(), MarkovRisk()]
        made.append(BehaviourRisk(trees, self.min_leaf, seed=self.seed))
        if text:
            made.append(TextRisk(seed=self.seed))
        return {part.name: part for part in made}

    def _fit_inner(self, prefixes: Prefixes, text: bool) -> dict[str, RiskModel]:
        made = self._make_parts(text, inner=True)
        return {name: part.fit(prefixes) for name, part in made.items()}

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return self.weights_.risk(_odds(self.parts_, prefixes, looks))

    def odds(self, prefixes: Prefixes, looks: Looks) -> Floats:
        """Return the log odds that each part gives at each look, shape (n_looks, n_parts)."""
        self._check_fitted()
        return _odds(self.parts_, prefixes, looks)

    def begin(self) -> StackStream:
        """Return a follower of one new run."""
        self._check_fitted()
        return StackStream(self)

    # ------------------------------------------------------------------ scores of unseen runs

    @property
    def out_of_fold_(self) -> OutOfFold:
        """Risk of each training run by models that saw none of its task; computed once.

        Raises
        ------
        NotEnoughDataError
            If there are fewer than three groups, or a pair of folds holds all of one outcome.
        """
        self._check_fitted()
        if not hasattr(self, "_out_of_fold"):
            self._out_of_fold = self._score_unseen()
        return self._out_of_fold

    def _score_unseen(self) -> OutOfFold:
        prefixes, looks, fold, odds = self._kept_training()
        of_look, text = fold[looks.run], TextRisk.name in self.parts_
        count = int(fold.max()) + 1
        if count < 3:
            raise NotEnoughDataError(
                "cannot score the training runs without having seen them",
                why=f"there are {count} groups of {self.group_by}; 3 are needed",
                fix="add runs of other tasks",
            )
        failed, weight = prefixes.failed[looks.run], prefixes.weights(looks)
        without = np.zeros((count, *odds.shape))  # [k]: scores by parts that had not seen fold k
        for j, k in combinations(range(count), 2):
            parts = self._fit_inner(prefixes.take((fold != j) & (fold != k)), text)
            for scored, unseen in ((j, k), (k, j)):
                at = of_look == scored
                without[unseen, at] = _odds(parts, prefixes, Looks(looks.run[at], looks.seen[at]))
        scores = np.empty(len(looks.run))
        for k in range(count):
            own, rest = of_look == k, of_look != k
            weights = Weights.fit(without[k, rest], failed[rest], weight[rest], self.C)
            scores[own] = weights.risk(odds[own])
        return OutOfFold(prefixes, looks, scores, of_look, np.zeros(len(scores), np.int64))

    def _kept_training(self) -> _Training:
        if not hasattr(self, "_training"):
            raise UsageError(
                "this model was saved without scores of unseen runs",
                fix="ask for out_of_fold_ before saving, or fit it again",
            )
        return self._training

    @property
    def similar_(self) -> Similar:
        """How training runs of a similar ``out_of_fold_`` score ended."""
        if not hasattr(self, "_similar"):
            found = self.out_of_fold_
            self._similar = Similar.of(found.scores, found.looks.run, found.failed)
        return self._similar

    # ------------------------------------------------------------------ what was learnt

    @property
    def table_(self) -> pd.DataFrame:
        """The parts: ``part weight auroc n evidence``.

        ``weight`` is that of the part's log odds in units of their standard deviation; ``auroc``
        that of the part alone on the `n` training runs, by fits that had not seen their task.
        """
        import pandas as pd

        self._check_fitted()
        columns = {
            "part": list(self.parts_),
            "weight": self.weights_.coef,
            "auroc": self.part_auroc_,
            "n": len(self.fitted_runs_),
            "evidence": [EVIDENCE[name] for name in self.parts_],
        }
        return pd.DataFrame(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the parts' weights."""
        import matplotlib.pyplot as plt

        ax = plt.gca() if ax is None else ax
        table = self.table_[::-1]
        ax.barh(table["part"], table["weight"])
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set_xlabel("change of log odds for one standard deviation")
        return ax

    def explain(self, prefixes: Prefixes, looks: Looks | None = None) -> pd.DataFrame:
        """Say what each part adds to the risk at each look, and on which evidence.

        Parameters
        ----------
        prefixes : Prefixes
        looks : Looks, optional
            After every step by default.

        Returns
        -------
        DataFrame
            ``run_id seen part risk adds evidence n failed low high``, one row a look and part, in
            order of the looks, the part that moves the risk most first. ``risk`` is the part's
            own; ``adds`` what it adds to the log odds of a mean run. ``n`` and ``failed`` count the
            training runs behind the evidence: those still going on (hazard), those that showed
            the same context (back-off), else those to which this part gave a similar score before
            it had seen them. ``low`` and ``high`` bound their failure rate (95 %).
        """
        from sag_research.deadend._explain import explain

        self._check_fitted()
        return explain(self, prefixes, prefixes.every_step() if looks is None else looks)

    # ------------------------------------------------------------------ saving

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        from sag_research.deadend._persist import pack_parts

        arrays, metas = pack_parts(self.parts_)
        arrays |= {f"weights_{name}": np.asarray(x) for name, x in self.weights_._asdict().items()}
        arrays["part_auroc"] = self.part_auroc_
        for number, similar in enumerate(self.part_similar_):
            arrays |= {f"similar{number}_{k}": v for k, v in similar._asdict().items()}
        runs = None
        if hasattr(self, "_out_of_fold"):
            own = self._out_of_fold
            arrays |= {"unseen_run": own.looks.run, "unseen_seen": own.looks.seen}
            arrays |= {"unseen_score": own.scores, "unseen_fold": own.fold}
            runs = _labels(own.prefixes, self.group_by)
        return arrays, {"parts": metas, "runs": runs}

    def _restore(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        from sag_research.deadend._persist import unpack_parts

        self._forget()
        self.parts_ = unpack_parts(arrays, meta["parts"], self)
        mean, scale, coef, intercept = (arrays[f"weights_{name}"] for name in Weights._fields)
        self.weights_ = Weights(mean, scale, coef, float(intercept))
        if not mean.shape == scale.shape == coef.shape == (len(self.parts_),):
            raise ValueError(f"{coef.shape} weights for {len(self.parts_)} parts")
        self.part_auroc_ = arrays["part_auroc"]
        self.part_similar_ = [
            Similar(*(arrays[f"similar{number}_{name}"] for name in Similar._fields))
            for number in range(len(self.parts_))
        ]
        if meta["runs"] is not None:
            looks = Looks(arrays["unseen_run"], arrays["unseen_seen"])
            fold, scores = arrays["unseen_fold"], arrays["unseen_score"]
            runs = _unlabels(meta["runs"])
            self._out_of_fold = OutOfFold(runs, looks, scores, fold, np.zeros_like(fold))


def _labels(prefixes: Prefixes, group_by: str) -> dict[str, list[Any]]:
    """Return what calibration needs to know of the training runs: no step, no text."""
    columns = {"run_id", "task_id", "outcome", group_by}
    kept: dict[str, list[Any]] = {
        name: prefixes.runs[name].astype(str).tolist() for name in sorted(columns)
    }
    known = prefixes.runs["known_at_step"]
    kept["known_at_step"] = [
        None if x is None else int(x) for x in known.astype(object).where(known.notna(), None)
    ]
    return kept | {"n_steps": prefixes.n_steps.tolist()}


def _unlabels(columns: dict[str, list[Any]]) -> Prefixes:
    """Return the training runs without their steps."""
    import pandas as pd

    stop = np.cumsum(np.array(columns["n_steps"], dtype=np.int64))
    start = stop - np.array(columns["n_steps"], dtype=np.int64)
    return Prefixes.of(pd.DataFrame(columns), start, stop, StepTable(np.empty(0, np.int32), ()))


EVIDENCE: Mapping[str, str] = {
    "hazard": "how long the run has been going on",
    "backoff": "the last few steps",
    "markov": "which step follows which",
    "behaviour-trees": "what was done so far",
    "text-tfidf": "what was said and seen",
}


class _Training(NamedTuple):
    prefixes: Prefixes
    looks: Looks
    fold: Ints
    odds: Floats


def _odds(parts: Mapping[str, RiskModel], prefixes: Prefixes, looks: Looks) -> Floats:
    """Return the parts' log odds, shape (n_looks, n_parts)."""
    return np.column_stack([logit(part.predict(prefixes, looks)) for part in parts.values()])


class StackStream:
    """The stack, step by step."""

    def __init__(self, model: PrefixRisk) -> None:
        weights = model.weights_
        slopes = weights.coef / weights.scale
        streams: list[Stream] = [part.begin() for part in model.parts_.values()]
        self._parts = list(zip(streams, slopes.tolist(), strict=True))
        self._intercept = weights.intercept - float(weights.mean @ slopes)

    def observe(self, step: SeenStep) -> float:
        """Take in the next step and return the risk after it."""
        odds = self._intercept
        for stream, slope in self._parts:
            score = min(max(stream.observe(step), EDGE), 1 - EDGE)
            odds += slope * log(score / (1 - score))
        return 1 / (1 + exp(-odds))
