"""What tests of the export-job agent share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sag_research.lab import export_job
from sag_research.lab.export_job import Careful, Checkpoint, ExportJobWorld, Report, TaskRequest
from sag_research.llm import Reply, Request, ToolCall
from sag_research.log import SQLiteEventStore
from sag_research.model import Event

JOB = "JOB-204"


def run_task(*args: Any, **options: Any) -> Report | Checkpoint:
    """Run a task with a time-out that a busy machine keeps, and a late reply does not."""
    return export_job.run_task(*args, **{"timeout": 1.0, **options})


def request_for(world: ExportJobWorld, **fields: Any) -> TaskRequest:
    return TaskRequest(id="task-1", origin=world.origin, **fields)


def calling(*calls: tuple[str, Any], ids: tuple[str, ...] = ()) -> Reply:
    """A reply that asks for tools."""
    made = tuple(
        ToolCall(name=name, arguments=arguments, id=ids[n] if ids else f"x{n}")
        for n, (name, arguments) in enumerate(calls)
    )
    return Reply(text="I call tools.", calls=made)


class Counted(Careful):
    """The careful agent, with replies of one's own in the place of some of its, and a count."""

    def __init__(self, *instead: Reply | Callable[[Request], Reply] | None) -> None:
        self.instead = list(instead)
        self.asked: list[Request] = []

    def complete(self, request: Request) -> Reply:
        self.asked.append(request)
        own = self.instead.pop(0) if self.instead else None
        if own is None:
            return super().complete(request)
        return own if isinstance(own, Reply) else own(request)


def events(directory: Path, run: str = "task-1") -> list[Event]:
    with SQLiteEventStore(str(directory / "log.sqlite"), read_only=True) as store:
        return list(store.read(run))


def steps(directory: Path) -> list[dict[str, Any]]:
    return [event.payload for event in events(directory) if event.type == "agent.step"]


def posts(world: ExportJobWorld) -> int:
    return sum(method == "POST" for method, _ in world.requests)


def answer(**fields: Any) -> Reply:
    """A final answer."""
    whole = {"status": "completed", "summary": "", "totalCents": 2450, "evidenceIds": []}
    return Reply(text=msgspec.json.encode({**whole, **fields}).decode())
