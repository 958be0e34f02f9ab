"""Makes the levels: rooms with chance walls, and crates pulled away from their places.

Run as ``python -m sag_research.lab.crates._levels > levels.toml``; the same Python makes the
same levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from sag_research.lab.crates._board import DIRECTIONS, Board, Cell, solution

__all__ = ["made_levels"]

_SHAPES: Final = {  # height, width, crates, walls, fewest and most pushes
    "easy": (6, 6, 2, 1, 4, 7),
    "medium": (7, 7, 2, 4, 8, 13),
    "hard": (7, 8, 3, 5, 13, 22),
}
_EACH: Final = 8


def made_levels(seed: int = 7) -> Iterator[tuple[str, str, Board, int]]:
    """Yield name, difficulty, board and fewest pushes of each level."""
    for difficulty, (height, width, crates, walls, least, most) in _SHAPES.items():
        random, found = Random(f"{seed} {difficulty}"), 0
        while found < _EACH:
            board = _candidate(random, height, width, crates, walls)
            path = None if board is None else solution(board)
            if board is not None and path is not None and least <= len(path) <= most:
                yield f"{difficulty}-{found}", difficulty, board, len(path)
                found += 1


def _candidate(random: Random, height: int, width: int, crates: int, walls: int) -> Board | None:
    inner = [(row, column) for row in range(1, height - 1) for column in range(1, width - 1)]
    floor = frozenset(inner) - set(random.sample(inner, walls))
    goals = frozenset(random.sample(sorted(floor), crates))
    worker = random.choice(sorted(floor - goals))
    board = Board(floor, goals, goals, worker)
    if board.reach() | goals != floor:
        return None  # a part of the room would be of no use
    for _ in range(60):
        board = _pulled(board, random)
    away = sorted(board.reach())
    return Board(floor, goals, board.crates, random.choice(away))


def _pulled(board: Board, random: Random) -> Board:
    """Pull a crate: the reverse of a push."""
    reach = board.reach()
    pulls: list[tuple[Cell, Cell, Cell]] = []
    for row, column in sorted(board.crates):
        for down, right in DIRECTIONS.values():
            near, far = (row + down, column + right), (row + 2 * down, column + 2 * right)
            if near in reach and far in reach:
                pulls.append(((row, column), near, far))
    if not pulls:
        return board
    crate, near, far = random.choice(pulls)
    return Board(board.floor, board.goals, (board.crates - {crate}) | {near}, far)


def main() -> None:
    """Print the levels as TOML."""
    print(
        "# Made by `python -m sag_research.lab.crates._levels`; # wall, $ crate, . place, @ worker"
    )
    for name, difficulty, board, pushes in made_levels():
        print(f'\n[[level]]\nname = "{name}"\ndifficulty = "{difficulty}"\npushes = {pushes}')
        print(f'board = """\n{board.text()}\n"""')


if __name__ == "__main__":
    main()
