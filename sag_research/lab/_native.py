"""Runs of a log as native records, as :meth:`Workspace.ingest` reads them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES

__all__ = ["native_record"]

_RUN = ("task_id", "goal", "dataset", "repo", "agent", "model", "attempt")
_STEP = ("thought", "action", "observation", "flags", "usage")
_CALL = ("id", "name", "arguments", "text", "observation", "status", "exit_code")


def native_record(
    store: SQLiteEventStore, run_id: str, outcome: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a run as a native record; without times, so that equal runs are equal records.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
    outcome : mapping, optional
        An outcome object, see ``docs/native.md``.
    """
    run = store.get_run(run_id)
    record: dict[str, Any] = {name: getattr(run, name) for name in _RUN if getattr(run, name)}
    steps, end, exit_status = [], None, None
    for event in store.read(run_id):
        if event.type == "agent.step":
            steps.append(_step(event.payload))
        elif event.type in TERMINAL_TYPES:
            end, exit_status = event.type, event.payload.get("exit_status")
    record |= {"steps": steps, "end": end, "exit_status": exit_status, "config": run.config}
    return record if outcome is None else {**record, "outcome": dict(outcome)}


def _step(payload: Mapping[str, Any]) -> dict[str, Any]:
    step = {name: payload[name] for name in _STEP if payload.get(name)}
    calls = [{name: call[name] for name in _CALL if call.get(name)} for call in payload["calls"]]
    if not calls:
        return step
    kept = {name: value for name, value in step.items() if name not in ("action", "observation")}
    return {**kept, "calls": calls}
