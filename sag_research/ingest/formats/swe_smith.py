"""Rows of SWE-bench/SWE-smith-trajectories, in three spellings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _chat as chat
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._parquet import is_parquet
from sag_research.ingest.formats._rows import Listed, Rows, columns_seen, judged, listed, named
from sag_research.ingest.formats.swe_agent import typed
from sag_research.model import Call, Step, Trajectory

__all__ = ["SweSmith"]


class _Row(msgspec.Struct):
    instance_id: Any = None
    traj_id: Any = None
    model: Any = None
    resolved: Any = None
    messages: list[chat.Message | Other] | Listed = None
    patch: Any = None


_ROWS: Final = Rows(_Row, "messages", chat.Message)
_SET: Final = "SWE-bench/SWE-smith-trajectories"
_MARKS: Final = (b"<function=", b"tool_call_ids")
_SHOWN: Final = "OBSERVATION:\n"

_EXIT: Final = re.compile(r"Exit due to (?P<why>[a-z]+)[a-z ]*")
_MADE_UP: Final = "Since we have successfully fixed the issue and verified it works,"
"""How the reply begins that stands, in one spelling, for a run that had spent its money."""

_EDITOR: Final = "str_replace_editor"
_SLOTS: Final = (
    ("command", ""),
    ("path", ""),
    ("file_text", "--file_text "),
    ("view_range", "--view_range "),
    ("old_str", "--old_str "),
    ("new_str", "--new_str "),
    ("insert_line", "--insert_line "),
)
"""The editor's arguments in the order in which SWE-agent types them."""
_NUMBERS: Final = re.compile(r"\[?\s*(-?\d{1,9})(?:\s*,\s*(-?\d{1,9}))?\s*\]?")


class SweSmith:
    """Rows in the shape of SWE-bench/SWE-smith-trajectories: Parquet or JSON.

    Columns ``messages, instance_id, resolved, model, traj_id, patch``; ``messages`` is a list of
    chat messages, or such a list as text that holds JSON.

    Traps that are honoured

    * The splits ``tool``, ``xml`` and ``ticks`` are the same runs in three spellings: calls as
      objects, calls written as ``<function=…>``, and commands in fenced blocks; ``tool`` holds
      rows of the first two kinds. Each spelling gives the same actions and observations, so that
      copies can be found; ``config`` says the ``spelling``. Never pool them.
    * A result names its call in ``tool_call_ids``, a list. In the other spellings it is a
      message of the user. ``OBSERVATION:`` at its beginning is not part of what came back.
    * A run that had spent its money ends in a message of the harness, for which one spelling has
      a made-up reply that submits. Both are a step with the flags ``rejected`` and ``harness``:
      nothing was run, and the exit status says it.
    * ``resolved`` is the outcome; null is unknown, as it is in rows without that column.
    * ``patch`` mostly does not come from this run, so it is no submission: it is kept in
      ``config``, with ``traj_id``.
    * A run is known by the number of its row, from 0: an instance has many.
    * Rows without ``traj_id`` are taken if nothing but these columns is there, but they do not
      say that they are of this set.
    """

    name = "swe-smith"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim rows with messages, an instance and the id of a trajectory, or without the last.

        Without it the columns must be known ones, and the text must show calls of this set.
        """
        for columns, complete in columns_seen(head, path):
            if not {"messages", "instance_id"} <= set(columns):
                continue
            if "traj_id" in columns:
                return 0.95
            known = complete and set(columns) <= set(_Row.__struct_fields__)
            if known and (is_parquet(head) or any(mark in head for mark in _MARKS)):
                return 0.7
        return 0.0

    def read(self, source: Source) -> Reading:
        """Read the rows, one run each."""
        return _ROWS.read(source, _trajectory)


def _trajectory(number: int, row: _Row, notes: list[str]) -> Trajectory:
    task_id = named(row.instance_id)
    messages = listed(row.messages, chat.MESSAGES, chat.Message, notes)
    steps, status = _without_harness(chat.steps(messages, _DIALECT))
    submitted = bool(steps) and chat.is_finish(steps[-1].calls, ("submit",))
    config = {"spelling": _spelling(messages), "traj_id": row.traj_id, "patch": row.patch}
    return Trajectory(
        task_id=task_id,
        goal=chat.goal_of(messages),
        steps=steps,
        dataset=_SET if row.traj_id else None,
        repo=shared.repo_of(task_id),
        agent="swe-agent",
        model=shared.word(row.model),
        record=str(number),
        end="run.completed" if submitted else "run.failed" if status else None,
        exit_status="submit" if submitted else status,
        outcome=judged(row.resolved, None, "swe-smith resolved", notes),
        config={name: value for name, value in config.items() if value is not None},
    )


def _spelling(messages: Sequence[chat.Message]) -> str:
    replies = [one for one in messages if one.role == "assistant"]
    if any(one.tool_calls for one in replies):
        return "tool"
    texts = [shared.text_of(one.content) for one in replies]
    return "xml" if any("<function=" in text for text in texts) else "ticks"


def _without_harness(steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], str | None]:
    """Mark the last step if the harness said it, and return the reason that it gives."""
    if not steps:
        return steps, None
    last = steps[-1]
    found = _EXIT.fullmatch(last.thought)
    submits = all(call.name == "submit" for call in last.calls)
    if submits and (found or last.thought.startswith(_MADE_UP)):
        step = Step(thought=last.thought, flags=("rejected", "harness"), state=last.state)
        return (*steps[:-1], step), f"exit_{found['why']}" if found else "exit_cost"
    return steps, None


def _turn(message: chat.Message) -> chat.Turn:
    """Read a reply in the spelling that it has."""
    content = shared.text_of(message.content)
    calls = shared.calls_from(message.tool_calls)
    if calls:
        thought = shared.text_of(message.thought).strip() or content.strip()
        action = shared.text_of(message.action)
        if len(calls) == 1 and action.strip():
            return chat.Turn(thought, (replace(calls[0], text=action.strip("\n")),))
        return chat.Turn(thought, tuple(map(_as_typed, calls)))
    if "<function=" in content:
        thought, calls = chat.written(content)
        return chat.Turn(thought, tuple(map(_as_typed, calls)), in_text=bool(calls))
    found = chat.fenced(content)
    if found is None or not found[1].strip():
        return chat.Turn(content.strip(), ())
    return chat.Turn(found[0], (typed(found[1].strip("\n"), ""),), in_text=True)


def _result(text: str) -> shared.Result:
    return shared.Result(None, text.removeprefix(_SHOWN))


_DIALECT: Final = chat.Dialect(_turn, _result)


def _as_typed(call: Call) -> Call:
    """Show a call as SWE-agent types it.

    Examples
    --------
    >>> arguments = {"command": "view", "path": "/a b", "view_range": "[1, 9]"}
    >>> _as_typed(Call(name="str_replace_editor", arguments=arguments)).text
    "str_replace_editor view '/a b'  --view_range 1 9"
    """
    arguments = call.arguments if isinstance(call.arguments, dict) else None
    if arguments == {}:
        return replace(call, text=call.name)
    if call.name != _EDITOR or not arguments or not arguments.keys() <= dict(_SLOTS).keys():
        return call
    words = [_slot(name, option, arguments.get(name)) for name, option in _SLOTS]
    return replace(call, text=" ".join((_EDITOR, *words)).rstrip(" "))


def _slot(name: str, option: str, value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    found = _NUMBERS.fullmatch(text.strip()) if name in ("view_range", "insert_line") else None
    if found:
        return option + " ".join(filter(None, found.groups()))
    return option + shlex.quote(text)
