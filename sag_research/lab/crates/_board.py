"""The board: walls, crates, places for them, and one worker; and what can still be solved.

A push cannot be taken back, so a run can be lost while everything still looks well: here the
step at which it was lost can be computed. The search goes over positions of crates and the part
of the floor that the worker can reach, as solvers of this puzzle do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from sag_research.errors import UsageError

__all__ = ["DIRECTIONS", "Board", "Cell", "Push", "legal_pushes", "parse_board", "solution"]

Cell = tuple[int, int]

DIRECTIONS: Final[dict[str, Cell]] = {
    "up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1),
}  # fmt: skip
_MARKS: Final = frozenset("# .$@*+")
_MOST_STATES: Final = 200_000


class Push(msgspec.Struct, frozen=True):
    """A crate, and where it is pushed."""

    row: int
    column: int
    direction: str


class Board(msgspec.Struct, frozen=True):
    """A position; rows and columns count from 0 at the top left."""

    floor: frozenset[Cell]
    goals: frozenset[Cell]
    crates: frozenset[Cell]
    worker: Cell

    @property
    def solved(self) -> bool:
        """Whether every crate has its place."""
        return self.crates == self.goals

    def reach(self) -> frozenset[Cell]:
        """Return the cells that the worker can walk to."""
        return _reach(self.floor - self.crates, self.worker)

    def after(self, push: Push) -> Board:
        """Return the board after a push.

        Raises
        ------
        UsageError
            If it cannot be made; the message says why.
        """
        crate = (push.row, push.column)
        if push.direction not in DIRECTIONS:
            raise UsageError(f"no direction {push.direction!r}", fix="up, down, left or right")
        if crate not in self.crates:
            raise UsageError(f"there is no crate at row {push.row}, column {push.column}")
        down, right = DIRECTIONS[push.direction]
        target = (push.row + down, push.column + right)
        if target not in self.floor or target in self.crates:
            raise UsageError("something is in the way of the crate")
        if (push.row - down, push.column - right) not in self.reach():
            raise UsageError("the worker cannot get behind the crate")
        crates = (self.crates - {crate}) | {target}
        return Board(self.floor, self.goals, crates, crate)

    def text(self) -> str:
        r"""Draw the board as it is usually written.

        Examples
        --------
        >>> print(parse_board("#####\n#@$.#\n#####").text())
        #####
        #@$.#
        #####
        """
        height = max(row for row, _ in self.floor) + 2
        width = max(column for _, column in self.floor) + 2
        return "\n".join(
            "".join(self._mark((row, column)) for column in range(width)) for row in range(height)
        )

    def _mark(self, cell: Cell) -> str:
        if cell not in self.floor:
            return "#"
        on_goal = cell in self.goals
        if cell in self.crates:
            return "*" if on_goal else "$"
        if cell == self.worker:
            return "+" if on_goal else "@"
        return "." if on_goal else " "


def parse_board(text: str) -> Board:
    """Read a drawn board.

    Raises
    ------
    UsageError
        If it is none: another mark, not one worker, or not a place for each crate.
    """
    marks = {
        (row, column): mark
        for row, line in enumerate(text.split("\n"))
        for column, mark in enumerate(line)
    }
    if strange := set(marks.values()) - _MARKS:
        raise UsageError(f"a board has no {sorted(strange)[0]!r}")

    def cells(which: str) -> frozenset[Cell]:
        return frozenset(cell for cell, mark in marks.items() if mark in which)

    workers, crates, goals = cells("@+"), cells("$*"), cells(".*+")
    if len(workers) != 1 or not crates or len(crates) != len(goals):
        raise UsageError("a board has one worker, and a place for each of its crates")
    return Board(cells(" .$@*+"), goals, crates, next(iter(workers)))


def _reach(free: frozenset[Cell], start: Cell) -> frozenset[Cell]:
    seen, queue = {start}, deque([start])
    while queue:
        row, column = queue.popleft()
        for down, right in DIRECTIONS.values():
            cell = (row + down, column + right)
            if cell in free and cell not in seen:
                seen.add(cell)
                queue.append(cell)
    return frozenset(seen)


def legal_pushes(board: Board) -> Iterator[Push]:
    """Yield every push that can be made, in a fixed order."""
    reach, free = board.reach(), board.floor - board.crates
    for row, column in sorted(board.crates):
        for name, (down, right) in DIRECTIONS.items():
            if (row - down, column - right) in reach and (row + down, column + right) in free:
                yield Push(row, column, name)


@lru_cache(maxsize=20_000)
def solution(board: Board) -> tuple[Push, ...] | None:
    r"""Return a shortest row of pushes that solves the board; ``None`` if it is lost.

    Raises
    ------
    UsageError
        If the board is too large to be searched.

    Examples
    --------
    >>> solution(parse_board("######\n#@$ .#\n######"))
    (Push(row=1, column=2, direction='right'), Push(row=1, column=3, direction='right'))
    >>> solution(parse_board("#####\n#  .#\n# @ #\n#$  #\n#####")) is None
    True
    """
    alive = _living_cells(board)
    seen = {_key(board)}
    queue: deque[tuple[Board, tuple[Push, ...]]] = deque([(board, ())])
    while queue:
        here, path = queue.popleft()
        if here.solved:
            return path
        for push in legal_pushes(here):
            then = here.after(push)
            key = _key(then)
            if key in seen or not then.crates <= alive:
                continue
            seen.add(key)
            queue.append((then, (*path, push)))
        if len(seen) > _MOST_STATES:
            raise UsageError("the board is too large to be searched")
    return None


def _key(board: Board) -> tuple[frozenset[Cell], Cell]:
    return board.crates, min(board.reach())


@lru_cache(maxsize=1000)
def _alive(floor: frozenset[Cell], goals: frozenset[Cell]) -> frozenset[Cell]:
    """Cells from which a crate alone can be pushed to some place: found by pulling it back."""
    found, queue = set(goals), deque(goals)
    while queue:
        row, column = queue.popleft()
        for down, right in DIRECTIONS.values():
            before = (row - down, column - right)
            behind = (row - 2 * down, column - 2 * right)
            if before in floor and behind in floor and before not in found:
                found.add(before)
                queue.append(before)
    return frozenset(found)


def _living_cells(board: Board) -> frozenset[Cell]:
    return _alive(board.floor, board.goals)
