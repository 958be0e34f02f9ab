"""What is remembered of all runs, kept up to date from the warehouse's views."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sag_research.bloom._entities_decisions import Decisions, read_decisions
from sag_research.bloom._query import Query
from sag_research.bloom._recall_postings import Postings
from sag_research.bloom._recall_terms import Keys, Terms, hash_names, stretches, words, words_by_key
from sag_research.extract import EntityExtractor, Vocabulary
from sag_research.model import WORKSPACE_RUN

__all__ = ["CHANNELS", "Prefix", "RecallIndex", "RunFacts", "short_name", "texts_of"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

CHANNELS: Final = ("entities", "words", "order")
"""Kinds of terms: mentions of entities, words of the texts, stretches of step tokens."""
CHUNK_STEPS: Final = {"entities": 1_000_000, "words": 100_000, "order": 100_000}
"""Steps whose terms are read at once; bounds the memory of a first reading."""
TEXT_LIMIT: Final = 8_000
"""Of each text of a step, so many characters count."""
_OUTCOMES: Final = {"success": 1, "failure": 0}


class RunFacts(NamedTuple):
    """What is known about a run beside its terms."""

    run_id: str
    task_id: str | None
    outcome: str
    n_steps: int
    parent_id: str | None
    copy_of: str | None
    usable: bool
    digest: int


class _Facts(NamedTuple):
    """Facts of all runs as arrays of shape (n_runs,)."""

    usable: Mask
    outcome: NDArray[np.int8]
    family: Ints
    digest: NDArray[np.uint64]
    task: Ints


class Prefix(NamedTuple):
    """A run so far: its terms by channel, and what entities and words are called, by key."""

    terms: dict[str, tuple[Keys, Ints]]
    names: dict[int, str]


class Log(Protocol):
    """What tells, in no time, whether the log has gained something."""

    def last_seq(self) -> int:
        """Give the number of the last event."""

    def digest_at(self, seq: int) -> Any:
        """Give what marks the event of a number."""


class RecallIndex:
    """Inverted indices over the runs of a warehouse: entities, words and order of steps.

    Everything here can be thrown away and is made again by the next recall. Entities are read
    first; words and order when a recall needs them.

    Parameters
    ----------
    query : callable
        Answers SQL over the warehouse's views, as ``Warehouse.sql`` does.
    log : Log, optional
        The log behind the warehouse, asked whether there is something new; default: by SQL.
    extractor : EntityExtractor, optional
        Resolves aliases in the names that are asked for; the shipped rules by default.
    vocabulary : Vocabulary, optional
        How a step becomes a token; the shipped one by default.

    Notes
    -----
    A run counts with its own steps: what a fork took over is remembered under the run that wrote
    it. Hidden runs (copies, runs hidden by hand) and extractions are not remembered. Names that
    were merged by a decision are one term; where a decision changes, the runs that it concerns are
    read again. The order in which facts arrived makes no difference: an index that was kept up to
    date gives the answers of one that is built anew.
    """

    def __init__(
        self,
        query: Query,
        log: Log | None = None,
        *,
        extractor: EntityExtractor | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.query = query
        self._log = log
        self.extractor = extractor or EntityExtractor()
        self._aliases: dict[str, list[str]] = {}
        self._vocabulary = vocabulary
        self.lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._seen = 0
        self._mark: Any = None
        self._channels = {name: Postings() for name in CHANNELS}
        self._stale: dict[str, set[int]] = {"entities": set()}
        self._number: dict[str, int] = {}
        self.runs: list[RunFacts] = []
        self._arrays: _Facts | None = None
        self._weighed: dict[str, _Facts] = {}
        self._ids: dict[int, str] = {}
        self._keys: dict[str, int] = {}
        self._by_name: dict[str, list[int]] = {}
        self.decisions = Decisions([], {})
        """What was decided about names of entities; merged ones are one term."""

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        parts = [f"{len(p.keys):,} {name}" for name, p in self._channels.items() if len(p)]
        return f"RecallIndex({len(self):,} runs{''.join(', ' + part for part in parts)})"

    @property
    def nbytes(self) -> int:
        """Bytes of the postings; names and facts of runs come on top."""
        return sum(postings.nbytes for postings in self._channels.values())

    # ---- keeping up

    def refresh(self) -> int:
        """Take in what the log has gained; returns how many runs were read (again)."""
        with self.lock:
            seen, same = self._head()
            if seen == self._seen and same:
                return 0
            if not same or not self._seen:  # a log may fall behind, by a power cut
                self._clear()
            changed, decided = self._changed_runs()
            if decided:
                self._decide(read_decisions(self.query))
            self._read_facts(changed)
            self._seen = seen
            self._mark = self._log.digest_at(seen) if self._log else None
            return self._mark_stale(changed)

    def _head(self) -> tuple[int, bool]:
        """Return the number of the last event, and whether the log still holds what was seen."""
        if self._log is not None:
            same = not self._seen or self._log.digest_at(self._seen) == self._mark
            return self._log.last_seq(), same
        seen = int(self.query(_sql("recall_head"), {}).arrow().column("seq").to_pylist()[0])
        return seen, seen >= self._seen

    def _changed_runs(self) -> tuple[list[str] | None, bool]:
        """Return the runs that something is new of, and whether anything is about names."""
        if not self._seen:
            return None, True
        where = {"workspace": WORKSPACE_RUN, "after": self._seen}
        found = self.query(_sql("recall_changed"), where).arrow().to_pylist()
        names = [str(row["run_id"]) for row in found if row["run_id"] is not None]
        return names, any(row["decided"] for row in found)

    def _decide(self, decisions: Decisions) -> None:
        """Take in decisions about names; what they concern is read again."""
        moved = hash_names(sorted(self.decisions.moved(decisions)))
        self.decisions = decisions
        self._stale["entities"].update(self._channels["entities"].holders(moved).tolist())
        self._call(sorted({*decisions.targets, *decisions.targets.values()}))

    def _read_facts(self, changed: list[str] | None) -> None:
        where = {"workspace": WORKSPACE_RUN, "runs": changed}
        for row in self.query(_sql("recall_runs"), where).arrow().to_pylist():
            number = self._number.setdefault(row["run_id"], len(self.runs))
            n_steps = int(row["n_steps"])
            facts = RunFacts(
                row["run_id"], row["task_id"], row["outcome"], n_steps, row["parent_id"],
                row["copy_of"], n_steps > 0 and not row["hidden"],
                int((row["digest"] or "0")[:16], 16),
            )  # fmt: skip
            if number == len(self.runs):
                self.runs.append(facts)
            self.runs[number] = facts
        self._arrays = None

    def _mark_stale(self, changed: list[str] | None) -> int:
        if changed is None:
            numbers = set(range(len(self.runs)))
        else:
            numbers = {self._number[name] for name in changed if name in self._number}
        for waiting in self._stale.values():
            waiting |= numbers
        return len(numbers)

    def channel(self, name: str) -> Postings:
        """Return an up-to-date index of one kind of terms, reading what it lacks."""
        with self.lock:
            postings = self._channels[name]
            if name not in self._stale:
                self._stale[name] = set(range(len(self.runs)))
            waiting = self._stale[name]
            if waiting:
                stale = np.array(sorted(waiting), dtype=np.int64)
                postings.drop(stale)
                for chunk in self._chunks(stale, CHUNK_STEPS[name]):
                    postings.add(*self._read(name, chunk))
                waiting.clear()
            facts = self._facts()
            if self._weighed.get(name) is not facts:
                postings.prepare(facts.usable)
                self._weighed[name] = facts
            return postings

    def _chunks(self, numbers: Ints, size: int) -> Iterator[Ints]:
        """Cut runs into stretches of about so many steps."""
        steps = np.array([self.runs[number].n_steps for number in numbers.tolist()])
        cuts = np.flatnonzero(np.diff(np.cumsum(steps) // size)) + 1
        yield from np.split(numbers, cuts)

    def _read(self, channel: str, numbers: Ints) -> Terms:
        ids = [self.runs[number].run_id for number in numbers.tolist()]
        wanted: dict[str, Any] = {"runs": ids, "numbers": numbers.tolist()}
        if channel == "entities":
            wanted |= self.decisions.renamed()
            return self._read_entities(self.query(_sql("recall_mentions"), wanted).arrow())
        rows = self.query(_sql("recall_steps"), wanted | {"clip": TEXT_LIMIT}).arrow()
        run = rows.column("run").to_numpy().astype(np.int64)
        return self._terms_of(channel, run, rows)

    def _terms_of(self, channel: str, run: Ints, rows: Any) -> Terms:
        step = rows.column("step").to_numpy().astype(np.int64)
        if channel == "words":
            return words(run, step, texts_of(rows))
        codes, names = self.vocabulary.tokens(rows)
        return stretches(run, step, [names[code] for code in codes.tolist()])

    def _read_entities(self, rows: Any) -> Terms:
        from pyarrow import compute

        ids = rows.column("entity_id")
        self._call(compute.unique(ids).to_pylist())
        return Terms(
            rows.column("run").to_numpy().astype(np.int64),
            hash_names(ids),
            rows.column("n").to_numpy().astype(np.int64),
            rows.column("first").to_numpy().astype(np.int64),
        )

    def _call(self, ids: Sequence[str]) -> None:
        """Remember what entities are called."""
        for name, key in zip(ids, hash_names(ids).tolist(), strict=True):
            if key not in self._ids:
                self._ids[key], self._keys[name] = name, key
                self._by_name.setdefault(short_name(name).casefold(), []).append(key)

    # ---- facts

    @property
    def vocabulary(self) -> Vocabulary:
        """How a step becomes a token."""
        if self._vocabulary is None:
            self._vocabulary = Vocabulary()
        return self._vocabulary

    @property
    def usable(self) -> Mask:
        """Which runs can be remembered; shape (n_runs,)."""
        return self._facts().usable

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """1 for success, 0 for failure, -1 for unknown; shape (n_runs,)."""
        return self._facts().outcome

    def _facts(self) -> _Facts:
        if self._arrays is None:
            runs = self.runs
            tasks: dict[str | None, int] = {}
            self._arrays = _Facts(
                np.array([run.usable for run in runs], dtype=bool),
                np.array([_OUTCOMES.get(run.outcome, -1) for run in runs], dtype=np.int8),
                np.array([self._root(number) for number in range(len(runs))], dtype=np.int64),
                np.array([run.digest for run in runs], dtype=np.uint64),
                np.array([tasks.setdefault(run.task_id, len(tasks)) for run in runs], np.int64),
            )
        return self._arrays

    def number_of(self, run_id: str) -> int | None:
        """Return a run's number here, None for an unknown one."""
        return self._number.get(run_id)

    def relatives(self, number: int) -> Mask:
        """Mark the runs that a run must not be reminded of: itself, and what shares its steps.

        Those are its ancestors, all forks of them, copies, and runs of equal history.
        """
        facts = self._facts()
        same_line = facts.family == facts.family[number]
        return np.asarray(same_line | (facts.digest == facts.digest[number]))

    def of_task(self, number: int) -> Mask:
        """Mark the runs of the task of a run; a run without a task has one of its own."""
        if not self.runs[number].task_id:
            return np.asarray(np.arange(len(self.runs)) == number)
        task = self._facts().task
        return np.asarray(task == task[number])

    def _root(self, number: int) -> int:
        """Follow parents and copies up to the run that has neither."""
        run = self.runs[number]
        if run.parent_id is None and run.copy_of is None:
            return number
        seen = {number}
        while (above := run.parent_id or run.copy_of) is not None:
            found = self._number.get(above)
            if found is None or found in seen:
                break
            seen.add(found)
            number, run = found, self.runs[found]
        return number

    # ---- names

    def entity_keys(self, name: str) -> list[int]:
        """Return the keys of the entities that a name means, through the alias tables.

        An entity's id is itself; a name means all entities of that name, in any case of letters;
        where there is none, what the extractor reads in it (``pg`` is ``Postgres``). A name that
        was merged into another one means that.
        """
        found = [self._keys[name]] if name in self._keys else self._by_name.get(name.casefold(), [])
        if not found:
            if name not in self._aliases:
                self._aliases[name] = _canonical(self.extractor, name)
            meant = [self._by_name.get(other.casefold(), []) for other in self._aliases[name]]
            found = [key for keys in meant for key in keys]
        ids = {self.decisions.canonical(self._ids[key]) for key in found}
        self._call(sorted(ids))
        return [self._keys[one] for one in sorted(ids)]

    def entity_id(self, key: int) -> str:
        """Return the id of the entity that has a key."""
        return self._ids[key]

    # ---- a run so far

    def prefix(self, run_id: str, step: int, channels: Sequence[str]) -> Prefix:
        """Read a run up to a step, what it took over included."""
        where: dict[str, Any] = {"run": run_id, "step": step}
        renamed = self.decisions.renamed()
        terms: dict[str, tuple[Keys, Ints]] = {}
        names: dict[int, str] = {}
        if "entities" in channels:
            found = self.query(_sql("recall_prefix_mentions"), where | renamed).arrow().to_pylist()
            ids = [row["entity_id"] for row in found]
            keys = hash_names(ids)
            names = dict(zip(keys.tolist(), ids, strict=True))
            terms["entities"] = keys, np.array([row["n"] for row in found], dtype=np.int64)
        rest = [name for name in channels if name != "entities"]
        if rest:
            rows = self.query(_sql("recall_prefix"), where | {"clip": TEXT_LIMIT}).arrow()
            run = np.zeros(len(rows), np.int64)
            for name in rest:
                found_terms = self._terms_of(name, run, rows)
                terms[name] = found_terms.key, found_terms.times
            if "words" in rest:
                names |= words_by_key(texts_of(rows))
        return Prefix(terms, names)


def texts_of(rows: Any) -> Any:
    """Join the texts of steps, one string a step."""
    from pyarrow import compute

    parts = [compute.fill_null(rows.column(n), "") for n in ("thought", "action", "observation")]
    return compute.binary_join_element_wise(*parts, "\n")


def short_name(entity_id: str) -> str:
    """Return the name in an entity's id."""
    return entity_id.split("|", 2)[-1]


def _canonical(extractor: EntityExtractor, name: str) -> list[str]:
    """Return the names of what the rules find in a name, where it is found in the whole of it."""
    found = []
    for before in ("", "error: "):  # error words count in the context of an error only
        text = before + name
        for mention in extractor.mentions(text):
            if (mention.start, mention.end) == (len(before), len(text)):
                found.append(mention.entity.name)
    return found


def _sql(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
