"""Terminal-Bench: the result of one trial, and what it left beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest import _labels_trials as trials
from sag_research.ingest._format import Reading
from sag_research.ingest._json import loads, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import key
from sag_research.ingest.formats._trials import evidence, object_in
from sag_research.model import Trajectory

__all__ = ["TerminalBench"]

_KEYS: Final = {"trial_name", "task_id", "is_resolved", "failure_mode"}
_UNSET: Final = frozenset({"unset", "none"})
_NUMBER: Final = re.compile(r"\.(\d{1,6})-of-\d{1,6}(?:\.|\Z)")
_KEPT: Final = (
    "id", "uuid", "trial_name", "parser_results", "recording_path", "trial_started_at",
    "trial_ended_at", "agent_started_at", "agent_ended_at", "test_started_at", "test_ended_at",
)  # fmt: skip
_ABOUT: Final = ("run_id", "dataset_name", "dataset_version", "commit_hash")
_METADATA: Final = "run_metadata.json"


class TerminalBench:
    """Terminal-Bench 0.x trials: ``results.json`` with ``is_resolved`` and ``failure_mode``.

    Written after the harness's own models (laude-institute/terminal-bench); no real file was at
    hand.

    Traps that are honoured

    * A trial is a run without steps, whose end is not known: what the agent did stands in
      ``agent.log`` and in recordings of the terminal, with control codes and perhaps with keys.
      These are listed with their sizes in ``config`` under ``evidence`` and are not read. A
      trajectory that the agent wrote itself is a run of its own.
    * ``failure_mode`` is why a trial stopped, and so the exit status; an agent that ran out of
      time may have solved its task. The outcome is ``is_resolved`` alone: null is unknown, with
      the detail ``infra`` where the tests gave no answer and ``error`` where the trial broke.
    * A run's folder that was copied into another holds each trial twice: the same bytes are one
      source, read once.
    * The ``results.json`` of a whole run has the same name and other keys: it is a report, for
      ``--labels``.
    * Zero tokens were not counted. Agent and model stand in ``run_metadata.json``, two folders
      above. The number of the attempt is in the name of the trial (``count.2-of-5``).
    """

    name = "terminal-bench"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim objects with the keys of one trial."""
        seen = outline(head)
        return 0.93 if seen.root == "object" and set(seen.keys) >= _KEYS else 0.0

    def read(self, source: Source) -> Reading:
        """Read the trial."""
        value = loads(source.bytes())
        if not isinstance(value, dict) or "is_resolved" not in value:
            raise FormatError("no result of a trial in it")
        if (task_id := key(value.get("task_id"))) is None:
            raise FormatError("the trial names no task")
        notes: list[str] = []
        run = _trajectory(value, task_id, source.path.absolute(), notes)
        return Reading("0", iter((run,)), notes)


def _trajectory(value: dict[str, Any], task_id: str, path: Path, notes: list[str]) -> Trajectory:
    about = object_in(path.parent.parent.parent / _METADATA)
    mode = shared.word(value.get("failure_mode"))
    if trials.is_trial(value):
        outcome = trials.of_trial(value, "terminal-bench is_resolved", path.parent).outcome
    else:
        outcome = None
        notes.append("is_resolved is neither a truth value nor null")
    config = {name: value.get(name) for name in _KEPT}
    config |= {name: about.get(name) for name in _ABOUT}
    config["evidence"] = evidence(path.parent, path)
    name = shared.word(value.get("trial_name")) or ""
    number = _NUMBER.search(name)
    return Trajectory(
        task_id=task_id,
        goal=shared.word(value.get("instruction")) or "",
        dataset="terminal-bench",
        agent=shared.word(about.get("agent_name")),
        model=shared.word(about.get("model_name")),
        attempt=int(number[1]) if number else None,
        end=None,
        exit_status=mode if mode and mode.casefold() not in _UNSET else None,
        usage=shared.usage_of(
            value.get("total_input_tokens"), value.get("total_output_tokens"), None
        ),
        outcome=outcome,
        config={name: one for name, one in config.items() if one not in (None, "", [], {})},
    )
