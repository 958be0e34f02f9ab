"""Rules that a new estimator must beat: length, repetition, priors, and SAG's entity rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes, StepTable
from sag_research.errors import MissingDataError

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.deadend._entity_rule import EntityRuleStream
    from sag_research.deadend._step import SeenStep

__all__ = [
    "CapRisk",
    "CharactersRisk",
    "EntityRuleRisk",
    "MajorityRisk",
    "PriorRisk",
    "RepeatRisk",
]

NAME = re.compile(r"\b(?:[A-Z]\w{2,}|[a-z]\w*_\w+)")
SCAN = 8_000
"""Characters of a text that are searched for names."""

Entities = tuple[Ints, NDArray[np.int32], Sequence[str]]
Flags = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]


class MajorityRisk(RiskModel):
    """The base rate, whatever the run does."""

    name = "majority"

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.n_runs_ = len(prefixes)

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return np.full(len(looks.run), self.base_rate_)

    @property
    def table_(self) -> pd.DataFrame:
        """``n risk``."""
        import pandas as pd

        self._check_fitted()
        return pd.DataFrame({"n": [self.n_runs_], "risk": [self.base_rate_]})

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        return {}, {"n_runs": self.n_runs_}

    def _restore(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        self.n_runs_ = int(meta["n_runs"])


class CharactersRisk(RiskModel):
    """Logistic regression on one number: log(1 + characters so far).

    Characters are those of thoughts, actions and observations. Whether long runs fail more often
    or less often is learnt; it differs between agents.
    """

    name = "characters"
    needs_text = True

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        from sklearn.linear_model import LogisticRegression

        from sag_research.deadend._forest import both_outcomes

        both_outcomes(failed, self.name)
        x = log_characters(prefixes, looks)
        self.centre_, self.scale_ = float(np.average(x, weights=weight)), float(x.std()) or 1.0
        model = LogisticRegression().fit(self._scaled(x)[:, None], failed, weight)
        self.coef_, self.intercept_ = float(model.coef_[0, 0]), float(model.intercept_[0])

    def _scaled(self, x: Floats) -> Floats:
        return (x - self.centre_) / self.scale_

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        logit = self._scaled(log_characters(prefixes, looks)) * self.coef_ + self.intercept_
        return np.asarray(1 / (1 + np.exp(-logit)))

    @property
    def table_(self) -> pd.DataFrame:
        """``feature coefficient intercept``, of log(1 + characters) scaled to unit variance."""
        import pandas as pd

        self._check_fitted()
        row = {"feature": ["log characters"], "coefficient": [self.coef_]}
        return pd.DataFrame(row | {"intercept": [self.intercept_]})

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        names = ("centre", "scale", "coef", "intercept")
        return {}, {name: getattr(self, f"{name}_") for name in names}

    def _restore(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        for name in ("centre", "scale", "coef", "intercept"):
            setattr(self, f"{name}_", float(meta[name]))


def log_characters(prefixes: Prefixes, looks: Looks) -> Floats:
    """Return log(1 + characters so far) at each look."""
    table = prefixes.table

    def count() -> Ints:
        texts = (table.text(name) for name in ("thought", "action", "observation"))
        each = sum(np.fromiter(map(len, text), dtype=np.int64) for text in texts)
        return np.concatenate(([0], np.cumsum(each)))

    until: Ints = table.memo("characters", count)
    return np.asarray(np.log1p(until[prefixes.rows(looks) + 1] - until[prefixes.start[looks.run]]))


class CapRisk(RiskModel):
    """A cap on length: the share of training runs that were not longer than this one is.

    Stopping every run at the 75th percentile of the lengths is the cheapest rule there is.

    Parameters
    ----------
    percentile : float
        Percentile of the training runs' lengths at which the rule itself stops a run.

    Attributes
    ----------
    cap_ : float
        Number of steps at which it stops.
    """

    name = "cap-p75"
    calibrated = False

    def __init__(self, percentile: float = 75.0) -> None:
        self.percentile = percentile

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.lengths_ = np.sort(prefixes.n_steps)
        self.cap_ = float(np.percentile(self.lengths_, self.percentile))

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return np.searchsorted(self.lengths_, looks.seen, side="right") / len(self.lengths_)

    def native_alarm(self, prefixes: Prefixes, looks: Looks) -> Flags:
        """Return where the rule itself stops a run, shape (n_looks,)."""
        self._check_fitted()
        return looks.seen >= self.cap_

    @property
    def table_(self) -> pd.DataFrame:
        """``n percentile cap``."""
        import pandas as pd

        self._check_fitted()
        row = {"n": [len(self.lengths_)], "percentile": [self.percentile], "cap": [self.cap_]}
        return pd.DataFrame(row)

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        return {"lengths": self.lengths_}, {"cap": self.cap_}

    def _restore(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        self.lengths_, self.cap_ = arrays["lengths"], float(meta["cap"])


class RepeatRisk(RiskModel):
    """How often the most frequent exact action of the run has been taken.

    Parameters
    ----------
    times : int
        Number of times at which the rule itself stops a run.
    """

    name = "repeat-3"
    calibrated = False

    def __init__(self, times: int = 3) -> None:
        self.times = times

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        self.n_runs_ = len(prefixes)

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        scores = np.empty(len(looks.run))
        for run, at in _by_run(looks):
            most = _most_repeated(prefixes.table, int(prefixes.start[run]), int(prefixes.stop[run]))
            scores[at] = most[looks.seen[at] - 1]
        return scores

    def native_alarm(self, prefixes: Prefixes, looks: Looks) -> Flags:
        """Return where the rule itself stops a run, shape (n_looks,)."""
        return self.predict(prefixes, looks) >= self.times

    def begin(self) -> _RepeatStream:
        """Return a follower of one new run."""
        self._check_fitted()
        return _RepeatStream()

    @property
    def table_(self) -> pd.DataFrame:
        """``n times``."""
        import pandas as pd

        self._check_fitted()
        return pd.DataFrame({"n": [self.n_runs_], "times": [self.times]})

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        return {}, {"n_runs": self.n_runs_}

    def _restore(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        self.n_runs_ = int(meta["n_runs"])


class _RepeatStream:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._most = 0

    def observe(self, step: SeenStep) -> float:
        return float(self.count(step.action or step.token))

    def count(self, action: str) -> int:
        self._counts[action] = n = self._counts.get(action, 0) + 1
        self._most = max(self._most, n)
        return self._most


def _most_repeated(table: StepTable, start: int, stop: int) -> Ints:
    """Return the count of the most frequent action after each step of a run."""
    actions = table.text("action")[start:stop]
    tokens = table.tokens[start:stop].tolist()
    stream = _RepeatStream()
    pairs = zip(actions, tokens, strict=True)
    return np.array([stream.count(a or table.names[t]) for a, t in pairs], dtype=np.int64)


def _by_run(looks: Looks) -> list[tuple[int, slice]]:
    """Return each run that is looked at, and its stretch of the looks."""
    runs, first = np.unique(looks.run, return_index=True)
    ends = np.append(first, len(looks.run))[1:]
    cuts = zip(first.tolist(), ends.tolist(), strict=True)
    return [(int(run), slice(a, b)) for run, (a, b) in zip(runs, cuts, strict=True)]


class PriorRisk(RiskModel):
    """Failure rate of the run's kind, known before its first step.

    Runs are grouped by the first column, then within it by the second, and so on; each group's
    rate is shrunk to that of the group it lies in. A group that was never seen has the rate of
    the widest one that was.

    Parameters
    ----------
    by : sequence of str
        Columns of ``runs``, from wide to narrow.
    strength : float
        Runs that the wider group's rate is worth.

    Attributes
    ----------
    rates_ : dict
        Group, as a tuple of values, to (n, failed, rate).
    """

    name = "prior"

    def __init__(
        self, by: Sequence[str] = ("dataset", "agent", "model", "repo"), strength: float = 10.0
    ) -> None:
        self.by = by
        self.strength = strength

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        rows = [(keys, y) for keys, y in zip(self._keys(prefixes), prefixes.failed, strict=True)]
        self.rates_: dict[tuple[str, ...], tuple[int, int, float]] = {
            (): (len(rows), int(prefixes.failed.sum()), self.base_rate_)
        }
        for depth in range(1, len(self.by) + 1):
            counts: dict[tuple[str, ...], list[int]] = {}
            for key, y in rows:
                count = counts.setdefault(key[:depth], [0, 0])
                count[0] += 1
                count[1] += int(y)
            for key, (n, bad) in counts.items():
                wider = self.rates_[key[:-1]][2]
                self.rates_[key] = n, bad, (bad + self.strength * wider) / (n + self.strength)

    def _keys(self, prefixes: Prefixes) -> list[tuple[str, ...]]:
        columns = [prefixes.runs[name].astype(str).tolist() for name in self.by]
        return list(zip(*columns, strict=True)) if columns else [()] * len(prefixes)

    def _rate(self, key: tuple[str, ...]) -> float:
        while key not in self.rates_:
            key = key[:-1]
        return self.rates_[key][2]

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        return np.array([self._rate(key) for key in self._keys(prefixes)])[looks.run]

    @property
    def table_(self) -> pd.DataFrame:
        """``group n failed risk``, wider groups first."""
        import pandas as pd

        self._check_fitted()
        rows = [(" / ".join(key) or "all", *rate) for key, rate in self.rates_.items()]
        return pd.DataFrame(rows, columns=["group", "n", "failed", "risk"])

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        return {}, {"rates": [[list(key), *rate] for key, rate in self.rates_.items()]}

    def _restore(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        self.rates_ = {tuple(key): (n, bad, rate) for key, n, bad, rate in meta["rates"]}


class EntityRuleRisk(RiskModel):
    """SAG's rule: failure rate of the past runs that name at least two entities of this prefix.

    The entities named so far are a set; a past run matches where its whole set shares `shared`
    names with it. Order, repetition and results play no part, and the past side is the whole run.
    Where nothing matches, the score is the base rate and the rule itself stays silent. A run never
    matches itself.

    Entities are those of the cohort. Where the extractor found none in any step, because the runs
    are not about code, capitalised words and identifiers of actions and observations stand for
    them.

    Parameters
    ----------
    threshold : float
        Failure rate of the matching runs at which the rule itself stops a run: .75 in its code,
        .90 in its description.
    shared : int
        Fewest names in common.
    """

    name = "sag-entity-rule"
    CHUNK = 512
    from_texts_: bool = False
    """Whether names in texts stand for entities."""

    def __init__(self, threshold: float = 0.75, shared: int = 2) -> None:
        self.threshold = threshold
        self.shared = shared

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        _, _, names = _entities(prefixes.table)
        self.from_texts_ = stand_in(prefixes.table)
        last = Looks(np.arange(len(prefixes)), prefixes.n_steps)
        whole = _named(prefixes, last, np.arange(len(names)), len(names))
        used = np.flatnonzero(np.asarray(whole.sum(axis=0)).ravel())
        self.names_ = tuple(names[i] for i in used.tolist())
        self.whole_ = whole[:, used]
        self.failed_runs_ = prefixes.failed
        self.run_ids_ = tuple(prefixes.runs["run_id"])

    def matches(self, prefixes: Prefixes, looks: Looks) -> tuple[Ints, Ints]:
        """Return how many past runs match at each look, and how many of them failed."""
        _, _, names = _entities(prefixes.table)
        place = {name: i for i, name in enumerate(self.names_)}
        column = np.array([place.get(name, -1) for name in names], dtype=np.int64)
        own = {run: i for i, run in enumerate(self.run_ids_)}
        itself = np.array([own.get(run, -1) for run in prefixes.runs["run_id"]], dtype=np.int64)
        n, bad = np.zeros(len(looks.run), np.int64), np.zeros(len(looks.run), np.int64)
        for at in range(0, len(looks.run), self.CHUNK):
            some = Looks(looks.run[at : at + self.CHUNK], looks.seen[at : at + self.CHUNK])
            named = _named(prefixes, some, column, len(self.names_))
            hit = (named @ self.whole_.T).toarray() >= self.shared
            me = itself[some.run]
            hit[np.flatnonzero(me >= 0), me[me >= 0]] = False
            n[at : at + self.CHUNK] = hit.sum(axis=1)
            bad[at : at + self.CHUNK] = hit @ self.failed_runs_
        return n, bad

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Floats:
        n, bad = self.matches(prefixes, looks)
        return np.where(n > 0, bad / np.maximum(n, 1), self.base_rate_)

    def begin(self, scope: str = "") -> EntityRuleStream:
        """Return a follower of one new run; `scope` is its repository, part of files' identity."""
        from sag_research.deadend._entity_rule import EntityRuleStream

        self._check_fitted()
        return EntityRuleStream(self, scope)

    def native_alarm(self, prefixes: Prefixes, looks: Looks) -> Flags:
        """Return where the rule itself stops a run, shape (n_looks,)."""
        self._check_fitted()
        n, bad = self.matches(prefixes, looks)
        return np.asarray((n > 0) & (bad >= self.threshold * n))

    @property
    def table_(self) -> pd.DataFrame:
        """``entity n failed``: past runs that name it, and the failed among them."""
        import pandas as pd

        self._check_fitted()
        n = np.asarray(self.whole_.sum(axis=0)).ravel()
        columns = {"entity": self.names_, "n": n.astype(np.int64)}
        columns["failed"] = np.asarray(self.whole_.T @ self.failed_runs_).astype(np.int64)
        return pd.DataFrame(columns).sort_values(
            "n", ascending=False, kind="stable", ignore_index=True
        )

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays = {
            "indptr": self.whole_.indptr,
            "indices": self.whole_.indices,
            "failed_runs": self.failed_runs_,
        }
        meta = {"names": list(self.names_), "run_ids": list(self.run_ids_)}
        return arrays, meta | {"from_texts": self.from_texts_}

    def _restore(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        from scipy.sparse import csr_matrix

        self.names_, self.run_ids_ = tuple(meta["names"]), tuple(meta["run_ids"])
        self.from_texts_ = bool(meta.get("from_texts", False))
        self.failed_runs_ = arrays["failed_runs"]
        ones = np.ones(len(arrays["indices"]), dtype=np.int32)
        shape = (len(self.run_ids_), len(self.names_))
        self.whole_ = csr_matrix((ones, arrays["indices"], arrays["indptr"]), shape=shape)


def _entities(table: StepTable) -> Entities:
    if table.entities is None:
        raise MissingDataError(
            "model 'sag-entity-rule' reads the entities that steps mention, and there are none",
            fix="make the cohort with entities=True, or choose another model",
        )
    if not stand_in(table):
        return table.entities
    return table.memo("names in texts", lambda: _names_in_texts(table))


def stand_in(table: StepTable) -> bool:
    """Tell whether names in texts stand for entities: no step mentions any, and there are texts."""
    return table.has_text and (table.entities is None or not len(table.entities[1]))


def _names_in_texts(table: StepTable) -> Entities:
    """Return the capitalised words and the identifiers of actions and observations as entities."""
    place: dict[str, int] = {}
    ids: list[int] = []
    offsets = [0]
    for texts in zip(table.text("action"), table.text("observation"), strict=True):
        found = names_in(texts)
        ids += [place.setdefault(name, len(place)) for name in sorted(found)]
        offsets.append(len(ids))
    return np.array(offsets, dtype=np.int64), np.array(ids, dtype=np.int32), tuple(place)


def names_in(texts: Sequence[str]) -> set[str]:
    """Return the capitalised words and the identifiers of some texts."""
    return {name for text in texts for name in NAME.findall(text[:SCAN])}


def _named(prefixes: Prefixes, looks: Looks, column: Ints, width: int) -> Any:
    """Return which entities were named up to each look, shape (n_looks, width), 0 or 1."""
    from scipy.sparse import csr_matrix

    offsets, ids, _ = _entities(prefixes.table)
    first, end = offsets[prefixes.start[looks.run]], offsets[prefixes.rows(looks) + 1]
    counts = end - first
    starts = np.cumsum(counts) - counts
    flat = np.arange(int(counts.sum())) - np.repeat(starts - first, counts)
    found = column[ids[flat]]
    row = np.repeat(np.arange(len(looks.run)), counts)[found >= 0]
    found = found[found >= 0]
    pairs = np.unique(row * max(width, 1) + found)
    row, found = np.divmod(pairs, max(width, 1))
    ones = np.ones(len(pairs), dtype=np.int32)
    return csr_matrix((ones, (row, found)), shape=(len(looks.run), width))
