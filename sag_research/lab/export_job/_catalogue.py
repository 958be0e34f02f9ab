"""The closed catalogue of tools, and the check of a whole batch of calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

from sag_research._text import clip
from sag_research.lab.export_job.request import TaskRequest
from sag_research.llm import Tool, ToolCall

__all__ = ["DELIVERY", "catalogue", "why_refused"]

DELIVERY: Final = {"api": "job_result", "browser": "job_result_browser"}
"""The tool that fetches the exported file, by the request's way of delivery."""


@cache
def _all() -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = json.loads(
        (Path(__file__).parent / "catalogue.json").read_text(encoding="utf-8")
    )
    return tools


def catalogue(request: TaskRequest) -> tuple[Tool, ...]:
    """Return the tools that a request allows: its own job and no other can be named.

    Examples
    --------
    >>> inspecting = TaskRequest(id="t1", origin="http://127.0.0.1:80", mode="inspect")
    >>> [tool.name for tool in catalogue(inspecting)]
    ['job_status', 'job_logs', 'runbook_search', 'job_result']
    """
    left_out = {name for way, name in DELIVERY.items() if way != request.delivery}
    left_out |= {"job_retry"} if request.mode == "inspect" else set()
    return tuple(_offered(one, request) for one in _all() if one["name"] not in left_out)


def _offered(one: dict[str, Any], request: TaskRequest) -> Tool:
    parameters = deepcopy(one["parameters"])
    if "jobId" in parameters["properties"]:
        parameters["properties"]["jobId"] = {"type": "string", "enum": [request.job_id]}
    return Tool(name=one["name"], description=one["description"], parameters=parameters)


def why_refused(calls: Sequence[ToolCall], request: TaskRequest) -> str:
    """Say why a batch of calls is refused as a whole; ``""`` if it is not.

    Nothing is dispatched of a batch that names an unknown tool, a wrong job, an argument too
    many, or one call id twice.
    """
    import jsonschema  # takes a second to import, and looking at runs needs none

    schemas = {tool.name: tool.parameters for tool in catalogue(request)}
    ids = [call.id for call in calls if call.id]
    if len(ids) != len(set(ids)):
        return "two calls have the same id"
    for call in calls:
        if call.name not in schemas:
            return f"there is no tool {clip(call.name, 40)!r} here"
        check = jsonschema.Draft202012Validator(schemas[call.name])
        fault = next(iter(check.iter_errors(call.arguments)), None)
        if fault is not None:
            return f"{call.name}: {clip(fault.message, 120)}"
        if not all(str(value).isprintable() for value in call.arguments.values()):
            return f"{call.name}: an argument holds a control character"
    return ""
