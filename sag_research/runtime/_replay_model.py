"""Which model stands, in a replay, where a call names none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from sag_research.llm import Identity, Model
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from sag_research.runtime._replay_store import Recording

__all__ = ["identity_of"]


def identity_of(model: Model | Identity | None, recording: Recording) -> Identity | None:
    """Return the identity of the default model of a replay.

    What the replayed part itself asked tells best; of several models, the one that the fork's
    intervention names. Where it asked nothing, the intervention counts, and then the ancestors:
    a fork may have been made for another model than theirs.
    """
    if model is not None:
        return model if isinstance(model, Identity) else model.identity()
    wanted = _intended(recording)
    name = wanted.get("model") if isinstance(wanted, Mapping) else wanted
    first = None
    for asked in _asked(recording.store, recording.made()):
        if name is None or asked.model == name:
            return asked
        first = first or asked
    if first is not None:
        return first
    inherited = list(_asked(recording.store, recording.events))
    return _completed(wanted, inherited) or next(iter(inherited), None)


def _intended(recording: Recording) -> Any:
    """Return what the nearest fork up to the replayed part says of the model, if any does."""
    for event in reversed(recording.events[: recording.since]):
        if event.type == "run.forked":
            change = event.payload.get("change")
            for said in (event.payload, change if isinstance(change, Mapping) else {}):
                if said.get("model"):
                    return said["model"]
    return None


def _completed(wanted: Any, known: list[Identity]) -> Identity | None:
    """Make an identity of what an intervention says, with what it leaves open taken as before."""
    if isinstance(wanted, Mapping):
        named = {name: wanted[name] for name in Identity.__struct_fields__ if name in wanted}
        if not all(isinstance(value, str) for value in named.values()) or "model" not in named:
            return None
        return Identity(**({"provider": known[0].provider if known else ""} | named))
    if not isinstance(wanted, str):
        return None
    same = next((identity for identity in known if identity.model == wanted), None)
    return same or (replace(known[0], model=wanted) if known else Identity("", wanted))


def _asked(store: SQLiteEventStore, events: Iterable[Event]) -> Iterator[Identity]:
    """Yield the models that were asked, also where a recorded answer was taken."""
    for event in events:
        request: Event | None = event
        if event.type == "call.reused":
            request = _request_of(store, event)
        if request is not None and request.type == "llm.requested" and "model" in request.payload:
            named = {name: request.payload.get(name, "") for name in Identity.__struct_fields__}
            yield Identity(**named)


def _request_of(store: SQLiteEventStore, reused: Event) -> Event | None:
    run_id, position = reused.payload.get("run"), reused.payload.get("position")
    if not isinstance(run_id, str) or type(position) is not int or not store.has_run(run_id):
        return None
    answer = next(store.read(run_id, position, position), None)
    if answer is None or answer.type not in ("llm.responded", "llm.failed"):
        return None
    return next(store.read(run_id, answer.cause or 0, answer.cause or 0), None)
