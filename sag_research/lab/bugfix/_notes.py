"""What a conversation says of the work so far; a model that goes on remembers nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, Literal

import msgspec

from sag_research.errors import MissingDataError
from sag_research.lab.bugfix._edits import reverse, sed_command, slipped
from sag_research.lab.bugfix._memory import Memory
from sag_research.lab.bugfix._tasks import Edit, Task, load_task, task_ids
from sag_research.lab.bugfix.policy import Turn
from sag_research.lab.bugfix.world import Observation
from sag_research.llm import Message, Request, ToolCall

__all__ = ["FAILED", "Kind", "Move", "Notes"]

FAILED: Final = "\n[it did not succeed]"
"""Stands at the end of a tool's message, where its status says so."""

Kind = Literal[
    "list", "view", "grep", "test", "probe", "edit", "slip", "undo", "bend", "diff", "status",
    "script", "run", "clean", "submit", "other",
]  # fmt: skip

_COMMANDS: Final[tuple[tuple[str, Kind], ...]] = (
    (r"(cd /repo && )?(python -m )?pytest\b", "test"),
    (r"(ls|find)\b", "list"),
    (r"(cat|sed -n)\b", "view"),
    (r"grep\b", "grep"),
    (r"sed -i\b", "edit"),
    (r"git (checkout|restore)\b", "undo"),
    (r"git diff\b", "diff"),
    (r"git status\b", "status"),
    (r"python -c\b", "probe"),
    (r"python reproduce\.py\b", "run"),
    (r"rm reproduce\.py\b", "clean"),
)


class Move(msgspec.Struct, frozen=True):
    """One action that was taken: what it was, on which file, and whether it went well."""

    name: str
    arguments: dict[str, Any]
    kind: Kind
    file: str
    ok: bool


class Notes:
    """The work so far.

    Attributes
    ----------
    task : Task
        Recognised by its issue text.
    memory : Memory
    moves : list of Move
    held : list of Edit
        Edits in the tree, as far as the conversation tells.
    tried : list of Edit
        All that were made, those taken back included.
    bent : bool
        Whether a test was changed.
    checked : bool or None
        What the last test run since the last change said; ``None``: there was none.
    looks : int
        Files read since the last change.
    told, shown : list of str
        What is said to have been in vain (lines that begin with ``-``), and what others are said
        to have done who succeeded (``+``).
    unchanged_since_told, tested_since_told : bool
    lapses : int
        Replies without an action, at the end.
    """

    checked: bool | None

    def __init__(self, request: Request) -> None:
        self.task = _recognised(request.messages)
        self.memory = Memory(self.task.problem)
        self.moves: list[Move] = []
        self.held: list[Edit] = []
        self.tried: list[Edit] = []
        self.bent, self.checked, self.diffed = False, None, False
        self.looks = self.lapses = 0
        self.told: list[str] = []
        self.shown: list[str] = []
        self.unchanged_since_told = self.tested_since_told = False
        asked: dict[str, ToolCall] = {}
        for message in request.messages[1:]:
            if message.role == "assistant":
                asked = {call.id: call for call in message.calls}
                self.lapses = 0 if message.calls else self.lapses + 1
            elif message.role == "tool" and message.call_id in asked:
                self._take(asked[message.call_id], message.content)
            elif message.role == "user":
                self._hear(message.content)

    @property
    def last(self) -> Move | None:
        """The last action."""
        return self.moves[-1] if self.moves else None

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Repair and decoys: all that comes to the model's mind."""
        return (*self.task.fix, *self.task.decoy)

    def _take(self, call: ToolCall, content: str) -> None:
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        ok, text = not content.endswith(FAILED), content.removesuffix(FAILED)
        kind, file = self._kind(call.name, arguments)
        move = Move(call.name, arguments, kind, file, ok)
        if call.name == "bash" or (call.name == "str_replace_editor" and file):
            self.memory.read(call.name, arguments, Observation(text, 0 if ok else 1))
        self.memory.last = Turn("", call.name, arguments)
        self.moves.append(move)
        if kind == "test":
            self.checked, self.tested_since_told = self.memory.passing, True
        elif kind == "view":
            self.looks += 1
        elif kind == "diff":
            self.diffed = True
        elif kind == "script" and ok:
            self.memory.own.add(file)
        elif kind == "clean" and ok:
            self.memory.own.discard("reproduce.py")
        elif kind in ("edit", "undo", "bend") and ok:
            self._changed(move)

    def _changed(self, move: Move) -> None:
        self.checked, self.diffed, self.looks = None, False, 0
        self.unchanged_since_told = False
        if move.kind == "bend":
            self.bent = True
        elif move.kind == "edit":
            edit = self.edit_of(move.name, move.arguments) or _foreign(move)
            self.held.append(edit)
            self.tried.append(edit)
        else:
            back = self._taken_back(move.arguments)
            self.held = [
                one for one in self.held
                if (one != back if back else move.file not in (one.file, "."))
            ]  # fmt: skip

    def _hear(self, content: str) -> None:
        lines = content.split("\n")
        self.shown += [line[2:] for line in lines if line.startswith("+ ")]
        if vain := [line[2:] for line in lines if line.startswith("- ")]:
            self.told += vain
            self.unchanged_since_told, self.tested_since_told = True, False

    def _kind(self, name: str, arguments: Mapping[str, Any]) -> tuple[Kind, str]:
        command = str(arguments.get("command", ""))
        if name == "submit":
            return "submit", ""
        if name == "bash":
            found = (kind for pattern, kind in _COMMANDS if re.match(pattern, command))
            return next(found, "other"), command.rsplit(" ", 1)[-1].removeprefix("/repo/")
        file = str(arguments.get("path", "")).removeprefix("/repo/")
        if command == "view":
            return "view", file
        if command == "create":
            return "script", file
        if command not in ("str_replace", "insert"):
            return "other", file
        if file.startswith("tests/"):
            return "bend", file
        if self._taken_back(arguments):
            return "undo", file
        wrong = any(slipped(edit) == arguments for edit in self.edits)
        return "slip" if wrong else "edit", file

    def edit_of(self, name: str, arguments: Mapping[str, Any]) -> Edit | None:
        """Return which of the edits in mind an action makes."""
        if name == "bash":
            spelled = ((edit, sed_command(edit)) for edit in self.edits)
            return next((edit for edit, text in spelled if text == arguments["command"]), None)
        meant = _edit_in(arguments)
        return meant if meant in self.edits else None

    def slip_of(self, arguments: Mapping[str, Any]) -> Edit | None:
        """Return the edit that was mistyped."""
        return next((edit for edit in self.edits if slipped(edit) == arguments), None)

    def _taken_back(self, arguments: Mapping[str, Any]) -> Edit | None:
        """Return the edit in the tree that an editor's call takes back."""
        meant = reverse(_edit_in(arguments))
        return meant if meant in self.held else None


def _edit_in(arguments: Mapping[str, Any]) -> Edit:
    file = str(arguments.get("path", "")).removeprefix("/repo/")
    return Edit(file, str(arguments.get("old_str", "")), str(arguments.get("new_str", "")))


def _foreign(move: Move) -> Edit:
    """Make something of an edit that somebody else thought of."""
    if move.name == "bash":
        return Edit(move.file, str(move.arguments["command"]), "")
    return _edit_in(move.arguments)


@cache
def _by_problem() -> dict[str, Task]:
    return {task.problem: task for task in map(load_task, task_ids())}


def _recognised(messages: Iterable[Message]) -> Task:
    first = next(iter(messages), None)
    problem = first.content.strip() if first is not None else ""
    if problem not in _by_problem():
        raise MissingDataError(
            "the scripted model does not recognise the task",
            why="the conversation does not begin with the issue text of a task",
            fix="let carry_on() make the conversation",
        )
    return _by_problem()[problem]
