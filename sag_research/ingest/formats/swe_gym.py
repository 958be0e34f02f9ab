"""Rows of SWE-Gym/OpenHands-Sampled-Trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _chat as chat
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._rows import Listed, Rows, columns_seen, judged, listed, named
from sag_research.model import Outcome, Trajectory

__all__ = ["SweGym"]


class _Row(msgspec.Struct):
    instance_id: Any = None
    run_id: Any = None
    resolved: Any = None
    messages: list[chat.Message | Other] | Listed = None
    test_result: Any = None


_ROWS: Final = Rows(_Row, "messages", chat.Message)
_SET: Final = "SWE-Gym/OpenHands-Sampled-Trajectories"
_REPORT: Final = "swe-gym resolved"


class SweGym:
    """Rows in the shape of SWE-Gym/OpenHands-Sampled-Trajectories: Parquet or JSON.

    Columns ``instance_id, run_id, resolved, messages, tools, test_result``; ``messages`` is a
    list of chat messages, or such a list as text that holds JSON.

    Traps that are honoured

    * Neither ``instance_id`` nor that with ``run_id`` is unique: a run is known by the number of
      its row, from 0; ``run_id`` is kept in ``config`` and begins with the model's name.
    * The id of a call is used again once it was answered: a result belongs to the reply before
      it.
    * A reply with calls has empty or null text; the last call of a run mostly has no result.
    * A result begins with ``OBSERVATION:``, which is not part of what came back.
    * ``resolved`` is the outcome; null is unknown. Where ``test_result.report`` says that the
      evaluation erred or ran out of time the outcome is unknown, too, in detail ``error``; an
      empty patch, or one that did not apply, is a failure with that detail.
    * ``tools`` is the same in each row and is not read.
    """

    name = "swe-gym"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim rows with messages, an instance, and the id of a batch of runs."""
        for columns, _ in columns_seen(head, path):
            if {"messages", "instance_id", "run_id"} <= set(columns) and "traj_id" not in columns:
                return 0.9
        return 0.0

    def read(self, source: Source) -> Reading:
        """Read the rows, one run each."""
        return _ROWS.read(source, _trajectory)


def _trajectory(number: int, row: _Row, notes: list[str]) -> Trajectory:
    task_id = named(row.instance_id)
    messages = listed(row.messages, chat.MESSAGES, chat.Message, notes)
    steps = chat.steps(messages, chat.OPENHANDS)
    finished = bool(steps) and chat.is_finish(steps[-1].calls)
    batch = shared.word(row.run_id)
    patch = _patch(row)
    return Trajectory(
        task_id=task_id,
        goal=chat.goal_of(messages),
        steps=steps,
        dataset=_SET,
        repo=shared.repo_of(task_id),
        agent="openhands",
        model=_model(batch),
        record=str(number),
        end="run.completed" if finished else None,
        exit_status="finish" if finished else None,
        submission=patch,
        outcome=_outcome(row, patch, notes),
        config={"run_id": batch} if batch else {},
    )


def _model(batch: str | None) -> str | None:
    name, found, _ = (batch or "").partition("_maxiter_")
    return name or None if found else None


def _patch(row: _Row) -> str | None:
    results = mapping(row.test_result)
    found = (results.get(name) for name in ("git_patch", "model_patch", "patch"))
    return next((one for one in found if isinstance(one, str)), None)


def _outcome(row: _Row, patch: str | None, notes: list[str]) -> Outcome | None:
    outcome = judged(row.resolved, patch, _REPORT, notes)
    report = mapping(mapping(row.test_result).get("report"))
    if outcome is None or outcome.outcome == "success":
        return outcome
    if True in (report.get("error_eval"), report.get("test_timeout")):
        return Outcome(outcome="unknown", detail="error", source=_REPORT)
    if report.get("empty_generation") is True:
        return Outcome(outcome="failure", detail="empty", source=_REPORT)
    if report.get("failed_apply_patch") is True:
        return Outcome(outcome="failure", detail="no-apply", source=_REPORT)
    return outcome
