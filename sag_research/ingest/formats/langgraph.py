"""LangGraph: threads of checkpoints in the SQLite file of its checkpointer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._langgraph_db import has_checkpoints, tables
from sag_research.ingest.formats._langgraph_nodes import Thread, threads_of
from sag_research.ingest.formats._langgraph_runs import Run, runs_of, trajectory_of
from sag_research.model import Trajectory

__all__ = ["LangGraph"]


class LangGraph:
    """LangGraph checkpoints in SQLite: the tables ``checkpoints`` and ``writes`` of a checkpointer.

    Traps that are honoured

    * A checkpoint is known by thread, namespace and id; ``step`` repeats over branches, and the
      highest one is not the latest. A thread is a tree by ``parent_checkpoint_id``: every leaf is
      the end of a run. What came first goes on; each later branch is a run of relation ``fork``
      that shares the steps before it. ``latest`` in ``config`` marks the run whose leaf is the
      newest checkpoint.
    * A step is a checkpoint that nodes of the graph made: the model's reply with its calls, or, in
      a graph without messages, the nodes that ran and what they wrote. Results of tools, which
      come with the next checkpoint, belong to the step that called, unless another run goes on
      from between the two: then it has not seen them, and they are a step of their own.
    * Inputs, updates by hand and replays are no steps. They are the goal, or what the step before
      heard, or ``told`` in the ``state`` of the step that follows; in front of a branch's first
      step they are in ``opening`` of its intervention.
    * What was written on top of a checkpoint may be of one of several branches: if more than one
      goes on from there, the states before and after are compared instead.
    * A subgraph has a namespace of its own, with the id of its task in it, which a fork changes:
      each is a run of relation ``subagent``, called by the step that its task belongs to.
    * Nothing that the file names is imported, called or unpickled: objects that are packed in
      msgpack are data with the name of their class, and pickled values stay closed.
    * The file is read in memory and never opened by its name: views, virtual tables and functions
      in its schema are not run, and damaged pages cost the rows on them. A write-ahead log
      (``-wal``) beside it is not read; a note says so.
    * A step's time is that of its checkpoint. A run whose leaf still has something to do has no
      end; one with an error on top of its leaf failed. There is no label: the outcome is unknown.
    """

    name = "langgraph"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim databases that define a table of checkpoints with parents."""
        return 0.95 if has_checkpoints(head) else 0.0

    def read(self, source: Source) -> Reading:
        """Read the threads."""
        checkpoints, writes, notes = tables(source.bytes())
        notes = shared.first_of(notes)
        if _has_log(source):
            notes.append("a write-ahead log is beside it, which may hold more and is not read")
        threads = threads_of(checkpoints, writes, notes)
        if not threads:
            raise FormatError("no checkpoint in it", why="; ".join(notes[:3]))
        return Reading("1", _trajectories(threads, notes), notes)


def _trajectories(threads: list[Thread], notes: list[str]) -> Iterator[Trajectory]:
    faults: list[str] = []
    runs = runs_of(threads, faults)
    notes += shared.first_of(list(dict.fromkeys(faults)))
    latest = {(one.thread_id, one.namespace): one.nodes[-1].id for one in threads}
    for run in runs:
        yield trajectory_of(run, latest[_key(run)])


def _key(run: Run) -> tuple[str, str]:
    return run.thread.thread_id, run.thread.namespace


def _has_log(source: Source) -> bool:
    log = source.path.with_name(f"{source.path.name}-wal")
    try:
        return log.stat().st_size > 0
    except OSError:
        return False
