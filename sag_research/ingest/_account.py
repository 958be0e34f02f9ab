"""Into the log, and into the account: every file is counted once, with a reason where it fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sag_research._text import repair
from sag_research.errors import BadPayloadError, FormatError, UsageError
from sag_research.ingest._clean import clean
from sag_research.ingest._events import ReadRun, write_run
from sag_research.ingest._facts import SourceRead, sources_in_log
from sag_research.ingest._reading import Look, Read
from sag_research.ingest._reasons import NO_TRAJECTORY, has_suffix, reason_of, refusals
from sag_research.ingest._report import IngestReport
from sag_research.ingest._walk import Found
from sag_research.log import RunWriter, SQLiteEventStore, prepare_event
from sag_research.model import WORKSPACE_RUN, Event, Run

__all__ = ["Account", "key_of"]

_HELD: Final = ("ingested", "duplicate")
"""What is said of a source whose runs are in the log."""


class _Taken(Exception):
    """The runs of a source were written by another ingest in the same moment."""


class _Said(NamedTuple):
    """What the log last said of a path."""

    digest: str | None
    status: str
    reason: str | None


def key_of(found: Found) -> tuple[str, str]:
    """Return folder and path, under which the log speaks of a file."""
    return repair(str(found.root)), repair(found.name)


class Account:
    """One ingest: what is in the log already, and the report on the files so far.

    Parameters
    ----------
    store : SQLiteEventStore
    read_again : callable
        Reads a file whose content was taken for known, and is not in the log after all.
    """

    def __init__(self, store: SQLiteEventStore, read_again: Callable[[Found], Look]) -> None:
        self.report = IngestReport()
        self.folders: set[Path] = set()
        """Folders in which a trajectory was found, in the log before or not."""
        self.sources: list[SourceRead] = []
        """All that the log says of sources, in order."""
        self._store, self._read_again = store, read_again
        self._first: dict[str, tuple[str, str]] = {}
        self._said: dict[tuple[str, str], _Said] = {}
        self._sources: dict[tuple[str, str], str] = {}
        self._position = 0
        self.catch_up()

    def catch_up(self) -> None:
        """Learn what was written since the last look, by this ingest or by another."""
        for position, said in sources_in_log(self._store, self._position):
            self._position = position
            self._remember(said)

    def _remember(self, said: SourceRead) -> None:
        self.sources.append(said)
        if said.log is None:  # else the path is one of another machine
            self._said[said.root, said.path] = _Said(said.digest, said.status, said.reason)
        if said.status == "ingested" and said.digest:
            self._first.setdefault(said.digest, (said.path, said.format or ""))

    def knows(self, digest: str) -> bool:
        """Tell whether the runs of a content are in the log."""
        return digest in self._first

    def known_digests(self) -> Iterable[str]:
        """Return the digests of all contents whose runs are in the log."""
        return self._first

    def holds(self, found: Found, digest: str) -> bool:
        """Tell whether the log last said of this file that its content, now known, is held."""
        said = self._said.get(key_of(found))
        held = said is not None and said.status in _HELD and said.digest == digest
        return held and digest in self._first

    def runs_by_path(self) -> dict[str, list[str]]:
        """Return the runs of all files that this ingest found to be trajectories.

        Files of several folders may have one path: the runs of all of them stand under it.
        """
        by_source: defaultdict[str, list[str]] = defaultdict(list)
        for run in self._store.runs():
            if run.source_id is not None:
                by_source[run.source_id].append(run.run_id)
        paths: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for (_, path), source_id in self._sources.items():
            paths[path].update(dict.fromkeys(by_source[source_id]))
        return {path: list(run_ids) for path, run_ids in paths.items()}

    # ---- inside a transaction

    def take(self, look: Look, writer: RunWriter) -> bool:
        """Enter one file in the log and in the report; tells whether the log holds its runs."""
        if look.first.known and look.first.digest not in self._first:
            look = self._read_again(look.found)  # an equal one was refused
        self.report.files += 1
        self.report.notes += look.first.warnings
        key = key_of(look.found)
        about: dict[str, Any] = {"path": key[1], "root": key[0]}
        about |= self._entered(look, key, writer)
        for _ in look.rest:  # of what was refused halfway
            pass
        said = self._said.get(key)
        if said is None or not _same(said, about):
            payload, texts = clean(about, "", {}), dict[bytes, bytes]()
            event = Event(run_id=WORKSPACE_RUN, type="source.read", actor="ingest", payload=payload)
            self._position = writer.append(WORKSPACE_RUN, prepare_event(event, texts), texts)
            self._remember(msgspec.convert(payload, SourceRead))
        held = about["status"] in _HELD
        if held:
            self.folders.add(look.found.path.parent.absolute())
        return held

    def _entered(self, look: Look, key: tuple[str, str], writer: RunWriter) -> dict[str, Any]:
        read = look.first
        if read.reason and not read.claimed:
            return _identity(read) | self._refuse(look.found, read.reason)
        if read.digest in self._first:
            return self._duplicate(read, key)
        about = _identity(read) | ({"format": read.format} if read.format else {})
        try:
            about |= self._write(look, key, writer)
        except _Taken:
            self._first.setdefault(read.digest or "", (key[1], read.format))
            return self._duplicate(read, key)
        except (FormatError, UsageError, BadPayloadError) as error:
            return about | self._refuse(look.found, reason_of(error), claimed=True)
        self._sources[key] = about["source_id"]
        return about

    def _duplicate(self, read: Read, key: tuple[str, str]) -> dict[str, Any]:
        first, format_name = self._first[read.digest or ""]
        about = _identity(read)
        self._sources[key] = about["source_id"]
        self.report.duplicates += 1
        self.report.duplicate_of.append((key[1], first))
        about |= {"format": format_name, "status": "duplicate"}
        return about | {"reason": f"same content as {first}"}

    def _write(self, look: Look, key: tuple[str, str], writer: RunWriter) -> dict[str, Any]:
        """Write the runs of a source, all or none."""
        first = look.first
        if first.more or any(one.run.parent is not None for one in first.runs):
            with writer.part():
                last, sketches, steps = self._write_parts(look, writer)
        else:  # nothing of this can fail once it has begun
            last, sketches, steps = self._write_parts(look, writer)
        runs = len(sketches)
        self._count(first.format, runs, steps)
        notes = [*(f"{where} refused: {why}" for where, why in last.refused), *last.notes]
        self.report.notes += [f"{key[1]}: {note}" for note in notes]
        self.report.refused_records += [(key[1], *one) for one in last.refused]
        about = {"status": "ingested", "format_version": last.version, "notes": notes}
        reason = refusals(last.refused, runs)
        about |= {"reason": reason} if reason else {}
        return about | {"n_runs": runs, "n_steps": steps, "sketches": sketches}

    def _write_parts(self, look: Look, writer: RunWriter) -> tuple[Read, dict[str, str], int]:
        sketches: dict[str, str] = {}
        steps = 0
        for part in _parts(look):
            if part.reason:
                raise FormatError(part.reason)
            self._refuse_taken(part.runs, writer)
            for one in part.runs:
                write_run(writer, one)
                sketches[one.run.run_id] = one.sketch
                for kind, count in one.redacted.items():
                    self.report.redacted[kind] = self.report.redacted.get(kind, 0) + count
                steps += one.n_steps
            last = part
        return last, sketches, steps

    def _refuse_taken(self, runs: list[ReadRun], writer: RunWriter) -> None:
        """See that no run of these ids is there, before the first of them is written."""
        taken = writer.taken([one.run.run_id for one in runs])
        if not taken:
            return
        writer.flush()
        other = self._store.get_run(taken[0])
        if other.source_id == runs[0].run.source_id:
            raise _Taken
        raise FormatError(
            f"run id {taken[0]!r} is taken",
            why=f"the log holds a run of this id {_origin(other)}",
            fix="ingest the file into another workspace",
        )

    def _count(self, name: str, runs: int, steps: int) -> None:
        self.report.ingested += 1
        self.report.runs += runs
        self.report.steps += steps
        counts = self.report.by_format.setdefault(name, {"files": 0, "runs": 0, "steps": 0})
        counts["files"] += 1
        counts["runs"] += runs
        counts["steps"] += steps

    def _refuse(self, found: Found, reason: str, *, claimed: bool = False) -> dict[str, Any]:
        """Reject what was meant to be a trajectory; ignore the rest."""
        suffix = has_suffix(found.path) and reason not in NO_TRAJECTORY
        meant = claimed or found.named or suffix
        entries = self.report.rejected if meant else self.report.ignored
        entries.append((repair(found.name), reason))
        return {"status": "rejected" if meant else "ignored", "reason": reason}


def _parts(look: Look) -> Iterator[Read]:
    return chain((look.first,), look.rest)


def _identity(read: Read) -> dict[str, Any]:
    if read.digest is None:
        return {} if read.size is None else {"bytes": read.size}
    return {"source_id": read.digest[:16], "digest": read.digest, "bytes": read.size}


def _origin(other: Run) -> str:
    if other.parent_id is not None:
        return f"that is a fork of {other.parent_id!r}"
    if other.source_id is not None:
        return f"from the source {other.source_id}"
    return "that did not come from a file"


def _same(said: _Said, about: Mapping[str, Any]) -> bool:
    """Tell whether the log already says this of a path."""
    if said.digest != about.get("digest"):
        return False
    if said.status in _HELD and about["status"] in _HELD:
        return True
    return (said.status, said.reason) == (about["status"], about.get("reason"))
