"""The scenarios of the export service and its handbook, as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from sag_research.errors import MissingDataError, UsageError

__all__ = [
    "Job", "RunbookEntry", "Scenario", "job_variant", "load_scenario", "runbook", "scenario_names",
]  # fmt: skip

_HERE = Path(__file__).parent
_LARGEST = 10**9


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """An export job: ``quantity`` rows at ``unit_cents`` each, of one tenant.

    Examples
    --------
    >>> Job().total_cents
    2450
    >>> print(Job().csv, end="")
    jobId,quantity,unitCents,totalCents
    JOB-204,7,350,2450
    """

    job_id: str = "JOB-204"
    tenant: str = "acme"
    quantity: int = 7
    unit_cents: int = 350

    def __post_init__(self) -> None:
        number = self.job_id.removeprefix("JOB-")
        if number == self.job_id or not (number.isascii() and number.isdigit()):
            raise UsageError(f"{self.job_id!r} is no job", fix="a job is called like JOB-204")
        if not (0 < self.quantity <= _LARGEST and 0 < self.unit_cents <= _LARGEST):
            raise UsageError("a job has between one and a billion rows, and so many cents a row")

    @property
    def total_cents(self) -> int:
        """What the exported file must add up to."""
        return self.quantity * self.unit_cents

    @property
    def csv(self) -> str:
        """The file that the export writes, to the byte."""
        row = f"{self.job_id},{self.quantity},{self.unit_cents},{self.total_cents}"
        return f"jobId,quantity,unitCents,totalCents\n{row}\n"


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


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What the service does, and how a run must end; see ``scenarios.toml``."""

    name: str
    title: str
    state: Literal["failed", "completed"]
    error: str
    reply: Literal["commit", "drop", "late", "refuse"]
    endings: tuple[str, ...]
    retries: int
    fault: str
    log: tuple[str, ...]

    def lines(self, job: Job) -> list[str]:
        """Return the lines of the job's log before anything is done."""
        words = {"{job}": job.job_id, "{quantity}": str(job.quantity)}
        lines = list(self.log)
        for word, value in words.items():
            lines = [line.replace(word, value) for line in lines]
        return lines


class RunbookEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the handbook."""

    id: str
    code: str
    title: str
    advice: str
    retry: bool


@cache
def _scenarios() -> Mapping[str, Scenario]:
    data: dict[str, dict[str, Any]] = tomllib.loads(_read("scenarios.toml"))
    return {
        name: msgspec.convert({"name": name, **one}, Scenario, strict=True)
        for name, one in data.items()
    }


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def scenario_names() -> tuple[str, ...]:
    """Names of the scenarios.

    Examples
    --------
    >>> len(scenario_names())
    7
    """
    return tuple(_scenarios())


def load_scenario(name: str) -> Scenario:
    """Return one scenario by name.

    Raises
    ------
    MissingDataError
        If there is none of this name.
    """
    if name not in _scenarios():
        raise MissingDataError(f"no scenario {name!r}", fix=f"choose of {', '.join(_scenarios())}")
    return _scenarios()[name]


@cache
def runbook() -> tuple[RunbookEntry, ...]:
    """The handbook's entries.

    Examples
    --------
    >>> [entry.code for entry in runbook() if entry.retry]
    ['E_TRANSIENT']
    """
    entries = tomllib.loads(_read("runbook.toml"))["entry"]
    return msgspec.convert(tuple(entries), tuple[RunbookEntry, ...], strict=True)
