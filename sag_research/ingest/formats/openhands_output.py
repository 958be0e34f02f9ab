"""OpenHands ``output.jsonl``: one instance of an evaluation a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research._text import clip
from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Outline, decode, first_lines, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_sdk import is_sdk, sdk_runs
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._openhands_v0 import EventsV0, metrics_usage
from sag_research.model import Outcome, OutcomeName, Trajectory, Usage

__all__ = ["OpenHandsOutput"]


class _Record(msgspec.Struct):
    instance_id: Any = None
    instruction: Any = None
    instance: Any = None
    test_result: Any = None
    metadata: Any = None
    history: Any = None
    metrics: Any = None
    error: Any = None
    report: Any = None
    attempt: Any = None
    git_patch: Any = None
    # the issue resolver's
    issue: Any = None
    issue_type: Any = None
    base_commit: Any = None
    success: Any = None
    comment_success: Any = None
    result_explanation: Any = None


_DECODER: Final = msgspec.json.Decoder(_Record)
_ABOUT: Final = {"test_result", "metadata", "metrics", "instruction"}
_RESOLVER: Final = {"issue", "git_patch"}
_JUDGED: Final = (
    "issue_type", "base_commit", "success", "comment_success", "result_explanation",
)  # fmt: skip
_STATUS: Final = 200
"""Characters of an error that are kept as the exit status; ``config`` has all of it."""


class OpenHandsOutput:
    """OpenHands ``output.jsonl``: one line an instance, with the run as ``history``.

    Traps that are honoured

    * ``history`` holds V0 events, old pairs of them, bare actions and observations without
      ids (the issue resolver), or SDK V1 events, whose branches are runs of their own.
    * A cost of zero means that nobody priced the model, while its tokens are real.
    * The outcome is in a report elsewhere, unless ``test_result.report`` is in the line. There
      an empty patch is a failure with that detail; an error of the harness is unknown.
    * The issue resolver's ``success`` is a model's opinion of the work and no outcome: it is
      kept in ``config`` under ``resolver``.
    * ``error`` says why the run stopped: such a run is ``run.failed``, and its outcome is not
      failure unless a report says so of a patch.
    * An instance may stand in the file again after a restart: a run is known by its line.
    * ``metadata`` is kept whole as ``config``.

    ``config`` says ``read_from: history``: messages rebuilt from it are not those the model was
    sent, which are in the completion logs (``openhands-completions``).
    """

    name = "openhands-output"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim objects, alone or a line each, with a history and what an evaluation adds."""
        if _is_record(outline(head)):
            return 0.95
        return 0.8 if any(_is_record(outline(line)) for line in first_lines(head)) else 0.0

    def read(self, source: Source) -> Reading:
        """Read line by line, or the one object of the file."""
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        records = _records(source, refused)
        first = outline(source.head)
        version = "resolver" if set(first.keys) >= _RESOLVER else "evaluation"
        return Reading(version, _trajectories(records, notes, refused), notes, refused)


def _is_record(seen: Outline) -> bool:
    keys = set(seen.keys)
    if seen.root != "object":
        return False
    if "history" in keys and keys >= _RESOLVER:
        return True
    if "instance_id" not in keys:
        return False
    return len(keys & _ABOUT) >= (1 if "history" in keys else 2)


def _records(source: Source, refused: list[tuple[str, str]]) -> Iterator[tuple[int, _Record]]:
    """Yield the records with the number of their line."""
    seen = outline(source.head)
    if seen.complete and not seen.more and source.size <= len(source.head):
        yield 1, decode(source.bytes(), _DECODER)
        return
    found, faults = 0, list[tuple[int, FormatError]]()
    for number, line in enumerate(source.lines(), start=1):
        if line.strip():
            try:
                record = decode(line, _DECODER)
            except FormatError as error:
                faults.append((number, error))
            else:
                found += 1
                yield number, record
    if faults and not found:
        yield 1, decode(source.bytes(), _DECODER)  # one object over many lines
        return
    refused += [(f"line {number}", str(error)) for number, error in faults]


def _trajectories(
    records: Iterator[tuple[int, _Record]], notes: list[str], refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    for number, record in records:
        issue = mapping(record.issue)
        task_id = _task_id(record, issue)
        if task_id is None:
            refused.append((f"line {number}", "names no instance"))
        elif not isinstance(record.history, list):
            refused.append((f"line {number}", "its history is no list"))
        else:
            yield from _runs(number, record, task_id, notes)


def _task_id(record: _Record, issue: dict[str, Any]) -> str | None:
    if shared.integer(record.instance_id) is not None:
        return str(record.instance_id)
    named = shared.word(record.instance_id)
    owner, repo, number = shared.word(issue.get("owner")), shared.word(issue.get("repo")), issue
    if named is None and owner and repo:
        return f"{owner}__{repo}-{shared.integer(number.get('number')) or 0}"
    return named


def _runs(number: int, record: _Record, task_id: str, notes: list[str]) -> Iterator[Trajectory]:
    place = str(number - 1)
    if is_sdk(record.history):
        runs, found = sdk_runs(record.history, task_id)
        for run in runs:
            parent = None if run.parent is None else _place(place, run.parent)
            named = replace(run, record=_place(place, run.record), parent=parent)
            yield _with_record(named, record) if parent is None else named
    else:
        events = EventsV0().take(record.history)
        found = events.notes()
        run = Trajectory(
            task_id=task_id,
            record=place,
            goal=events.goal,
            steps=events.steps(record.metrics),
            agent="openhands",
            model=events.model,
            end=events.end,
            exit_status=events.state,
            usage=events.usage,
            config={} if events.agent_class is None else {"agent_class": events.agent_class},
        )
        yield _with_record(run, record)
    notes += [f"line {number}: {note}" for note in found]


def _place(line: str, branch: str | None) -> str:
    """Name a run: its line, and its number among the runs of that line behind the first."""
    return line if branch in (None, "0") else f"{line}.{branch}"


def _with_record(run: Trajectory, record: _Record) -> Trajectory:
    """Add what the record says beside the history."""
    metadata, instance = mapping(record.metadata), mapping(record.instance)
    llm = mapping(metadata.get("llm_config")) or mapping(metadata.get("llm"))
    issue = mapping(record.issue)
    instruction = shared.problem_text(shared.text_of(record.instruction))
    goal = shared.word(instance.get("problem_statement")) or shared.word(issue.get("body"))
    owner, name = shared.word(issue.get("owner")), shared.word(issue.get("repo"))
    error = shared.word(record.error)
    return replace(
        run,
        goal=goal or instruction or shared.problem_text(run.goal),
        dataset=shared.word(metadata.get("dataset")),
        repo=shared.word(instance.get("repo"))
        or (f"{owner}/{name}" if owner and name else shared.repo_of(run.task_id)),
        model=shared.word(llm.get("model")) or run.model,
        attempt=shared.integer(record.attempt),
        end="run.failed" if error else run.end,
        exit_status=clip(error.splitlines()[0], _STATUS) if error else run.exit_status,
        submission=_patch(record),
        usage=_totals(record, run),
        outcome=_outcome(record),
        config=run.config | _config(record, metadata, error),
    )


def _config(record: _Record, metadata: dict[str, Any], error: str | None) -> dict[str, Any]:
    judged = {name: getattr(record, name) for name in _JUDGED}
    known = {name: value for name, value in judged.items() if value is not None}
    return {
        **metadata,
        "read_from": "history",
        **({"resolver": known} if known else {}),
        **({"error": error} if error else {}),
    }


def _patch(record: _Record) -> str | None:
    results = mapping(record.test_result)
    found = (results.get("git_patch"), results.get("model_patch"), record.git_patch)
    return next((one for one in found if isinstance(one, str)), None)


def _totals(record: _Record, run: Trajectory) -> Usage | None:
    return metrics_usage(record.metrics) or run.usage


def _outcome(record: _Record) -> Outcome | None:
    """Read the report that some lines carry; an absent one says nothing."""
    results = mapping(record.test_result)
    report = mapping(results.get("report")) or mapping(record.report)
    resolved = report.get("resolved", results.get("resolved"))
    if not isinstance(resolved, bool) and resolved not in (0, 1):
        return None
    outcome: OutcomeName = "success" if resolved else "failure"
    detail = None
    if not resolved:
        patch = _patch(record)
        crashed = bool(shared.word(record.error)) and not patch
        if crashed or True in (report.get("error_eval"), report.get("test_timeout")):
            outcome, detail = "unknown", "error"
        elif report.get("empty_generation") is True or patch == "":
            detail = "empty"
        elif report.get("failed_apply_patch") is True:
            detail = "no-apply"
    return Outcome(outcome=outcome, detail=detail, source="openhands report")
