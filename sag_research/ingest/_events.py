"""From a trajectory to the events of a run, and into the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research import _text
from sag_research.ingest._clean import LONGEST, clean, is_fit, is_long
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Outcome, Run, Step, Trajectory, Usage

__all__ = ["outcome_event", "run_id_of", "step_payload", "write_run"]

_LONGEST_ID: Final = 200
_ABOUT: Final = ("task_id", "goal", "dataset", "repo", "agent", "model", "config")


def run_id_of(trajectory: Trajectory, digest: str) -> str:
    """Return the id of an ingested run: ``task~digest10[.record]``.

    Examples
    --------
    >>> run_id_of(Trajectory(task_id="django__django-1", record="3"), "0123456789abcdef")
    'django__django-1~0123456789.3'
    """
    task = "".join(_text.repair(trajectory.task_id).split())[:_LONGEST_ID] or "unnamed"
    tail = "" if trajectory.record is None else f".{_text.repair(trajectory.record)}"
    return f"{task}~{digest[:10]}{tail}"


def step_payload(step: Step, spoilt: dict[str, str] | None = None) -> dict[str, Any]:
    r"""Return the payload of an event ``agent.step``.

    Parameters
    ----------
    step : Step
    spoilt : dict of str to str, optional
        Receives the texts that had to be repaired, as they were, by field.

    Examples
    --------
    >>> payload = step_payload(Step(action="ls", observation="half \ud835"))
    >>> payload["observation"], payload["flags"]
    ('half \ufffd', ['repaired'])
    """
    payload: dict[str, Any] = {
        "thought": step.thought,
        "action": step.action,
        "observation": step.observation,
        "calls": [_fields(call) for call in step.calls],
        "flags": list(step.flags),
    }
    optional = (
        ("usage", _usage(step.usage)),
        ("state", step.state),
        ("started", step.started),
        ("seconds", step.seconds),
    )
    payload.update((name, value) for name, value in optional if value is not None)
    before: dict[str, str] = {}
    if not _is_plain(step):
        payload = {name: clean(value, name, before) for name, value in payload.items()}
    if before:
        payload["flags"] += [one for one in _what_was_done(before) if one not in payload["flags"]]
    if spoilt is not None:
        spoilt.update(before)
    return payload


def _what_was_done(spoilt: dict[str, str]) -> list[str]:
    return sorted({"cut" if is_long(text) else "repaired" for text in spoilt.values()})


def _is_plain(step: Step) -> bool:
    """Tell quickly whether a step needs no cleaning, as nearly all do not."""
    texts = [step.thought, step.action, step.observation, *step.flags]
    for call in step.calls:
        texts += (call.id, call.name, call.text, call.observation, call.status)
        if call.arguments is not None and not is_fit(call.arguments):
            return False
    numbers = [step.started, step.seconds, *(call.exit_code for call in step.calls)]
    if step.usage is not None:
        numbers += (step.usage.tokens_in, step.usage.tokens_out, step.usage.cost_usd)
    if not (is_fit(numbers) and is_fit(step.state)):
        return False
    if not all(map(str.isascii, texts)):
        return all(map(is_fit, texts))
    return not any("\x00" in text or len(text) > LONGEST for text in texts)


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {name: value for name, value in _fields(usage).items() if value is not None} or None


def outcome_event(run_id: str, outcome: Outcome) -> Event:
    """Return the event that records what a label source says of a run."""
    payload = {name: value for name, value in _fields(outcome).items() if value is not None}
    payload = {"run": run_id, **clean(payload, "outcome", {})}
    return Event(run_id=WORKSPACE_RUN, type="outcome.recorded", actor="ingest", payload=payload)


def write_run(
    store: SQLiteEventStore,
    run_id: str,
    trajectory: Trajectory,
    source_id: str | None,
    parent_id: str | None = None,
) -> list[str]:
    """Write one run: what it is about, its steps, its end, and the label it carries.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
    trajectory : Trajectory
        Its steps are its own: those it shares with a parent are the parent's.
    source_id : str or None
    parent_id : str, optional
        The run that it left behind ``trajectory.parent_step``, or that called it.

    Returns
    -------
    list of str
        What was repaired outside the steps, and what was cut anywhere.
    """
    spoilt: dict[str, str] = {}
    if parent_id is not None and trajectory.relation != "subagent":
        first = _fork(store, run_id, trajectory, source_id, parent_id)
    else:
        first = _create(store, run_id, trajectory, source_id, parent_id, spoilt)
    store.append_many(_events(store, run_id, trajectory, spoilt, first))
    if trajectory.outcome is not None:
        store.append(outcome_event(run_id, _embedded(trajectory.outcome)))
    return [
        f"{run_id}: {name} was {'cut, over 64 MiB' if is_long(text) else 'repaired'}"
        for name, text in spoilt.items()
    ]


def _create(
    store: SQLiteEventStore,
    run_id: str,
    trajectory: Trajectory,
    source_id: str | None,
    caller: str | None,
    spoilt: dict[str, str],
) -> int:
    """Create a run of its own and return the position of its first event."""
    about = {name: clean(getattr(trajectory, name), name, spoilt) for name in _ABOUT}
    if caller is not None:
        called = {"run": caller, "step": trajectory.parent_step}
        about["config"] = {**about["config"], "called_by": called}
    starts = [step.started for step in trajectory.steps if step.started is not None]
    store.create_run(
        Run(
            run_id=run_id,
            attempt=trajectory.attempt,
            source_id=source_id,
            created_at=_instant(min(starts)) if starts else None,
            **about,
        )
    )
    return 1


def _fork(
    store: SQLiteEventStore,
    run_id: str,
    trajectory: Trajectory,
    source_id: str | None,
    parent_id: str,
) -> int:
    """Let a run leave its parent and return the position of its first own event."""
    step = trajectory.parent_step
    shared = 1 if step is None or step < 0 else store.position_of_step(parent_id, step)
    store.fork(
        parent_id,
        at=shared,
        run_id=run_id,
        intervention={"relation": trajectory.relation, "recorded": True},
        source_id=source_id,
        attempt=trajectory.attempt,
    )
    return store.head(run_id).position


def _embedded(outcome: Outcome) -> Outcome:
    """Keep a record's own word apart from label files, whose names have a slash in them."""
    return replace(outcome, source=outcome.source.replace("/", "|") or "record")


def _instant(seconds: float) -> float | None:
    """Leave out what is no time of this era: the log keeps nanoseconds in 64 bits."""
    return seconds if 0 < seconds < 9e9 else None


def _events(
    store: SQLiteEventStore,
    run_id: str,
    trajectory: Trajectory,
    spoilt: dict[str, str],
    first: int,
) -> Iterator[Event]:
    """Yield the events behind position `first`, each caused by the one before it."""
    position = first
    for number, step in enumerate(trajectory.steps):
        before: dict[str, str] = {}
        payload = step_payload(step, before)
        if before:
            spoilt.update(
                (f"step {number}: {field}", text)
                for field, text in before.items()
                if is_long(text)
            )
            payload["raw"] = {
                field: store.put_blob(text.encode("utf-8", "surrogatepass"))
                for field, text in before.items()
            }
        yield Event(run_id=run_id, type="agent.step", payload=payload, cause=position)
        position += 1
    if trajectory.end is not None:
        payload = {
            "exit_status": trajectory.exit_status,
            "submission": trajectory.submission,
            "usage": _usage(trajectory.usage),
        }
        known = {name: value for name, value in payload.items() if value is not None}
        yield Event(
            run_id=run_id, type=trajectory.end, payload=clean(known, "end", spoilt), cause=position
        )
