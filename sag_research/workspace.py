"""A study: one folder on disk, and the front door to all rooms."""

from __future__ import annotations

import os
import platform
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from os import PathLike, environ, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sag_research import __version__
from sag_research._text import atomic_write, clip, escape, strip_terminal
from sag_research.bloom import BloomGraph, bloom
from sag_research.errors import RunNotFoundError, StoreError, UsageError
from sag_research.extract import EntityExtractor
from sag_research.ingest import (
    CopyReport,
    IngestReport,
    LabelReport,
    add,
    apply_labels,
    data_card,
    fetched_sets,
    hide,
    hide_copies,
    ingest,
    load_public,
    read_labels,
    show,
)
from sag_research.ingest.registry import bibtex, cite, public_set, public_sets
from sag_research.lab import bundled
from sag_research.llm import RecordedCalls, recorded_calls
from sag_research.log import Redaction, SQLiteEventStore, VerifyReport
from sag_research.model import WORKSPACE_RUN, Run
from sag_research.runtime import Lineage, ReplayReport, RunDiff, diff, lineage, replay, replay_named
from sag_research.viz import report_page, report_tables
from sag_research.viz import scene as graph_scene
from sag_research.warehouse import QueryResult, SyncReport, Warehouse, step_table

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

    from sag_research.deadend import Comparison, Prefixes
    from sag_research.extract import Vocabulary
    from sag_research.viz import DeadEndReport

__all__ = ["Provenance", "Workspace", "bundled", "default_path", "open", "provenance"]

_STEP_COLUMNS = (
    "run_id", "step", "position", "thought", "action", "observation", "n_calls", "tool",
    "exit_code", "seconds", "tokens_in", "tokens_out", "cost_usd", "started_at", "inherited",
    "flags",
)  # fmt: skip


def default_path() -> str:
    """Return the workspace that is meant where none is named."""
    return environ.get("SAG_WORKSPACE", "sag-workspace")


def open(path: str | PathLike[str] | None = None, *, create: bool = True) -> Workspace:
    """Open a workspace.

    Parameters
    ----------
    path : path-like, optional
        A folder, made where it does not exist; ``":memory:"`` for one that leaves nothing behind;
        default ``$SAG_WORKSPACE``, else ``sag-workspace`` in the current folder.
    create : bool
        Whether a workspace may be made where there is none.

    Raises
    ------
    StoreError
        If there is no workspace and ``create`` is false, or its log cannot be opened.
    """
    return Workspace(default_path() if path is None else path, create=create)


class Workspace:
    """Runs, labels and everything computed from them; made by :func:`sag_research.open`.

    A workspace may be used by several notebooks, agents and command lines at once. It is a
    context manager, and safe to forget to close.

    Attributes
    ----------
    path : pathlib.Path or None
        The folder, ``None`` in memory.
    store : SQLiteEventStore
        The log, which is the truth.
    warehouse : Warehouse
        The DuckDB side, which can be thrown away.
    """

    def __init__(self, path: str | PathLike[str], *, create: bool = True) -> None:
        if not fspath(path):
            raise UsageError("a workspace needs a name", fix="give a folder, or ':memory:'")
        self.path = None if fspath(path) == ":memory:" else Path(path)
        if self.path is None:
            log, folder, aliases = ":memory:", None, None
        else:
            log, folder = str(self.path / "log.sqlite"), self.path / "warehouse"
            aliases = self.path / "aliases.toml"
            self._make_folder(self.path, create)
        frozen = self.path is not None and not os.access(self.path, os.W_OK)
        self.store = SQLiteEventStore(log, read_only=frozen)
        extractor = EntityExtractor(aliases=aliases if aliases and aliases.exists() else None)
        self.warehouse = Warehouse(folder, self.store, extractor=extractor)

    @staticmethod
    def _make_folder(path: Path, create: bool) -> None:
        if not create and not (path / "log.sqlite").exists():
            raise StoreError(
                f"no workspace at {path}",
                fix="name one with -w, or make one with `sag ingest` or sag.open(path)",
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise StoreError(f"{path!s} cannot be a workspace", why=why) from error

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the log and the warehouse; closing twice does nothing."""
        self.warehouse.close()
        self.store.close()

    def __repr__(self) -> str:
        return f"Workspace({'in memory' if self.path is None else str(self.path)!r})"

    def _repr_html_(self) -> str:
        counts = " · ".join(f"{n:,} {name}" for name, n in self.info()["counts"].items())
        return f"<div><b>{escape(repr(self))}</b><br>{escape(counts)}</div>"

    # ---- filling

    def ingest(
        self,
        *paths: str | PathLike[str],
        labels: str | PathLike[str] | None = None,
        format: str | None = None,
        progress: bool = True,
        jobs: int = 1,
        recheck: bool = False,
    ) -> IngestReport:
        """Read trajectories from files and folders.

        Parameters
        ----------
        *paths : path-like
            Files, or folders walked to their end.
        labels : path-like, optional
            A report, a folder of reports or a CSV; see :meth:`label`.
        format : str, optional
            Take every file for this format; default: each file's content decides.
        progress : bool
            Show a progress bar where someone can see it.
        jobs : int
            Processes that read; pays for many or large files. The result is the same.
        recheck : bool
            Read files again that look as they did when they were last read.

        Returns
        -------
        IngestReport
            Every input is in it: ingested, duplicate, ignored or rejected, with the reason.
        """
        if not paths:
            raise UsageError("nothing to ingest", fix="name at least one file or folder")
        report = ingest(
            self.store,
            list(paths),
            labels=labels,
            format=format,
            progress=progress,
            jobs=jobs,
            recheck=recheck,
        )
        try:
            self.sync()
        except OSError as error:  # the runs are in the log; only the projection is behind
            warnings.warn(f"the warehouse could not be written: {error}", stacklevel=2)
        self.store.checkpoint()
        return report

    def load_public(
        self, name: str, folder: str | PathLike[str] | None = None, *, limit: int | None = None
    ) -> IngestReport:
        """Read a public set that was fetched with ``sag datasets fetch``.

        Parameters
        ----------
        name : str
            As ``sag datasets list`` has it.
        folder : path-like, optional
            Where its files are; default ``sag-datasets/NAME``.
        limit : int, optional
            Only so many runs, for sets that are read through agentpile.
        """
        place = Path("sag-datasets") / name if folder is None else Path(folder)
        if public_set(name).formats:
            return self.ingest(place)
        report = load_public(self.store, name, place, limit=limit)
        self.sync()
        return report

    def add(self, record: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str | list[str]:
        """Add one run, or several, from plain dictionaries.

        Parameters
        ----------
        record : mapping or iterable of mappings
            ``{"task_id": …, "steps": [{"thought": …, "action": …, "observation": …}], …}``, the
            shape of native JSONL.

        Returns
        -------
        str or list of str
            The run's id, or one for each record.
        """
        if isinstance(record, Mapping):
            return add(self.store, record)[0]
        return add(self.store, record)

    def label(self, path: str | PathLike[str]) -> LabelReport:
        """Record outcomes from a label file, at any time after the runs.

        Parameters
        ----------
        path : path-like
            A SWE-bench style report, a folder of them, or a CSV with a key column (``path``,
            ``run_id`` or ``task_id``) and ``outcome``.
        """
        return apply_labels(self.store, read_labels(path))

    def prefixes(
        self,
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        vocabulary: Vocabulary | None = None,
        texts: bool = True,
        entities: bool = True,
    ) -> Prefixes:
        """Read a cohort for failure-prefix analysis: tokens, groups and labels of its runs.

        Parameters
        ----------
        where : str
            An SQL condition over the view ``runs``, e.g. ``"dataset = ?"``.
        parameters : sequence or mapping, optional
            Values for the condition.
        vocabulary : Vocabulary, optional
            How a step becomes a token; the shipped one by default.
        texts, entities : bool
            Keep the texts, and the entities each step mentions, for the models that read them.

        Returns
        -------
        Prefixes
            Forks, copies and runs without steps are left out and counted in ``left_out``.
        """
        from sag_research.deadend import read_prefixes  # scikit-learn takes a second to import

        return read_prefixes(
            self.warehouse, where, parameters, vocabulary=vocabulary, texts=texts, entities=entities
        )

    def compare(
        self,
        by: str = "model",
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        ks: Sequence[int] = (1, 2, 4),
        seed: int = 0,
    ) -> Comparison:
        """Compare success between the values of a column: rates, pass@k, paired differences.

        Parameters
        ----------
        by : str
            A column of the view ``runs``, e.g. ``model``, ``agent`` or ``repo``.
        where : str
            An SQL condition over ``runs``. Forks, whose first steps are another run's, are left
            out unless it speaks of ``parent_id``, and copies unless it speaks of ``hidden``.
        parameters : sequence or mapping, optional
            Values for the condition.
        ks : sequence of int
            For pass@k.
        seed : int
            Of the resamples of tasks.

        Returns
        -------
        Comparison
            ``.table_`` and ``.paired_``, with intervals clustered by task.
        """
        from sag_research.deadend import compare

        kept = "true" if "parent_id" in where else "parent_id IS NULL"
        return compare(
            self.runs(f"({_shown(where)}) AND kind <> 'extraction' AND {kept}", parameters),
            by=by,
            ks=tuple(ks),
            seed=seed,
        )

    # ---- looking

    def runs(
        self, where: str = "true", parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the view ``runs`` as a DataFrame, one row a run.

        Parameters
        ----------
        where : str
            An SQL condition, e.g. ``"model = ?"``.
        parameters : sequence or mapping, optional
            Values for the condition.
        """
        return self.sql(_cohort("*", where, "ORDER BY seq"), parameters).df()

    def copies(self) -> pd.DataFrame:
        """List the runs that are hidden: copies with the run they are, and those hidden by hand.

        Returns
        -------
        DataFrame
            Columns run_id, copy_of, reason, path, format, outcome, shown_outcome; the last is
            the outcome of the run that counts instead. Where both are known and differ, the
            copies contradict each other.

        Notes
        -----
        Copies are found by each ingest: runs of one task whose actions are equal once spelling
        is taken away, and files that were overwritten. :meth:`show` lets a run count again.
        """
        return self.sql(_COPIES).df()

    def find_copies(self) -> CopyReport:
        """Look for copies among all runs, those added by hand included, and hide them."""
        return hide_copies(self.store)

    def hide(self, *runs: str, reason: str = "") -> None:
        """Keep runs out of statistics; they stay in :meth:`runs`, marked as hidden."""
        for run_id in [self.resolve(run) for run in runs]:
            hide(self.store, run_id, reason)

    def show(self, *runs: str, reason: str = "") -> None:
        """Let hidden runs count again; no ingest hides them any more."""
        for run_id in [self.resolve(run) for run in runs]:
            show(self.store, run_id, reason)

    def steps(self, run: str, *, clean: bool = False) -> pd.DataFrame:
        """Return a run's steps, read from the log, those inherited from its ancestors included.

        Parameters
        ----------
        run : str
            Id, unique prefix, or a task with one run.
        clean : bool
            Give the texts as a terminal would have shown them: without colour codes, with
            backspaces and carriage returns carried out. The log keeps them as they came.

        Returns
        -------
        DataFrame
            One row a step, with the columns of the view ``steps``; ``run_id`` names the run
            that wrote the step.
        """
        table = self.step_rows(run).df()
        for column in ("thought", "action", "observation") if clean else ():
            table[column] = table[column].map(strip_terminal)
        return table

    def step_rows(self, run: str) -> QueryResult:
        """Return what :meth:`steps` does, with exact numbers and NULLs instead of pandas' NaN."""
        run_id = self.resolve(run)
        events = self.store.read(run_id, types=("agent.step",))
        return QueryResult(step_table(events, run_id).select(list(_STEP_COLUMNS)))

    def sql(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> QueryResult:
        """Query everything with DuckDB SQL; sees all that is committed.

        Returns
        -------
        QueryResult
            ``.df()`` for pandas, ``.pl()`` for polars, ``.arrow()``, ``.rows()``.
        """
        return self.warehouse.sql(query, parameters)

    def schema(self, view: str | None = None) -> pd.DataFrame:
        """Say what the views' columns are and mean, for one view or all."""
        return self.warehouse.schema(view).df()

    @property
    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection; it shows the state of the last ``sql`` or ``refresh``."""
        return self.warehouse.connection

    def resolve(self, run: str) -> str:
        """Return the id of the run that is meant.

        Parameters
        ----------
        run : str
            Id, unique prefix of an id, or a task with one run.

        Raises
        ------
        RunNotFoundError
            If none is meant, or several; the message lists the candidates.
        """
        if run != WORKSPACE_RUN and self.store.has_run(run):
            return run
        query = """
            SELECT run_id, task_id = $name AND parent_id IS NULL AS is_task FROM runs
            WHERE task_id = $name OR starts_with(run_id, $name) ORDER BY is_task DESC, seq"""
        found = self.sql(query, {"name": run}).rows()
        # a task means the run that attempted it, not its forks
        tasks = [run_id for run_id, is_task in found if is_task]
        candidates = tasks or [run_id for run_id, _ in found]
        if len(candidates) == 1:
            return str(candidates[0])
        if not candidates:
            raise RunNotFoundError(f"no run {run!r}", fix="list the runs with `sag runs`")
        more = f" and {len(candidates) - 8} more" if len(candidates) > 8 else ""
        raise RunNotFoundError(
            f"{run!r} may be any of {len(candidates)} runs",
            why=", ".join(candidates[:8]) + more,
            fix="give one of these ids",
        )

    def digest(
        self,
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> str:
        """Return a fingerprint of a cohort to cite: 16 hex digits over its runs and outcomes.

        The same files and labels give the same fingerprint on any machine. Copies are left out
        unless the condition speaks of ``hidden``.
        """
        query = _cohort("run_id, digest, outcome", _shown(where), "ORDER BY run_id")
        state = blake2b(digest_size=8)
        for row in self.sql(query, parameters).rows():
            state.update("\t".join(row).encode() + b"\n")
        return state.hexdigest()

    def sources(self) -> pd.DataFrame:
        """Return every file that was read: what became of it, and why."""
        return self.sql("SELECT * FROM sources ORDER BY path, root").df()

    def public_sets(self) -> dict[str, str]:
        """Return the public sets that runs came from, with the commit where it was recorded."""
        columns = "format, dataset FROM sources JOIN runs USING (source_id)"
        rows = self.sql(f"SELECT DISTINCT {columns} WHERE status = 'ingested'").rows()
        formats, names = ({row[place] for row in rows} for place in (0, 1))
        found = {
            name: ""
            for name, one in public_sets().items()
            if one.hub in names or (one.formats[:1] and one.formats[0] in formats & _OF_ONE_SET)
        }
        roots = self.sql("SELECT DISTINCT root FROM sources WHERE status = 'ingested'").rows()
        return found | fetched_sets(str(root) for (root,) in roots if root)

    def cite(self) -> str:
        """Return BibTeX for public sets, agents and benchmarks that the workspace holds.

        Sets are known by what their files say, and by the card that a fetch leaves beside them.
        Check it: what runs were given without a name is not in it.
        """
        formats = self.sql("SELECT DISTINCT format FROM sources WHERE status = 'ingested'").rows()
        held = self.public_sets()
        works = cite(held, [name for (name,) in formats], version=__version__)
        commits = [f"% {name}: {commit or 'commit not recorded'}" for name, commit in held.items()]
        return "\n".join([*commits, bibtex(works)])

    def card(self, title: str = "", *, licence: str = "", where: str = "true") -> str:
        """Write a data card in Markdown: runs, tasks, outcomes, formats, copies, digest.

        Parameters
        ----------
        title : str
            Default: the workspace's name.
        licence : str
            What the runs may be used under; you have to know.
        where : str
            An SQL condition over ``runs``, for a part of the workspace.
        """
        return data_card(
            lambda query: self.sql(query).rows(),
            digest=self.digest(where),
            title=title or (self.path.name if self.path else "Agent runs"),
            licence=licence,
            where=where,
            sets=self.public_sets(),
            version=__version__,
        )

    def info(self) -> dict[str, Any]:
        """Return what the workspace holds, and how much room it takes on disk, in bytes."""
        queries = {
            "runs": "SELECT count(*) FROM runs",
            "tasks": "SELECT count(DISTINCT task_id) FROM runs",
            "steps": "SELECT count(*) FROM steps WHERE NOT inherited",
            "events": "SELECT count(*) FROM events",
            "entities": "SELECT count(*) FROM entities",
            "mentions": "SELECT count(*) FROM mentions",
            "sources": "SELECT count(*) FROM sources",
            "hidden": "SELECT count(*) FROM runs WHERE hidden",
        }
        counts = {name: int(self.sql(query).rows()[0][0]) for name, query in queries.items()}
        outcomes = "SELECT outcome, count(*) FROM runs GROUP BY 1 ORDER BY 1"
        return {
            "path": None if self.path is None else str(self.path),
            "counts": counts,
            "outcomes": dict(self.sql(outcomes).rows()),
            "digest": self.digest(),
            "bytes": {} if self.path is None else _sizes(self.path),
        }

    def bloom(
        self,
        runs: str | Sequence[str] | None = None,
        *,
        entity: str | None = None,
        neighbours: int = 1,
        **options: Any,
    ) -> BloomGraph:
        """Bloom one run, several, or the surroundings of an entity into a graph.

        Parameters
        ----------
        runs : str or sequence of str, optional
            Runs as :meth:`resolve` takes them; default: all.
        entity : str, optional
            An entity's id or name: the steps that name it, and their neighbours.
        neighbours : int
            With ``entity``: how many steps before and after.
        **options
            As for :func:`sag_research.bloom.bloom`.
        """
        named = [runs] if isinstance(runs, str) else runs
        wanted = None if named is None else [self.resolve(run) for run in named]
        return bloom(self.sql, wanted, entity=entity, neighbours=neighbours, **options)

    def report(
        self,
        path: str | PathLike[str],
        run: str | None = None,
        *,
        deadend: DeadEndReport | None = None,
    ) -> Path:
        """Write the workspace on one self-contained HTML page: tables, and one run's graph.

        Parameters
        ----------
        path : path-like
            The file to write.
        run : str, optional
            The run to draw; default: the longest one of at most 40 steps.
        deadend : DeadEndReport, optional
            What :func:`sag_research.viz.deadend_report` found, as a section of the page.
        """
        info = self.info()
        drawn = self.resolve(run) if run is not None else self._telling_run()
        scene = None if drawn is None else graph_scene(self.bloom(drawn).nx)
        counts = info["counts"]
        page = report_page(
            "Agent runs: an overview",
            f"{counts['runs']:,} runs of {counts['tasks']:,} tasks, {counts['steps']:,} steps, "
            f"{counts['entities']:,} entities named {counts['mentions']:,} times.",
            report_tables(self.sql),
            scene,
            f"Cohort digest {info['digest']}; {provenance()!r}.",
            deadend,
        )
        with atomic_write(path) as file:
            file.write(page.encode("utf-8"))
        return Path(path)

    def _telling_run(self) -> str | None:
        query = "SELECT run_id FROM runs ORDER BY n_steps > 40, n_steps DESC, run_id LIMIT 1"
        rows = self.sql(query).rows()
        return str(rows[0][0]) if rows else None

    # ---- the log

    def fork(
        self,
        run: str,
        *,
        at: int | None = None,
        step: int | None = None,
        intervention: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        label: str = "",
    ) -> Run:
        """Branch a run at an event position or a step; costs one row and one event.

        Parameters
        ----------
        run : str
            The parent, as :meth:`resolve` takes it.
        at : int, optional
            The child sees the parent's events 1..at.
        step : int, optional
            Instead: the child sees everything up to the event of this 0-based step.
        intervention : mapping, optional
            What is changed; kept as the payload of ``run.forked``.
        """
        return self.store.fork(
            self.resolve(run), at=at, step=step, run_id=run_id, intervention=intervention,
            label=label,
        )  # fmt: skip

    def lineage(self, run: str) -> Lineage:
        """Return a run's relatives, root to leaves: ``.table_`` and ``.plot(ax=ax)``."""
        outcomes = dict(self.sql("SELECT run_id, outcome FROM runs").rows())
        return lineage(self.store, self.resolve(run), outcomes=outcomes)

    def diff(self, a: str, b: str) -> RunDiff:
        """Compare two runs: the shared prefix, where they part, and the aligned rest."""
        return diff(self.store, self.resolve(a), self.resolve(b))

    def recorded_calls(self, run: str) -> RecordedCalls:
        """List a run's recorded calls: what was asked, live or reused, and what it cost."""
        return recorded_calls(self.store, self.resolve(run))

    def replay(
        self, run: str, what: Any = None, *, strict: bool = True, **options: Any
    ) -> ReplayReport:
        """Run behaviours or an agent again against a recording; see :func:`sag_research.replay`.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it.
        what : ReactiveRuntime, behaviours, callable ``agent(ctx)``, or str, optional
            A text names one of these: ``"module:name"`` or ``"path/to/file.py:name"``; default:
            what the run's configuration says under ``entry_point``.
        strict : bool
            Raise at the first divergence instead of reporting it.
        **options
            As for :func:`sag_research.replay`; for a text also ``factory=True``, where it names
            a function of ``(change, seed)`` that makes the agent.
        """
        if what is None or isinstance(what, str):
            return replay_named(self.store, self.resolve(run), what, strict=strict, **options)
        return replay(self.store, self.resolve(run), what, strict=strict, **options)

    def flatten(self, run: str, new_id: str | None = None) -> Run:
        """Copy a fork's whole lineage into a run of its own; the digests stay equal."""
        return self.store.flatten(self.resolve(run), new_id)

    def redact(self, run: str, position: int, reason: str = "") -> Redaction:
        """Take an event's text out of the log for good, and out of the warehouse.

        The digest stays, so :meth:`verify` still holds. Files of the warehouse that held the
        text are written anew and removed at once; where another process is syncing just now,
        with the next sync or query. Texts that other events hold too stay there: see ``kept``.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it.
        position : int
            Of the event; of a fork also an inherited one, which then is gone for all.
        reason : str
            Stands in the text's place for good.
        """
        redaction = self.store.redact(self.resolve(run), position, reason)
        self.sync()
        return redaction

    def verify(self, run: str | None = None) -> VerifyReport:
        """Check that the log is what was written."""
        return self.store.verify(None if run is None else self.resolve(run))

    # ---- upkeep

    def refresh(self) -> int:
        """Make everything committed visible on :attr:`duckdb`; returns the events loaded."""
        return self.warehouse.refresh()

    def sync(self) -> SyncReport:
        """Write what the log has gained into the warehouse's segments."""
        return self.warehouse.sync()

    def rebuild(self) -> SyncReport:
        """Throw the warehouse away and build it again from the log."""
        return self.warehouse.rebuild()

    def export_duckdb(self, path: str | PathLike[str]) -> Path:
        """Write a plain ``.duckdb`` file for other programs; see :class:`Warehouse`."""
        return self.warehouse.export_duckdb(path)


def _cohort(columns: str, where: str, order: str) -> str:
    # the condition is the user's own SQL, like the text of ws.sql; values are bound
    return f"SELECT {columns} FROM runs WHERE ({where}) {order}"  # noqa: S608


def _shown(where: str) -> str:
    """Leave hidden runs out, unless the condition speaks of them itself."""
    return where if re.search(r"\b(hidden|copy_of)\b", where) else f"({where}) AND NOT hidden"


_COPIES = """
    SELECT r.run_id, r.copy_of, r.hidden_reason AS reason, s.path, s.format, r.outcome,
           shown.outcome AS shown_outcome
    FROM runs r LEFT JOIN runs shown ON shown.run_id = r.copy_of
         LEFT JOIN (SELECT source_id, min(path) AS path, any_value(format) AS format
                    FROM sources WHERE status = 'ingested' GROUP BY source_id) s
         ON s.source_id = r.source_id
    WHERE r.hidden ORDER BY r.copy_of, r.seq"""


_OF_ONE_SET = frozenset({"nebius-swe-agent", "nebius-openhands", "swe-gym"})
"""Formats in which one public set alone is written."""


def _sizes(path: Path) -> dict[str, int]:
    log = sum(file.stat().st_size for file in path.glob("log.sqlite*"))
    warehouse = sum(f.stat().st_size for f in (path / "warehouse").rglob("*") if f.is_file())
    return {"log": log, "warehouse": warehouse}


class Provenance:
    """What a result was made with. The text form is stable; the HTML form has the details."""

    def __init__(self, seed: int | None, cohort: str | None) -> None:
        self.seed, self.cohort = seed, cohort
        self.versions = {"sag_research": __version__} | {n: _version(n) for n in _VERSIONED}

    def __repr__(self) -> str:
        parts = [f"sag_research {self.versions['sag_research']}"]
        parts += [f"seed {self.seed}"] if self.seed is not None else []
        parts += [f"cohort {self.cohort}"] if self.cohort is not None else []
        return f"Provenance({', '.join(parts)})"

    def _repr_html_(self) -> str:
        versions = {**self.versions, "python": platform.python_version()}
        details = ", ".join(f"{name} {number}" for name, number in versions.items())
        return f"<div><b>{escape(repr(self))}</b><br>{escape(clip(details, 400))}</div>"


_VERSIONED = ("duckdb", "pandas", "polars", "pyarrow", "networkx", "numpy")


def provenance(seed: int | None = None, ws: Workspace | None = None) -> Provenance:
    """Say what a notebook's results are made with: versions, seed, fingerprint of the data."""
    return Provenance(seed, None if ws is None else ws.digest())


def _version(package: str) -> str:
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "?"
