"""Runs whole, out of the log: what the formats for interchange write, and what of it they lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sag_research.errors import NotEnoughDataError
from sag_research.exchange._traces import Parameters, Queryable
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import OUTCOMES, TERMINAL_TYPES, Event, Run

if TYPE_CHECKING:
    from sag_research.warehouse import QueryResult

__all__ = [
    "STEP_FIELDS",
    "InterchangeReport",
    "Recorded",
    "Whole",
    "calls_as_text",
    "observed",
    "record_of",
    "step_digest",
    "whole_runs",
]

_RUNS: Final = """
    SELECT run_id, outcome, detail, digest, format, left_out
    FROM (SELECT *, hidden OR copy_of IS NOT NULL OR kind = 'extraction' AS left_out
          FROM runs WHERE ({where})) r
    LEFT JOIN (SELECT source_id, min(format) AS format FROM sources
               WHERE status = 'ingested' GROUP BY source_id) USING (source_id)
    ORDER BY r.seq"""
_LABELS: Final = """
    SELECT run_id, outcome, detail, score, source, known_at_step FROM outcomes
    WHERE run_id IN (SELECT run_id FROM runs WHERE ({where})) ORDER BY position"""

STEP_FIELDS: Final = (
    "thought", "action", "observation", "calls", "flags", "usage", "state", "started", "seconds",
)  # fmt: skip
_CALL_TEXTS: Final = ("id", "name", "text", "observation")
_STATUS: Final = ("ok", "error", "unknown")
_COUNTED: Final = ("tokens_in", "tokens_out", "cost_usd")
_EXACT: Final = 2**53
"""Whole numbers beyond it are no numbers of the native record."""
SLASH: Final = "run.outcome: a slash in its source's name, read back as a bar"
_KNOWN_EVENTS: Final = frozenset({"run.created", "run.forked", "agent.step"}) | TERMINAL_TYPES


def _counted(kind: str, name: str, n: int) -> str:
    """Say of what, and in how many runs or steps; what is made up may be so often in a step."""
    unit = "run" if name.startswith("run.") else "step"
    if kind == "made_up" and unit == "step":
        return f"{name} {n:,} times"
    return f"{name} in {n:,} {unit}{'' if n == 1 else 's'}"


class Recorded(Queryable, Protocol):
    """A workspace: a log, and queries over it."""

    @property
    def store(self) -> SQLiteEventStore:
        """The log."""
        ...


@dataclass
class InterchangeReport:
    """What an export wrote, and what it could not hold.

    Attributes
    ----------
    path : pathlib.Path
    format : str
    runs, steps, calls : int
    left_out : int
        Runs that the condition names and the export leaves out: hidden ones, copies, extractions.
    aside : dict of str to int
        What the format has no word for, kept in its free part, where this package finds it and
        other programs do not: number of runs (``run.…``) or steps by field.
    lost : dict of str to int
        What is in the log and not in the file: number of runs (``run.…``) or steps by field.
    made_up : dict of str to int
        What the format demands and the log has not, by field; marked in the file where it stands.

    Examples
    --------
    >>> InterchangeReport(Path("out"), "atif", runs=2, steps=9, lost={"run.events": 1})
    InterchangeReport(atif: 2 runs, 9 steps, 0 calls; lost: run.events in 1 run)
    """

    path: Path
    format: str
    runs: int = 0
    steps: int = 0
    calls: int = 0
    left_out: int = 0
    aside: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    made_up: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        told = f"{self.runs:,} runs, {self.steps:,} steps, {self.calls:,} calls"
        for name, what in (("aside", "aside"), ("lost", "lost"), ("made_up", "made up")):
            if found := getattr(self, name):
                counted = (_counted(name, key, n) for key, n in found.items())
                told += f"; {what}: {', '.join(counted)}"
        left = f"; {self.left_out:,} runs left out" if self.left_out else ""
        return f"InterchangeReport({self.format}: {told}{left})"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        names = ("format", "runs", "steps", "calls", "left_out", "aside", "lost", "made_up")
        return {"path": str(self.path)} | {name: getattr(self, name) for name in names}

    def count(self, whole: Whole) -> None:
        """Count a run, and what of it no format of this package holds."""
        self.runs += 1
        self.steps += len(whole.steps)
        self.calls += sum(len(step["calls"]) for step in whole.steps)
        self.add("lost", whole.lost)

    def add(self, kind: str, found: Mapping[str, int]) -> None:
        """Add counts by field to ``aside``, ``lost`` or ``made_up``."""
        held: dict[str, int] = getattr(self, kind)
        for name, number in sorted(found.items()):
            held[name] = held.get(name, 0) + number


class Whole(NamedTuple):
    """A run with all that the native record can say of it."""

    run_id: str
    digest: str
    """Of its whole history."""
    record: dict[str, Any]
    """The native record without its steps."""
    steps: list[dict[str, Any]]
    """Native steps; those of a fork's ancestors have the flag ``inherited``."""
    format: str
    """That it was ingested from; empty if it was recorded."""
    lost: Counter[str]


def record_of(whole: Whole) -> dict[str, Any]:
    """Return the native record of a run (``docs/native.md``), which says all but what is lost."""
    return whole.record | {"steps": whole.steps}


def step_digest(step: Mapping[str, Any], fields: tuple[str, ...] = STEP_FIELDS[:7]) -> str:
    """Return the canonical digest of what a step says, as 64 hex digits.

    Parameters
    ----------
    step : mapping
        A payload of ``agent.step``, or a step of a native record.
    fields : tuple of str
        What counts; by default all but the clocks, as in the log.

    Examples
    --------
    >>> one = {"thought": "look", "action": "ls", "calls": [], "seconds": 0.1}
    >>> step_digest(one) == step_digest(one | {"seconds": 0.2, "flags": []})
    True
    """
    normal = _step(step, Counter())
    return canonical_digest({name: normal.get(name) for name in fields})


def calls_as_text(step: Mapping[str, Any], name: str) -> str:
    r"""Return a text of the calls joined, as a reader joins it where the step says nothing more.

    Examples
    --------
    >>> calls_as_text({"calls": [{"text": "ls"}, {"text": ""}, {"text": "pwd"}]}, "text")
    'ls\npwd'
    """
    return "\n".join(filter(None, (call[name] for call in step["calls"])))


def observed(step: Mapping[str, Any]) -> str | None:
    r"""Return what a step observed beside the results of its calls; None if these are not in it.

    Examples
    --------
    >>> observed({"calls": [{"observation": "a"}], "observation": "a\nand b"})
    'and b'
    """
    own, whole = calls_as_text(step, "observation"), step["observation"]
    if not own or whole == own:
        return "" if whole == own else str(whole)
    return str(whole[len(own) + 1 :]) if whole.startswith(f"{own}\n") else None


def whole_runs(
    source: Recorded, where: str, parameters: Parameters, report: InterchangeReport
) -> Iterator[Whole]:
    """Read runs one at a time, in the order of the log, and count them.

    Hidden runs, copies and extractions are left out. Forks are written with the steps that they
    inherited.

    Raises
    ------
    NotEnoughDataError
        If there is no run to export.
    """
    found = source.sql(_RUNS.replace("{where}", where), parameters)
    rows = _rows(found)
    kept = [row for row in rows if not row["left_out"]]
    report.left_out = len(rows) - len(kept)
    if not kept:
        raise NotEnoughDataError(
            "no run to export",
            why="hidden runs, copies and extractions are left out",
            fix="see ws.runs(where=…)",
        )
    labels: dict[str, list[dict[str, Any]]] = {}
    for one in _rows(source.sql(_LABELS.replace("{where}", where), parameters)):
        labels.setdefault(one.pop("run_id"), []).append(one)
    for row in kept:
        whole = _whole(source, row, labels.get(row["run_id"], []))
        report.count(whole)
        yield whole


def _rows(answer: QueryResult) -> list[dict[str, Any]]:
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]


def _whole(source: Recorded, row: Mapping[str, Any], labels: Sequence[Mapping[str, Any]]) -> Whole:
    run_id: str = row["run_id"]
    run = source.store.get_run(run_id)
    lost: Counter[str] = Counter()
    steps: list[dict[str, Any]] = []
    ends: list[Event] = []
    for event in source.store.read(run_id):
        own = event.run_id == run_id
        if event.type == "agent.step":
            steps.append(_step(event.payload, lost, inherited=not own))
        elif event.type in TERMINAL_TYPES and own:
            ends.append(event)
        elif event.type not in _KNOWN_EVENTS:
            lost["run.events"] = 1
    record = _described(run, row, lost) | _ended(ends, lost)
    if labels:
        record["outcome"] = _label(row, labels, lost)
    kept = {name: value for name, value in record.items() if value is not None or name == "end"}
    return Whole(run_id, row["digest"] or "", kept, steps, row["format"] or "", lost)


def _described(run: Run, row: Mapping[str, Any], lost: Counter[str]) -> dict[str, Any]:
    if not run.task_id:
        lost["run.task_id unknown: its id is written"] = 1
    config = dict(run.config)
    if run.parent_id is not None:
        lost["run.parent: its inherited steps are written, not the tie"] = 1
        config["forked_from"] = {"run": run.parent_id, "position": run.fork_position}
    if run.label:
        lost["run.label"] = 1
    return {
        "task_id": run.task_id or run.run_id, "goal": run.goal or None, "dataset": run.dataset,
        "repo": run.repo, "agent": run.agent, "model": run.model,
        "attempt": _exact(run.attempt, "run.attempt", lost), "config": config or None,
    }  # fmt: skip


def _ended(ends: list[Event], lost: Counter[str]) -> dict[str, Any]:
    if not ends:
        return {"end": None}
    if len(ends) > 1:
        lost["run.end: all but the last"] = 1
    said = ends[-1].payload
    if set(said) - {"exit_status", "submission", "usage"}:
        lost["run.end: other fields"] = 1
    return {
        "end": ends[-1].type,
        "exit_status": _text_or_none(said.get("exit_status")),
        "submission": _text_or_none(said.get("submission")),
        "usage": _usage(said.get("usage"), "run.usage", lost),
    }


def _label(
    row: Mapping[str, Any], labels: Sequence[Mapping[str, Any]], lost: Counter[str]
) -> dict[str, Any]:
    """Return the label of a run; of several, what they agree on."""
    fitting = [one for one in labels if one["outcome"] == row["outcome"]]
    told = dict(fitting[-1] if fitting else labels[-1])
    if len(labels) > 1:
        lost["run.outcome: all sources but one"] = 1
        told |= {"outcome": row["outcome"], "detail": row["detail"]}
    if "/" in (told["source"] or ""):
        lost[SLASH] = 1
    told["outcome"] = told["outcome"] if told["outcome"] in OUTCOMES else "unknown"
    told["source"] = told["source"] or "record"
    return {name: value for name, value in told.items() if value is not None}


# ---- steps


def _step(
    payload: Mapping[str, Any], lost: Counter[str], *, inherited: bool = False
) -> dict[str, Any]:
    """Return a payload as a native step, and count what has no place there."""
    flags = [one for one in payload.get("flags") or () if isinstance(one, str)]
    if inherited and "inherited" not in flags:
        flags.append("inherited")
    if "redacted" in payload and "redacted" not in flags:
        flags.append("redacted")
    told = {name: _text(payload.get(name)) for name in ("thought", "action", "observation")}
    found = payload.get("calls")
    calls = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    unnamed: Counter[str] = Counter()
    step = told | {"calls": [_call(one, unnamed) for one in calls], "flags": flags}
    step["usage"] = _usage(payload.get("usage"), "usage", unnamed)
    step |= {name: payload.get(name) for name in ("state", "started", "seconds")}
    if payload.get("raw"):
        unnamed["raw: texts before they were repaired"] = 1
    if set(payload) - {*STEP_FIELDS, "raw", "redacted"}:
        unnamed["other fields"] = 1
    lost.update(dict.fromkeys(unnamed, 1))
    return {name: value for name, value in step.items() if value is not None}


def _call(call: Mapping[str, Any], lost: Counter[str]) -> dict[str, Any]:
    told: dict[str, Any] = {name: _text(call.get(name)) for name in _CALL_TEXTS}
    status = call.get("status", "unknown")
    if status not in _STATUS:
        lost["calls.status"] = 1
        status = "unknown"
    if set(call) - {*_CALL_TEXTS, "arguments", "status", "exit_code"}:
        lost["calls: other fields"] = 1
    code = _exact(call.get("exit_code"), "calls.exit_code", lost)
    return told | {"arguments": call.get("arguments"), "status": status, "exit_code": code}


def _usage(usage: Any, where: str, lost: Counter[str]) -> dict[str, Any] | None:
    if not isinstance(usage, Mapping):
        return None
    known: dict[str, Any] = {}
    for name in _COUNTED:
        amount = usage.get(name)
        if name != "cost_usd":
            amount = _exact(amount, f"{where}.{name}", lost, least=0)
        elif not isinstance(amount, int | float) or isinstance(amount, bool):
            amount = None
        if amount is not None:
            known[name] = amount
    if set(usage) - set(_COUNTED):
        lost[f"{where}: other counts"] = 1
    return known or None


def _exact(value: Any, name: str, lost: Counter[str], least: int = -_EXACT) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _EXACT:
        return value
    lost[name] = 1
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)
