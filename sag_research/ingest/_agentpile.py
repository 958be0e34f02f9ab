"""Public sets that the package agentpile reads: its records, in the shape of ATIF 1.7, as runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from sag_research.errors import FormatError, MissingDataError, UsageError
from sag_research.ingest._clean import clean
from sag_research.ingest._copies import hide_copies
from sag_research.ingest._events import read_run, run_id_of, write_run
from sag_research.ingest._fetch import fetched_sets
from sag_research.ingest._report import IngestReport
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._atif_steps import Reader
from sag_research.ingest.registry import PublicSet, public_set
from sag_research.log import SQLiteEventStore, writing_runs
from sag_research.model import WORKSPACE_RUN, Event, Outcome, Trajectory

__all__ = ["agentpile_runs", "load_public", "trajectory_of_record"]

_CHUNK: Final = 500
"""Runs that are written together."""
_EXTRA: Final = "agentpile"
_LABELS: Final = 200


class _Run(NamedTuple):
    digest: str
    trajectory: Trajectory


def agentpile_runs(
    name: str, folder: str | os.PathLike[str], *, limit: int | None = None
) -> Iterator[Trajectory]:
    """Yield the runs of a fetched public set, as agentpile reads them.

    Parameters
    ----------
    name : str
        As in :func:`~sag_research.ingest.registry.public_sets`.
    folder : path-like
        Where :func:`fetch` put its files.
    limit : int, optional
        Only so many runs.

    Raises
    ------
    MissingDataError
        If agentpile is not installed, or the files are not there.
    UsageError
        If agentpile does not read this set.
    FormatError
        If a record is not what agentpile expects.
    """
    for one in _runs(public_set(name), Path(folder), limit):
        yield one.trajectory


def _runs(known: PublicSet, folder: Path, limit: int | None) -> Iterator[_Run]:
    if known.agentpile is None:
        raise UsageError(f"agentpile does not read {known.name}", fix=f"sag ingest {folder}")
    try:
        import agentpile
    except ImportError:
        raise MissingDataError(
            f"{known.name} is read by the package agentpile",
            fix="pip install 'sag-research[datasets]'",
        ) from None
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is not there", fix=f"sag datasets fetch {known.name}")
    loaded = agentpile.datasets.get(known.agentpile).load(limit=limit, root=str(folder))
    try:
        for run in loaded:
            text = json.dumps(run.record, sort_keys=True, default=str).encode("utf-8", "replace")
            yield _Run(sha256(text).hexdigest(), trajectory_of_record(run.record, known))
    except (ValueError, KeyError, TypeError, AttributeError, agentpile.AgentpileError) as error:
        raise FormatError(
            f"agentpile cannot read {known.name} in {folder}",
            why=f"{type(error).__name__}: {error}",
            fix="is it the pinned revision?",
        ) from error


def trajectory_of_record(record: Mapping[str, Any], known: PublicSet) -> Trajectory:
    """Make a trajectory of one of agentpile's records.

    The outcome is the one that agentpile took from the source: success, failure, or unknown where
    the source says nothing. The source's own labels are in ``config``, and so is where it stood.
    """
    reader = Reader(dict(record))
    told = _mapping(_mapping(record.get("extra")).get(_EXTRA))
    task, agent = _mapping(told.get("task")), _mapping(record.get("agent"))
    key = shared.word(_mapping(told.get("source")).get("record_key"))
    kept = {"source": told.get("source"), "labels": (told.get("labels") or [])[:_LABELS]}
    return Trajectory(
        task_id=shared.word(task.get("id")) or key or "unnamed",
        steps=reader.steps,
        goal=shared.problem_text(shared.word(task.get("text")) or reader.goal),
        dataset=known.hub,
        repo=shared.repo_of(shared.word(task.get("id")) or ""),
        agent=None if agent.get("name") == "unknown" else shared.word(agent.get("name")),
        model=shared.word(agent.get("model_name")) or reader.model,
        end=None,
        outcome=_outcome(_mapping(told.get("outcome"))),
        config={**reader.config, _EXTRA: kept},
    )


def _outcome(said: Mapping[str, Any]) -> Outcome | None:
    success, score = said.get("success"), shared.number(said.get("score"))
    if not isinstance(success, bool):
        if score is None:
            return None
        return Outcome(outcome="unknown", score=score, source=_EXTRA)
    return Outcome(outcome="success" if success else "failure", score=score, source=_EXTRA)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def load_public(
    store: SQLiteEventStore,
    name: str,
    folder: str | os.PathLike[str],
    *,
    limit: int | None = None,
) -> IngestReport:
    """Read a fetched public set into a log through agentpile.

    Runs are known by their records, so loading a set again appends nothing, and loading more of
    it goes on. See :func:`agentpile_runs` for parameters and errors.
    """
    known = public_set(name)
    report = IngestReport(files=1)
    counts = {"files": 1, "runs": 0, "steps": 0}
    runs = _runs(known, Path(folder), limit)
    for number in range(10**9):
        if not (chunk := list(islice(runs, _CHUNK))):
            break
        fresh, steps = _write(store, known, Path(folder), number, chunk)
        counts["runs"] += fresh
        counts["steps"] += steps
    report.runs, report.steps = counts["runs"], counts["steps"]
    if report.runs:
        report.ingested, report.by_format = 1, {_EXTRA: counts}
    else:
        report.duplicates = 1
    report.copies = hide_copies(store)
    report.notes += report.copies.notes()
    return report


def _write(
    store: SQLiteEventStore, known: PublicSet, folder: Path, number: int, chunk: list[_Run]
) -> tuple[int, int]:
    """Write those runs of a chunk that are not there yet; returns how many, and their steps."""
    digest = sha256(f"{known.hub}@{known.revision}".encode()).hexdigest()
    about: dict[str, Any] = {
        "path": f"{known.name} {number * _CHUNK}", "root": str(folder), "source_id": digest[:16],
        "digest": digest, "format": _EXTRA, "status": "ingested",
        "format_version": fetched_sets([folder]).get(known.name, ""),
        "n_runs": 0, "n_steps": 0, "sketches": {},
    }  # fmt: skip
    with writing_runs(store) as writer:
        for one in chunk:
            run_id = run_id_of(one.trajectory, one.digest)
            if run_id in about["sketches"] or store.has_run(run_id):
                continue
            read = read_run(one.trajectory, run_id, digest[:16])
            write_run(writer, read)
            about["sketches"][run_id] = read.sketch
            about["n_runs"] += 1
            about["n_steps"] += read.n_steps
        writer.flush()
        if about["n_runs"]:
            payload = clean(about, "", {})
            store.append(
                Event(run_id=WORKSPACE_RUN, type="source.read", actor="ingest", payload=payload)
            )
    return about["n_runs"], about["n_steps"]
