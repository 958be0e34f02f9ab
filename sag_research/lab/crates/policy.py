"""Scripted workers: they see the board in what they were told, and know how to plan."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from sag_research.errors import MissingDataError
from sag_research.lab.crates._board import Board, Push, legal_pushes, parse_board, solution
from sag_research.llm import Chunk, Identity, Reply, Request, ToolCall
from sag_research.log import canonical_digest

__all__ = ["Habits", "ScriptedWorker", "habit_names", "habits"]


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """Chances, per turn, of each habit; see ``profiles.toml``."""

    name: str
    clumsy: float = 0.0
    careless: float = 0.0
    hasty: float = 0.0
    blind: float = 0.0
    dither: float = 0.0
    notice: float = 1.0


@cache
def _profiles() -> dict[str, Habits]:
    path = Path(__file__).parent / "profiles.toml"
    data: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
    perfect = {"perfect": Habits(name="perfect")}
    return perfect | {
        name: msgspec.convert({"name": name, **one}, Habits) for name, one in data.items()
    }


def habit_names() -> tuple[str, ...]:
    """Names of the shipped workers; the first has no bad habits.

    Examples
    --------
    >>> habit_names()
    ('perfect', 'steady', 'clumsy', 'dreamy')
    """
    return tuple(_profiles())


def habits(name: str) -> Habits:
    """Return a shipped worker's habits.

    Raises
    ------
    MissingDataError
        If there is none of this name.
    """
    if name not in _profiles():
        raise MissingDataError(f"no worker {name!r}", fix=f"choose of {', '.join(_profiles())}")
    return _profiles()[name]


class ScriptedWorker:
    """A model that plans with a solver, and has habits.

    Parameters
    ----------
    profile : Habits or str
    seed : int
        The same seed gives the same answer to the same question.
    """

    def __init__(self, profile: Habits | str, seed: int = 0) -> None:
        self.habits = habits(profile) if isinstance(profile, str) else profile
        self.seed = seed

    def identity(self) -> Identity:
        """Return who answers; the seed is part of it."""
        name = f"worker-{self.habits.name}"
        return Identity(provider="scripted", model=name, base_url=f"seed:{self.seed}")

    def complete(self, request: Request) -> Reply:
        """Decide what comes next."""
        messages = [msgspec.to_builtins(message) for message in request.messages]
        chance = Random(f"{self.seed} {canonical_digest({'messages': messages})}")
        board = _seen(request)
        number = f"c{len(request.messages)}"
        if board is None:
            return _calling(number, "I look at the room.", "look")
        if board.solved:
            return _calling(number, "Every crate is in its place.", "finish")
        return self._turn(number, board, chance, _warned(request))

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Give the same answer in one part."""
        reply = self.complete(request)
        yield Chunk(text=reply.text or "", calls=reply.calls, finish=reply.finish)

    def _turn(self, number: str, board: Board, chance: Random, warned: frozenset[Push]) -> Reply:
        mine = self.habits
        path = solution(board)
        if path is None and chance.random() < mine.notice:
            return _calling(number, "A crate is stuck; I leave.", "finish")
        if chance.random() < mine.hasty:
            return _calling(number, "This will do.", "finish")
        if chance.random() < mine.dither:
            return _calling(number, "I look once more.", "look")
        if chance.random() < mine.blind:
            crate = chance.choice(sorted(board.crates))
            wrong = Push(crate[0], crate[1] + 1, chance.choice(("up", "down", "left", "right")))
            return _pushing(number, "This crate goes there.", wrong)
        pushes = list(legal_pushes(board))
        if not pushes:
            return _calling(number, "Nothing can be moved any more.", "finish")
        pushes = [push for push in pushes if push not in warned] or pushes
        if path is None or chance.random() < mine.clumsy:
            return _pushing(number, "I try this one.", chance.choice(pushes))
        if chance.random() < mine.careless:
            return _pushing(number, "Nearer to its place.", _nearest(board, pushes, chance))
        return _pushing(number, "Towards its place.", path[0])


def _warned(request: Request) -> frozenset[Push]:
    """Read which pushes the worker was told to avoid; it minds them where it does not plan."""
    lines = "\n".join(m.content for m in request.messages[1:] if m.role == "user").split("\n")
    told = "\n".join(line for line in lines if line.startswith("- "))  # with + it is praised
    found = re.findall(r"push\(row=(\d{1,3}), column=(\d{1,3}), direction=(\w{1,10})\)", told)
    return frozenset(Push(int(row), int(column), way) for row, column, way in found)


def _seen(request: Request) -> Board | None:
    """Read the last board that was shown."""
    for message in reversed(request.messages):
        if message.role != "tool":
            continue
        drawn = [line for line in message.content.split("\n") if line.startswith("#")]
        if drawn:
            return parse_board("\n".join(drawn))
    return None


def _nearest(board: Board, pushes: list[Push], chance: Random) -> Push:
    """Return the push that brings a crate nearest to a place, whatever comes after."""

    def distance(push: Push) -> int:
        after = board.after(push)
        return sum(
            min(abs(row - goal[0]) + abs(column - goal[1]) for goal in board.goals)
            for row, column in after.crates
        )

    best = min(distance(push) for push in pushes)
    return chance.choice([push for push in pushes if distance(push) == best])


def _pushing(number: str, thought: str, push: Push) -> Reply:
    return _calling(number, thought, "push", **msgspec.to_builtins(push))


def _calling(number: str, thought: str, tool: str, **arguments: Any) -> Reply:
    call = ToolCall(id=number, name=tool, arguments=arguments)
    return Reply(text=thought, calls=(call,), finish="tool_calls")
