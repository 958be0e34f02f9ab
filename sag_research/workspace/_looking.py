"""Looking at a workspace: runs, steps, copies, sources, what to cite, the graph, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sag_research import __version__
from sag_research._text import atomic_write, escape, strip_terminal
from sag_research.bloom import BloomGraph, bloom
from sag_research.ingest import CopyReport, data_card, fetched_sets, hide, hide_copies, show
from sag_research.ingest.registry import bibtex, cite, public_sets
from sag_research.viz import report_page, report_tables
from sag_research.viz import scene as graph_scene
from sag_research.warehouse import QueryResult, Warehouse, step_table
from sag_research.workspace._base import Base, cohort, shown
from sag_research.workspace._provenance import provenance

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.viz import DeadEndReport, Watching

__all__ = ["Looking"]

_STEP_COLUMNS = (
    "run_id", "step", "position", "thought", "action", "observation", "n_calls", "tool",
    "exit_code", "seconds", "tokens_in", "tokens_out", "cost_usd", "started_at", "inherited",
    "flags",
)  # fmt: skip


class Looking(Base):
    """The methods of a workspace that show what it holds."""

    def __repr__(self) -> str:
        return f"Workspace({'in memory' if self.path is None else str(self.path)!r})"

    def _repr_html_(self) -> str:
        counts = " · ".join(f"{n:,} {name}" for name, n in self.info()["counts"].items())
        return f"<div><b>{escape(repr(self))}</b><br>{escape(counts)}</div>"

    def runs(
        self, where: str = "true", parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the view ``runs`` as a DataFrame, one row a run, hidden ones among them.

        Copies and runs hidden by hand have ``hidden`` set. Statistics of this package leave them
        out; a count of these rows does not, so count over ``ws.runs("NOT hidden")``.

        Parameters
        ----------
        where : str
            An SQL condition, e.g. ``"model = ? AND NOT hidden"``.
        parameters : sequence or mapping, optional
            Values for the condition.
        """
        return self.sql(cohort("*", where, "ORDER BY seq"), parameters).df()

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

    def schema(self, view: str | None = None) -> pd.DataFrame:
        """Say what the views' columns are and mean, for one view or all."""
        return self.warehouse.schema(view).df()

    def digest(
        self,
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> str:
        """Return a fingerprint of a cohort to cite: 16 hex digits over its runs and outcomes.

        The same files and labels give the same fingerprint on any machine. Copies are left out
        unless the condition speaks of ``hidden``.
        """
        query = cohort("run_id, digest, outcome", shown(where), "ORDER BY run_id")
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
        """Return what the workspace holds, and how much room it takes on disk, in bytes.

        Returns
        -------
        dict
            ``path``; ``counts``, of which runs, tasks and steps leave hidden runs out, their
            number is ``hidden``, and the rest is of the whole log; ``outcomes``, of the runs that
            are not hidden, so that they add up to ``counts["runs"]``; ``digest``; ``bytes``.
        """
        queries = {
            "runs": "SELECT count(*) FROM runs WHERE NOT hidden",
            "hidden": "SELECT count(*) FROM runs WHERE hidden",
            "tasks": "SELECT count(DISTINCT task_id) FROM runs WHERE NOT hidden",
            "steps": "SELECT count(*) FROM steps JOIN runs USING (run_id)"
            " WHERE NOT inherited AND NOT hidden",
            "events": "SELECT count(*) FROM events",
            "entities": "SELECT count(*) FROM entities",
            "mentions": "SELECT count(*) FROM mentions",
            "sources": "SELECT count(*) FROM sources",
        }
        counts = {name: int(self.sql(query).rows()[0][0]) for name, query in queries.items()}
        outcomes = "SELECT outcome, count(*) FROM runs WHERE NOT hidden GROUP BY 1 ORDER BY 1"
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

    def watch(self, run: str, *, height: int = 600, **options: Any) -> Watching:
        """Follow a run that another cell or another process is writing, in a live drawing.

        Parameters
        ----------
        run : str
            As :meth:`resolve` takes it. Its forks become lanes of their own.
        height : int
            Pixels.
        **options
            ``lanes``, the most runs that are drawn; the rest as
            :func:`sag_research.viz.scene` takes it.

        Returns
        -------
        Watching
            ``.view``, ``.n_events``, ``.stop()``; it follows on a thread of its own, also while
            a cell is busy, and ends by itself when the run and its forks have ended.
        """
        from sag_research.viz import Watching

        run_id = self.resolve(run)
        # a log and a warehouse for the watcher's thread alone; a log in memory is shared
        if self.warehouse.folder is None:
            store, own = self.store, Warehouse(None, self.store)
            sql, close = own.sql, own.close
        else:
            other = type(self)(self.warehouse.folder.parent, create=False)
            store, sql, close = other.store, other.sql, other.close
        return Watching(run_id, store, sql, close=close, height=height, **options)

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
