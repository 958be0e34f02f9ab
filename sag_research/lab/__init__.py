"""Worlds in which agents really run, and the data sets generated in them."""

from __future__ import annotations

from sag_research.lab._assignment import (
    Assignment,
    Play,
    Played,
    assignments,
    keep_assignment,
    kept_assignment,
)
from sag_research.lab._batch import BatchReport, BatchRow, play_batch, record_outcome
from sag_research.lab._bundled import bundled
from sag_research.lab._worlds import open_world, world_names

__all__ = [
    "Assignment",
    "BatchReport",
    "BatchRow",
    "Play",
    "Played",
    "assignments",
    "bundled",
    "keep_assignment",
    "kept_assignment",
    "open_world",
    "play_batch",
    "record_outcome",
    "world_names",
]
