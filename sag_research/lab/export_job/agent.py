"""The export-job agent: one loop, a stage at a time, every stage in the log before the next.

The loop asks :func:`next_move` what comes next and runs that stage; the move follows from the
log alone, so a task that was killed anywhere is carried on by the same loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sag_research.lab.export_job._desk import TaskDesk, open_request
from sag_research.lab.export_job._evidence import EvidenceStore
from sag_research.lab.export_job._lock import RunnerLock
from sag_research.lab.export_job._progress import Done, progress_of
from sag_research.lab.export_job._report import Report, publish
from sag_research.lab.export_job._stages import LOOK, STAGES
from sag_research.lab.export_job._toolbox import Toolbox
from sag_research.lab.export_job.cache import SQLiteContext, WorkingContext
from sag_research.lab.export_job.client import TIMEOUT_SECONDS, JobClient, Reply
from sag_research.lab.export_job.request import TaskRequest
from sag_research.llm import Identity, Model
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime import CancelToken, Runtime, Steps, graph_step, plan

__all__ = ["Checkpoint", "Spent", "StopAfter", "run_task", "spent"]

StopAfter: TypeAlias = Literal["decision", "observation", "report"]

_REACHES: Final = {"decide": "decision", "act": "observation", "publish": "report"}


class Checkpoint(msgspec.Struct, frozen=True):
    """The task was left where it was asked to be; running its directory again goes on."""

    after: str


def run_task(
    directory: Path | str,
    model: Model | Identity,
    request: TaskRequest | None = None,
    *,
    stop_after: StopAfter | None = None,
    cancel: CancelToken | None = None,
    store: SQLiteEventStore | None = None,
    cache: WorkingContext | None = None,
    policy: Path | None = None,
    hint: str = "",
    run: Mapping[str, Any] | None = None,
    faults: tuple[str, ...] = (),
    fetch: Callable[[str], Reply] | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    clock: Callable[[], float] = time.time,
) -> Report | Checkpoint:
    """Run an export-job task to its end, or carry on with it.

    Parameters
    ----------
    directory : path-like
        Of the task alone: request, log, evidence, permissions and report are in it.
    model : Model or Identity
        Decides; a task is carried on with the model it was begun with.
    request : TaskRequest, optional
        Needed the first time, and then never another one.
    stop_after : {'decision', 'observation', 'report'}, optional
        Leave the task once this is written down.
    cancel : CancelToken, optional
        Ends the run with an error and no report; what is in the log stays.
    store : SQLiteEventStore, optional
        Default: ``log.sqlite`` in the directory.
    cache : WorkingContext, optional
        Default: ``context.sqlite`` in the directory.
    policy : pathlib.Path, optional
        Permissions; default: ``permissions.json`` in the directory, made of the request.
    hint : str
        What earlier runs say, as a leading system message.
    run : mapping, optional
        Fields of the run in the log, e.g. ``task_id``, ``dataset``, ``attempt``.
    faults : tuple of str
        What is wrong on purpose; labels the run and its report.
    fetch : callable, optional
        ``fetch(job_id)`` fetches the file through the portal; default: a real Chromium where
        the request says ``browser``.
    parameters : mapping, optional
        Of the model, e.g. temperature.
    timeout : float
        Seconds until a request to the service is given up.
    clock : callable
        Seconds since the epoch.

    Returns
    -------
    Report or Checkpoint

    Raises
    ------
    BusyError
        If the directory has a runner.
    PermissionRevokedError, ContextUnavailableError, EvidenceError, ModelError
        The task can be carried on once their cause is gone.
    LoopCancelledError
        If it was cancelled.
    """
    directory = Path(directory)
    asked = open_request(directory, request)
    with ExitStack() as held:
        held.enter_context(RunnerLock(directory / "runner.lock"))
        if store is None:
            store = held.enter_context(SQLiteEventStore(str(directory / "log.sqlite")))
        client = held.enter_context(JobClient(asked.origin, asked.tenant, timeout=timeout))
        if fetch is None and asked.delivery == "browser":
            from sag_research.lab.export_job._browser import browser_fetch

            fetch = browser_fetch(asked, directory)
        desk = TaskDesk(
            directory, asked, store, model,
            Toolbox(asked, client, EvidenceStore(directory / "evidence"), fetch),
            cache or SQLiteContext(directory / "context.sqlite", clock=clock),
            run=_run(asked, model, faults, run or {}), policy=policy, hint=hint,
            parameters=parameters, clock=clock,
        )  # fmt: skip
        return _driven(desk, stop_after, cancel)


def _run(
    request: TaskRequest,
    model: Model | Identity,
    faults: tuple[str, ...],
    more: Mapping[str, Any],
) -> Run:
    identity = model if isinstance(model, Identity) else model.identity()
    config = {
        "request": request.fingerprint, "mode": request.mode, "delivery": request.delivery,
        "asks": msgspec.to_builtins(identity), "faults": list(faults),
    }  # fmt: skip
    fields: dict[str, Any] = {
        "goal": request.goal, "task_id": request.job_id, "agent": "export-job-agent",
        "model": identity.model, **more,
    }  # fmt: skip
    return Run(run_id=request.id, config={**config, **fields.pop("config", {})}, **fields)


def _driven(
    desk: TaskDesk, stop_after: StopAfter | None, cancel: CancelToken | None
) -> Report | Checkpoint:
    options = {} if cancel is None else {"cancel": cancel}
    with Runtime() as runtime, desk.calls:
        left = runtime.loop(export_job, (desk, stop_after), **options)  # type: ignore[arg-type]
    if left is not None:
        return left
    report = desk.report()
    publish(desk.directory, report)  # what is there must say the same; what was lost is made again
    return report


@plan(id="export-job", max_iterations=500)
def export_job(task: tuple[TaskDesk, StopAfter | None]) -> Steps[Checkpoint | None]:
    """Look what comes next, do it, until nothing is left."""
    desk, stop_after = task
    while True:
        move = (yield from graph_step(LOOK, desk))["look"].unwrap()
        if isinstance(move, Done):
            return None
        yield from graph_step(STAGES[move.do], (desk, move))
        if stop_after is not None and _REACHES.get(move.do) == stop_after:
            return Checkpoint(stop_after)


class Spent(msgspec.Struct, frozen=True):
    """What a task has used of its limits; a call that a crash cut off is counted."""

    model_calls: int
    action_calls: int


def spent(store: SQLiteEventStore, run: str) -> Spent:
    """Count what a task has used, from its run in the log."""
    progress = progress_of(store.read(run))
    return Spent(progress.model_calls, progress.action_calls)
