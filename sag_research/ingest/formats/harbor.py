"""Harbor: trials of a job, with a trajectory in ATIF and the reward beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest import _labels_trials as trials
from sag_research.ingest._format import Reading
from sag_research.ingest._json import loads, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.ingest.formats._trials import evidence, files_below, object_in
from sag_research.ingest.formats.atif import Atif
from sag_research.model import Outcome, Trajectory, Usage

__all__ = ["Harbor"]

_RESULT: Final = "result.json"
_AGENT: Final = "agent"
_KEYS: Final = {"task_name", "trial_name", "verifier_result"}
_ABOVE: Final = 0.01
"""By how much a trajectory with a result beside it is rather a trial's than just ATIF."""
_ATIF: Final = Atif()
_CONTINUED: Final = ".cont-"
_KEPT: Final = ("id", "trial_name", "source", "task_checksum", "started_at", "finished_at")


class Harbor:
    """Harbor job folders: of each trial ``result.json``, and ``agent/trajectory.json`` in ATIF.

    Written after Harbor's own models (laude-institute/harbor); no real job was at hand.

    Traps that are honoured

    * A trajectory in ATIF in the folder ``agent`` of a trial is read as ATIF is, and gets what
      the ``result.json`` of the trial says: task, job, outcome. Without such a result it is
      plain ATIF.
    * The outcome is the reward of the verifier alone: success from 1 on; between 0 and 1 a
      failure with the detail ``partial``; of several rewards without the name ``reward`` none is
      guessed. Without a reward it is unknown: ``error`` or ``infra`` where ``exception_info``
      says what broke. An exception is the exit status, and a trial that ran out of time may have
      a reward all the same.
    * The outcome is the first agent's; sub-agents and continuations of another trajectory have
      none of their own.
    * A trial whose agent left nothing that a format reads is a run without steps: it counts, with
      its outcome; what it left is listed in ``config`` under ``evidence``. Where the agent wrote
      in a format of its own that is known here, that file is the run, and the result is a report
      for ``--labels``.
    * ``result.json`` of the whole job has the same name and other keys: it is no trial.
    * The task is the trial's ``task_name``; several trials of one task are told apart by
      ``trial_name`` in ``config`` under ``trial``.
    * Tokens of ``agent_result`` are those of the whole trial, and null where nobody counted; they
      stand only where the trajectory has no totals.
    """

    name = "harbor"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim ATIF beside the result of its trial, and results of trials without any."""
        if sure := _ATIF.sniff(head, path):
            return sure + _ABOVE if _is_trial(_result_of(path)) else 0.0
        seen = outline(head)
        if seen.root != "object" or not set(seen.keys) >= _KEYS:
            return 0.0
        return 0.0 if _has_transcript(path.absolute()) else 0.93

    def read(self, source: Source) -> Reading:
        """Read the trial: its trajectory, or its result alone."""
        value = _value(source)
        if _is_trial(value):
            return Reading("1", iter((_without_steps(value, source.path.absolute()),)))
        reading = _ATIF.read(source)
        runs = _with_result(reading, _result_of(source.path), source.path)
        return Reading(reading.version, runs, reading.notes, reading.refused)


def _value(source: Source) -> dict[str, Any]:
    """Return the object of a source; empty where it is lines, or damaged, as ATIF may be."""
    try:
        return mapping(loads(source.bytes()))
    except FormatError:
        return {}


def _is_trial(value: dict[str, Any]) -> bool:
    return "verifier_result" in value and trials.is_trial(value)


def _result_of(path: Path) -> dict[str, Any]:
    """Return the result of the trial in whose ``agent`` folder a trajectory is."""
    folder = path.absolute().parent
    return object_in(folder.parent / _RESULT) if folder.name == _AGENT else {}


def _has_transcript(result: Path) -> bool:
    """Tell whether a format claims something that the agent of a trial left."""
    return any(map(_is_claimed, files_below(result.parent / _AGENT)))


def _is_claimed(path: Path) -> bool:
    from sag_research.ingest.formats import recognise  # it knows this one, too

    try:
        return recognise(Source(path)) is not None
    except (FormatError, OSError):
        return False


# ---- runs


def _with_result(
    runs: Iterable[Trajectory], result: dict[str, Any], path: Path
) -> Iterator[Trajectory]:
    """Give the first agent of a trial what the trial's result says."""
    is_first = _CONTINUED not in path.name
    for run in runs:
        if run.parent is not None or not _is_trial(result):
            yield run
            continue
        yield replace(
            run,
            task_id=_task(result) or run.task_id,
            dataset=run.dataset or _dataset(result),
            agent=run.agent or _agent(result),
            model=run.model or _model(result),
            exit_status=run.exit_status or _exception(result),
            usage=run.usage or (_usage(result) if is_first else None),
            outcome=_outcome(result, path.parent.parent) if is_first else None,
            config={**_about(result), **run.config},
        )
        is_first = False


def _without_steps(result: dict[str, Any], path: Path) -> Trajectory:
    left = evidence(path.parent, path)
    task_id = _task(result) or path.parent.name or "unnamed"
    return Trajectory(
        task_id=task_id,
        repo=shared.repo_of(task_id),
        dataset=_dataset(result),
        agent=_agent(result),
        model=_model(result),
        end=None,
        exit_status=_exception(result),
        usage=_usage(result),
        outcome=_outcome(result, path.parent),
        config={**_about(result), **({"evidence": left} if left else {})},
    )


def _task(result: dict[str, Any]) -> str | None:
    return shared.word(result.get("task_name")) or key(result.get("task_id"))


def _outcome(result: dict[str, Any], folder: Path) -> Outcome:
    return trials.of_trial(result, "harbor verifier_result", folder).outcome


def _dataset(result: dict[str, Any]) -> str | None:
    return shared.word(result.get("source"))


def _agent(result: dict[str, Any]) -> str | None:
    return shared.word(mapping(result.get("agent_info")).get("name"))


def _model(result: dict[str, Any]) -> str | None:
    model = mapping(mapping(result.get("agent_info")).get("model_info"))
    return shared.word(model.get("name"))


def _exception(result: dict[str, Any]) -> str | None:
    return shared.word(mapping(result.get("exception_info")).get("exception_type"))


def _usage(result: dict[str, Any]) -> Usage | None:
    said = mapping(result.get("agent_result"))
    return shared.usage_of(
        said.get("n_input_tokens"), said.get("n_output_tokens"), said.get("cost_usd")
    )


def _about(result: dict[str, Any]) -> dict[str, Any]:
    config = mapping(result.get("config"))
    kept = {name: result.get(name) for name in _KEPT}
    kept["job_id"] = config.get("job_id")
    kept["agent_version"] = mapping(result.get("agent_info")).get("version")
    kept["rewards"] = mapping(result.get("verifier_result")).get("rewards")
    kept["exception"] = mapping(result.get("exception_info")).get("exception_message")
    told = {name: one for name, one in kept.items() if one not in (None, "", [], {})}
    return {"trial": told} if told else {}
