"""What a run came to, said by the world and not by the agent."""

from __future__ import annotations

from sag_research.lab.export_job._report import Report
from sag_research.lab.export_job.world import ExportJobWorld
from sag_research.model import Outcome

__all__ = ["judge"]

_SOURCE = "world:export-job"


def judge(world: ExportJobWorld, report: Report | None) -> Outcome:
    """Compare a run's end with what its scenario requires.

    Parameters
    ----------
    world : ExportJobWorld
        As the run left it.
    report : Report or None
        ``None``: the run has published none, so its outcome is unknown.

    Returns
    -------
    Outcome
        ``success`` only for the required, verified ending with the required effects.
    """
    if report is None:
        return Outcome(outcome="unknown", detail="no-report", source=_SOURCE)
    detail = _fault(world, report)
    if detail:
        return Outcome(outcome="failure", detail=detail, source=_SOURCE)
    return Outcome(outcome="success", detail="verified", source=_SOURCE)


def _fault(world: ExportJobWorld, report: Report) -> str:
    scenario = world.scenario
    if world.retries != scenario.retries:
        return "wrong-effects"
    if report.status not in scenario.endings:
        return f"wrong-ending: {report.status}, {report.stop_reason}"
    if report.status == "completed" and report.total_cents != world.job.total_cents:
        return "wrong-total"
    return ""
