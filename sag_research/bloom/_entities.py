"""The entities of a workspace: what they weigh, which names mean the same, and who decided so.

Names are merged by a decision that someone has reviewed. A decision is an event on the
workspace's own run (``entity.merged``, ``entity.split``), so it can be undone, and nothing in the
log or in the mentions is rewritten: the decisions are applied when entities are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sag_research._text import escape, html_table, repair
from sag_research.bloom._entities_candidates import find_candidates
from sag_research.bloom._entities_decisions import Decisions, read_decisions, read_sql
from sag_research.bloom._query import Query
from sag_research.bloom._weigh import is_stop, rarity
from sag_research.errors import MissingDataError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Entities"]

_SHOWN: Final = 10


class Entities:
    r"""The entities of all runs, under the decisions about their names.

    Parameters
    ----------
    query : callable
        Answers SQL over the warehouse's views, as ``Warehouse.sql`` does.
    store : SQLiteEventStore
        The log that decisions are written to.

    Notes
    -----
    Hidden runs, and steps that a run took over from another one, support nothing. In each run,
    files below the run's repository root lose it; the root is read off the run's own paths, see
    :attr:`roots_`.

    Examples
    --------
    >>> import sag_research as sag
    >>> from sag_research.bloom import Entities
    >>> ws = sag.open(":memory:")
    >>> run = ws.add({"task_id": "t", "steps": [
    ...     {"thought": "", "action": "psql", "observation": "billdb.BillError: no\nTypeError: x"},
    ...     {"thought": "", "action": "", "observation": "raise BillError()"}]})
    >>> entities = Entities(ws.sql, ws.store)
    >>> entities.merge_candidates()[["source", "target", "why"]].values.tolist()
    [['Error||BillError', 'Error||billdb.BillError', 'last part']]
    >>> _ = entities.merge("BillError", "billdb.BillError", by="me")
    >>> entities.table_.query("kind == 'Error'")["name"].tolist()
    ['billdb.BillError', 'TypeError']
    >>> _ = entities.split("BillError", by="me", reason="another package")
    >>> len(entities.table_.query("kind == 'Error'"))
    3
    """

    def __init__(self, query: Query, store: SQLiteEventStore) -> None:
        self._query = query
        self._store = store

    def __repr__(self) -> str:
        table = self.table_
        stop = int(table["stop"].sum())
        merged = len(self.canonical())
        return f"Entities({len(table)} entities, {stop} of them in every run, {merged} merged)"

    def _repr_html_(self) -> str:
        columns = ["kind", "scope", "name", "runs", "steps", "weight"]
        rows = self.table_[columns].head(_SHOWN).round(2).values.tolist()
        return f"<div><b>{escape(repr(self))}</b>{html_table(columns, rows)}</div>"

    @cached_property
    def table_(self) -> pd.DataFrame:
        """One row an entity, the most telling first.

        Columns ``entity_id kind scope name``, ``runs`` and ``steps`` that name it, ``mentions``,
        ``mutated`` (steps that changed it), ``weight`` (steps times :func:`rarity`), ``stop`` (it
        stands in every run, so it tells nothing and weighs nothing), and ``merged``, the ids that
        were merged into it.
        """
        frame = self._rows("entity_table", self._names)
        total = self._rows("total", {"workspace": WORKSPACE_RUN})["n"].iloc[0]
        frame["weight"] = [
            steps * rarity(int(total), int(runs))
            for steps, runs in zip(frame["steps"], frame["runs"], strict=True)
        ]
        frame["stop"] = [is_stop(int(total), int(runs)) for runs in frame["runs"]]
        members = self._decisions.members()
        frame["merged"] = [members.get(one, []) for one in frame["entity_id"]]
        frame = frame.sort_values(["weight", "entity_id"], ascending=[False, True], kind="stable")
        return frame.reset_index(drop=True)

    @cached_property
    def relations_(self) -> pd.DataFrame:
        """One row a relation and the step that shows it, with the places in its text.

        Columns ``source_id type target_id run_id position step rule``, and ``field``,
        ``source_start source_end target_start target_end``: the nearest two mentions, in code
        points; NULL where an end has no mention of its own (the file of a test's id).
        """
        return self._rows("entity_relations", self._names)

    @cached_property
    def decisions_(self) -> pd.DataFrame:
        """Every decision in order: ``position type source target by reason stands``."""
        return self._decisions.table()

    @cached_property
    def roots_(self) -> pd.DataFrame:
        """The repository root of each run as its paths show it: ``run_id root n``.

        A root is what stands before a relative path in an absolute one of the same run: runs
        that name ``/srv/x/a/b.py`` and ``a/b.py`` have the root ``/srv/x``. ``n`` counts the
        different files that say so; the root with most of them counts, then the shorter. One
        file without a folder is no evidence.
        """
        return self._rows("entity_roots", {})

    def mentions(self, entity: str) -> pd.DataFrame:
        """Return every mention of an entity, those of names merged into it included.

        Returns
        -------
        pandas.DataFrame
            ``run_id position step field start end role rule version entity_id``; the last is the
            id as extraction gave it.
        """
        return self._rows("entity_mentions", {**self._names, "entity": self.find(entity)})

    def find(self, entity: str) -> str:
        """Return the canonical id of an entity, given its id or its name.

        Raises
        ------
        MissingDataError
            If there is none, or several of that name.
        """
        found = self._find_raw(entity)
        return self._decisions.canonical(found)

    def merge_candidates(self, kind: str | None = None, limit: int = 100) -> pd.DataFrame:
        """Propose names that may mean the same. Nothing is merged.

        Proposed are pairs of one kind and scope that differ in spelling alone (case, ``-_.``), a
        name and the same one with its package before it (errors, tests), and a file's bare name
        where only one path of the runs ends with it. Pairs that were decided, either way, are
        not proposed again.

        Returns
        -------
        pandas.DataFrame
            ``source target kind why runs_source runs_target runs_both``; most shared runs first.
        """
        decided = self._decisions.decided()
        found = [
            pair
            for pair in find_candidates(self.table_)
            if (kind is None or pair.kind == kind) and pair.key not in decided
        ]
        shared = self._shared([(pair.source, pair.target) for pair in found])
        return _candidate_frame(found, shared).head(limit)

    def merge(self, source: str, target: str, *, by: str, reason: str = "") -> Event:
        """Decide that one name means the same as another.

        Parameters
        ----------
        source, target : str
            Ids or names; from now on `source` counts as `target`.
        by : str
            Who has looked at it.

        Returns
        -------
        Event
            The decision, ``entity.merged``, as it stands in the log.

        Raises
        ------
        UsageError
            If the two are one already or of different kinds, or nobody decides.
        """
        self._look_again()
        old, new = self._find_raw(source), self._find_raw(target)
        if old.partition("|")[0] != new.partition("|")[0]:
            raise UsageError(f"{old!r} and {new!r} are of different kinds")
        if self._decisions.canonical(old) == self._decisions.canonical(new):
            raise UsageError(f"{old!r} and {new!r} are one entity already")
        if old in self._decisions.targets:
            raise UsageError(
                f"{old!r} was merged into {self._decisions.targets[old]!r}", fix="split it first"
            )
        return self._decide("entity.merged", old, new, by, reason)

    def split(self, entity: str, *, by: str, reason: str = "") -> Event:
        """Undo the merge of a name; it stands for itself again.

        Raises
        ------
        UsageError
            If it was not merged into another, or nobody decides.
        """
        self._look_again()
        old = self._find_raw(entity)
        if old not in self._decisions.targets:
            raise UsageError(
                f"{old!r} was not merged into another entity", fix="see the table `decisions_`"
            )
        return self._decide("entity.split", old, self._decisions.targets[old], by, reason)

    def canonical(self) -> dict[str, str]:
        """Return the decisions that stand: id as extracted to id that it counts as."""
        pairs = {old: self._decisions.canonical(old) for old in self._decisions.targets}
        return {old: new for old, new in pairs.items() if old != new}

    @cached_property
    def _decisions(self) -> Decisions:
        return read_decisions(self._query)

    @property
    def _names(self) -> dict[str, Any]:
        """Parameters of the queries: ids merged away, what they count as, roots of runs."""
        canonical = self.canonical()
        return {
            "old": list(canonical), "new": list(canonical.values()),
            "rooted": self.roots_["run_id"].tolist(), "roots": self.roots_["root"].tolist(),
        }  # fmt: skip

    def _decide(self, type_: str, source: str, target: str, by: str, reason: str) -> Event:
        if not by.strip():
            raise UsageError("a decision needs somebody who made it", fix="give by='your name'")
        payload = {"source": source, "target": target, "by": by, "reason": reason}
        event = self._store.append(
            Event(run_id=WORKSPACE_RUN, type=type_, payload=payload, actor=by)
        )
        self._look_again()
        return event

    def _look_again(self) -> None:
        """Forget what was read: others decide, too."""
        for name in ("table_", "relations_", "decisions_", "roots_", "_decisions"):
            self.__dict__.pop(name, None)

    def _find_raw(self, entity: str) -> str:
        entity = repair(entity)
        ids = self._rows("find_entity", {"entity": entity})["entity_id"].tolist()
        if not ids:  # a file that no run names without its repository's root
            known = self.table_[["entity_id", "name"]]
            ids = known.loc[(known == entity).any(axis=1), "entity_id"].tolist()
        if len(ids) == 1:
            return str(ids[0])
        if ids:
            raise MissingDataError(
                f"{len(ids)} entities are called {entity!r}",
                why=", ".join(map(repr, ids[:_SHOWN])),
                fix="give the id of one",
            )
        raise MissingDataError(
            f"no entity has the id or name {entity!r}", fix="look it up in the view `entities`"
        )

    def _shared(self, pairs: list[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        if not pairs:
            return {}
        sources, targets = zip(*pairs, strict=True)
        where = {"sources": list(sources), "targets": list(targets)}
        rows = self._query(read_sql("entity_shared_runs"), where).arrow().to_pylist()
        return {(row["source"], row["target"]): row["n"] for row in rows}

    def _rows(self, name: str, parameters: Mapping[str, Any]) -> pd.DataFrame:
        frame: pd.DataFrame = self._query(read_sql(name), parameters).arrow().to_pandas()
        return frame


def _candidate_frame(found: list[Any], shared: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    import pandas as pd

    columns = ["source", "target", "kind", "why", "runs_source", "runs_target", "runs_both"]
    records = [
        (p.source, p.target, p.kind, p.why, p.runs_source, p.runs_target,
         shared.get((p.source, p.target), 0))
        for p in found
    ]  # fmt: skip
    frame = pd.DataFrame.from_records(records, columns=columns)
    order = ["runs_both", "runs_target", "source", "target"]
    ascending = [False, False, True, True]
    return frame.sort_values(order, ascending=ascending, kind="stable").reset_index(drop=True)
