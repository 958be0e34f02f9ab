"""The way of files into the log: find, recognise, read, write, and account for each."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import BadPayloadError, FormatError, RunExistsError, UsageError
from sag_research.ingest._apply import apply_labels
from sag_research.ingest._clean import clean
from sag_research.ingest._events import run_id_of, write_run
from sag_research.ingest._facts import SourceRead, sources_in_log
from sag_research.ingest._format import Format, Reading
from sag_research.ingest._json import first_fault, loads, looks_like_json, outline
from sag_research.ingest._labels import labels_in, read_labels
from sag_research.ingest._report import IngestReport
from sag_research.ingest._source import Source
from sag_research.ingest._walk import Found, find
from sag_research.ingest.formats import FORMATS, by_name, recognise
from sag_research.ingest.formats.native import trajectory_of
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run, Trajectory

__all__ = ["add", "ingest"]

_SUFFIX: Final = re.compile(
    r".*\.(?:traj|traj\.json|jsonl|eval)(?:\.(?:gz|zst|zstd))?", re.IGNORECASE | re.DOTALL
)
_REPORT: Final = "a label report, no trajectory"
_CHUNK_FILES: Final = 200
_CHUNK_BYTES: Final = 64 * 2**20
_AHEAD: Final = 3
"""Files that are read before they are taken."""
_REASONS: Final = 3
"""Refused records that the reason of a source names; the notes name all."""
_REASON: Final = 300
_HELD_BYTES: Final = 64 * 2**20
"""Sources up to this size are read before the log is locked."""
_CHECKED: Final = 64 * 2**20
"""JSON that nothing claims is checked up to this size for being JSON at all."""


def ingest(
    store: SQLiteEventStore,
    paths: Iterable[str | os.PathLike[str]],
    *,
    labels: str | os.PathLike[str] | None = None,
    format: str | None = None,
    progress: bool = True,
) -> IngestReport:
    """Read trajectories from files and folders into a log.

    Parameters
    ----------
    store : SQLiteEventStore
    paths : iterable of path-like
        Files, or folders walked to their end. Hidden files are left out.
    labels : path-like, optional
        What :func:`read_labels` reads; recorded for the runs of these files, those included
        that were in the log before.
    format : str, optional
        Take files for this format; by default each file's content decides. In a folder, only
        what the format claims or what has a trajectory's suffix is taken.
    progress : bool
        Show a bar on standard error where someone can see it.

    Returns
    -------
    IngestReport
        ``files = ingested + duplicates + ignored + rejected``; the last two with reasons, and
        the records that were refused inside of files that were ingested.

    Raises
    ------
    UsageError
        If a path does not exist or is another workspace, or the format is unknown; nothing is
        written then.
    LabelError
        If the labels cannot be understood; nothing is written then.

    Notes
    -----
    A bad file costs that file. Files are written in groups, each group whole or not at all,
    so an ingest that was interrupted goes on where it stopped. Ingesting the same files again
    appends nothing.
    """
    formats: Sequence[Format] = FORMATS if format is None else (by_name(format),)
    paths = list(paths)
    found = list(find(paths, None if store.path == ":memory:" else Path(store.path)))
    known = None if labels is None else read_labels(labels)
    job = _Job(store, formats, forced=format is not None)
    before = store.last_seq()
    for group in _groups(_read_ahead(_with_progress(found, progress))):
        looked_at = job.look_at(group)  # others may write to the log meanwhile
        with store.transaction():
            job.catch_up()
            for one in looked_at:
                job.take(one)
    report = job.report
    if known is not None:
        runs = job.runs_by_path()
        every = {run_id for run_ids in runs.values() for run_id in run_ids}
        report.labels = apply_labels(store, known, runs=every, paths=runs)
    else:
        _hint_at_labels(report)
    _hint_at_formats(report, paths, job.folders)
    if report.files and store.last_seq() == before:
        report.notes.append("nothing new: the log holds all of this already")
    return report


_Opened: TypeAlias = tuple[Found, Source]


def _read_ahead(found: Iterator[Found]) -> Iterator[_Opened]:
    """Read, unpack and digest the next files in a thread while one is parsed and written."""
    ahead: deque[tuple[Found, Source, Future[None] | None]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="sag-read") as pool:
        for one in found:
            source = Source(one.path, repair(one.name), one.root, one.members)
            ahead.append((one, source, None if one.problem else pool.submit(_look, source)))
            if len(ahead) > _AHEAD:
                yield _looked_at(*ahead.popleft())
        while ahead:
            yield _looked_at(*ahead.popleft())


def _look(source: Source) -> None:
    # an error comes again when the file is taken, and is accounted for there
    with suppress(FormatError, OSError):
        _ = source.head


def _looked_at(found: Found, source: Source, reading: Future[None] | None) -> _Opened:
    if reading is not None:
        reading.result()
    return found, source


def _groups(opened: Iterator[_Opened]) -> Iterator[Iterator[_Opened]]:
    """Part the files into groups of bounded number and size, read while they are taken."""
    for first in opened:
        yield _group(first, opened)


def _group(first: _Opened, rest: Iterator[_Opened]) -> Iterator[_Opened]:
    yield first
    size, count = _size(*first), 1
    while size < _CHUNK_BYTES and count < _CHUNK_FILES:
        one = next(rest, None)
        if one is None:
            return
        yield one
        size, count = size + _size(*one), count + 1


def _size(found: Found, source: Source) -> int:
    """Return the plain size where it is known, else the size on disk."""
    if source.is_read:
        return source.size
    try:
        return found.path.stat().st_size
    except OSError:
        return 0


def _with_progress(found: list[Found], progress: bool) -> Iterator[Found]:
    if not progress or not (sys.stderr.isatty() or _in_notebook()):
        return iter(found)
    from tqdm.auto import tqdm

    return iter(tqdm(found, desc="ingest", unit="file", leave=False))


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _hint_at_labels(report: IngestReport) -> None:
    reports = sum(reason == _REPORT for _, reason in report.ignored)
    if reports:
        what = "file looks like a label report" if reports == 1 else "files look like label reports"
        report.notes.append(f"{reports} {what}: pass --labels")


def _hint_at_formats(
    report: IngestReport, paths: Iterable[str | os.PathLike[str]], held: set[Path]
) -> None:
    """Say of a folder without a trajectory what would have been one."""
    given = [Path(path) for path in paths]
    empty = [path for path in given if path.is_dir() and not _is_above(path.absolute(), held)]
    if empty and held:  # the way to a trajectory may lead over links
        held = {folder.resolve() for folder in held}
        empty = [path for path in empty if not _is_above(path.resolve(), held)]
    report.notes += [
        f"{repair(str(path))}: no trajectory found; formats known: {_KNOWN};"
        " see ws.add for your own"
        for path in empty
    ]


def _is_above(folder: Path, held: set[Path]) -> bool:
    return any(one == folder or folder in one.parents for one in held)


class _Refused(Exception):
    """A file is not ingested; the message is the reason."""


class _Taken(Exception):
    """The runs of a source were written by another ingest in the same moment."""


class _Seen(NamedTuple):
    """What the log last said of a path."""

    digest: str | None
    status: str
    reason: str | None


class _Look(NamedTuple):
    """What a file was found to be, before the log is locked for writing."""

    found: Found
    source: Source
    format: Format | None = None
    reading: Reading | None = None
    runs: list[Trajectory] | None = None
    """Read already; None for what is read while it is written."""
    reason: str = ""
    """Why it is refused; with a format, by the format that claimed it."""


class _Job:
    """One ingest: what is in the log already, and the account of the files so far."""

    def __init__(self, store: SQLiteEventStore, formats: Sequence[Format], *, forced: bool) -> None:
        self.report = IngestReport()
        self._store, self._formats, self._forced = store, formats, forced
        self._first: dict[str, tuple[str, str]] = {}
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._sources: dict[tuple[str, str], str] = {}
        self._position = 0
        self.folders: set[Path] = set()
        """Folders in which a trajectory was found, in the log before or not."""
        self.catch_up()

    def catch_up(self) -> None:
        """Learn what was written since the last look, by this ingest or by another."""
        for position, said in sources_in_log(self._store, self._position):
            self._position = position
            self._remember(said)

    def _remember(self, said: SourceRead) -> None:
        self._seen[said.root, said.path] = _Seen(said.digest, said.status, said.reason)
        if said.status == "ingested" and said.digest:
            self._first.setdefault(said.digest, (said.path, said.format or ""))

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

    # ---- before the log is locked

    def look_at(self, group: Iterable[_Opened]) -> list[_Look]:
        """Recognise, digest and read files; what is too large to be held is read later."""
        coming: set[str] = set()
        return [self._look_at(found, source, coming) for found, source in group]

    def _look_at(self, found: Found, source: Source, coming: set[str]) -> _Look:
        look = _Look(found, source)
        try:
            if found.problem:
                raise _Refused(found.problem)
            if source.head and source.is_read and self._is_known(source, coming):
                return look
            format_ = self._recognise(found, source)
            look = look._replace(format=format_)
            if source.size > _HELD_BYTES or self._is_known(source, coming):
                return look
            look = self._read(look, format_)
            coming.add(source.digest)
        except (_Refused, FormatError, OSError) as error:
            look = _Look(found, source, reason=_reason(error))
        source.release()
        return look

    def _is_known(self, source: Source, coming: set[str]) -> bool:
        return source.digest in self._first or source.digest in coming

    def _read(self, look: _Look, format_: Format) -> _Look:
        try:
            reading = format_.read(look.source)
            return look._replace(reading=reading, runs=list(reading))
        except FormatError as error:
            return look._replace(reason=_reason(error))
        except RecursionError:
            return look._replace(reason=_TOO_DEEP)

    # ---- inside a transaction

    def take(self, look: _Look) -> None:
        """Enter one file in the log and in the account."""
        found, source = look.found, look.source
        self.report.files += 1
        about: dict[str, Any] = {"path": source.name, "root": repair(str(found.root))}
        key = (about["root"], about["path"])
        try:
            about |= self._enter(look, key)
            self._hold(found, about["status"])
        except (_Refused, FormatError, OSError) as error:
            about |= self._refuse(look, _reason(error))
        source.release()
        seen = self._seen.get(key)
        if seen is None or not _same(seen, about):
            payload = clean(about, "", {})
            event = Event(run_id=WORKSPACE_RUN, type="source.read", actor="ingest", payload=payload)
            self._position = self._store.append(event).position or 0
            self._remember(msgspec.convert(payload, SourceRead))

    def _hold(self, found: Found, status: str) -> None:
        if status in _HELD:
            self.folders.add(found.path.parent.absolute())

    def _enter(self, look: _Look, key: tuple[str, str]) -> dict[str, Any]:
        source = look.source
        if look.reason and look.format is None:
            raise _Refused(look.reason)
        if source.digest in self._first:
            return self._duplicate(source, key)
        format_ = look.format or self._recognise(look.found, source)  # an equal one was refused
        about = _identity(source) | {"format": format_.name}
        try:
            about |= self._write(look, format_)
        except _Taken:
            self._first.setdefault(source.digest, (source.name, format_.name))
            return self._duplicate(source, key)
        except FormatError as error:
            return about | self._refuse(look, _reason(error), claimed=True)
        self._sources[key] = source.source_id
        return about

    def _duplicate(self, source: Source, key: tuple[str, str]) -> dict[str, Any]:
        first, format_name = self._first[source.digest]
        self._sources[key] = source.source_id
        self.report.duplicates += 1
        self.report.duplicate_of.append((source.name, first))
        about = _identity(source) | {"format": format_name, "status": "duplicate"}
        return about | {"reason": f"same content as {first}"}

    def _recognise(self, found: Found, source: Source) -> Format:
        if not source.head.strip(b" \t\r\n\xef\xbb\xbf") and source.size <= len(source.head):
            raise _Refused("empty file" if source.size == 0 else "empty: only white space")
        format_ = recognise(source, self._formats)
        if format_ is None and self._forced and (found.named or _has_suffix(found)):
            format_ = self._formats[0]
        if format_ is None:
            raise _Refused(_unclaimed(source))
        return format_

    def _write(self, look: _Look, format_: Format) -> dict[str, Any]:
        """Write the runs of a source, all or none."""
        source = look.source
        if look.reason:
            raise FormatError(look.reason)
        runs = steps = 0
        notes: list[str] = []
        ids: dict[str | None, str] = {}
        with self._store.transaction():
            reading = look.reading
            try:
                if reading is None:
                    reading = format_.read(source)
                for trajectory in reading if look.runs is None else look.runs:
                    run_id = run_id_of(trajectory, source.digest)
                    parent = ids.get(trajectory.parent) if trajectory.parent else None
                    if trajectory.parent and parent is None:
                        notes.append(f"{run_id}: its parent {trajectory.parent!r} is not here")
                    notes += self._write_run(run_id, trajectory, source, parent)
                    ids[trajectory.record] = run_id
                    inherited = _inherited(trajectory)
                    runs, steps = runs + 1, steps + len(trajectory.steps) - inherited
                    if inherited:
                        notes.append(f"{run_id}: {inherited} inherited steps not counted")
            except (BadPayloadError, UsageError) as error:
                raise FormatError(str(error)) from None
            except RecursionError:
                raise FormatError(_TOO_DEEP) from None
            reason = _refusals(reading.refused, runs)
            if runs == 0:
                raise FormatError("no run in it", why=reason or "; ".join(reading.notes[:3]))
        self._count(format_.name, runs, steps)
        left_out = [f"{where} refused: {why}" for where, why in reading.refused]
        notes = [*left_out, *reading.notes, *notes]
        self.report.notes += [f"{source.name}: {note}" for note in notes]
        self.report.refused_records += [(source.name, *one) for one in reading.refused]
        about = {"status": "ingested", "format_version": reading.version, "notes": notes}
        about |= {"reason": reason} if reason else {}
        return about | {"n_runs": runs, "n_steps": steps}

    def _write_run(
        self, run_id: str, trajectory: Trajectory, source: Source, parent: str | None
    ) -> list[str]:
        try:
            return write_run(self._store, run_id, trajectory, source.source_id, parent)
        except RunExistsError:
            other = self._store.get_run(run_id)
        if other.source_id == source.source_id:
            raise _Taken
        raise FormatError(
            f"run id {run_id!r} is taken",
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

    def _refuse(self, look: _Look, reason: str, *, claimed: bool = False) -> dict[str, Any]:
        """Reject what was meant to be a trajectory; ignore the rest."""
        found, source = look.found, look.source
        valid = reason in (_REPORT, _OTHER, _PREDICTIONS)
        meant = claimed or found.named or (_has_suffix(found) and not valid)
        entries = self.report.rejected if meant else self.report.ignored
        entries.append((source.name, reason))
        about = {"status": "rejected" if meant else "ignored", "reason": reason}
        return about if found.problem else about | _identity_if_read(source)


def _inherited(trajectory: Trajectory) -> int:
    """Count the steps that belong to the run from which this one was forked."""
    return sum("inherited" in step.flags for step in trajectory.steps)


def _origin(run: Run) -> str:
    if run.parent_id is not None:
        return f"that is a fork of {run.parent_id!r}"
    if run.source_id is not None:
        return f"from the source {run.source_id}"
    return "that did not come from a file"


_TOO_DEEP: Final = "nested too deeply"
_HELD: Final = ("ingested", "duplicate")
_KNOWN: Final = ", ".join(one.name for one in FORMATS)
_OTHER: Final = f"JSON that no format claims (known: {_KNOWN})"
_INSPECT: Final = "Inspect .eval logs are not supported yet"
_ZIP: Final = b"PK\x03\x04"
_PREDICTIONS: Final = "predictions, no trajectory"


def _refusals(refused: list[tuple[str, str]], runs: int) -> str:
    """Say how many records of a source could not be read, and why the first of them; or nothing.

    Examples
    --------
    >>> _refusals([("line 2", "empty"), ("line 7", "no object")], 5)
    '2 of 7 records refused: line 2: empty; line 7: no object'
    """
    if not refused:
        return ""
    shown = "; ".join(f"{where}: {clip(why, _REASON)}" for where, why in refused[:_REASONS])
    more = f"; and {len(refused) - _REASONS} more" if len(refused) > _REASONS else ""
    return f"{len(refused)} of {len(refused) + runs} records refused: {shown}{more}"


def _same(seen: _Seen, about: Mapping[str, Any]) -> bool:
    """Tell whether the log already says this of a path."""
    if seen.digest != about.get("digest"):
        return False
    if seen.status in _HELD and about["status"] in _HELD:
        return True
    return (seen.status, seen.reason) == (about["status"], about.get("reason"))


def _identity(source: Source) -> dict[str, Any]:
    return {"source_id": source.source_id, "digest": source.digest, "bytes": source.size}


def _identity_if_read(source: Source) -> dict[str, Any]:
    """Give the digest of a file that was read anyway; large strange files are not read for it."""
    try:
        return _identity(source) if source.is_read else {"bytes": source.path.stat().st_size}
    except (FormatError, OSError):
        return {}


def _has_suffix(found: Found) -> bool:
    return _SUFFIX.fullmatch(found.path.name) is not None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return repair(str(error))


def _unclaimed(source: Source) -> str:
    """Say why no format takes a file."""
    if source.head.startswith(_ZIP):
        inspect = source.path.suffix.lower() == ".eval"
        return _INSPECT if inspect else "a zip archive: unpack it, then ingest the folder"
    if not looks_like_json(source.head):
        return "not JSON"
    if source.size > _CHECKED:
        return _OTHER
    try:
        value = loads(source.bytes())
    except FormatError as error:
        if not outline(source.head).more:
            return str(error)
        if why := first_fault(source.lines()):
            return why
    else:
        if labels_in(value, source.name, source.path) is not None:
            return _REPORT
    return _PREDICTIONS if b'"model_patch"' in source.head else _OTHER


def add(
    store: SQLiteEventStore, record: Mapping[str, Any] | Iterable[Mapping[str, Any]]
) -> list[str]:
    """Add runs from plain dictionaries in the native shape.

    Parameters
    ----------
    store : SQLiteEventStore
    record : mapping or iterable of mappings
        ``{"task_id": …, "steps": [{"thought": …, "action": …, "observation": …}], …}``.

    Returns
    -------
    list of str
        The runs' ids. The id comes from the record's content, so a record that is added twice
        is one run.

    Raises
    ------
    BadPayloadError
        If a field is missing, unknown or of the wrong type; ``path`` names it. Nothing is
        written then.

    Examples
    --------
    >>> from sag_research.log import SQLiteEventStore
    >>> store = SQLiteEventStore(":memory:")
    >>> record = {"task_id": "t", "steps": [{"action": "ls", "observation": "a.py"}]}
    >>> add(store, record) == add(store, record), len(store.runs())
    (True, 1)
    """
    records = [record] if isinstance(record, Mapping) else list(record)
    trajectories = [trajectory_of(one) for one in records]
    run_ids = []
    with store.transaction():
        for one, trajectory in zip(records, trajectories, strict=True):
            run_id = run_id_of(trajectory, _content_digest(one))
            if not store.has_run(run_id):
                write_run(store, run_id, trajectory, None)
            run_ids.append(run_id)
    return run_ids


def _content_digest(record: Mapping[str, Any]) -> str:
    data = msgspec.json.encode(clean(dict(record), "", {}), order="sorted")
    return sha256(data).hexdigest()
