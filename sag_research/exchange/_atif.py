"""ATIF, the interchange format of agent trajectories: one file a run."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from sag_research._text import atomic_write, made_folder, safe_file_name
from sag_research.errors import UsageError
from sag_research.exchange._round import (
    InterchangeReport,
    Recorded,
    Whole,
    calls_as_text,
    observed,
    whole_runs,
)
from sag_research.exchange._round_aside import aside_of, positive, unique_ids
from sag_research.exchange._traces import Parameters

__all__ = ["export_atif"]

Version = Literal["1.7", "1.8"]
VERSIONS: Final = ("1.7", "1.8")
_UNKNOWN: Final = "unknown"
_METRICS: Final = {
    "tokens_in": "prompt_tokens", "tokens_out": "completion_tokens", "cost_usd": "cost_usd",
}  # fmt: skip


def export_atif(
    source: Recorded,
    folder: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
    version: Version = "1.8",
) -> InterchangeReport:
    """Write runs as ATIF trajectories, one file a run.

    Memory holds one run. The same runs give the same bytes.

    Parameters
    ----------
    source : Workspace
    folder : path-like
        Made if it does not exist. Files in it that have the name of a run are replaced.
    where, parameters
        An SQL condition on the view ``runs``, and its values. Hidden runs, copies and extractions
        are left out.
    version : {"1.8", "1.7"}
        What the files say they are. Nothing is written that 1.7 does not have.

    Returns
    -------
    InterchangeReport
        What ATIF has no word for is in ``aside``: it stands under ``extra.sag`` of the trajectory
        or the step, and :func:`sag_research.workspace.Workspace.ingest` takes it from there.

    Raises
    ------
    NotEnoughDataError
        If there is no run to export.
    UsageError
        If the version is another one.

    References
    ----------
    Harbor, Agent Trajectory Interchange Format (ATIF).
    """
    if version not in VERSIONS:
        raise UsageError(f"ATIF {version!r} is not written", fix=f"give one of {VERSIONS}")
    report = InterchangeReport(Path(folder), "atif")
    used: set[str] = set()
    for whole in whole_runs(source, where, parameters, report):
        made_folder(folder)
        document = _document(whole, version, report)
        with atomic_write(Path(folder) / _name(whole.run_id, used)) as file:
            file.write(msgspec.json.encode(document) + b"\n")
    return report


def _name(run_id: str, used: set[str]) -> str:
    name = safe_file_name(run_id, ".json")
    number = 1
    while name.casefold() in used:  # also where a file system does not tell A from a
        number += 1
        name = safe_file_name(run_id, f".{number}.json")
    used.add(name.casefold())
    return name


def _document(whole: Whole, version: str, report: InterchangeReport) -> dict[str, Any]:
    record, aside, made_up = whole.record, Counter[str](), Counter[str]()
    agent = {"name": record.get("agent") or _UNKNOWN, "version": _UNKNOWN}
    made_up.update(["run.agent.version"] + ["run.agent.name"] * ("agent" not in record))
    if "model" in record:
        agent["model_name"] = record["model"]
    steps: list[dict[str, Any]] = []
    if record.get("goal") or not whole.steps:  # there must be a step
        steps.append({"source": "user", "message": record.get("goal", "")})
        made_up["run.steps: an empty one"] += not record.get("goal")
    for number, step in enumerate(whole.steps):
        steps += _steps(step, number, aside, made_up)
    aside.update(f"run.{name}" for name in record if name not in ("goal", "agent", "model"))
    for kind, counts in (("aside", aside), ("made_up", made_up)):
        report.add(kind, +counts)
    return {
        "schema_version": f"ATIF-v{version}",
        "session_id": whole.run_id,
        "trajectory_id": whole.run_id,
        "agent": agent,
        "steps": [{"step_id": place} | step for place, step in enumerate(steps, start=1)],
        "final_metrics": _totals(whole),
        "extra": {"task_id": record["task_id"], "sag": {"record": record}},
    }


def _totals(whole: Whole) -> dict[str, Any]:
    usage = whole.record.get("usage") or {}
    known = {f"total_{_METRICS[name]}": value for name, value in usage.items()}
    return known | {"total_steps": len(whole.steps)}


def _steps(
    step: Mapping[str, Any], number: int, aside: Counter[str], made_up: Counter[str]
) -> list[dict[str, Any]]:
    """Return a step, and behind it what came back without being a result of its calls."""
    ids = unique_ids(step["calls"], number, made_up)
    copied = "inherited" in step["flags"]
    heard = observed(step)
    stamp = _timestamp(step.get("started"))
    usage = None if copied else positive(step.get("usage"))
    said = {
        "thought": step["thought"],
        "observation": step["observation"] if heard is not None else _as_read(step),
        "flags": ["inherited"] if copied else [],
        "usage": usage,
        "started": step.get("started") if stamp else None,
        "calls": [_said(call, own) for call, own in zip(step["calls"], ids, strict=True)],
    }
    made_up["calls.arguments"] += sum(not isinstance(one["arguments"], dict)
                                      for one in step["calls"])  # fmt: skip
    told = aside_of(step, said, aside)
    results = [
        {"source_call_id": own, "content": call["observation"]}
        for call, own in zip(step["calls"], ids, strict=True)
    ]
    if heard and not results:
        results.append({"content": heard})
    parts = {
        "timestamp": stamp,
        "source": "agent",
        "message": step["thought"],
        "tool_calls": [_call(call, own) for call, own in zip(step["calls"], ids, strict=True)],
        "observation": {"results": results} if results else None,
        "metrics": {_METRICS[name]: value for name, value in (usage or {}).items()},
        "is_copied_context": copied or None,
        "extra": {"sag": told} if told else None,
    }
    kept = {name: value for name, value in parts.items()
            if name == "message" or value not in (None, [], {})}  # fmt: skip
    later = [{"source": "user", "message": heard}] if heard and step["calls"] else []
    return [kept, *later]


def _as_read(step: Mapping[str, Any]) -> str:
    return calls_as_text(step, "observation")


def _call(call: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    arguments = call["arguments"]
    if not isinstance(arguments, dict):
        command = {"command": call["text"]} if call["text"] else {}
        arguments = command if arguments is None else {"input": arguments}
    return {"tool_call_id": own_id, "function_name": call["name"], "arguments": arguments}


def _said(call: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    """Return what a reader makes of a call; it makes the text itself, and only this surely."""
    arguments, found = call["arguments"], {"id": own_id, "name": call["name"]}
    if isinstance(arguments, dict):
        found["arguments"] = arguments
        if arguments == {"command": call["text"]}:
            found["text"] = call["text"]
    return found | {"observation": call["observation"], "status": "unknown", "exit_code": None}


def _timestamp(started: float | None) -> str | None:
    """Return a time as ISO 8601, if this says it exactly."""
    if started is None:
        return None
    try:
        found = dt.datetime.fromtimestamp(started, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    exact = found.year >= 1970 and found.timestamp() == started
    return found.isoformat() if exact else None
