"""Rows of nebius/SWE-rebench-openhands-trajectories."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _chat as chat
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._rows import Listed, Rows, columns_seen, judged, listed, named
from sag_research.model import Step, Trajectory

__all__ = ["NebiusOpenHands"]


class _Row(msgspec.Struct):
    trajectory_id: Any = None
    instance_id: Any = None
    repo: Any = None
    trajectory: list[chat.Message | Other] | Listed = None
    model_patch: Any = None
    exit_status: Any = None
    resolved: Any = None
    gen_tests_correct: Any = None
    pred_passes_gen_tests: Any = None


_ROWS: Final = Rows(_Row, "trajectory", chat.Message)
_SET: Final = "nebius/SWE-rebench-openhands-trajectories"
_KEPT: Final = ("trajectory_id", "gen_tests_correct", "pred_passes_gen_tests")
_DONE: Final = re.compile(r"submit|finish|complete", re.IGNORECASE)


class NebiusOpenHands:
    """Rows in the shape of nebius/SWE-rebench-openhands-trajectories: Parquet or JSON.

    Columns ``trajectory_id, instance_id, repo, trajectory, tools, model_patch, exit_status,
    resolved, gen_tests_correct, pred_passes_gen_tests``; ``trajectory`` is a list of chat
    messages whose ``tool_calls`` carry their arguments as text that holds JSON.

    Traps that are honoured

    * Every message has the keys of all roles, the ones of other roles as null.
    * ``resolved`` is 0 or 1; null is unknown. ``gen_tests_correct`` and
      ``pred_passes_gen_tests`` judge tests that a model wrote, are null in most rows, and are no
      outcome: they are kept in ``config``, with the row's own id.
    * An instance has several rows: a run is known by the number of its row, from 0.
    * A message of the user behind the first one tells the model to go on, or that it erred. It
      is heard in that step, but it is not the result of a call.
    * The row does not name the model; the set's card does. ``tools`` is the same in each row and
      is not read.
    * Calls that are no JSON keep their arguments as text. An exit code at the end of a result is
      the call's.
    """

    name = "nebius-openhands"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim rows with an instance and a trajectory of chat messages."""
        for columns, _ in columns_seen(head, path):
            talk = {"role", "content"} <= columns.get("trajectory", set())
            if talk and {"instance_id", "trajectory_id"} & set(columns):
                return 0.95
        return 0.0

    def read(self, source: Source) -> Reading:
        """Read the rows, one run each."""
        return _ROWS.read(source, _trajectory)


def _trajectory(number: int, row: _Row, notes: list[str]) -> Trajectory:
    task_id = named(row.instance_id)
    messages = listed(row.trajectory, chat.MESSAGES, chat.Message, notes)
    steps = chat.steps(messages, chat.OPENHANDS)
    status = shared.word(row.exit_status)
    kept = {name: getattr(row, name) for name in _KEPT}
    return Trajectory(
        task_id=task_id,
        goal=chat.goal_of(messages),
        steps=steps,
        dataset=_SET,
        repo=shared.word(row.repo) or shared.repo_of(task_id),
        agent="openhands",
        record=str(number),
        end=_end(status, steps),
        exit_status=status,
        submission=row.model_patch if isinstance(row.model_patch, str) else None,
        outcome=judged(row.resolved, row.model_patch, "nebius resolved", notes),
        config={name: value for name, value in kept.items() if value is not None},
    )


def _end(status: str | None, steps: tuple[Step, ...]) -> str | None:
    if status is None:
        return "run.completed" if steps and chat.is_finish(steps[-1].calls) else None
    return "run.completed" if _DONE.match(status) else "run.failed"
