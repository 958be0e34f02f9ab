"""Carrying on with a run in a world that was taken back: for forks, experiments, backtracking."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError
from sag_research.lab.export_job._desk import Desk
from sag_research.lab.export_job._evidence import EvidenceError, EvidenceStore
from sag_research.lab.export_job._feedback import feedback_of
from sag_research.lab.export_job._progress import Done, progress_of
from sag_research.lab.export_job._report import report_of
from sag_research.lab.export_job._stages import LOOK, STAGES
from sag_research.lab.export_job._toolbox import Toolbox
from sag_research.lab.export_job.client import TIMEOUT_SECONDS, JobClient, Reply
from sag_research.lab.export_job.judge import judge
from sag_research.lab.export_job.request import TaskRequest
from sag_research.lab.export_job.world import ExportJobWorld
from sag_research.llm import Model
from sag_research.model import Event, Outcome
from sag_research.runtime import (
    Agent,
    HaltedError,
    RunContext,
    Runtime,
    Steps,
    StepsSpentError,
    graph_step,
    plan,
)

__all__ = ["carry_on", "outcome"]

_ORIGIN: Final = "http://127.0.0.1"  # the port is another one in each attempt, the task is not


def carry_on(
    model: Model,
    *,
    timeout: float = TIMEOUT_SECONDS,
    hint: str = "",
    parameters: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
    **limits: Any,
) -> Agent:
    """Make an agent that goes on after the steps its context has, in the world it holds.

    It works by the rules of :func:`run_task`: the same loop, tools, limits and verification, and
    the next move follows from the log. Its context must hold an :class:`ExportJobWorld`.

    Parameters
    ----------
    model : Model
        Decides.
    timeout : float
        Seconds until a request to the service is given up.
    hint : str
        What earlier runs say, as a leading system message.
    parameters : mapping, optional
        Of the model.
    clock : callable
        Seconds since the epoch.
    **limits
        Fields of :class:`TaskRequest`, e.g. ``max_steps`` or ``mode``.

    Returns
    -------
    Agent
        Returns what :func:`judge` says of the world and of the verified ending. Where the
        context's steps are spent, or it is halted, the ending is partial; an answer that was
        given with the last step is still verified.

    Raises
    ------
    UsageError
        From the agent, if its context holds another world.

    Notes
    -----
    **What going back undoes.** World and notes are those of the step that is gone back to. The
    world is the service's whole database: the job, its receipts, the faults still queued, and
    the requests it was sent. The notes are the conversation, what was observed and its
    evidence, and what was used of the limits; all of it is made from the log of the run and of
    its ancestors up to the fork, and nothing else is kept. An effect that happened behind the
    fork point, the retry, is undone with the world: its receipt is gone, and it may be asked
    for again. That holds in the laboratory, where the world is restored. Outside of it effects
    stay, and an agent that goes back must find their receipts.

    **What it does not undo.** The log, and the deadline, which counts from the beginning of the
    first attempt whose beginning is kept.

    Feedback in the context's change (see :func:`sag_research.runtime.backtrack`) is a message
    where the run went on; a change with ``avoid`` and no ``feedback`` is put into words.

    The world's state is recorded after every call and verification, too, if the context takes
    snapshots: a process that is killed in the middle of a turn goes on in the middle of it, with
    its effects in the world.
    """

    def agent(ctx: RunContext) -> Outcome:
        world = _service(ctx)
        with ExitStack() as held:
            desk = _desk(ctx, world, limits, timeout, held)
            desk.model, desk.hint, desk.parameters = model, hint, dict(parameters or {})
            desk.clock = clock
            _driven(desk)
            ctx.exit_status = desk.report().stop_reason
        return outcome(ctx)

    return agent


def outcome(ctx: RunContext) -> Outcome:
    """Say what a run came to as it stands, in the world its context holds.

    Parameters
    ----------
    ctx : RunContext
        Its world is an :class:`ExportJobWorld`. A run without a verified ending, e.g. one that
        is aborted, is taken for one whose work was left in part.

    Returns
    -------
    Outcome
        See :func:`judge`.
    """
    world = _world_of(ctx)
    progress = progress_of(ctx.store.read(ctx.run_id))
    return judge(world, report_of(progress, _request(ctx, world, {}), ()))


class _ContextDesk(Desk):
    """A desk over a run's context: turns and states of the world are written down with it."""

    def __init__(self, ctx: RunContext, *args: Any, **more: Any) -> None:
        super().__init__(ctx.run_id, *args, **more)
        self.ctx = ctx
        self.told = feedback_of(ctx.change)
        self.told_after = ctx.store.get_run(ctx.run_id).fork_position

    def append(self, type: str, payload: dict[str, Any], cause: int | None = None) -> None:
        """Write an event down, unless the run has ended."""
        self.ctx.append(Event(run_id=self.run, type=type, payload=payload, cause=cause))

    def close_turn(self, payload: dict[str, Any], cause: int) -> None:
        """Write a whole turn down, and show it to whoever watches."""
        self.ctx.step(**{**payload, "usage": self.progress().turns[-1].reply.usage})

    def world_acted(self) -> None:
        """Record the world before what was done in it: a crash may come between the two."""
        if self.ctx.snapshots:
            self.ctx.snapshot()

    def spend(self) -> None:
        """Allow no new turn."""
        spent = max(1, self.progress().model_calls)
        self.limits = msgspec.structs.replace(self.request, max_steps=spent)


def _world_of(ctx: RunContext) -> ExportJobWorld:
    if not isinstance(ctx.world, ExportJobWorld):
        raise UsageError("this agent looks after an export job", fix="give it an ExportJobWorld")
    return ctx.world


def _service(ctx: RunContext) -> ExportJobWorld:
    """Return the context's world, as it was left where a process died within the first turn."""
    world = _world_of(ctx)
    if not ctx.steps():
        for event in ctx.store.read(ctx.run_id, types=("world.snapshot",)):
            world.restore(event.payload["state"])
    return world


def _desk(
    ctx: RunContext,
    world: ExportJobWorld,
    limits: Mapping[str, Any],
    timeout: float,
    held: ExitStack,
) -> _ContextDesk:
    request = _request(ctx, world, limits)
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="export-attempt-")))
    client = held.enter_context(JobClient(world.origin, request.tenant, timeout=timeout))
    toolbox = Toolbox(
        request, client, EvidenceStore(folder / "evidence"), _fetch(request, world, folder)
    )
    desk = _ContextDesk(ctx, request, ctx, toolbox, folder)
    _lay_out(desk)
    return desk


def _request(ctx: RunContext, world: ExportJobWorld, limits: Mapping[str, Any]) -> TaskRequest:
    run = ctx.store.get_run(ctx.run_id)
    kept: dict[str, Any] = {
        name: run.config[name] for name in ("mode", "delivery") if name in run.config
    }
    asked: dict[str, Any] = {"goal": run.goal, **kept} if run.goal else kept
    job = {"id": world.job.job_id, "job_id": world.job.job_id, "tenant": world.job.tenant}
    return TaskRequest.of({**job, "origin": _ORIGIN, **asked, **limits})


def _fetch(
    request: TaskRequest, world: ExportJobWorld, folder: Path
) -> Callable[[str], Reply] | None:
    if request.delivery != "browser":
        return None
    from sag_research.lab.export_job._browser import browser_fetch

    return browser_fetch(msgspec.structs.replace(request, origin=world.origin), folder)


def _lay_out(desk: Desk) -> None:
    """Put down the files that the steps so far had left: evidence, and a file fetched."""
    for call, observation in desk.progress().observed:
        if not observation.evidence_id:
            continue
        piece = desk.evidence.record(call.name, call.arguments, observation.data)
        if piece.id != observation.evidence_id:
            raise EvidenceError(f"an observation of {call.name} is not what its evidence says")
        if call.name == "job_result_browser":
            desk.download.write_bytes(str(observation.data["csv"]).encode())


def _driven(desk: _ContextDesk) -> None:
    """Work to the end; once the context's steps are spent, only what is begun is ended."""
    with Runtime() as runtime:
        try:
            runtime.loop(export_job_carried_on, desk)
        except HaltedError:
            return
        except StepsSpentError:
            desk.spend()
            runtime.loop(export_job_carried_on, desk)


@plan(id="export-job-carried-on", max_iterations=500)
def export_job_carried_on(desk: Desk) -> Steps[None]:
    """Look what comes next, do it, until the report can be made."""
    while True:
        move = (yield from graph_step(LOOK, desk))["look"].unwrap()
        if isinstance(move, Done):
            return
        yield from graph_step(STAGES[move.do], (desk, move))
        if move.do == "publish":
            return
