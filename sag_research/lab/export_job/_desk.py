"""One task at work: its run in the log, its tools, its limits, and perhaps a directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sag_research.errors import SagError, UsageError
from sag_research.lab.export_job._catalogue import catalogue
from sag_research.lab.export_job._evidence import EvidenceStore, create_once
from sag_research.lab.export_job._feedback import feedback_message
from sag_research.lab.export_job._permission import authorise, grant
from sag_research.lab.export_job._progress import Observation, Progress, Turn, final_of, progress_of
from sag_research.lab.export_job._report import Report, publish, report_of
from sag_research.lab.export_job._toolbox import Toolbox
from sag_research.lab.export_job._words import say, system_text
from sag_research.lab.export_job.cache import ContextUnavailableError, WorkingContext
from sag_research.lab.export_job.request import TaskRequest
from sag_research.llm import Context, Identity, Message, Model, Request
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run

__all__ = ["Desk", "TaskDesk", "holds_task", "observed_text", "open_request"]

_REQUEST = "request.json"


def holds_task(directory: Path) -> bool:
    """Whether a task was begun in a directory."""
    return (directory / _REQUEST).exists()


def open_request(directory: Path, request: TaskRequest | None) -> TaskRequest:
    """Return the directory's request; the first one that is given is kept for good.

    Raises
    ------
    UsageError
        If there is none yet and none is given, or another one is there.
    """
    path = directory / _REQUEST
    if request is not None and not holds_task(directory):
        request = TaskRequest.of(request.plain())  # a struct made in Python was not checked yet
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
            raise SagError(f"{directory} cannot be a task's folder", why=why) from None
        create_once(path, msgspec.json.encode(request.plain()))
    try:
        kept = TaskRequest.of(msgspec.json.decode(path.read_bytes()))
    except FileNotFoundError:
        raise UsageError(f"{directory} holds no task", fix="give the request") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SagError(f"{path} is no request", why=str(error)) from None
    if request is not None and request != kept:
        names = [n for n in request.__struct_fields__ if getattr(request, n) != getattr(kept, n)]
        raise UsageError(
            f"{directory} holds another request", why=f"{', '.join(names)} differ",
            fix="take a new directory, or leave the request out",
        )  # fmt: skip
    return kept


class Desk:
    """What the stages of the loop work on: a run of the log, and nothing else that is kept.

    Parameters
    ----------
    run : str
        The run in the log; a fork begins with its ancestors' events.
    request : TaskRequest
    calls : Context
        Asks model and tools; holds the log.
    toolbox : Toolbox
    directory : pathlib.Path
        For files: of the task, or a temporary one.
    model : Model, optional
        Asked; default: the one of `calls`.
    hint : str
    parameters : mapping
    clock : callable
    """

    def __init__(
        self,
        run: str,
        request: TaskRequest,
        calls: Context,
        toolbox: Toolbox,
        directory: Path,
        *,
        model: Model | None = None,
        hint: str = "",
        parameters: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run, self.request, self.calls, self.toolbox = run, request, calls, toolbox
        self.directory, self.store, self.clock = directory, calls.store, clock
        self.model = model
        self.hint, self.parameters = hint, dict(parameters or {})
        self.limits = request
        self.told, self.told_after = "", 0
        self._progress, self._read = Progress(turns=[]), 0

    @property
    def evidence(self) -> EvidenceStore:
        """Where what tools said is kept."""
        return self.toolbox.evidence

    @property
    def download(self) -> Path:
        """Where a file that was fetched through the portal is kept."""
        return self.directory / "download.csv"

    def progress(self) -> Progress:
        """Return what the log says, events of other writers included."""
        end = self.store.head(self.run).position
        if end != self._read:
            self._progress = progress_of(self.store.read(self.run))
            self._read = end
        return self._progress

    def report(self) -> Report:
        """Make the report of what the log says."""
        faults = self.store.get_run(self.run).config.get("faults", [])
        return report_of(self.progress(), self.request, tuple(faults))

    # ---- what differs where a task has a directory of its own, or a world that is taken back

    def authorise(self) -> None:
        """Raise unless the one who asked still may."""

    def world_acted(self) -> None:
        """Take note that the world may be another one now."""

    def publish(self) -> None:
        """Hand the report over."""

    def append(self, type: str, payload: dict[str, Any], cause: int | None = None) -> None:
        """Write an event down."""
        self.store.append(Event(run_id=self.run, type=type, payload=payload, cause=cause))

    def close_turn(self, payload: dict[str, Any], cause: int) -> None:
        """Write a whole turn down."""
        self.append("agent.step", payload, cause)

    # ---- what the model is shown

    def question(self) -> Request:
        """Return what the model is asked next."""
        return Request(
            system=system_text(), messages=tuple(self.messages()),
            tools=catalogue(self.request), parameters=self.parameters,
        )  # fmt: skip

    def messages(self) -> list[Message]:
        """Make the messages from the log alone, and from what the run was told."""
        hint = [Message(role="system", content=self.hint)] if self.hint else []
        job = f"Job {self.request.job_id}. {self.request.goal}"
        messages = [*hint, Message(role="user", content=job)]
        told = [feedback_message(self.told)] if self.told else []
        for turn in self.progress().turns:
            if turn.decided > self.told_after:
                messages += told
                told = []
            messages += _said(turn)
        return messages + told


class TaskDesk(Desk):
    """A desk whose task has a directory: request, permissions, evidence, cache and report."""

    def __init__(
        self,
        directory: Path,
        request: TaskRequest,
        store: SQLiteEventStore,
        model: Model | Identity,
        toolbox: Toolbox,
        cache: WorkingContext,
        *,
        run: Run,
        policy: Path | None = None,
        clock: Callable[[], float] = time.time,
        **more: Any,
    ) -> None:
        self.cache, self.policy = cache, policy or directory / "permissions.json"
        _open(directory, store, run, request, self.policy if policy is None else None)
        calls = Context(store, request.id, model=model, clock=clock)
        super().__init__(request.id, request, calls, toolbox, directory, clock=clock, **more)

    def authorise(self) -> None:
        """Raise unless the one who asked still may."""
        authorise(self.policy, self.request)

    def publish(self) -> None:
        """Write the report, and end the run."""
        report = self.report()
        publish(self.directory, report)
        self.append("run.completed", {"exit_status": report.stop_reason})

    def messages(self) -> list[Message]:
        """Take the messages from the cache; else make them, and keep them."""
        key = f"export-job:{self.request.fingerprint}:{self.store.head(self.run).digest}"
        kept = self.cache.get(key)
        if kept is not None:
            try:
                return msgspec.json.decode(kept, type=list[Message])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ContextUnavailableError(
                    "the kept working context is no context", why=str(error)
                ) from None
        messages = super().messages()
        self.cache.put(key, msgspec.json.encode(messages))
        return messages


def _open(
    directory: Path, store: SQLiteEventStore, run: Run, request: TaskRequest, grants: Path | None
) -> None:
    """Begin the run, or go on with it if it is of the same request and model."""
    begun = directory / "begun"
    if store.has_run(run.run_id):
        _check(store.get_run(run.run_id), run, request)
    elif begun.exists():
        raise SagError(
            f"the run of {directory} is not in the log", why="it was begun in another one",
            fix="carry on with that log, or take a new directory",
        )  # fmt: skip
    else:
        if grants is not None:
            grant(grants, request)
        store.create_run(run)
    create_once(begun, f"{run.run_id}\n".encode())


def _check(kept: Run, run: Run, request: TaskRequest) -> None:
    if kept.config.get("request") != request.fingerprint:
        raise UsageError(f"run {run.run_id!r} belongs to another request")
    if kept.config.get("asks") != run.config["asks"]:
        raise UsageError(
            f"run {run.run_id!r} was begun with another model",
            why=f"{kept.config.get('asks')} is not {run.config['asks']}",
        )


def _said(turn: Turn) -> list[Message]:
    reply = turn.reply
    said = [Message(role="assistant", content=reply.text or "", calls=reply.calls)]
    for call, observation in turn.answered:
        content = observed_text(observation)
        said.append(Message(role="tool", content=content, call_id=call.id, name=call.name))
    if reply.calls:
        return said
    final = final_of(reply)
    if isinstance(final, str):
        said.append(Message(role="user", content=say("refused", reason=final)))
    elif turn.verdict is not None and not turn.verdict.ok:
        feedback = say("unverified", reason=turn.verdict.reason)
        said.append(Message(role="user", content=feedback))
    return said


def observed_text(observation: Observation) -> str:
    """Return an observation as a model reads it: JSON, so that hostile text stays data."""
    return msgspec.json.encode(observation, order="sorted").decode()
