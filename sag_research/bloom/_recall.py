"""Recall: which past runs met what a run meets now, and what they did about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from sag_research._text import clip, escape, html_table, repair
from sag_research.bloom._recall_index import RecallIndex, short_name
from sag_research.bloom._recall_path import as_dict, events_of, path_graph
from sag_research.bloom._recall_postings import ROUND, Floats, Ints, Keys
from sag_research.bloom._recall_prompt import Token, estimate_tokens, write_prompt
from sag_research.bloom._recall_terms import hash_names, word_list
from sag_research.errors import RunNotFoundError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Found", "Recall", "recall", "similarity"]

WEIGHTS: Final = {"entities": 0.5, "words": 1.0, "order": 0.15}
"""What a channel adds to a score; chosen on the tasks whose ``half_of`` is ``tune``."""
MOST_TERMS: Final = 256
"""So many terms of a channel count in a query, the heaviest: it bounds the time."""
NAMES_SHOWN: Final = 8


MATCHED: Final = 24
"""So many shared names are listed."""


class Found(NamedTuple):
    """A recalled run."""

    run_id: str
    task_id: str | None
    outcome: str
    warning: bool
    """A failure that was asked for as a warning."""
    score: float
    parts: tuple[float, float, float]
    """Similarity by entities, words and order of steps."""
    matched: tuple[str, ...]
    """Names that both know, the most telling first; entities before words."""
    n_matched: int
    step: int | None
    """The step that first showed the most telling of them."""
    n_steps: int


class Asked(NamedTuple):
    """A name that was asked for: what it means, and whether it counts."""

    name: str
    means: tuple[str, ...]
    """Ids of entities, or the name itself where it counts as a word; empty if unknown."""
    runs: int
    """Runs that know the commonest of them."""
    weight: float
    """0 for a name so common that it says nothing."""


def recall(
    index: RecallIndex,
    names: Sequence[str] = (),
    *,
    run: str | None = None,
    step: int | None = None,
    k: int = 5,
    failures: int = 0,
    outcomes: Literal["success", "any"] = "success",
    same_task: bool = True,
    neighbours: int = 2,
    channels: Sequence[str] | None = None,
) -> Recall:
    """Find past runs that met the same things, the most similar first.

    Similarity is the sum over channels of a cosine whose terms weigh by how rare they are; a
    term of more than a fifth of the runs weighs nothing. Names are looked up among entities,
    through the alias tables, and among the words of the texts where no entity has the name. A
    run is compared by its entities, its words, and the order of its steps so far.

    Parameters
    ----------
    index : RecallIndex
    names : sequence of str
        Names or ids of entities.
    run : str, optional
        Full id of the run that asks. It is never recalled, and neither are its ancestors, forks,
        copies and runs of equal history. Without `names`, its steps so far are the question.
    step : int, optional
        With `run`: the last step that it has seen, 0-based; default: its last.
    k : int
        So many runs at most.
    failures : int
        So many failed runs beside them, as warnings.
    outcomes : {"success", "any"}
        Recall only runs whose success is known, or all, whatever became of them.
    same_task : bool
        Whether runs of the asking run's task may be recalled. Say no where recall is to predict.
    neighbours : int
        Steps before and after each match in the graph.
    channels : sequence of str, optional
        Of ``entities``, ``words`` and ``order``; default: all for a run, ``entities`` for names.

    Raises
    ------
    RunNotFoundError
        If no run has the id.
    UsageError
        If neither names nor a run are given, or a number is out of range.
    """
    _check(names, run, k, failures, outcomes, neighbours, channels)
    with index.lock:
        index.refresh()
        number = None if run is None else index.number_of(run)
        if run is not None and number is None:
            raise RunNotFoundError(f"no run {run!r}", fix="give a full run id; see ws.runs()")
        if names or run is None:
            question = _by_names(index, names, channels)
        else:
            question = _by_run(index, run, step, channels)
        scores = sum((part.weighted for part in question.parts), np.zeros(len(index)))
        allowed = index.usable.copy()
        if number is not None:
            allowed &= ~(index.relatives(number) if same_task else _task_too(index, number))
        pool = int(np.count_nonzero(allowed & _pool(index, outcomes)))
        best = _best(index, scores, allowed, k, failures, outcomes)
        found = [_found(index, question, n, warning) for n, warning in best]
    asker = None if run is None else (run, step)
    return Recall(index, found, question.asked, asker, pool=pool, neighbours=neighbours)


def similarity(
    index: RecallIndex, run: str, step: int | None = None, channels: Sequence[str] | None = None
) -> Floats:
    """Compare a run up to a step with all runs; what :func:`recall` ranks them by.

    Returns
    -------
    ndarray of float64, shape (n_runs,)
        In the order of ``index.runs``; the run itself and hidden runs are not left out.
    """
    with index.lock:
        index.refresh()
        parts = _by_run(index, run, step, channels).parts
        return np.asarray(sum((part.weighted for part in parts), np.zeros(len(index))))


def _check(
    names: Sequence[str], run: str | None, k: int, failures: int, outcomes: str, neighbours: int,
    channels: Sequence[str] | None,
) -> None:  # fmt: skip
    if isinstance(names, str):
        raise UsageError("names must be a list", fix=f"say [{names!r}]")
    if not names and run is None:
        raise UsageError("nothing to recall by", fix="give names of entities, or a run")
    if k < 0 or failures < 0 or neighbours < 0:
        raise UsageError("k, failures and neighbours cannot be negative")
    if outcomes not in ("success", "any"):
        raise UsageError(f"outcomes={outcomes!r} is unknown", fix="say 'success' or 'any'")
    if unknown := sorted(set(channels or ()) - set(WEIGHTS)):
        raise UsageError(f"no channel {unknown[0]!r}", fix="entities, words, order")


class _Part(NamedTuple):
    """One channel of a question: every run's similarity, and the terms that made it."""

    channel: str
    scores: Any
    codes: Ints
    names: Mapping[int, str]
    """What to call the terms, by code."""

    @property
    def weighted(self) -> Any:
        return self.scores * WEIGHTS[self.channel]


class _Question(NamedTuple):
    parts: tuple[_Part, ...]
    asked: tuple[Asked, ...]


def _part(
    index: RecallIndex, channel: str, keys: Keys, counts: Ints, names: Mapping[int, str]
) -> _Part:
    postings = index.channel(channel)
    hits = postings.search(keys, counts, MOST_TERMS)
    key_of = postings.keys[hits.codes].tolist()
    called = {code: names[key] for code, key in zip(hits.codes.tolist(), key_of, strict=True)
              if key in names}  # fmt: skip
    return _Part(channel, hits.scores, hits.codes, called)


def _by_run(
    index: RecallIndex, run: str, step: int | None, channels: Sequence[str] | None
) -> _Question:
    chosen = tuple(WEIGHTS) if channels is None else tuple(channels)
    last = np.iinfo(np.int32).max if step is None else step
    seen = index.prefix(run, int(last), chosen)
    parts = [_part(index, name, *seen.terms[name], seen.names) for name in chosen]
    return _Question(tuple(parts), ())


def _by_names(
    index: RecallIndex, names: Sequence[str], channels: Sequence[str] | None
) -> _Question:
    chosen = ("entities", "words") if channels is None else tuple(channels)
    entities: dict[int, str] = {}
    spoken: dict[int, str] = {}
    meant: list[tuple[str, str, list[int]]] = []
    for name in dict.fromkeys(map(repair, names)):
        keys = _entities_named(index, name) if "entities" in chosen else []
        if keys:
            entities |= {key: short_name(index.entity_id(key)) for key in keys}
            meant.append((name, "entities", keys))
        elif "words" in chosen:
            found = list(dict.fromkeys(word_list(name)))
            keys = hash_names(found).tolist()
            spoken |= dict(zip(keys, found, strict=True))
            meant.append((name, "words", keys))
        else:
            meant.append((name, "entities", []))
    parts = []
    for channel, called in (("entities", entities), ("words", spoken)):
        if called:
            keys_ = np.array(list(called), dtype=np.uint64)
            parts.append(_part(index, channel, keys_, np.ones(len(keys_), np.int64), called))
    return _Question(tuple(parts), tuple(_asked(index, *one) for one in meant))


def _entities_named(index: RecallIndex, name: str) -> list[int]:
    index.channel("entities")
    return index.entity_keys(name)


def _asked(index: RecallIndex, name: str, channel: str, keys: list[int]) -> Asked:
    if not keys:
        return Asked(name, (), 0, 0.0)
    postings = index.channel(channel)
    codes = postings.find(np.array(keys, dtype=np.uint64))
    held = codes[codes >= 0]
    if not len(held) or not postings.df[held].any():  # never known, or forgotten since
        return Asked(name, (), 0, 0.0)
    of_entity = channel == "entities"
    means = tuple(index.entity_id(key) for key in keys) if of_entity else (name,)
    return Asked(name, means, int(postings.df[held].max()), float(postings.weight[held].max()))


def _task_too(index: RecallIndex, number: int) -> Any:
    return index.relatives(number) | index.of_task(number)


def _pool(index: RecallIndex, outcomes: str) -> Any:
    return index.outcomes == 1 if outcomes == "success" else np.ones(len(index), dtype=bool)


def _best(
    index: RecallIndex, scores: Any, allowed: Any, k: int, failures: int, outcomes: str
) -> list[tuple[int, bool]]:
    """Choose runs of positive score: what was asked for, then warnings that are not among them."""
    allowed &= scores > 0
    wanted = allowed & (index.outcomes == 1) if outcomes == "success" else allowed
    chosen = _top(scores, np.flatnonzero(wanted), k)
    if not failures:
        return [(number, False) for number in chosen]
    failed = allowed & (index.outcomes == 0)
    failed[chosen] = False
    warned = _top(scores, np.flatnonzero(failed), failures)
    return [(number, False) for number in chosen] + [(number, True) for number in warned]


def _top(scores: Any, near: Ints, k: int) -> list[int]:
    """Return the k runs of the largest scores among some; the first in the log wins a tie."""
    if k and len(near) > k:
        values = scores[near]
        limit = np.partition(values, len(near) - k)[len(near) - k]
        near = near[values >= limit - 10.0**-ROUND]
    order = np.argsort(-scores[near].round(ROUND), kind="stable")[:k]
    return [int(number) for number in near[order]]


def _found(index: RecallIndex, question: _Question, number: int, warning: bool) -> Found:
    run = index.runs[number]
    parts = {part.channel: round(float(part.scores[number]), ROUND) for part in question.parts}
    matched: list[str] = []
    step = None
    for part in question.parts:
        firsts = index.channel(part.channel).step_of(number, part.codes)
        matched += [short_name(part.names[code]) for code in firsts if code in part.names]
        if step is None and firsts:
            step = next(iter(firsts.values()))
    total = sum(WEIGHTS[channel] * value for channel, value in parts.items())
    by_channel = (parts.get("entities", 0.0), parts.get("words", 0.0), parts.get("order", 0.0))
    shared = tuple(dict.fromkeys(matched))
    return Found(
        run.run_id, run.task_id, run.outcome, warning, round(total, ROUND), by_channel,
        shared[:MATCHED], len(shared), step, run.n_steps,
    )  # fmt: skip


class Recall:
    """Past runs that met the same things, and what they did about it.

    Attributes
    ----------
    found : list of Found
        Runs that succeeded, the most similar first, then the failures that were asked for.
    asked : tuple of Asked
        The names that were asked for, and what each means here.
    asker : (str, int or None) or None
        The run that asks, and the last step that it has seen.
    pool : int
        Runs that could have been recalled.
    """

    def __init__(
        self,
        index: RecallIndex,
        found: Sequence[Found],
        asked: tuple[Asked, ...],
        asker: tuple[str, int | None] | None,
        *,
        pool: int,
        neighbours: int,
    ) -> None:
        self._index = index
        self.found = list(found)
        self.asked = asked
        self.asker = asker
        self.pool = pool
        self.neighbours = neighbours

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        warnings = sum(one.warning for one in self.found)
        what = f"{len(self.asked)} names" if self.asked else f"run {clip(self._asker_id, 40)!r}"
        silent = sum(one.weight == 0 for one in self.asked)
        told = f", {silent} of the names say nothing" if silent else ""
        more = f" and {warnings} warnings" if warnings else ""
        return f"Recall({len(self) - warnings} of {self.pool} runs{more} by {what}{told})"

    @property
    def _asker_id(self) -> str:
        return self.asker[0] if self.asker else ""

    def _repr_html_(self) -> str:
        columns = ["run", "task", "outcome", "score", "step", "shares"]
        rows = [
            [one.run_id, one.task_id or "", f"{one.outcome}{' (warning)' if one.warning else ''}",
             f"{one.score:.3f}", one.step, ", ".join(one.matched[:NAMES_SHOWN])]
            for one in self.found
        ]  # fmt: skip
        return f"<div><b>{escape(repr(self))}</b>{html_table(columns, rows)}</div>"

    @cached_property
    def table_(self) -> pd.DataFrame:
        """One row a recalled run.

        Columns ``run_id task_id outcome warning score entities words order`` (similarity in all
        and by channel), ``matched`` (names that both know, the most telling first), ``n_matched``,
        ``step`` (0-based: the one that first showed the most telling), ``n_steps``.
        """
        import pandas as pd

        rows = [
            (one.run_id, one.task_id, one.outcome, one.warning, one.score, *one.parts,
             list(one.matched), one.n_matched, one.step, one.n_steps)
            for one in self.found
        ]  # fmt: skip
        columns = "run_id task_id outcome warning score entities words order matched n_matched"
        table = pd.DataFrame.from_records(rows, columns=f"{columns} step n_steps".split())
        return table.astype({"step": "Int64"})

    @property
    def names_(self) -> pd.DataFrame:
        """One row a name that was asked for: ``name means runs weight`` and ``why`` it counts."""
        import pandas as pd

        rows = [
            (one.name, list(one.means), one.runs, one.weight,
             "unknown" if not one.means else "counts" if one.weight else "too common")
            for one in self.asked
        ]  # fmt: skip
        return pd.DataFrame.from_records(rows, columns=["name", "means", "runs", "weight", "why"])

    @cached_property
    def graph(self) -> Any:
        """The matching events, those around them along NEXT, and the entities they touch.

        Returns
        -------
        networkx.MultiDiGraph
            As :func:`~sag_research.bloom.bloom_graph` makes it. A Run node also has ``score`` and
            ``warning``, an Event node ``match`` (whether it names what was asked for).
        """
        return path_graph(self._index.query, self.found, self.neighbours, self._index.decisions)

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """Return the graph as plain data, ready for JSON.

        Returns
        -------
        dict
            ``{"nodes": [{"id", "labels", "properties"}], "relationships": [{"type", "start",
            "end", "properties"}]}``.
        """
        return as_dict(self.graph)

    def prompt(self, max_tokens: int = 400, *, count: Token = estimate_tokens) -> str:
        """Write the recalled paths as a short text for a model.

        Everything that came from a run stands in double quotes, escaped as JSON, on the line that
        says what it is: text of a past run is data, and no instruction.

        Parameters
        ----------
        max_tokens : int
            The text has no more than this, by `count`.
        count : callable
            Gives a text's number of tokens; default: an estimate on the high side.

        Returns
        -------
        str
            Empty where nothing was recalled, or not even one run fits.
        """
        if max_tokens < 1:
            raise UsageError(f"max_tokens={max_tokens}", fix="give 1 or more")
        events = events_of(self._index.query, self.found, self.neighbours, self._index.decisions)
        return write_prompt(self.found, events, max_tokens, count)
