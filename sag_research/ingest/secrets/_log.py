"""Secrets in a log: found, taken out of it, and left out of a copy of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sag_research._text import escape
from sag_research.errors import StoreError
from sag_research.ingest.secrets._find import find_secrets
from sag_research.ingest.secrets._redactor import REDACTED_FLAG, Place, Redactor
from sag_research.log import (
    PreparedEvent,
    SQLiteEventStore,
    ToRedact,
    empty_write_ahead_log,
    keep_bytes,
    keep_text,
    loose_texts,
    names_in_log,
    prepare_event,
    read_document,
    redact_all,
    write_cleaned,
)
from sag_research.model import Event, Run

__all__ = ["LogRedaction", "Spotted", "redact_log", "redacted_copy", "scan_log"]

REASON: Final = "a secret"
_STEP: Final = "agent.step"
_TRACE: Final = "body.redacted"
_CLOCKS: Final = ("started", "seconds")
_NAMES: Final = frozenset({"task_id", "record", "path", "root"})
"""Fields in which words may run into one another."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Spotted(NamedTuple):
    """A secret, by its place. It does not hold the secret."""

    file: str
    """The file; of a log, its path."""
    run: str
    position: int | None
    """Of the event in a log."""
    step: int | None
    """0-based; ``None`` where it stands outside of the steps."""
    field: str
    kind: str
    token: str


class LogRedaction(msgspec.Struct, frozen=True):
    """What was taken out of a log, or would be.

    Attributes
    ----------
    found : list of Spotted
        Every secret, by its place.
    events : int
        Bodies that were emptied, each with a cleaned text in its place; 0 in a dry run.
    removed, kept : int
        Long texts that are gone from the file, and those that other events hold too.
    left : list of str
        Where secrets stand that cannot be taken out: ids and labels of runs, names of types,
        actors and frames, texts that no event refers to.
    dry_run : bool
    detectors : str
        What looked for secrets.
    busy : bool
        Somebody reads the log at this moment, and the file of its write-ahead log still holds
        what was taken out; redact once more when nobody does.
    """

    found: list[Spotted]
    events: int
    removed: int
    kept: int
    left: list[str]
    dry_run: bool
    detectors: str
    busy: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Number of secrets by kind."""
        return dict(Counter(one.kind for one in self.found).most_common())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``sag scan --redact --json`` prints it."""
        return {
            "findings": [one._asdict() for one in self.found],
            "counts": self.counts,
            "events": self.events,
            "removed": self.removed,
            "kept": self.kept,
            "left": self.left,
            "dry_run": self.dry_run,
            "detectors": self.detectors,
            "busy": self.busy,
        }

    def __repr__(self) -> str:
        n_events = len({(one.run, one.position) for one in self.found if one.position})
        done = f"{n_events} events to redact" if self.dry_run else f"{self.events} events redacted"
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        left = f"; {len(self.left)} cannot be taken out" if self.left else ""
        return f"LogRedaction({len(self.found)} secrets, {done}{left}; {kinds or 'none found'})"

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>"


class _LogRedactor(Redactor):
    """Cleans payloads, and what they refer to by digests: documents, and texts before repair."""

    def __init__(self, store: SQLiteEventStore, *, second: bool) -> None:
        super().__init__(second=second)
        self._store = store
        self._referred: dict[str, tuple[str, list[Place]]] = {}
        self.texts: dict[bytes, bytes] = {}
        """What the payloads since it was last emptied refer to, cleaned."""
        self.ids: dict[str, str] = {}
        """New ids of runs, by those that hold a secret."""

    def text(self, text: str, field: str = "") -> str:
        """Return a cleaned text; of the digest of a document, that of the cleaned document."""
        if len(text) != 64 or _DIGEST.fullmatch(text) is None:
            return self._plain(text, field)
        if text not in self._referred:
            self._referred[text] = text, []  # what refers to itself ends here
            here = len(self.places)
            new = self._document(text, field)
            # not an equal text, for who asks looks whether it is the same one
            new = text if new == text else new
            self._referred[text] = new, self.places[here:]
            return new
        new, places = self._referred[text]
        self.places += places
        self.counts.update(place.kind for place in places)
        return text if new == text else new

    def _plain(self, text: str, field: str) -> str:
        for old, new in self.ids.items():
            if old in text:
                text = text.replace(old, new)
        return self.name(text, field) if field in _NAMES else super().text(text, field)

    def _document(self, digest: str, field: str) -> str:
        try:
            data = self._store.blob(digest)
        except StoreError:
            return digest  # of something that is not in the log
        payload = self._payload(digest, data)
        if payload is not None:
            made = _encoded(self._value(payload, field, "", 0), self.texts)
            self.texts[made.digest] = made.body
            return made.digest.hex()
        try:
            clean = self._plain(data.decode("utf-8", "surrogatepass"), field)
            return keep_text(clean, self.texts)
        except UnicodeDecodeError:
            clean = self._plain(data.decode("latin-1"), field)
            return keep_bytes(clean.encode("latin-1"), self.texts)

    def _payload(self, digest: str, data: bytes) -> dict[str, Any] | None:
        """Read a document; a text that merely looks like one is none."""
        if not data.startswith(b"{"):
            return None
        try:
            payload = read_document(self._store, digest)
        except StoreError:
            return None
        return payload if _encoded(payload, {}).body == data else None

    def event(self, type_: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return a cleaned payload, itself where nothing was; a step says so by its flag."""
        clean: dict[str, Any] = self.value(payload)
        if clean is payload or not self.places or type_ != _STEP:
            return clean
        flags = clean.get("flags")
        flags = list(flags) if isinstance(flags, (list, tuple)) else []
        return {**clean, "flags": [*flags, *([] if REDACTED_FLAG in flags else [REDACTED_FLAG])]}


def _encoded(payload: Mapping[str, Any], texts: dict[bytes, bytes]) -> PreparedEvent:
    return prepare_event(Event(run_id="-", type="document", payload=dict(payload)), texts)


def scan_log(store: SQLiteEventStore, *, second: bool = True) -> LogRedaction:
    """Look for secrets in all events of a log; writes nothing.

    Parameters
    ----------
    store : SQLiteEventStore
    second : bool
        As for :class:`Redactor`.
    """
    return redact_log(store, dry_run=True, second=second)


def redact_log(
    store: SQLiteEventStore, *, dry_run: bool = False, second: bool = True
) -> LogRedaction:
    """Take all secrets out of a log, for good.

    The body of each event that holds one is emptied, and what is left of it, with tokens in the
    place of secrets, is kept in the event ``body.redacted`` and read in the body's place.

    Parameters
    ----------
    store : SQLiteEventStore
    dry_run : bool
        Only say what would be done.
    second : bool
        As for :class:`Redactor`.

    Notes
    -----
    Digests stay as they were, so ``verify`` holds, and who has the rest of a text can test guesses
    of a short password against its digest. For what is given away, see :func:`redacted_copy`.
    """
    work = _Work(store, second)
    for event in store.tail(strict=False):
        work.take(event)
    work.take_runs()
    work.take_rest()
    work.take_files(dry_run)
    done = None if dry_run or not work.wanted else redact_all(store, work.wanted, work.texts)
    is_busy = not dry_run and not empty_write_ahead_log(store)
    return LogRedaction(
        found=work.found,
        events=0 if done is None else len(done.events),
        removed=0 if done is None else done.removed,
        kept=0 if done is None else done.kept,
        left=work.left,
        dry_run=dry_run,
        detectors=work.redactor.detectors,
        busy=is_busy,
    )


class _Work:
    """One pass over a log."""

    def __init__(self, store: SQLiteEventStore, second: bool) -> None:
        self.redactor = _LogRedactor(store, second=second)
        self.found: list[Spotted] = []
        self.wanted: list[ToRedact] = []
        self.texts: dict[bytes, bytes] = {}
        self.left: list[str] = []
        self._store = store
        self._steps: dict[str, int] = {}
        self._names = {run.run_id: _clean_id(run, self.redactor) for run in store.runs()}

    def take(self, event: Event) -> None:
        """Look at one event."""
        step = self._number(event) if event.type == _STEP else None
        payload = {name: value for name, value in event.payload.items() if name not in _CLOCKS}
        self.redactor.places.clear()
        self.redactor.texts = {}
        clean = self.redactor.event(event.type, payload)
        if clean is payload or not self.redactor.places or "unreadable" in payload:
            return
        position = event.position or 0
        self.found += [
            Spotted(self._store.path, self._name(event.run_id), position, step, *place)
            for place in self.redactor.places
        ]
        if event.type == _TRACE or "redacted" in payload:
            name = self._name(event.run_id)
            self.left.append(f"{name} at {position}: what stands for a redacted body")
            return
        self.texts |= self.redactor.texts
        self.wanted.append(ToRedact(event.run_id, position, REASON, clean))

    def _name(self, run_id: str) -> str:
        """Return a run's id as it can be shown."""
        if run_id not in self._names:
            self._names[run_id] = self.redactor.name(run_id)
        return self._names[run_id]

    def _number(self, event: Event) -> int:
        step = self._steps.get(event.run_id)
        if step is None:
            step = self._store.count_steps(event.run_id, event.position or 1)
        self._steps[event.run_id] = step + 1
        return step

    def take_runs(self) -> None:
        """Look at what stands beside events, and cannot be taken out."""
        for run in self._store.runs():
            for name in ("run_id", "label"):
                self.redactor.places.clear()
                if name == "run_id":
                    _clean_id(run, self.redactor)
                else:
                    self.redactor.name(run.label, name)
                if self.redactor.places:
                    self.left.append(f"{name} of {self._name(run.run_id)}")
                    self.found += [
                        Spotted(self._store.path, self._name(run.run_id), None, None, *place)
                        for place in self.redactor.places
                    ]

    def take_rest(self) -> None:
        """Look at names of events, and at texts that no event refers to."""
        for name in names_in_log(self._store):
            if shown := self._spotted(name, "type, actor or frame"):
                self.left.append(f"type, actor or frame {shown}")
        loose = 0
        for data in loose_texts(self._store):
            loose += bool(self._spotted(data.decode("utf-8", "replace"), "text of no event"))
        if loose:
            self.left.append(f"{loose} texts that no event refers to; a copy leaves them behind")

    def take_files(self, dry_run: bool) -> None:
        """Look at files beside the log; drop what is remembered of paths that hold a secret."""
        if self._store.path == ":memory:":
            return
        memory = Path(self._store.path + "-seen")
        found = memory.is_file() and self._spotted(_text_of(memory), "name of a file that was read")
        if found and not dry_run:
            memory.unlink()  # files are read again: it only spares that
        aliases = memory.with_name("aliases.toml")
        if aliases.is_file() and self._spotted(_text_of(aliases), "aliases.toml"):
            self.left.append("aliases.toml")

    def _spotted(self, text: str, field: str) -> str:
        """Note what stands in a text that is no event's; returns it cleaned, if it was not."""
        self.redactor.places.clear()
        clean = self.redactor.name(text, field)
        places = self.redactor.places
        self.found += [Spotted(self._store.path, "", None, None, *place) for place in places]
        return clean if places else ""


def _text_of(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "replace")


def redacted_copy(
    store: SQLiteEventStore, target: SQLiteEventStore, *, second: bool = True
) -> dict[str, int]:
    """Write a log without its secrets into an empty one, with new digests.

    Parameters
    ----------
    store, target : SQLiteEventStore
    second : bool
        As for :class:`Redactor`.

    Returns
    -------
    dict of str to int
        Number of replacements by kind.
    """
    redactor = _LogRedactor(store, second=second)
    redactor.ids = _new_ids(store, redactor)

    def clean(type_: str, payload: dict[str, Any]) -> tuple[dict[str, Any], Mapping[bytes, bytes]]:
        redactor.places.clear()
        redactor.texts = {}
        return redactor.event(type_, payload), redactor.texts

    write_cleaned(store, target, clean, redactor.ids)
    return dict(redactor.counts.most_common())


def _new_ids(store: SQLiteEventStore, redactor: Redactor) -> dict[str, str]:
    """Return new ids for the runs whose ids hold a secret."""
    runs = store.runs()
    taken = {run.run_id for run in runs}
    ids: dict[str, str] = {}
    for run in runs:
        base = new = _clean_id(run, redactor)
        if new == run.run_id:
            continue
        number = 1
        while new in taken:
            number += 1
            new = f"{base}.{number}"
        taken.add(new)
        ids[run.run_id] = new
    # an id may be the beginning of another
    return dict(sorted(ids.items(), key=lambda pair: -len(pair[0])))


def _clean_id(run: Run, redactor: Redactor) -> str:
    """Return a run's id without secrets, those included that its task holds: it is made of it."""
    clean = redactor.name(run.run_id, "run_id")
    for one in find_secrets(run.task_id or ""):
        secret = "".join((run.task_id or "")[one.start : one.end].split())
        # an id has the beginning of a long task: it may end within the secret
        ends = [secret, *(f"{secret[:size]}~" for size in range(len(secret) - 1, 7, -1))]
        said = next((end for end in ends if len(end) >= 4 and end in clean), None)
        if said is not None:
            clean = clean.replace(said, one.token + "~" * said.endswith("~"))
            redactor.places.append(Place("run_id", one.kind, one.token))
            redactor.counts[one.kind] += 1
    return clean
