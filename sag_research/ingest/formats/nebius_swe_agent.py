"""Rows of nebius/SWE-agent-trajectories."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._chat import fenced
from sag_research.ingest.formats._rows import Listed, Rows, columns_seen, judged, listed, named
from sag_research.ingest.formats.swe_agent import end_of, typed
from sag_research.model import Call, Step, Trajectory

__all__ = ["NebiusSweAgent"]


class _Message(msgspec.Struct, gc=False):
    role: Any = None
    text: Any = None


class _Row(msgspec.Struct):
    instance_id: Any = None
    model_name: Any = None
    target: Any = None
    trajectory: list[_Message | Other] | Listed = None
    exit_status: Any = None
    generated_patch: Any = None


_DECODER: Final = msgspec.json.Decoder(list[_Message | Other])
_ROWS: Final = Rows(_Row, "trajectory", _Message)
_SET: Final = "nebius/SWE-agent-trajectories"

_PROMPT: Final = re.compile(
    r"\s*\(Open file: (?P<open_file>[^\n]*)\)\n\(Current directory: (?P<working_dir>[^\n]*)\)"
    r"\n[^\n]{0,80}\Z"
)
_PROMPT_BEGINS: Final = "(Open file: "


class NebiusSweAgent:
    """Rows in the shape of nebius/SWE-agent-trajectories: Parquet, JSON lines or a JSON list.

    Columns ``instance_id, model_name, target, trajectory, exit_status, generated_patch,
    eval_logs``; a message is ``{role: system | user | ai, text, system_prompt, …}``.

    Traps that are honoured

    * The model's role is ``ai``. ``text`` is null in the message of the system.
    * An instance has many rows, also of one model, and no row has an id: a run is known by the
      number of its row, from 0.
    * ``target`` is the outcome, true or false; null is unknown. An empty ``generated_patch`` of
      a run that failed is said in detail. ``exit_status`` says why the run stopped, no more.
    * The action is the last fenced block of a reply. A reply without one was not run: it has the
      flag ``rejected``, and the answer to it is no observation but a correction in ``state``.
    * Each observation ends in a prompt that names the open file and the folder. That is the
      ``state`` of the step, as in SWE-agent's own files, and no part of its observation.
    * ``eval_logs`` was written after the run, by the evaluation: it is not read.
    * There are no times, tokens or costs.
    """

    name = "nebius-swe-agent"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim rows with an instance and a trajectory of messages with a role and a text."""
        for columns, _ in columns_seen(head, path):
            if "instance_id" in columns and {"role", "text"} <= columns.get("trajectory", set()):
                return 0.95
        return 0.0

    def read(self, source: Source) -> Reading:
        """Read the rows, one run each."""
        return _ROWS.read(source, _trajectory)


def _trajectory(number: int, row: _Row, notes: list[str]) -> Trajectory:
    task_id = named(row.instance_id)
    messages = listed(row.trajectory, _DECODER, _Message, notes)
    status = shared.word(row.exit_status)
    opening = next((one.text for one in messages if one.role == "user"), "")
    return Trajectory(
        task_id=task_id,
        goal=shared.problem_text(shared.text_of(opening)),
        steps=tuple(_steps(messages)),
        dataset=_SET,
        repo=shared.repo_of(task_id),
        agent="swe-agent",
        model=shared.word(row.model_name),
        record=str(number),
        end=end_of(status),
        exit_status=status,
        submission=row.generated_patch if isinstance(row.generated_patch, str) else None,
        outcome=judged(row.target, row.generated_patch, "nebius target", notes),
    )


def _steps(messages: list[_Message]) -> Iterator[Step]:
    said: str | None = None
    heard: list[str] = []
    for message in messages:
        if message.role == "ai":
            if said is not None:
                yield _step(said, heard)
            said, heard = shared.text_of(message.text), []
        elif said is not None and message.role == "user":
            heard.append(shared.text_of(message.text))
    if said is not None:
        yield _step(said, heard)


def _step(said: str, heard: list[str]) -> Step:
    found = fenced(said)
    if found is None or not found[1].strip():
        state = {"corrections": heard} if heard else None
        return Step(thought=said.strip(), flags=("rejected",), state=state)
    thought, action = found
    observation, state = _without_prompt(heard[0] if len(heard) == 1 else shared.joined(heard))
    call: Call = typed(action, observation)
    return Step(thought=thought, action=action, observation=observation, calls=(call,), state=state)


def _without_prompt(text: str) -> tuple[str, dict[str, Any] | None]:
    r"""Part an observation from the prompt at its end.

    Examples
    --------
    >>> _without_prompt("a.py\n\n(Open file: n/a)\n(Current directory: /repo)\nbash-$")
    ('a.py', {'open_file': 'n/a', 'working_dir': '/repo'})
    """
    begin = text.rfind(_PROMPT_BEGINS)
    if begin < 0:
        return text, None
    while begin and text[begin - 1].isspace():
        begin -= 1
    found = _PROMPT.match(text, begin)
    return (text[:begin], found.groupdict()) if found else (text, None)
