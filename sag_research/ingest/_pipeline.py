"""The way of files into the log: find, read, write, and account for each."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research._text import repair
from sag_research.errors import FormatError, UsageError
from sag_research.ingest._account import Account
from sag_research.ingest._apply import apply_labels
from sag_research.ingest._archives import opened
from sag_research.ingest._clean import clean
from sag_research.ingest._copies import hide_copies
from sag_research.ingest._events import read_run, run_id_of, write_run
from sag_research.ingest._jobs import read_in_processes
from sag_research.ingest._labels import Labels, read_labels
from sag_research.ingest._progress import Progress, shown
from sag_research.ingest._reading import HELD_BYTES, Look, Read, Rules, read_source, source_of
from sag_research.ingest._reasons import hint_at_formats, hint_at_labels
from sag_research.ingest._report import IngestReport
from sag_research.ingest._source import Source
from sag_research.ingest._unchanged import Outside, Unchanged, outside_of
from sag_research.ingest._walk import Found, find
from sag_research.ingest.formats.native import trajectory_of
from sag_research.ingest.plugins import Formats, available
from sag_research.ingest.secrets import Redactor
from sag_research.log import SQLiteEventStore, writing_runs

__all__ = ["add", "ingest", "ingest_found"]

_CHUNK_FILES: Final = 200
_CHUNK_BYTES: Final = 64 * 2**20
_HELD_BYTES: Final = HELD_BYTES
_AHEAD: Final = 3
"""Files that are read before they are taken."""


def ingest(
    store: SQLiteEventStore,
    paths: Iterable[str | os.PathLike[str]],
    *,
    labels: str | os.PathLike[str] | Labels | None = None,
    format: str | None = None,
    jobs: int = 1,
    recheck: bool = False,
    progress: bool = True,
    redact: bool = False,
) -> IngestReport:
    """Read trajectories from files and folders into a log.

    Parameters
    ----------
    store : SQLiteEventStore
    paths : iterable of path-like
        Files, or folders walked to their end. Hidden files are left out. Archives (zip, tar) are
        read as the folders that they hold.
    labels : path-like or Labels, optional
        What :func:`read_labels` reads, or has read; recorded for the runs of these files, those
        included that were in the log before.
    format : str, optional
        Take files for this format; by default each file's content decides. In a folder, only
        what the format claims or what has a trajectory's suffix is taken. What the format does
        not claim and another one is sure of is refused, unless an exclamation mark stands
        behind the name: ``native!``.
    jobs : int
        Number of further processes that read files, while this one writes; 1 for none. The
        result is the same.
    recheck : bool
        Read files again that look unchanged from outside: same path, size, times and inode as
        when they were read into this log. By default they are not opened.
    progress : bool
        Show a bar on standard error where someone can see it.
    redact : bool
        Replace secrets by tokens before anything is written; see
        :mod:`sag_research.ingest.secrets`.

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
    A bad file costs that file, also where it kills the process that reads it. Files are written
    in groups, each group whole or not at all, so an ingest that was interrupted goes on where it
    stopped. Ingesting the same files again appends nothing.
    """
    formats = available(format)
    if jobs < 1:
        raise UsageError(f"{jobs} jobs", fix="1 or more; 1 reads in this process")
    paths = list(paths)
    with ExitStack() as held:
        own = None if store.path == ":memory:" else Path(store.path)
        found = list(opened(find(paths, own), held))
        if redact:
            found = _renamed(found)
        if labels is not None and not isinstance(labels, Labels):
            labels = read_labels(labels)
        rules = Rules(format, _HELD_BYTES, redact=redact)
        how = _How(rules, formats, jobs, recheck, progress)
        return _ingest(store, paths, found, labels, how)


def _renamed(found: Iterable[Found]) -> list[Found]:
    """Name files without secrets, in all that is written and said of them."""
    redactor = Redactor()
    return [
        one._replace(
            name=redactor.name(repair(one.name)), root=Path(redactor.name(repair(str(one.root))))
        )
        for one in found
    ]


def ingest_found(
    store: SQLiteEventStore,
    found: Sequence[Found],
    labels: str | os.PathLike[str] | Labels | None = None,
) -> IngestReport:
    """Read files that :func:`find` named, perhaps on another machine; see :func:`ingest`.

    Unlike files that are given by their paths, they are ignored where they are no trajectories.
    """
    if labels is not None and not isinstance(labels, Labels):
        labels = read_labels(labels)
    with ExitStack() as held:
        every = list(opened(iter(found), held))
        how = _How(Rules(None, _HELD_BYTES), available(None), jobs=1, recheck=True, progress=False)
        return _ingest(store, [one.path for one in found], every, labels, how)


def _ingest(
    store: SQLiteEventStore,
    paths: Sequence[str | os.PathLike[str]],
    found: Sequence[Found],
    labels: Labels | None,
    how: _How,
) -> IngestReport:
    rules, formats = how.rules, how.formats
    account = Account(store, lambda one: _read_here(one, source_of(one), rules, formats, _is_new))
    account.report.notes += formats.tell()
    before = store.last_seq()
    memory = Unchanged(store)
    any_read = _take_all(store, account, found, how, memory)
    report = account.report
    if any_read:  # before labels: they are about one of several copies
        report.copies = hide_copies(store, account.sources)
        report.notes += report.copies.notes()
    memory.save()  # not before: what is remembered is not looked at for copies again
    if labels is not None:
        runs = account.runs_by_path()
        every = {run_id for run_ids in runs.values() for run_id in run_ids}
        report.labels = apply_labels(store, labels, runs=every, paths=runs, sources=account.sources)
    else:
        hint_at_labels(report, account.sources)
    hint_at_formats(report, paths, account.folders)
    if rules.redact and report.duplicates:
        n = report.duplicates
        what = "1 file was in the log before, and stays" if n == 1 else (
            f"{n} files were in the log before, and stay")  # fmt: skip
        report.notes.append(f"{what} as it is there; `sag scan --redact` cleans a log")
    if report.files and store.last_seq() == before:
        report.notes.append("nothing new: the log holds all of this already")
    return report


class _How(NamedTuple):
    """How files are read, and by whom."""

    rules: Rules
    formats: Formats
    jobs: int
    recheck: bool
    progress: bool


class _Input(NamedTuple):
    """A file, what it looks like from outside, and its content if that is known by this."""

    found: Found
    outside: Outside
    was: tuple[str, int] | None


_Seen: TypeAlias = tuple[_Input, Look]


def _take_all(
    store: SQLiteEventStore,
    account: Account,
    found: Sequence[Found],
    how: _How,
    memory: Unchanged,
) -> bool:
    """Take all files; tells whether any of them had to be read."""
    inputs = [_input(one, account, memory, how.recheck) for one in found]
    unread = [(one.found, one.outside.size) for one in inputs if one.was is None]
    if how.jobs > 1:
        known = account.known_digests()
        looks = read_in_processes(unread, how.rules, how.jobs, known)
    else:
        looks = _read_ahead([one for one, _ in unread], how, account)
    total = sum(one.outside.size for one in inputs)
    with closing(looks), shown(total, len(inputs), how.progress) as tell:
        for group in _groups(_merged(inputs, looks)):
            _take_group(store, account, group, tell, memory)
    if skipped := len(inputs) - len(unread):
        what = "1 file, which looks" if skipped == 1 else f"{skipped} files, which look"
        account.report.notes.append(f"not read again: {what} as before; see recheck")
    return bool(unread)


def _input(found: Found, account: Account, memory: Unchanged, recheck: bool) -> _Input:
    outside = outside_of(found)
    was = None if recheck else memory.digest_of(found, outside)
    if was is not None and not account.holds(found, was[0]):
        was = None
    return _Input(found, outside, was)


def _merged(inputs: Iterable[_Input], looks: Iterator[Look]) -> Iterator[_Seen]:
    for one in inputs:
        if one.was is None:
            yield one, next(looks)
        else:
            digest, size = one.was
            yield one, Look(one.found, Read(digest, size, known=True))


def _take_group(
    store: SQLiteEventStore,
    account: Account,
    group: Sequence[_Seen],
    tell: Progress,
    memory: Unchanged,
) -> None:
    held = []
    with writing_runs(store) as writer:
        account.catch_up()
        for one, look in group:
            if account.take(_telling(look, tell, account.report), writer) and one.was is None:
                held.append((one, look.first))
            tell(one.outside.size, account.report.files, account.report.runs)
    for one, read in held:
        memory.remember(one.found, one.outside, read.digest or "", read.size or 0)


def _telling(look: Look, tell: Progress, report: IngestReport) -> Look:
    """Tell of the runs of a large source while they are written."""

    def told() -> Iterator[Read]:
        runs = report.runs + len(look.first.runs)
        for part in look.rest:
            runs += len(part.runs)
            tell(0, report.files - 1, runs)
            yield part

    return look._replace(rest=told()) if look.first.more else look


def _groups(seen: Iterable[_Seen]) -> Iterator[list[_Seen]]:
    """Part the files into groups of bounded number and size, read before the log is locked."""
    group: list[_Seen] = []
    size = 0
    for one in seen:
        group.append(one)
        first = one[1].first
        size += 0 if first.known else first.size or 0
        # what comes in parts is read while it is written, and nothing is read meanwhile
        if first.more or size >= _CHUNK_BYTES or len(group) >= _CHUNK_FILES:
            yield group
            group, size = [], 0
    if group:
        yield group


# ---- reading in this process


def _read_ahead(found: Iterable[Found], how: _How, account: Account) -> Generator[Look]:
    """Read, unpack and digest the next files in a thread while one is parsed and written."""
    coming: set[str] = set()
    ahead: deque[tuple[Found, Source, Future[None] | None]] = deque()

    def is_known(digest: str) -> bool:
        return digest in coming or account.knows(digest)

    def take() -> Look:
        one, source, reading = ahead.popleft()
        if reading is not None:
            reading.result()
        look = _read_here(one, source, how.rules, how.formats, is_known)
        if look.first.digest and not look.first.reason:
            coming.add(look.first.digest)
        return look

    with ThreadPoolExecutor(1, thread_name_prefix="sag-read") as pool:
        for one in found:
            source = source_of(one)
            ahead.append((one, source, None if one.problem else pool.submit(_open, source)))
            if len(ahead) > _AHEAD:
                yield take()
        while ahead:
            yield take()


def _open(source: Source) -> None:
    # an error comes again when the file is read, and is accounted for there
    with suppress(FormatError, OSError):
        _ = source.head


def _read_here(
    found: Found,
    source: Source,
    rules: Rules,
    formats: Formats,
    is_known: Callable[[str], bool],
) -> Look:
    parts = read_source(found, source, rules, formats, is_known)
    return Look(found, next(parts), parts)


def _is_new(digest: str) -> bool:
    return False


# ---- plain dictionaries


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
    with writing_runs(store) as writer:
        for one, trajectory in zip(records, trajectories, strict=True):
            run_id = run_id_of(trajectory, _content_digest(one))
            if not store.has_run(run_id):
                write_run(writer, read_run(trajectory, run_id, None))
            run_ids.append(run_id)
    return run_ids


def _content_digest(record: Mapping[str, Any]) -> str:
    data = msgspec.json.encode(clean(dict(record), "", {}), order="sorted")
    return sha256(data).hexdigest()
