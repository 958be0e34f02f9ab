"""One file: recognised, digested, read and made ready for the log, in whatever process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from sag_research._text import repair
from sag_research.errors import BadPayloadError, FormatError, UsageError
from sag_research.ingest._events import ReadRun, read_run, run_id_of
from sag_research.ingest._format import Format, Reading
from sag_research.ingest._reasons import (
    TOO_DEEP,
    has_suffix,
    other_format,
    reason_of,
    refusals,
    unclaimed,
)
from sag_research.ingest._share import BY_ROW, Share
from sag_research.ingest._source import Source
from sag_research.ingest._walk import Found
from sag_research.ingest.formats import recognise, sure_of
from sag_research.ingest.plugins import Formats
from sag_research.ingest.secrets import Redactor, redact_text
from sag_research.log import packed_run
from sag_research.model import Trajectory

__all__ = [
    "HELD_BYTES",
    "Look",
    "Read",
    "Rules",
    "Shared",
    "no_run_in",
    "read_source",
    "source_of",
]

HELD_BYTES: Final = 64 * 2**20
"""Runs of a source up to this size are made ready before the log is locked."""
_PART_BYTES: Final = 2**20
"""Bytes of the further runs of a larger source that are handed on together."""


class Read(msgspec.Struct, array_like=True, frozen=True):
    """What a file was found to be. Of a large source there are several, each with some runs."""

    digest: str | None = None
    size: int | None = None
    """Bytes of the content; of the file, where it was not read through."""
    known: bool = False
    """The content was met before: it was not read."""
    format: str = ""
    version: str = ""
    reason: str = ""
    """Why it is refused."""
    claimed: bool = False
    """It is meant to be a trajectory."""
    runs: list[ReadRun] = []
    notes: list[str] = []
    refused: list[tuple[str, str]] = []
    more: bool = False
    """Another part follows; notes and refused records stand in the last one."""
    warnings: list[str] = []
    """What is wrong with plug-ins, whatever became of the file; in the first part."""
    told: list[str] = []
    """Of a share: what is to be noted of its runs, behind all notes of the source."""
    turn: bool = False
    """Of a share: a block ends here, and the next one is another's."""


class Look(NamedTuple):
    """A file with the first part of what it was found to be, and the way to the others."""

    found: Found
    first: Read
    rest: Iterator[Read] = iter(())


class Rules(NamedTuple):
    """How files are read."""

    format: str | None = None
    """Take them for this format; by default their content decides."""
    held: int = HELD_BYTES
    packed: bool = False
    """Pack the texts at once: worth it in another process than the one that writes."""
    redact: bool = False
    """Replace secrets by tokens."""


Shared: TypeAlias = tuple[int, int]
"""Which of how many readers of a source this one is."""


class _Refused(Exception):
    """A file is not ingested; the message is the reason."""


def source_of(found: Found) -> Source:
    """Return the content of what was found."""
    return Source(found.path, repair(found.name), found.root, found.members)


def read_source(
    found: Found,
    source: Source,
    rules: Rules,
    formats: Formats,
    is_known: Callable[[str], bool],
    shared: Shared | None = None,
) -> Iterator[Read]:
    """Read a file, as far as its content is not known by its digest.

    Yields
    ------
    Read
        One; several where the runs are larger than ``rules.held``. Of a shared source, one for
        each block and a last one, for :func:`put_together`; if it cannot be shared after all,
        the first reader has it alone.
    """
    for part in _read(found, source, rules, formats, is_known, shared):
        if rules.redact and part.reason:  # it may quote the file
            part = replace(part, reason=redact_text(part.reason))
        yield replace(part, warnings=formats.tell()) if formats.told else part


def _read(
    found: Found,
    source: Source,
    rules: Rules,
    formats: Formats,
    is_known: Callable[[str], bool],
    shared: Shared | None,
) -> Iterator[Read]:
    try:
        if found.problem:
            raise _Refused(found.problem)
        if source.head and source.is_read and is_known(source.digest):
            yield Read(source.digest, source.size, known=True)
            return
        format_, is_claimed = _recognise(found, source, rules, formats)
        if is_known(source.digest):
            yield Read(source.digest, source.size, known=True)
            return
        if shared is not None and is_claimed and format_.name in BY_ROW:
            parts = _share(source, format_, Share(*shared), rules.redact)
        elif shared is not None and shared[0] > 0:
            parts = iter((Read(),))
        else:
            parts = _parts(source, format_, rules, is_claimed)
        for part in parts:
            yield replace(part, runs=_packed(part.runs)) if rules.packed else part
    except (_Refused, FormatError, OSError) as error:
        yield Read(*_identity(found, source), reason=reason_of(error))


def _packed(runs: list[ReadRun]) -> list[ReadRun]:
    return [replace(one, run=packed_run(one.run)) for one in runs]


def _identity(found: Found, source: Source) -> tuple[str | None, int | None]:
    """Give the digest of a file that was read anyway; large strange files are not read for it."""
    if found.problem:
        return None, None
    try:
        if source.is_read:
            return source.digest, source.size
        return None, source.path.stat().st_size
    except (FormatError, OSError):
        return None, None


def _recognise(found: Found, source: Source, rules: Rules, formats: Formats) -> tuple[Format, bool]:
    """Find the format of a file, and tell whether it claims the file or was merely asked for."""
    if not source.head.strip(b" \t\r\n\xef\xbb\xbf") and source.size <= len(source.head):
        raise _Refused("empty file" if source.size == 0 else "empty: only white space")
    format_ = recognise(source, formats.tried)
    if format_ is not None:
        return format_, True
    if rules.format and (found.named or has_suffix(found.path)):
        (asked,) = formats.tried
        if (other := sure_of(source, formats.others)) is not None:
            raise _Refused(other_format(asked.name, other.name))
        return asked, False
    raise _Refused(unclaimed(source))


def _parts(source: Source, format_: Format, rules: Rules, is_claimed: bool) -> Iterator[Read]:
    """Read the runs of a source; a part with a reason is the last one.

    What counts is the size of the runs: Parquet and zip are packed within themselves. Runs
    without a step, in a file that the format does not claim, are those of another format: once
    written, the file's content would be known, and never be read rightly.
    """
    about = Read(source.digest, source.size, format=format_.name, claimed=True)
    state, most = _State(rules.redact), rules.held
    try:
        reading = format_.read(source)
        for trajectory in reading:
            state.add(trajectory, source)
            if state.size > most:
                yield replace(about, runs=state.hand_over(), more=True)
                most = _PART_BYTES
        if not state.ids:
            raise no_run_in(reading.notes, reading.refused)
        if not (is_claimed or state.n_steps):
            raise FormatError("no step in it", why=f"it does not look like {format_.name}")
    except (BadPayloadError, UsageError, FormatError) as error:
        yield replace(about, reason=reason_of(error))
        return
    except RecursionError:
        yield replace(about, reason=TOO_DEEP)
        return
    yield replace(
        about,
        version=repair(reading.version),
        runs=state.runs,
        notes=[state.said(note) for note in (*reading.notes, *state.notes)],
        refused=[(state.said(where), state.said(why)) for where, why in reading.refused],
    )


def no_run_in(notes: Sequence[str], refused: list[tuple[str, str]]) -> FormatError:
    """Say why there is no run in a source that was read to its end."""
    return FormatError("no run in it", why=refusals(refused, 0) or "; ".join(notes[:3]))


def _share(source: Source, format_: Format, share: Share, redact: bool) -> Iterator[Read]:
    """Read a share of a source's rows; each block is a part, and what is behind them the last."""
    about = Read(source.digest, source.size, format=format_.name, claimed=True)
    state, ended = _State(redact), deque[Read]()
    try:
        reading = format_.read(source)
        source.share = share  # not before: what it looked at is the whole
        since = _Since(reading, state, about)
        share.ended = lambda: ended.append(since.part(more=True, turn=True))
        for trajectory in reading:
            while ended:
                yield ended.popleft()
            state.add(trajectory, source)
        yield from ended
    except (BadPayloadError, UsageError, FormatError) as error:
        yield replace(about, reason=reason_of(error))
    except RecursionError:
        yield replace(about, reason=TOO_DEEP)
    else:
        yield since.part(version=repair(reading.version))


class _Since:
    """What came since the last part."""

    def __init__(self, reading: Reading, state: _State, about: Read) -> None:
        self._reading, self._state, self._about = reading, state, about
        self._notes = self._told = self._refused = 0

    def part(self, **more: Any) -> Read:
        reading, state = self._reading, self._state
        refused = reading.refused[self._refused :]
        part = replace(
            self._about,
            runs=state.hand_over(),
            notes=list(map(state.said, reading.notes[self._notes :])),
            told=list(map(state.said, state.notes[self._told :])),
            refused=[(state.said(where), state.said(why)) for where, why in refused],
            **more,
        )
        self._notes, self._told = len(reading.notes), len(state.notes)
        self._refused = len(reading.refused)
        return part


class _State:
    """The runs of a source so far."""

    def __init__(self, redact: bool = False) -> None:
        self._redactor = Redactor() if redact else None
        self.runs: list[ReadRun] = []
        self.notes: list[str] = []
        self.ids: dict[str, None] = {}
        self.size = self.n_steps = 0
        self._records: dict[str | None, str] = {}

    def add(self, trajectory: Trajectory, source: Source) -> None:
        """Make a run ready."""
        redacted: dict[str, int] = {}
        if self._redactor is not None:
            self._redactor.counts.clear()
            self._redactor.places.clear()
            trajectory = self._redactor.trajectory(trajectory)
            redacted = dict(self._redactor.counts)
        run_id = run_id_of(trajectory, source.digest)
        if run_id in self.ids:
            raise FormatError(f"two runs of the id {run_id!r}")
        parent = self._records.get(trajectory.parent) if trajectory.parent else None
        if trajectory.parent and parent is None:
            self.notes.append(f"{run_id}: its parent {trajectory.parent!r} is not here")
        read = read_run(trajectory, run_id, source.source_id, parent)
        self.notes += read.notes
        self.runs.append(replace(read, redacted=redacted) if redacted else read)
        self.ids[run_id] = None
        self._records[trajectory.record] = run_id
        self.size += _weight(read)
        self.n_steps += read.n_steps

    def said(self, text: str) -> str:
        """Return what a reader says, which may quote its file."""
        text = repair(text)
        return text if self._redactor is None else self._redactor.text(text)

    def hand_over(self) -> list[ReadRun]:
        """Return the runs since the last time."""
        runs, self.runs, self.size = self.runs, [], 0
        return runs


def _weight(read: ReadRun) -> int:
    bodies = sum(len(event.body) for event in read.run.events)
    return bodies + sum(text[1] for text in read.run.texts)
