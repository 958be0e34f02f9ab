"""Steps of one ATIF trajectory, as they are or as they are found in the wild."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import (
    Turn,
    Turns,
    as_typed,
    clock,
    mapping,
)
from sag_research.ingest.formats._shared import Result
from sag_research.ingest.formats._told import step_told
from sag_research.model import Call, Step, Usage

__all__ = ["Reader", "steps_in"]


def steps_in(root: dict[str, Any]) -> list[Any] | None:
    """Return the steps of a trajectory; None if there is nothing of the kind.

    Examples
    --------
    >>> steps_in({"steps": {"10": "b", "9": "a"}}), steps_in({"steps": "x"}), steps_in({})
    (['a', 'b'], None, None)
    """
    found = root.get("steps")
    if isinstance(found, dict):
        numbered = all(name.isdecimal() and len(name) < 10 for name in found)
        return [found[name] for name in sorted(found, key=int)] if numbered else None
    return found if isinstance(found, list) else None


class Reader:
    """Reads the steps of one trajectory.

    Attributes
    ----------
    steps : tuple of Step
    goal : str
    model : str or None
    copied_metrics : bool
        Steps of another trajectory stand here with what they cost.
    notes : list of str
    config : dict
        What no step holds: ``preface``, ``unreadable``, ``subagent_files``.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self.goal = ""
        self.model: str | None = None
        self.copied_metrics = False
        self.notes: list[str] = []
        self.config: dict[str, Any] = {"preface": [], "unreadable": [], "subagent_files": []}
        self._turns = Turns()
        self._flags: list[tuple[str, ...]] = []
        self._told_aside: list[Any] = []
        self._callers: dict[str, int] = {}
        for number, step in enumerate(steps_in(root) or []):
            self._step(number, step)
        self.steps = tuple(map(self._made, self._turns.all, self._flags, self._told_aside))
        if unreadable := self.config["unreadable"]:
            self.notes.append(f"{len(unreadable)} steps are no objects, or nobody's")

    def caller_of(self, child: dict[str, Any]) -> int | None:
        """Return the step whose results refer to a sub-agent."""
        names = (child.get("trajectory_id"), child.get("session_id"))
        known = [
            self._callers[one] for one in names if isinstance(one, str) and one in self._callers
        ]
        return known[0] if known else None

    def _made(self, turn: Turn, flags: tuple[str, ...], told: Any) -> Step:
        step = turn.step()
        return step_told(replace(step, flags=(*step.flags, *flags)), told)

    def _step(self, number: int, step: Any) -> None:
        source = step.get("source") if isinstance(step, dict) else None
        if source == "agent":
            self._turn(step)
        elif source in ("user", "system"):
            self._told(source, step)
        else:
            self.config["unreadable"].append({"step": number, "value": step})

    def _turn(self, step: dict[str, Any]) -> None:
        copied = step.get("is_copied_context") is True
        turn = self._turns.reply(None, clock(step.get("timestamp")))
        turn.thoughts += [_text(step.get("reasoning_content")), _text(step.get("message"))]
        metrics = mapping(step.get("metrics"))
        self.copied_metrics |= copied and bool(metrics)
        turn.usage = None if copied else _usage(metrics)
        self.model = shared.word(step.get("model_name")) or self.model
        for call in _calls(step.get("tool_calls")):
            self._turns.ask(turn, call, None)
        no_model = shared.integer(step.get("llm_call_count")) == 0
        flags = (("inherited", copied), ("no-model", no_model))
        self._flags.append(tuple(name for name, holds in flags if holds))
        self._told_aside.append(mapping(step.get("extra")).get("sag"))
        self._results(turn, step)

    def _results(self, turn: Turn | None, step: dict[str, Any]) -> None:
        """Give results to the calls that they name, or to those that they stand for."""
        found = mapping(step.get("observation")).get("results")
        results = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        calls = turn.calls if turn else []
        in_turn = len(results) == len(calls) and not any(_source(one) for one in results)
        for number, result in enumerate(results):
            self._refer(result)
            text = _text(result.get("content"))
            if turn is not None and in_turn:
                turn.answers[number].append(Result(calls[number].id, text))
            elif turn is not None and not _source(result) and len(calls) == 1:
                turn.answers[0].append(Result(calls[0].id, text))
            elif not self._turns.answer(Result(_source(result), text), None, None):
                self._hear("result", text)

    def _refer(self, result: dict[str, Any]) -> None:
        found = result.get("subagent_trajectory_ref")
        for one in found if isinstance(found, list) else [found]:
            reference, step = mapping(one), len(self._turns.all) - 1
            for name in ("trajectory_id", "session_id"):
                if isinstance(reference.get(name), str):
                    self._callers.setdefault(reference[name], step)
            if shared.word(reference.get("trajectory_path")):
                self.config["subagent_files"].append({"step": step, **reference})

    def _told(self, source: str, step: dict[str, Any]) -> None:
        text = _text(step.get("message"))
        if source == "user" and not self._turns.all and not self.goal:
            self.goal = text
        else:
            self._hear(source, text)
        self._results(None, step)

    def _hear(self, source: str, text: str) -> None:
        if text and not self._turns.hear(text):
            self.config["preface"].append({"source": source, "text": text})


def _text(content: Any) -> str:
    """Return the text of a message, which may be parts or, against the rules, an object."""
    if isinstance(content, dict) and not isinstance(content.get("text"), str):
        inner = content.get("content")
        return json.dumps(content, ensure_ascii=False) if inner is None else shared.text_of(inner)
    return shared.text_of(content)


def _source(result: dict[str, Any]) -> str | None:
    return shared.word(result.get("source_call_id"))


def _usage(metrics: dict[str, Any]) -> Usage | None:
    names = ("prompt_tokens", "completion_tokens", "cost_usd")
    return shared.usage_of(*(metrics.get(name) for name in names))


def _calls(found: Any) -> tuple[Call, ...]:
    entries = [one for one in (found if isinstance(found, list) else []) if isinstance(one, dict)]
    named = [
        {
            "id": one.get("tool_call_id"),
            "name": one.get("function_name"),
            "arguments": one.get("arguments"),
        }
        for one in entries
    ]
    return tuple(map(as_typed, shared.calls_from(named)))
