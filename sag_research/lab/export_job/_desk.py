"""One task at work: its directory, its run in the log, its tools and its limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sag_research.errors import SagError, UsageError
from sag_research.lab.export_job._catalogue import catalogue
from sag_research.lab.export_job._evidence import EvidenceStore, create_once
from sag_research.lab.export_job._permission import authorise, grant
from sag_research.lab.export_job._progress import Observation, Progress, Turn, final_of, progress_of
from sag_research.lab.export_job._toolbox import Toolbox
from sag_research.lab.export_job._words import say, system_text
from sag_research.lab.export_job.cache import ContextUnavailableError, WorkingContext
from sag_research.lab.export_job.request import TaskRequest
from sag_research.llm import Context, Identity, Message, Model, Request
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run

__all__ = ["Desk", "holds_task", "observed_text", "open_request"]

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
    """What the stages of the loop work on."""

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
        hint: str = "",
        parameters: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory, self.request, self.store = directory, request, store
        self.toolbox, self.cache, self.clock = toolbox, cache, clock
        self.hint, self.parameters = hint, dict(parameters or {})
        self.policy = policy or directory / "permissions.json"
        self._open(run, granted=policy is None)
        self.calls = Context(store, request.id, model=model, clock=clock)
        self._progress, self._read = Progress(turns=[]), 0

    @property
    def evidence(self) -> EvidenceStore:
        """Where what tools said is kept."""
        return self.toolbox.evidence

    def _open(self, run: Run, *, granted: bool) -> None:
        """Begin the run, or go on with it if it is of the same request and model."""
        begun = self.directory / "begun"
        if self.store.has_run(run.run_id):
            self._check(run)
        elif begun.exists():
            raise SagError(
                f"the run of {self.directory} is not in the log", why="it was begun in another one",
                fix="carry on with that log, or take a new directory",
            )  # fmt: skip
        else:
            if granted:
                grant(self.policy, self.request)
            self.store.create_run(run)
        create_once(begun, f"{run.run_id}\n".encode())

    def _check(self, run: Run) -> None:
        kept = self.store.get_run(run.run_id)
        if kept.config.get("request") != self.request.fingerprint:
            raise UsageError(f"run {run.run_id!r} belongs to another request")
        if kept.config.get("asks") != run.config["asks"]:
            raise UsageError(
                f"run {run.run_id!r} was begun with another model",
                why=f"{kept.config.get('asks')} is not {run.config['asks']}",
            )

    def progress(self) -> Progress:
        """Return what the log says, events of other writers included."""
        end = self.store.head(self.request.id).position
        if end != self._read:
            self._progress = progress_of(self.store.read(self.request.id))
            self._read = end
        return self._progress

    def authorise(self) -> None:
        """Raise unless the one who asked still may."""
        authorise(self.policy, self.request)

    def append(self, type: str, payload: dict[str, Any], cause: int | None = None) -> None:
        """Write an event down."""
        self.store.append(Event(run_id=self.request.id, type=type, payload=payload, cause=cause))

    # ---- what the model is shown

    def question(self) -> Request:
        """Return what the model is asked next."""
        return Request(
            system=system_text(), messages=tuple(self._messages()),
            tools=catalogue(self.request), parameters=self.parameters,
        )  # fmt: skip

    def _messages(self) -> list[Message]:
        progress = self.progress()
        key = f"export-job:{self.request.fingerprint}:{self.store.head(self.request.id).digest}"
        kept = self.cache.get(key)
        if kept is not None:
            try:
                return msgspec.json.decode(kept, type=list[Message])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ContextUnavailableError(
                    "the kept working context is no context", why=str(error)
                ) from None
        messages = self._rebuilt(progress)
        self.cache.put(key, msgspec.json.encode(messages))
        return messages

    def _rebuilt(self, progress: Progress) -> list[Message]:
        """Make the messages from the log alone."""
        hint = [Message(role="system", content=self.hint)] if self.hint else []
        job = f"Job {self.request.job_id}. {self.request.goal}"
        messages = [*hint, Message(role="user", content=job)]
        for turn in progress.turns:
            messages += _said(turn)
        return messages


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
