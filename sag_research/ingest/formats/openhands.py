"""OpenHands V0: a JSON list of events, or a folder with a file for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Outline, decode, outline
from sag_research.ingest._members import V0_MEMBER
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._openhands_v0 import EventsV0
from sag_research.model import Trajectory

__all__ = ["OpenHands"]


class _Object(msgspec.Struct):
    trajectory: list[Any]


_DECODER: Final = msgspec.json.Decoder(list[Any] | _Object)
_ANY: Final = msgspec.json.Decoder()
_ENVELOPE: Final = {"id", "timestamp", "source", "cause"}


class OpenHands:
    """OpenHands V0 event lists: a JSON list, or an object with a ``trajectory`` of events.

    Traps that are honoured

    * A session may be a folder ``events`` with a file ``<number>.json`` for each event: one run,
      named after the folder above. A file that cannot be read costs that event. The pages in
      ``event_cache`` beside it repeat the events, and are left out.
    * An event is an action or an observation. A result names its action by ``cause``, the
      action's ``id``; ids have gaps and begin again in each session, so the latest action
      before it is meant. Old files keep pairs ``[action, observation]`` without any ids.
    * ``observation`` may be the string ``null``, which means nothing.
    * A long process gives several observations for one action: the call has all of them, and
      the exit code of the last one. Exit code -1 is unknown.
    * A reply with several calls gives several actions, and each repeats the whole
      ``model_response``: they are one step, and its tokens are counted once.
    * An error that answers no call says that a reply could not be used, which itself is not
      kept: it is no observation, and stands in the step's ``state`` under ``corrections``.
    * What the user says or does is no step. The first message is the goal; later ones are what
      the model heard after its last turn.
    * Timestamps have no zone and are taken for UTC.
    * Calls are given as the model said them where its reply is kept, else as the harness
      understood them.
    * The state in which the agent stopped is the exit status. The outcome is not in the file.

    ``config`` says ``read_from: events``: the harness's record, not what the model was sent,
    which is in the completion logs (``openhands-completions``).
    """

    name = "openhands"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lists of actions and observations with their envelope."""
        seen = outline(head)
        if seen.root == "list":
            return 0.9 if _is_event(frozenset(seen.keys)) else 0.0
        if seen.root == "object" and _is_lone(seen):
            return 0.97  # its actions and observations look like SWE-agent's otherwise
        if not path.is_dir() or not _has_numbers(path):
            return 0.0
        # the first event may be damaged; the names of the others tell
        return 0.9 if seen.root == "object" and _is_event(frozenset(seen.keys)) else 0.5

    def read(self, source: Source) -> Reading:
        """Read the one run of the file, or of the folder."""
        notes: list[str] = []
        if source.members:
            history = list(_of_members(source, notes))
            if not any(map(mapping, history)):
                raise FormatError("no event in it", why="; ".join(notes[:3]))
            task_id = shared.id_of_events(source.path.absolute())
        else:
            value = decode(source.bytes(), _DECODER)
            history = value.trajectory if isinstance(value, _Object) else value
            task_id = shared.bare_id(source.path)
        return Reading("v0", _trajectories(history, task_id, notes), notes)


def _is_event(keys: frozenset[str]) -> bool:
    named = {"action", "args"} <= keys or {"observation", "content"} <= keys
    return named and bool(_ENVELOPE & keys)


def _is_lone(seen: Outline) -> bool:
    return "trajectory" in seen.keys and _is_event(seen.below("trajectory"))


def _has_numbers(folder: Path) -> bool:
    return any(V0_MEMBER.fullmatch(path.name) for path in folder.iterdir())


def _of_members(source: Source, notes: list[str]) -> Iterator[Any]:
    """Yield the events of files in the order of their numbers; a damaged one is left out."""
    named = [V0_MEMBER.fullmatch(path.name) for path in source.members]
    numbers = {int(name["number"]) for name in named if name}
    if missing := max(numbers, default=-1) + 1 - len(numbers):
        notes.append(f"{missing} numbers of events are missing")
    faults = []
    for path in source.members:
        try:
            yield decode(Source(path).bytes(), _ANY)
        except (FormatError, OSError) as error:
            faults.append(f"{path.name}: {error}")
    notes += shared.first_of(faults)


def _trajectories(history: list[Any], task_id: str, notes: list[str]) -> Iterator[Trajectory]:
    events = EventsV0().take(history)
    notes += events.notes()
    config = {"read_from": "events", "agent_class": events.agent_class}
    yield Trajectory(
        task_id=task_id,
        goal=shared.problem_text(events.goal),
        steps=events.steps(),
        repo=shared.repo_of(task_id),
        agent="openhands",
        model=events.model,
        end=events.end,
        exit_status=events.state,
        usage=events.usage,
        config={name: value for name, value in config.items() if value is not None},
    )
