"""What an export of this package put beside the words of another format, taken back."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from sag_research.errors import BadPayloadError
from sag_research.ingest.formats.native import trajectory_of
from sag_research.model import Step, Trajectory

__all__ = ["run_told", "step_told"]


def step_told(step: Step, told: Any) -> Step:
    """Return a step with the fields that are told of it; as it is if they do not fit.

    Parameters
    ----------
    step : Step
        As the words of the format say it.
    told : object
        Fields of a native step. ``calls`` has an object for each call, with some of its fields.
        The action is that of the calls unless it is told.

    Examples
    --------
    >>> step_told(Step(thought="done"), {"flags": ["final"], "seconds": 0.5}).flags
    ('final',)
    >>> step_told(Step(thought="done"), {"flags": "final"}).flags
    ()
    """
    if not isinstance(told, dict):
        return step
    known = msgspec.to_builtins(step)
    own = {name: known[name] for name in step.__struct_fields__ if name not in ("raw", "action")}
    own |= {name: value for name, value in told.items() if name != "calls"}
    own["calls"] = known["calls"]
    calls = told.get("calls", [])
    if calls:
        if not isinstance(calls, list) or len(calls) != len(step.calls):
            return step
        if not all(isinstance(one, dict) for one in calls):
            return step
        own["calls"] = [old | new for old, new in zip(own["calls"], calls, strict=True)]
    try:
        return trajectory_of({"task_id": "told", "steps": [own]}).steps[0]
    except BadPayloadError:
        return step


def run_told(run: Trajectory, told: Any) -> Trajectory:
    """Return a run with what a native record without steps tells of it; as it is if it is none.

    Examples
    --------
    >>> run_told(Trajectory(task_id="a"), {"task_id": "b", "outcome": "success"}).outcome.outcome
    'success'
    >>> run_told(Trajectory(task_id="a"), {"outcome": "success"}).task_id
    'a'
    """
    if not isinstance(told, dict):
        return run
    try:
        found = trajectory_of(told | {"steps": []})
    except BadPayloadError:
        return run
    return replace(
        found, steps=run.steps, record=run.record, parent=run.parent,
        parent_step=run.parent_step, relation=run.relation, notes=run.notes,
    )  # fmt: skip
