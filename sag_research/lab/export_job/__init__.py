"""Export jobs: an agent in a small real world with faults, crashes and proof.

>>> from sag_research.lab.export_job import ExportJobWorld, JobClient
>>> with ExportJobWorld("disconnect") as world, JobClient(world.origin, "acme") as client:
...     key = client.status("JOB-204").data["operation"]
...     client.retry("JOB-204", key, "E_TRANSIENT").status, world.retries
('unknown', 1)
"""

from __future__ import annotations

from sag_research.lab.export_job._evidence import Evidence, EvidenceError, EvidenceStore
from sag_research.lab.export_job._permission import PermissionRevokedError
from sag_research.lab.export_job._report import Report
from sag_research.lab.export_job._scenario import (
    Job,
    RunbookEntry,
    Scenario,
    job_variant,
    load_scenario,
    runbook,
    scenario_names,
)
from sag_research.lab.export_job.agent import Checkpoint, Spent, run_task, spent
from sag_research.lab.export_job.cache import (
    ContextUnavailableError,
    RedisContext,
    SQLiteContext,
    WorkingContext,
)
from sag_research.lab.export_job.carry import carry_on, outcome
from sag_research.lab.export_job.chooser import Chooser
from sag_research.lab.export_job.client import JobClient, Reply, check_origin
from sag_research.lab.export_job.judge import judge
from sag_research.lab.export_job.lost import lost_at
from sag_research.lab.export_job.play import ExportJobPlay
from sag_research.lab.export_job.request import TaskRequest
from sag_research.lab.export_job.scripted import Careful
from sag_research.lab.export_job.stochastic import Stochastic, Vices, vice_names, vices
from sag_research.lab.export_job.world import ExportJobWorld, Snapshot

__all__ = [
    "Careful",
    "Checkpoint",
    "Chooser",
    "ContextUnavailableError",
    "Evidence",
    "EvidenceError",
    "EvidenceStore",
    "ExportJobPlay",
    "ExportJobWorld",
    "Job",
    "JobClient",
    "PermissionRevokedError",
    "RedisContext",
    "Reply",
    "Report",
    "RunbookEntry",
    "SQLiteContext",
    "Scenario",
    "Snapshot",
    "Spent",
    "Stochastic",
    "TaskRequest",
    "Vices",
    "WorkingContext",
    "carry_on",
    "check_origin",
    "job_variant",
    "judge",
    "load_scenario",
    "lost_at",
    "outcome",
    "run_task",
    "runbook",
    "scenario_names",
    "spent",
    "vice_names",
    "vices",
]
