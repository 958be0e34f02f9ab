"""ATIF, the interchange format of agent trajectories, 1.0 to 1.8."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import first_character, loads, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._atif_steps import Reader, steps_in
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._told import run_told
from sag_research.model import Trajectory, Usage

__all__ = ["Atif"]

_SCHEMA: Final = re.compile(rb'"schema_version"\s*:\s*"ATIF')
_STEP: Final = {"step_id", "source", "message"}
_NAMES: Final = ("task_id", "task_name", "instance_id", "task", "problem_id")
_KEPT: Final = (
    "session_id", "trajectory_id", "notes", "final_metrics", "continued_trajectory_ref", "extra",
)  # fmt: skip
_TRIAL: Final = "result.json"
_NESTED: Final = 20
_TAIL: Final = re.compile(r"(?:\.trajectory|\.cont-\d+)+$")


class Atif:
    """ATIF trajectories, 1.0 to 1.8: one object, a list, or an object a line.

    Traps that are honoured

    * Files in the wild break the rules: a list of trajectories, or of bare steps, at the root; an
      object with numbers as keys for ``steps``; an object for ``message``; a step that is a bare
      text. What can be read is read; the rest is in ``config`` under ``unreadable``. A root that
      holds no steps is refused with the reason.
    * A turn is a step of the ``agent``. What the user or the system says before the first turn is
      the goal, or ``config`` under ``preface``; later on it is what the model heard in that turn.
    * Steps with ``is_copied_context``, with which a continuation begins, are another
      trajectory's: they have the flag ``inherited`` and no tokens. Before 1.5 nothing marks them.
    * Results often name no call: the only call has them, or each in turn if there are as many;
      else they are what the model heard.
    * ``prompt_tokens`` includes the cached ones. ``final_metrics`` are the totals, which may
      differ from the sum: summaries and sub-agents are in them. Where steps were copied with
      their metrics, the totals may hold those too: then the sum of the own steps stands.
      Zero is unknown.
    * Sub-agents (``subagent_trajectories``, in any depth) are runs of their own, relation
      ``subagent``, behind the step whose results refer to them by trajectory or, before 1.7,
      session. References to other files are in ``config`` under ``subagent_files``.
    * A step with ``llm_call_count`` 0 had no reply of a model: flag ``no-model``.
    * The outcome stands elsewhere, in Harbor's ``result.json``. The name of the task is taken
      from there, or from the folder of the trial; else from ``extra``, the session or the file.
    * What an export of this package put under ``extra.sag``, as the outcome and the flags, is taken
      from there.
    """

    name = "atif"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim objects that name the schema, and lists of its steps."""
        seen = outline(head)
        keys = set(seen.keys)
        if "schema_version" in keys and _SCHEMA.search(head):
            return 0.97
        if {"step_id", "source"} <= seen.below("steps"):
            return 0.75
        return 0.75 if seen.root == "list" and keys >= _STEP else 0.0

    def read(self, source: Source) -> Reading:
        """Read all trajectories of the source, with those of sub-agents."""
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        roots = _roots(source, refused)
        if not roots:
            raise FormatError("no trajectory in it", why=refused[0][1] if refused else "")
        versions = [shared.word(root.get("schema_version")) for _, root in roots]
        version = next((one.removeprefix("ATIF-") for one in versions if one), "unknown")
        return Reading(version, _trajectories(roots, source, notes, refused), notes, refused)


# ---- roots


def _roots(
    source: Source, refused: list[tuple[str, str]]
) -> list[tuple[str | None, dict[str, Any]]]:
    """Return the trajectories at the root of a source, with their records."""
    seen = outline(source.head)
    if first_character(source.head) == b"{" and seen.complete and seen.more:
        return _lines(source, refused)
    try:
        value = loads(source.bytes())
    except FormatError:  # perhaps lines, of which the first is damaged
        if found := [one for one in _lines(source, refused) if "steps" in one[1]]:
            return found
        refused.clear()
        raise
    if isinstance(value, dict):
        return [(None, value)]
    items = value if isinstance(value, list) else []
    if not any(isinstance(one, dict) and "steps" in one for one in items):
        steps = any(isinstance(one, dict) and "source" in one for one in items)
        return [(None, {"steps": items})] if steps else []
    return _whole([("trajectory", number, one) for number, one in enumerate(items)], refused)


def _lines(
    source: Source, refused: list[tuple[str, str]]
) -> list[tuple[str | None, dict[str, Any]]]:
    found: list[tuple[str, int, Any]] = []
    for number, line in enumerate(source.lines(), start=1):
        if line.strip():
            try:
                found.append(("line", number, loads(line)))
            except FormatError as error:
                refused.append((f"line {number}", str(error)))
    return _whole(found, refused)


def _whole(
    found: list[tuple[str, int, Any]], refused: list[tuple[str, str]]
) -> list[tuple[str | None, dict[str, Any]]]:
    refused += [(f"{what} {n}", "no object") for what, n, one in found if not isinstance(one, dict)]
    return [(str(n - (what == "line")), one) for what, n, one in found if isinstance(one, dict)]


# ---- runs


def _trajectories(
    roots: list[tuple[str | None, dict[str, Any]]],
    source: Source,
    notes: list[str],
    refused: list[tuple[str, str]],
) -> Iterator[Trajectory]:
    trial = _trial(source.path)
    for record, root in roots:
        place = "the trajectory" if record is None else f"trajectory {record}"
        if steps_in(root) is None:
            refused.append((place, "its steps are no list"))
            continue
        task_id = trial or _named(root) or (_session(root) if record else None)
        task_id = task_id or _TAIL.sub("", shared.bare_id(source.path)) or "unnamed"
        nested = bool(_subagents(root))
        name = record if record is not None else "0" if nested else None
        yield from _runs(root, task_id, name, _Parent(), notes, refused)


class _Parent:
    """The run that called a sub-agent, and where."""

    def __init__(self, record: str | None = None, reader: Reader | None = None) -> None:
        self.record = record
        self.depth = 0
        self._reader = reader

    def step(self, child: dict[str, Any]) -> int | None:
        """Return the step that called a sub-agent, if a reference tells."""
        return self._reader.caller_of(child) if self._reader else None


def _runs(
    root: dict[str, Any],
    task_id: str,
    record: str | None,
    parent: _Parent,
    notes: list[str],
    refused: list[tuple[str, str]],
) -> Iterator[Trajectory]:
    reader = Reader(root)
    yield _trajectory(root, reader, task_id, record, parent)
    where = "" if record is None else f"{record}: "
    notes += [f"{where}{note}" for note in reader.notes]
    below = _Parent(record, reader)
    below.depth = parent.depth + 1
    for number, child in enumerate(_subagents(root)):
        name = f"{record}.{number}"
        if not isinstance(child, dict) or steps_in(child) is None:
            refused.append((f"sub-agent {name}", "it holds no steps"))
        elif below.depth > _NESTED:
            refused.append((f"sub-agent {name}", "nested too deeply"))
        else:
            yield from _runs(child, task_id, name, below, notes, refused)


def _subagents(root: dict[str, Any]) -> list[Any]:
    found = root.get("subagent_trajectories")
    return found if isinstance(found, list) else []


def _trajectory(
    root: dict[str, Any], reader: Reader, task_id: str, record: str | None, parent: _Parent
) -> Trajectory:
    agent = mapping(root.get("agent"))
    kept = {name: root.get(name) for name in _KEPT}
    kept |= {"agent": {name: agent[name] for name in ("version", "extra") if agent.get(name)}}
    kept |= reader.config
    run = Trajectory(
        task_id=task_id,
        record=record,
        steps=reader.steps,
        goal=shared.problem_text(reader.goal),
        repo=shared.repo_of(task_id),
        agent=shared.word(agent.get("name")),
        model=shared.word(agent.get("model_name")) or reader.model,
        usage=None if reader.copied_metrics else _totals(root),
        parent=parent.record,
        parent_step=parent.step(root),
        relation="subagent" if parent.record is not None else "fork",
        config={name: value for name, value in kept.items() if value not in (None, "", [], {})},
    )
    told = mapping(mapping(root.get("extra")).get("sag"))
    return run_told(run, told.get("record"))


def _totals(root: dict[str, Any]) -> Usage | None:
    metrics = mapping(root.get("final_metrics"))
    names = ("total_prompt_tokens", "total_completion_tokens", "total_cost_usd")
    return shared.usage_of(*(metrics.get(name) for name in names))


# ---- names


def _session(root: dict[str, Any]) -> str | None:
    return shared.word(root.get("trajectory_id")) or shared.word(root.get("session_id"))


def _named(root: dict[str, Any]) -> str | None:
    for about in (mapping(root.get("extra")), mapping(mapping(root.get("agent")).get("extra"))):
        for name in _NAMES:
            if found := shared.word(about.get(name)):
                return found
    return None


def _trial(path: Path) -> str | None:
    """Return the task of a trial, whose folder holds ``agent/`` with the trajectory."""
    folder = path.absolute().parent
    if folder.name != "agent":
        return None
    result = folder.parent / _TRIAL
    if result.is_file():
        try:
            if task := shared.word(mapping(loads(Source(result).bytes())).get("task_name")):
                return task
        except (FormatError, OSError):
            pass
    task, _, trial = folder.parent.name.rpartition("__")
    return task or trial or None
