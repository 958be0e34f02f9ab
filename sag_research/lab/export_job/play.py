"""Playing an export job from beginning to end, as one run of the laboratory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

from sag_research.errors import MissingDataError
from sag_research.lab._assignment import Assignment, Played
from sag_research.lab.export_job._scenario import Job, scenario_names
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

__all__ = ["ExportJobPlay", "job_variant"]

_VARIANTS = 4


def job_variant(number: int) -> Job:
    """Return one of the jobs that tasks are made of; 0 is ``JOB-204``.

    Examples
    --------
    >>> job_variant(0) == Job(), job_variant(1).total_cents != 2450
    (True, True)
    """
    if number == 0:
        return Job()
    random = Random(f"export job {number}")
    quantity, unit = random.randrange(2, 900), random.randrange(50, 2000)
    return Job(job_id=f"JOB-{204 + number}", quantity=quantity, unit_cents=unit)


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
            Of the task; default: a temporary one.
        stop_after : optional
            See :func:`run_task`.
        model : Model, optional
            Decides, instead of the assignment's policy.
        timeout : float
            Seconds until a request to the service is given up.
        **limits
            Fields of :class:`TaskRequest`, e.g. ``max_steps``.
        """
        world = self.world()
        world.reset(assignment.scenario, job_variant(assignment.variant))
        deciding = model or self.model(assignment.policy, assignment.seed)
        request = TaskRequest(
            id=assignment.run_id, origin=world.origin, job_id=world.job.job_id,
            tenant=world.job.tenant, **limits,
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="export-task-") as home:
            left = run_task(
                directory or Path(home), deciding, request, store=store, stop_after=stop_after,
                faults=_faults(world), run=_fields(assignment, deciding), timeout=timeout,
            )  # fmt: skip
        report = None if isinstance(left, Checkpoint) else left
        ending = left.after if isinstance(left, Checkpoint) else left.stop_reason
        return Played(outcome=judge(world, report), ending=ending)


def _faults(world: ExportJobWorld) -> tuple[str, ...]:
    return (world.scenario.fault,) if world.scenario.fault else ()


def _fields(assignment: Assignment, model: Model) -> dict[str, Any]:
    return {
        "task_id": assignment.task_id, "dataset": "export_job", "attempt": assignment.attempt,
        "model": model.identity().model,
        "config": {"scenario": assignment.scenario, "seed": assignment.seed},
    }  # fmt: skip
