"""The part of a graph that a picture shows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from sag_research.viz._collapse import Marks

__all__ = ["Drawn"]


class Drawn:
    """What was chosen of a graph.

    Attributes
    ----------
    graph : networkx.MultiDiGraph
    runs, entities : list of str
        Keys of the graph.
    marks : dict of str to list of str
        By key of the mark, the events it stands for; lanes in order, each from left to right.
    looks : mapping of str to (mark, tone)
        Of steps.
    flags : mapping of str to tuple of str
    risk : mapping of str to mapping of int to float
        By run id and step.
    notes : list of str
    """

    def __init__(
        self, graph: Any, runs: list[str], marks: Marks, entities: list[str],
        looks: Mapping[str, tuple[str, str]], flags: Mapping[str, tuple[str, ...]],
        risk: Mapping[str, Mapping[int, float]], notes: list[str],
    ) -> None:  # fmt: skip
        self.graph, self.runs, self.marks, self.entities = graph, runs, marks, entities
        self.looks, self.flags, self.risk, self.notes = looks, flags, risk, notes

    @cached_property
    def home(self) -> dict[str, str]:
        """The mark that each drawn event is part of."""
        return {event: mark for mark, group in self.marks.items() for event in group}

    @cached_property
    def lanes(self) -> dict[str, list[str]]:
        """By run id, the marks on its lane."""
        lanes: dict[str, list[str]] = {self.graph.nodes[key]["run_id"]: [] for key in self.runs}
        for mark, group in self.marks.items():
            lanes[self.graph.nodes[group[0]]["run_id"]].append(mark)
        return lanes

    def first(self, mark: str) -> Mapping[str, Any]:
        """Give the attributes of a mark's first event."""
        data: Mapping[str, Any] = self.graph.nodes[self.marks[mark][0]]
        return data
