"""A world that is kept beside its task, so that the task can be carried on later."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from sag_research.errors import UsageError
from sag_research.lab._assignment import Assignment, keep_assignment, kept_assignment
from sag_research.lab.export_job._desk import holds_task, open_request
from sag_research.lab.export_job._lock import RunnerLock
from sag_research.lab.export_job._scenario import job_variant
from sag_research.lab.export_job.world import ExportJobWorld

__all__ = ["kept_world"]

_DATABASE = "service.sqlite"


def kept_world(directory: Path, assignment: Assignment) -> ExportJobWorld:
    """Begin an assignment's world in a directory, or open it again as it was left.

    The service's address is part of the request, so it is given the same port again.

    Raises
    ------
    UsageError
        If the directory holds another task.
    BusyError
        If it has a runner.
    SagError
        If the port is taken now, or the service's database is gone.
    """
    kept = kept_assignment(directory)
    if kept is None and holds_task(directory):
        raise UsageError(
            f"{directory} holds a task, and not its world", why="it was begun with run_task",
            fix="carry it on with run_task, or take a new directory",
        )  # fmt: skip
    if kept is not None and kept != assignment:
        names = [n for n in kept.__struct_fields__ if getattr(kept, n) != getattr(assignment, n)]
        raise UsageError(
            f"{directory} holds the run {kept.run_id}", why=f"{', '.join(names)} differ",
            fix="ask for the same run, or take a new directory",
        )  # fmt: skip
    keep_assignment(directory, assignment)
    with RunnerLock(directory / "runner.lock"):
        database = directory / _DATABASE
        if holds_task(directory):
            port = urlsplit(open_request(directory, None).origin).port or 0
            return ExportJobWorld(database=database, port=port, go_on=True)
        return ExportJobWorld(
            assignment.scenario, job_variant(assignment.variant), database=database
        )
