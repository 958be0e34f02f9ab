"""Playing an export job from beginning to end, as one run of the laboratory."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sag_research.errors import MissingDataError, UsageError
from sag_research.lab._assignment import Assignment, Played
from sag_research.lab.export_job._desk import holds_task, open_request
from sag_research.lab.export_job._kept import kept_world
from sag_research.lab.export_job._scenario import job_variant, scenario_names
from sag_research.lab.export_job.agent import Checkpoint, StopAfter, run_task
from sag_research.lab.export_job.chooser import Chooser
from sag_research.lab.export_job.client import TIMEOUT_SECONDS
from sag_research.lab.export_job.judge import judge
from sag_research.lab.export_job.request import TaskRequest
from sag_research.lab.export_job.scripted import Careful
from sag_research.lab.export_job.stochastic import Stochastic, vice_names
from sag_research.lab.export_job.world import ExportJobWorld
from sag_research.llm import Local, Model, installed_weights
from sag_research.log import SQLiteEventStore

__all__ = ["ExportJobPlay"]

_VARIANTS = 4


class ExportJobPlay:
    """The export-job world as the laboratory plays it; service and local models start once."""

    name = "export-job"
    variants = _VARIANTS

    def __init__(self) -> None:
        self._world: ExportJobWorld | None = None
        self._local: dict[str, Local] = {}

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Names of the scenarios."""
        return scenario_names()

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the scripted policies."""
        return ("careful", *vice_names())

    @property
    def more_policies(self) -> tuple[str, ...]:
        """Names of the local models whose weights are installed."""
        return tuple(f"local-{name}" for name in installed_weights())

    def world(self) -> ExportJobWorld:
        """Return the world, started when it is first needed."""
        if self._world is None:
            self._world = ExportJobWorld()
        return self._world

    def close(self) -> None:
        """Stop the service and the models; closing twice does nothing."""
        for local in self._local.values():
            local.close()
        self._local.clear()
        if self._world is not None:
            self._world.close()
            self._world = None

    def model(self, policy: str, seed: int) -> Model:
        """Make the model of a policy.

        Raises
        ------
        MissingDataError
            If there is none of this name.
        """
        if policy == "careful":
            return Careful()
        if policy in self.more_policies:
            weights = policy.removeprefix("local-")
            if weights not in self._local:
                self._local[weights] = Local(weights, raw=True, cache_prompt=True)
            return Chooser(self._local[weights], seed=seed)
        if policy not in vice_names():
            known = ", ".join((*self.policies, *self.more_policies))
            raise MissingDataError(f"no policy {policy!r}", fix=f"choose of {known}")
        return Stochastic(policy, seed)

    def play(
        self,
        store: SQLiteEventStore,
        assignment: Assignment,
        *,
        directory: Path | None = None,
        stop_after: StopAfter | None = None,
        model: Model | None = None,
        timeout: float = TIMEOUT_SECONDS,
        **limits: Any,
    ) -> Played:
        """Run one assignment in a fresh state of the world, and have the world judge it.

        Parameters
        ----------
        store : SQLiteEventStore
            Where the run is written.
        assignment : Assignment
        directory : pathlib.Path, optional
            Of the task and of its world; default: a temporary one. A task that was left there,
            or killed, is carried on, with the world as it was.
        stop_after : optional
            See :func:`run_task`; needs a directory.
        model : Model, optional
            Decides, instead of the assignment's policy.
        timeout : float
            Seconds until a request to the service is given up.
        **limits
            Fields of :class:`TaskRequest`, e.g. ``max_steps``.

        Raises
        ------
        UsageError
            If the directory holds another task, or this one was asked for otherwise.
        BusyError
            If the directory has a runner.
        """
        if stop_after is not None and directory is None:
            raise UsageError("a task that is left needs a directory", fix="name one to carry it on")
        deciding = model or self.model(assignment.policy, assignment.seed)
        with ExitStack() as held:
            if directory is None:
                made = tempfile.TemporaryDirectory(prefix="export-task-")
                home, world = Path(held.enter_context(made)), self.world()
                world.reset(assignment.scenario, job_variant(assignment.variant))
            else:
                home, world = directory, held.enter_context(kept_world(directory, assignment))
            left = run_task(
                home, deciding, _request(home, world, assignment, limits), store=store,
                stop_after=stop_after, faults=_faults(world), run=_fields(assignment, deciding),
                timeout=timeout,
            )  # fmt: skip
            report = None if isinstance(left, Checkpoint) else left
            ending = left.after if isinstance(left, Checkpoint) else left.stop_reason
            return Played(outcome=judge(world, report), ending=ending)


def _request(
    directory: Path, world: ExportJobWorld, assignment: Assignment, limits: dict[str, Any]
) -> TaskRequest:
    """Return what the directory was asked for, with what is said now; else a new request."""
    own: dict[str, Any] = {"id": assignment.run_id, "origin": world.origin, **limits}
    if holds_task(directory):
        return TaskRequest.of({**open_request(directory, None).plain(), **own})
    return TaskRequest.of({"job_id": world.job.job_id, "tenant": world.job.tenant, **own})


def _faults(world: ExportJobWorld) -> tuple[str, ...]:
    return (world.scenario.fault,) if world.scenario.fault else ()


def _fields(assignment: Assignment, model: Model) -> dict[str, Any]:
    return {
        "task_id": assignment.task_id, "dataset": "export_job", "attempt": assignment.attempt,
        "model": model.identity().model,
        "config": {"scenario": assignment.scenario, "seed": assignment.seed},
    }  # fmt: skip
