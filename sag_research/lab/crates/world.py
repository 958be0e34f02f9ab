"""A store room in which crates are pushed to their places, and no push can be taken back."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypedDict

import msgspec

from sag_research.errors import MissingDataError, UsageError
from sag_research.lab.crates._board import Board, Push, parse_board, solution

__all__ = ["CratesWorld", "Level", "Observation", "Snapshot", "level", "levels", "lost_at"]

_ORDER = ("row", "column", "direction")
_PUSH = re.compile(r"push\(row=(\d{1,3}), column=(\d{1,3}), direction=(\w{1,10})\)")


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A board to begin with, and how hard it is."""

    name: str
    difficulty: str
    board: str
    pushes: int
    """The fewest that solve it."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent is told after an action."""

    text: str
    ok: bool = True
    done: bool = False


class Snapshot(TypedDict):
    """State of a world as plain JSON."""

    level: str
    board: str
    done: bool


@cache
def levels() -> tuple[Level, ...]:
    """The shipped levels, easy ones first."""
    data = tomllib.loads((Path(__file__).parent / "levels.toml").read_text(encoding="utf-8"))
    boards = [{**one, "board": one["board"].strip("\n")} for one in data["level"]]
    return msgspec.convert(tuple(boards), tuple[Level, ...])


def level(name: str) -> Level:
    """Return one level by name.

    Raises
    ------
    MissingDataError
        If there is none of this name.
    """
    for one in levels():
        if one.name == name:
            return one
    raise MissingDataError(f"no level {name!r}", fix=f"they are called like {levels()[0].name}")


class CratesWorld:
    """One level.

    Parameters
    ----------
    start : Level or str

    Examples
    --------
    >>> world = CratesWorld("easy-0")
    >>> world.lost, world.solved
    (False, False)
    >>> print(world.act("push(row=9, column=9, direction=up)").text.split(chr(10))[0])
    That cannot be done: there is no crate at row 9, column 9
    """

    def __init__(self, start: Level | str) -> None:
        self.level = level(start) if isinstance(start, str) else start
        self.board: Board = parse_board(self.level.board)
        self.done = False

    def __repr__(self) -> str:
        return f"CratesWorld({self.level.name!r})"

    def act(self, action: str) -> Observation:
        """Carry out an action given as text.

        Parameters
        ----------
        action : str
            ``push(row=2, column=3, direction=up)``, ``look()`` or ``finish()``.
        """
        if self.done:
            return Observation(text="It is over.", ok=False, done=True)
        if action == "look()":
            return Observation(text=self.board.text())
        if action == "finish()":
            self.done = True
            return Observation(text="You leave the store room.", done=True)
        found = _PUSH.fullmatch(action)
        if found is None:
            return self._refused(f"there is no action {action[:60]!r}")
        try:
            push = Push(int(found[1]), int(found[2]), found[3])
            self.board = self.board.after(push)
        except UsageError as error:
            return self._refused(error.what)
        return Observation(text=f"You push the crate {push.direction}.\n{self.board.text()}")

    def _refused(self, why: str) -> Observation:
        return Observation(text=f"That cannot be done: {why}\n{self.board.text()}", ok=False)

    # ---- what the laboratory knows

    @property
    def solved(self) -> bool:
        """Whether every crate has its place."""
        return self.board.solved

    @property
    def lost(self) -> bool:
        """Whether no row of pushes can solve the board any more."""
        return solution(self.board) is None

    def snapshot(self) -> Snapshot:
        """Return the whole state as plain JSON data."""
        return {"level": self.level.name, "board": self.board.text(), "done": self.done}

    def restore(self, snapshot: Snapshot) -> None:
        """Make the state exactly what it was when the snapshot was taken."""
        self.level = level(snapshot["level"])
        self.board, self.done = parse_board(snapshot["board"]), snapshot["done"]

    def close(self) -> None:
        """Nothing is held."""


def lost_at(observations: Iterable[str]) -> int | None:
    r"""Return the 0-based step with which a run was lost; ``None`` if it never was.

    A run is lost from the first board on that no row of pushes can solve: the truth that
    estimates of it can be measured against.

    Parameters
    ----------
    observations : iterable of str
        Of a run's steps, in order.

    Examples
    --------
    >>> lost_at(["#####\n#@$.#\n#####", "#####\n#.@$#\n#####"])
    1
    """
    for step, text in enumerate(observations):
        drawn = [line for line in text.split("\n") if line.startswith("#")]
        if drawn and solution(parse_board("\n".join(drawn))) is None:
            return step
    return None


def action_text(name: str, arguments: object) -> str:
    """Write a call as the world reads it.

    Examples
    --------
    >>> action_text("push", {"column": 3, "direction": "up", "row": 2})
    'push(row=2, column=3, direction=up)'
    """
    if not isinstance(arguments, dict):
        return f"{name}({json.dumps(arguments)})"
    order = [*(key for key in _ORDER if key in arguments), *sorted(set(arguments) - set(_ORDER))]
    return f"{name}({', '.join(f'{key}={arguments[key]}' for key in order)})"
