"""Remembering: what past runs say to the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sag_research.bloom import (
    Entities,
    Hint,
    Recall,
    RecallIndex,
    Recorder,
    RunProvenance,
    mentions_from,
    recall,
    run_provenance,
)
from sag_research.extract import EntityExtractor
from sag_research.workspace._base import Base

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Remembering"]


class Remembering(Base):
    """The methods of a workspace that recall past runs, their entities and their provenance."""

    _recall_index: RecallIndex | None = None
    _recorder: Recorder | None = None

    def entities(self) -> Entities:
        """Look at the entities of all runs: weights, relations, and decisions about their names.

        Returns
        -------
        Entities
            ``.table_``, ``.relations_``, ``.merge_candidates()``, ``.merge(a, b, by=…)``,
            ``.split(a, by=…)`` and ``.decisions_``.
        """
        return Entities(self.sql, self.store)

    @property
    def recall_index(self) -> RecallIndex:
        """What is remembered of all runs; made when first asked for, kept up to date by recalls."""
        if self._recall_index is None:
            aliases = None if self.path is None else self.path / "aliases.toml"
            known = EntityExtractor(aliases=aliases if aliases and aliases.exists() else None)
            self._recall_index = RecallIndex(self.sql, self.store, extractor=known)
        return self._recall_index

    def recall(
        self, names: Sequence[str] = (), *, run: str | None = None, step: int | None = None,
        k: int = 5, **options: Any,
    ) -> Recall:  # fmt: skip
        """Find past runs that met the same things, those that succeeded.

        Parameters
        ----------
        names : sequence of str
            Names or ids of entities; aliases count, and where no entity has a name, words do.
        run : str, optional
            The run that asks, as :meth:`resolve` takes it: it, its forks and its copies are left
            out. Without `names`, its steps so far are the question.
        step : int, optional
            With `run`: the last step that it has seen, 0-based; default: its last.
        k : int
            So many runs at most.
        **options
            ``failures=2`` for failed runs as warnings, ``outcomes="any"``, ``same_task=False``,
            ``neighbours=2``; see :func:`sag_research.bloom.recall`.

        Returns
        -------
        Recall
            ``.table_``, ``.graph``, ``.to_dict()`` and ``.prompt(max_tokens=400)``.
        """
        asker = None if run is None else self.resolve(run)
        return recall(self.recall_index, names, run=asker, step=step, k=k, **options)

    def provenance(self, run: str) -> RunProvenance:
        """Return where a run's steps, contents and changes come from, as W3C PROV.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it; of a fork, its ancestors' part is referred to.

        Returns
        -------
        RunProvenance
            ``.table_``, ``.validate()``, ``.to_networkx()``, ``.sparql(query)`` and
            ``.export("trig" | "nquads" | "jsonld" | "prov-json", path)``.
        """
        mentions = mentions_from(self.sql)
        return run_provenance(self.store, self.resolve(run), mentions=mentions)

    @property
    def recorder(self) -> Recorder:
        """All runs as RDF, made when first asked for; ``catch_up()`` takes what is new."""
        if self._recorder is None:
            self._recorder = Recorder(self.store, mentions=mentions_from(self.sql))
        return self._recorder

    def sparql(self, query: str, substitutions: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Query the provenance of all runs with SPARQL; sees all that is committed.

        Parameters
        ----------
        query : str
            The prefixes ``prov sag id pplan rdf rdfs xsd`` are declared; without ``GRAPH``,
            patterns look at all graphs.
        substitutions : mapping, optional
            Values of variables by name, the way to bring text of others into a query.

        Notes
        -----
        The first query reads the whole log; later ones read what it has gained. What the graphs
        of several runs say (that an entity is one) is found once in each: ``DISTINCT`` helps.
        """
        self.recorder.catch_up()
        return self.recorder.traces.sparql(query, substitutions)

    def hint(self, run: str, *, max_chars: int = 2_000) -> Hint:
        """Recall a run in one line for the next run's prompt: what it thought, did and saw.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it.
        max_chars : int
            The text is not longer.

        Returns
        -------
        Hint
            A ``str``. Text that could be more than text is a JSON string in it. An agent of
            ``sag.react(…, hint=hint)`` has it in its run's provenance; for others append
            ``hint.event(run_id)`` to the log.
        """
        return run_provenance(self.store, self.resolve(run)).hint(max_chars=max_chars)
