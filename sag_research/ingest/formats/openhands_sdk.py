"""OpenHands SDK (V1): a folder with a file for each event, JSON lines, or a list of events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import decode, first_character, first_lines, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_sdk import UNREADABLE, sdk_runs
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.model import Trajectory

__all__ = ["OpenHandsSdk"]

_ANY: Final = msgspec.json.Decoder()
_KIND: Final = re.compile(rb'"kind"\s*:\s*"[A-Z]\w*"')
_ENVELOPE: Final = {"id", "timestamp", "source"}
_MEMBER: Final = re.compile(r"event-(?P<number>\d+)-(?P<id>.+?)\.json(?:\.(?:gz|zst))?", re.DOTALL)
_STATE: Final = "base_state.json"
_SECRETS: Final = frozenset({"secret_registry", "secrets"})


class OpenHandsSdk:
    """OpenHands SDK (V1) conversations: events of named kinds.

    Traps that are honoured

    * A conversation is a folder of ``event-<number>-<id>.json``, JSON lines, or a list. A file
      that cannot be read, and a number that is missing, cost that event.
    * An unknown kind of event, or of action and observation inside one, costs nothing: the
      event is kept as it is in ``config`` under ``opaque_events``; what an unknown tool gave
      back is the observation, as JSON if it has no text.
    * Events form a tree by ``parent_id``; without one an event follows the one before it. The
      run goes to the leaf that ``base_state.json`` names, or to the latest event. The other
      branches are runs that left it, with their own steps only. Where the same reply had other
      results there, its step is in both: in the branch with the flags ``inherited`` and
      ``shared-reply``, and without its tokens.
    * Cycles, missing parents, ids that are used again and several roots cost no event.
    * Calls and results are joined 0..n to 0..n: a second result for a call is added to the
      first; one whose call is not in its run is what the model heard in that turn.
    * A reply with several calls gives several events with one ``llm_response_id``: one step.
    * Exit code -1 stands for an unknown one.
    * What the user says is no step: the goal, or what the model heard after its last turn.
    * ``stats`` are totals of the whole conversation, so they are the run's only if it is the
      only one; zero means unknown.
    * A step whose calls were all refused, or were not understood (``action`` is null), has the
      flag ``rejected``.
    """

    name = "openhands-sdk"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim events with a kind in capitals and their envelope."""
        if _is_event(head):
            return 0.9
        if any(map(_is_event, first_lines(head))):
            return 0.8
        # the first event may be damaged; the names of the others tell
        return 0.5 if path.is_dir() and _first_member(path) else 0.0

    def read(self, source: Source) -> Reading:
        """Read the conversation; its branches are runs of their own."""
        notes: list[str] = []
        return Reading("v1", _trajectories(source, notes), notes)


def _is_event(data: bytes) -> bool:
    keys = set(outline(data).keys)
    return "kind" in keys and len(_ENVELOPE & keys) >= 2 and bool(_KIND.search(data))


def _first_member(folder: Path) -> bool:
    return any(_MEMBER.fullmatch(path.name) for path in folder.iterdir())


def _trajectories(source: Source, notes: list[str]) -> Iterator[Trajectory]:
    events = list(_events(source, notes))
    if not any("kind" in mapping(event) for event in events):
        raise FormatError("no event in it", why="; ".join(notes[:3]))
    state = _state(source)
    runs, found = sdk_runs(events, _task_id(source), shared.word(state.get("leaf_event_id")))
    notes += found
    config = {name: value for name, value in state.items() if name not in _SECRETS}
    llm = mapping(mapping(state.get("agent")).get("llm"))
    model = shared.word(llm.get("model"))
    for run in runs:
        kept = config if run.parent is None else {}
        yield replace(run, model=model or run.model, config=kept | run.config)


def _task_id(source: Source) -> str:
    path = source.path.absolute()
    if source.members or path.name.startswith("events."):
        return shared.id_of_events(path if source.members else path.parent)
    return shared.bare_id(path)


def _state(source: Source) -> dict[str, Any]:
    """Read the state that the SDK keeps beside the events, if it is there."""
    folder = source.path if source.members else source.path.absolute().parent
    for place in (folder, folder.absolute().parent)[: 2 if source.members else 1]:
        path = place / _STATE
        if path.is_file():
            try:
                return mapping(decode(Source(path).bytes(), _ANY))
            except (FormatError, OSError):
                return {}
    return {}


# ---- events


def _events(source: Source, notes: list[str]) -> Iterator[Any]:
    if source.members:
        yield from _of_members(source, notes)
    elif first_character(source.head) == b"[" and (value := _whole(source)) is not None:
        yield from value
    else:
        yield from _of_lines(source, notes)


def _whole(source: Source) -> list[Any] | None:
    """Read a list of events; None if it is no list, but lines that begin with a damaged one."""
    try:
        value = decode(source.bytes(), _ANY)
    except FormatError:
        return None
    return value if isinstance(value, list) else []


def _of_members(source: Source, notes: list[str]) -> Iterator[Any]:
    """Yield the events in the order of their numbers; a damaged one keeps its place."""
    named = ((_MEMBER.fullmatch(path.name), path) for path in source.members)
    found = [(int(name["number"]), name["id"], path) for name, path in named if name]
    found.sort(key=lambda one: (one[0], one[1]))
    numbers = {number for number, _, _ in found}
    if missing := max(numbers, default=-1) + 1 - len(numbers):
        notes.append(f"{missing} numbers of events are missing")
    faults = []
    for _, name, path in found:
        try:
            event = decode(Source(path).bytes(), _ANY)
        except (FormatError, OSError) as error:
            faults.append(f"{path.name}: {error}")
            event = None
        yield event if isinstance(event, dict) else {"id": name, "kind": UNREADABLE}
    notes += shared.first_of(faults)


def _of_lines(source: Source, notes: list[str]) -> Iterator[Any]:
    faults = []
    for number, line in enumerate(source.lines(), start=1):
        if line.strip():
            try:
                event = decode(line, _ANY)
            except FormatError as error:
                faults.append(f"line {number}: {error}")
                continue
            if isinstance(event, dict):
                yield event
            else:
                faults.append(f"line {number}: no object")
    notes += shared.first_of(faults)
