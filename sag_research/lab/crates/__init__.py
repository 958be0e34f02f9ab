"""A store room with crates: a puzzle in which a run can be lost long before it ends.

>>> from sag_research.lab.crates import CratesWorld
>>> world = CratesWorld("easy-1")
>>> print(world.act("look()").text)
######
# .# #
#    #
# $$ #
# .@ #
######
>>> world.lost
False
"""

from __future__ import annotations

from sag_research.lab.crates._board import Board, Push, legal_pushes, parse_board, solution
from sag_research.lab.crates.play import MAX_STEPS, CratesPlay, carry_on, judge
from sag_research.lab.crates.policy import Habits, ScriptedWorker, habit_names, habits
from sag_research.lab.crates.world import (
    CratesWorld,
    Level,
    Observation,
    Snapshot,
    level,
    levels,
    lost_at,
)

__all__ = [
    "MAX_STEPS",
    "Board",
    "CratesPlay",
    "CratesWorld",
    "Habits",
    "Level",
    "Observation",
    "Push",
    "ScriptedWorker",
    "Snapshot",
    "carry_on",
    "habit_names",
    "habits",
    "judge",
    "legal_pushes",
    "level",
    "levels",
    "lost_at",
    "parse_board",
    "solution",
]
