"""A world with one export job behind a real HTTP service with faults."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from sag_research.errors import MissingDataError, SagError, UsageError
from sag_research.lab.export_job._database import Database
from sag_research.lab.export_job._scenario import Job, Scenario, load_scenario

if TYPE_CHECKING:
    from sag_research.lab.export_job._host import ProcessHost, ThreadHost

__all__ = ["ExportJobWorld", "Snapshot"]

_ROUTES = ("status", "logs", "operation", "retry", "result", "download", "portal")
_KINDS = ("garbage", "huge", "unavailable", "slow", "redirect", "drop")


class Snapshot(TypedDict):
    """State of a world as plain JSON: the rows of the service's tables."""

    scenario: str
    tables: dict[str, list[list[Any]]]


class ExportJobWorld:
    """One export job and the service that holds it.

    Use it as a context manager: the service stops and its folder is removed at the end.

    Parameters
    ----------
    scenario : str
        See :func:`~sag_research.lab.export_job.scenario_names`.
    job : Job, optional
        Default: ``JOB-204``, 7 rows at 350 cents.
    database : path-like, optional
        The service's file, kept at the end. Default: a temporary one.
    own_process : bool
        Serve from a process of its own instead of from a thread.
    port : int
        Default: one that is free.
    go_on : bool
        Take scenario, job and state from the database, instead of beginning anew.

    Raises
    ------
    SagError
        If the port is taken, or there is nothing to go on with.

    Attributes
    ----------
    origin : str
        ``http://127.0.0.1:PORT``.

    Examples
    --------
    >>> with ExportJobWorld("transient") as world:
    ...     world.state, world.retries, world.requests
    ('failed', 0, [])
    """

    def __init__(
        self,
        scenario: str = "transient",
        job: Job | None = None,
        *,
        database: Path | str | None = None,
        own_process: bool = False,
        port: int = 0,
        go_on: bool = False,
    ) -> None:
        self.scenario: Scenario = load_scenario(scenario)
        self.job = job or Job()
        self._folder = None if database else tempfile.TemporaryDirectory(prefix="export-job-")
        home = "" if self._folder is None else self._folder.name
        path = Path(database or Path(home, "service.sqlite"))
        self.database = Database(path, kept=database is not None)
        if go_on:
            self._take(self.database.dump()["jobs"])
        else:
            self.database.reset(self.scenario, self.job)
        self._host = _host(self.database, own_process, port)
        self.origin = self._host.origin

    def __enter__(self) -> ExportJobWorld:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ExportJobWorld({self.scenario.name!r}, {self.job.job_id!r})"

    def close(self) -> None:
        """Stop the service and remove its folder; closing twice does nothing."""
        self._host.close()
        if self._folder is not None:
            self._folder.cleanup()

    def reset(self, scenario: str | None = None, job: Job | None = None) -> None:
        """Begin anew, in another scenario or with another job; costs no restart."""
        self.scenario = load_scenario(scenario) if scenario else self.scenario
        self.job = job or self.job
        self.database.reset(self.scenario, self.job)

    # ---- what the laboratory knows, and no agent may ask

    @property
    def state(self) -> str:
        """State of the job."""
        return str(self._row()["state"])

    @property
    def retries(self) -> int:
        """How often the effect happened."""
        return int(self._row()["retries"])

    @property
    def requests(self) -> list[tuple[str, str]]:
        """Method and path of every request the service was sent."""
        return self.database.requests()

    def _row(self) -> dict[str, Any]:
        row = self.database.job(self.job.job_id, self.job.tenant)
        if row is None:
            raise UsageError("the world's job is gone", fix="reset the world")
        return row

    def inject(self, route: str, kind: str, times: int = 1) -> None:
        """Let the service misbehave on purpose.

        Parameters
        ----------
        route : {'status', 'logs', 'operation', 'retry', 'result', 'download', 'portal'}
        kind : {'garbage', 'huge', 'unavailable', 'slow', 'redirect', 'drop'}
            ``drop`` does what was asked first, then cuts the line; the others do nothing of it.
        times : int
            For so many requests from now on.
        """
        if route not in _ROUTES or kind not in _KINDS or times < 1:
            raise UsageError(
                f"no fault {kind!r} on {route!r}",
                fix=f"routes: {', '.join(_ROUTES)}; kinds: {', '.join(_KINDS)}",
            )
        self.database.add_fault(route, kind, times)

    # ---- going back

    def snapshot(self) -> Snapshot:
        """Return the whole state as plain JSON data."""
        return {"scenario": self.scenario.name, "tables": self.database.dump()}

    def restore(self, snapshot: Snapshot) -> None:
        """Make the state exactly what it was when the snapshot was taken."""
        self.database.load(snapshot["tables"])
        self._take(snapshot["tables"]["jobs"])

    def _take(self, jobs: list[list[Any]]) -> None:
        """Take over the scenario and the job of the service's table."""
        if not jobs:
            raise SagError(f"{self.database.path} holds no job", fix="begin in a new directory")
        job_id, tenant, scenario, _, _, quantity, unit_cents, *_ = jobs[0]
        self.scenario = load_scenario(scenario)
        self.job = Job(job_id=job_id, tenant=tenant, quantity=quantity, unit_cents=unit_cents)


def _host(database: Database, own_process: bool, port: int) -> ProcessHost | ThreadHost:
    try:
        from sag_research.lab.export_job._host import ProcessHost, ThreadHost
    except ModuleNotFoundError as error:
        if error.name not in {"anyio", "starlette", "uvicorn"}:
            raise
        raise MissingDataError(
            f"the export service needs the package {error.name}",
            fix="pip install 'sag-research[worlds]'",
        ) from None
    return ProcessHost(database, port) if own_process else ThreadHost(database, port)
