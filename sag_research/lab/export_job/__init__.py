"""Export jobs: an agent in a small real world with faults, crashes and proof.

>>> from sag_research.lab.export_job import ExportJobWorld, JobClient
>>> with ExportJobWorld("disconnect") as world, JobClient(world.origin, "acme") as client:
...     key = client.status("JOB-204").data["operation"]
...     client.retry("JOB-204", key, "E_TRANSIENT").status, world.retries
('unknown', 1)
"""

from __future__ import annotations

from sag_research.lab.export_job._scenario import (
    Job,
    RunbookEntry,
    Scenario,
    load_scenario,
    runbook,
    scenario_names,
)
from sag_research.lab.export_job.client import JobClient, Reply, check_origin
from sag_research.lab.export_job.world import ExportJobWorld, Snapshot

__all__ = [
    "ExportJobWorld",
    "Job",
    "JobClient",
    "Reply",
    "RunbookEntry",
    "Scenario",
    "Snapshot",
    "check_origin",
    "load_scenario",
    "runbook",
    "scenario_names",
]
