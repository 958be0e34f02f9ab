"""From a trajectory to the events of a run, made ready for the log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research import _text
from sag_research.errors import BadPayloadError
from sag_research.ingest._clean import clean, has_nul, is_fit, is_long
from sag_research.ingest._copies_spelling import deeds_of_steps, sketch, trace_sketch
from sag_research.log import (
    PreparedEvent,
    PreparedRun,
    RunWriter,
    keep_text,
    prepare_event,
    prepare_run,
)
from sag_research.model import WORKSPACE_RUN, Event, Outcome, Run, Step, Trajectory, Usage

__all__ = ["ReadRun", "outcome_event", "read_run", "run_id_of", "step_payload", "write_run"]

_LONGEST_ID: Final = 200
_ABOUT: Final = ("task_id", "goal", "dataset", "repo", "agent", "model", "config")

_CUT_TOKEN: Final = re.compile(r"\[secret:[^\]]{0,80}\Z")


def run_id_of(trajectory: Trajectory, digest: str) -> str:
    """Return the id of an ingested run: ``task~digest10[.record]``.

    Examples
    --------
    >>> run_id_of(Trajectory(task_id="django__django-1", record="3"), "0123456789abcdef")
    'django__django-1~0123456789.3'
    """
    task = "".join(_text.repair(trajectory.task_id).split())[:_LONGEST_ID]
    # half a token would say that a secret follows
    task = _CUT_TOKEN.sub("", task) or "unnamed"
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
    payload = _payload(step)
    before: dict[str, str] = {}
    payload = {name: clean(value, name, before) for name, value in payload.items()}
    if before:
        payload["flags"] += [one for one in _what_was_done(before) if one not in payload["flags"]]
    if spoilt is not None:
        spoilt.update(before)
    return payload


def _payload(step: Step) -> dict[str, Any]:
    """Return what a step says, as it says it."""
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
    return payload


def _what_was_done(spoilt: dict[str, str]) -> list[str]:
    return sorted({"cut" if is_long(text) else "repaired" for text in spoilt.values()})


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


class ReadRun(msgspec.Struct, array_like=True, frozen=True):
    """A run as it was read, ready for the log."""

    run: PreparedRun
    n_steps: int
    """Without those it inherited."""
    outcome: PreparedEvent | None = None
    """What its record says of it."""
    notes: list[str] = []
    sketch: str = ""
    """Of what it did, by which copies are found."""
    redacted: dict[str, int] = {}
    """Secrets that were replaced in it, by kind."""


def read_run(
    trajectory: Trajectory, run_id: str, source_id: str | None, parent_id: str | None = None
) -> ReadRun:
    """Make one run ready: what it is about, its steps, its end, and the label it carries.

    Parameters
    ----------
    trajectory : Trajectory
        Its steps are its own: those it shares with a parent are the parent's.
    run_id : str
    source_id : str or None
    parent_id : str, optional
        The run that it left behind ``trajectory.parent_step``, or that called it.

    Returns
    -------
    ReadRun
        Its notes say what was repaired outside the steps, and what was cut anywhere.

    Raises
    ------
    BadPayloadError, UsageError
        If the log could not hold it.
    """
    spoilt: dict[str, str] = {}
    texts: dict[bytes, bytes] = {}
    outcome = None
    if parent_id is not None and trajectory.relation != "subagent":
        run = Run(run_id=run_id, parent_id=parent_id, created_at=_begun(trajectory))
    else:
        run = _described(run_id, trajectory, parent_id, spoilt)
    prepared = prepare_run(
        replace(run, attempt=trajectory.attempt, source_id=source_id),
        _events(run_id, trajectory, spoilt, texts),
        texts,
        parent_step=trajectory.parent_step,
        intervention=_intervention(trajectory, spoilt),
    )
    if trajectory.outcome is not None:
        said = outcome_event(run_id, _embedded(trajectory.outcome))
        outcome = prepare_event(said, texts)
    notes = [
        f"{run_id}: {name} was {'cut, over 64 MiB' if is_long(text) else 'repaired'}"
        for name, text in spoilt.items()
    ]
    inherited = sum("inherited" in step.flags for step in trajectory.steps)
    if inherited:
        notes.append(f"{run_id}: {inherited} inherited steps not counted")
    done = sketch(list(deeds_of_steps(trajectory.steps)))
    done = done or trace_sketch(trajectory.config.get("trace_id"))
    return ReadRun(prepared, len(trajectory.steps) - inherited, outcome, notes, done)


def write_run(writer: RunWriter, read: ReadRun) -> None:
    """Put a run into the log, and what its record says of it."""
    writer.add(read.run)
    if read.outcome is not None:
        writer.append(WORKSPACE_RUN, read.outcome)


def _described(
    run_id: str, trajectory: Trajectory, caller: str | None, spoilt: dict[str, str]
) -> Run:
    """Describe a run of its own."""
    about = {name: clean(getattr(trajectory, name), name, spoilt) for name in _ABOUT}
    if caller is not None:
        called = {"run": caller, "step": trajectory.parent_step}
        about["config"] = {**about["config"], "called_by": called}
    return Run(run_id=run_id, created_at=_begun(trajectory), **about)


def _intervention(trajectory: Trajectory, spoilt: dict[str, str]) -> dict[str, Any]:
    """Say how a run left its parent, and what it was told then."""
    told = {name: clean(getattr(trajectory, name), name, spoilt) for name in ("goal", "config")}
    known = {name: value for name, value in told.items() if value}
    return {"relation": trajectory.relation, "recorded": True, **known}


def _begun(trajectory: Trajectory) -> float | None:
    starts = [step.started for step in trajectory.steps if step.started is not None]
    return _instant(min(starts)) if starts else None


def _embedded(outcome: Outcome) -> Outcome:
    """Keep a record's own word apart from label files, whose names have a slash in them."""
    return replace(outcome, source=outcome.source.replace("/", "|") or "record")


def _instant(seconds: float) -> float | None:
    """Leave out what is no time of this era: the log keeps nanoseconds in 64 bits."""
    return seconds if 0 < seconds < 9e9 else None


def _events(
    run_id: str, trajectory: Trajectory, spoilt: dict[str, str], texts: dict[bytes, bytes]
) -> Iterator[PreparedEvent]:
    """Make the events of the steps and of the end ready."""
    for number, step in enumerate(trajectory.steps):
        yield _step_event(run_id, number, step, spoilt, texts)
    if trajectory.end is not None:
        payload = {
            "exit_status": trajectory.exit_status,
            "submission": trajectory.submission,
            "usage": _usage(trajectory.usage),
        }
        known = {name: value for name, value in payload.items() if value is not None}
        end = Event(run_id=run_id, type=trajectory.end, payload=clean(known, "end", spoilt))
        yield prepare_event(end, texts)


def _step_event(
    run_id: str,
    number: int,
    step: Step,
    spoilt: dict[str, str],
    texts: dict[bytes, bytes],
) -> PreparedEvent:
    if (prepared := _prepared_as_it_is(run_id, step, texts)) is not None:
        return prepared
    before: dict[str, str] = {}
    payload = step_payload(step, before)
    if before:
        spoilt.update(
            (f"step {number}: {field}", text) for field, text in before.items() if is_long(text)
        )
        payload["raw"] = {field: keep_text(text, texts) for field, text in before.items()}
    return prepare_event(Event(run_id=run_id, type="agent.step", payload=payload), texts)


def _prepared_as_it_is(run_id: str, step: Step, texts: dict[bytes, bytes]) -> PreparedEvent | None:
    """Make a step ready that surely needs no cleaning, as nearly all do; else None.

    The log itself refuses broken and endless texts and numbers that are none; what it takes and
    this package does not is NUL, and what free-form values may hold.
    """
    usage = step.usage
    counts = () if usage is None else (usage.tokens_in, usage.tokens_out, usage.cost_usd)
    free = (step.state, *counts)
    for call in step.calls:
        free += (call.arguments, call.exit_code)
    if not all(map(is_fit, free)):
        return None
    own: dict[bytes, bytes] = {}
    try:
        event = Event(run_id=run_id, type="agent.step", payload=_payload(step))
        prepared = prepare_event(event, own)
    except BadPayloadError:
        return None
    if has_nul(prepared.body, own):
        return None
    texts |= own
    return prepared
