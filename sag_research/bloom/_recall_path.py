"""The paths of recalled runs: matching steps, the steps around them, what they touch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sag_research._text import repair
from sag_research.bloom._build import bloom_graph
from sag_research.bloom._entities_decisions import Decisions
from sag_research.bloom._query import Query
from sag_research.bloom._recall_index import short_name, texts_of
from sag_research.bloom._recall_terms import word_list
from sag_research.bloom._rows import EventRow, RunRow, read_rows

if TYPE_CHECKING:
    from sag_research.bloom._recall import Found

__all__ = ["PathEvent", "as_dict", "events_of", "path_graph"]

MATCHES = 3
"""So many steps of a run are its matches: those that show most of what both know."""
TELLING = 12
"""So many of the names that both know, the most telling, decide on the matches."""
CLIP = 2_000


class PathEvent(NamedTuple):
    """A step on the path of a recalled run."""

    recalled: str
    row: EventRow
    match: int
    """How many of the names that both know it shows; 0 for a neighbour."""


def events_of(
    query: Query, found: Sequence[Found], neighbours: int, decided: Decisions
) -> list[PathEvent]:
    """Choose the steps of each recalled run that match, and those around them along NEXT."""
    if not found:
        return []
    where = {"runs": [one.run_id for one in found], "clip": CLIP}
    rows = query(_sql("recall_path"), where).arrow()
    shown = _names_shown(query, rows, found, decided)
    by_run: dict[str, list[int]] = defaultdict(list)
    for place, recalled in enumerate(rows.column("recalled").to_pylist()):
        by_run[recalled].append(place)
    events = read_rows(EventRow, rows)
    chosen = []
    for one in found:
        places = by_run[one.run_id]
        marks = _matches([shown[place] for place in places], one, [events[p].step for p in places])
        for place, mark in _around(marks, neighbours, len(places)).items():
            chosen.append(PathEvent(one.run_id, events[places[place]], mark))
    return chosen


def _matches(shown: Sequence[int], one: Found, steps: Sequence[int | None]) -> dict[int, int]:
    """Return the places of the best steps, with how many shared names each shows."""
    order = sorted(range(len(shown)), key=lambda place: (-shown[place], place))
    best = {place: shown[place] for place in order[:MATCHES] if shown[place]}
    if not best and one.step in steps:  # similar in order alone
        best = {steps.index(one.step): 1}
    return best


def _around(matches: dict[int, int], neighbours: int, n: int) -> dict[int, int]:
    near = {
        place: 0
        for centre in matches
        for place in range(centre - neighbours, centre + neighbours + 1)
    }
    return {place: matches.get(place, 0) for place in sorted(near) if 0 <= place < n}


def _names_shown(query: Query, rows: Any, found: Sequence[Found], decided: Decisions) -> list[int]:
    """Count, for each step, the most telling names of its run that it mentions or spells."""
    telling = {one.run_id: {name.casefold() for name in one.matched[:TELLING]} for one in found}
    mentioned = _mentioned(query, rows, decided)
    keys = zip(rows.column("run_id").to_pylist(), rows.column("position").to_pylist(), strict=True)
    texts, recalled = texts_of(rows).to_pylist(), rows.column("recalled").to_pylist()
    return [
        len(telling[run] & (mentioned[key] | set(word_list(text))))
        for key, text, run in zip(keys, texts, recalled, strict=True)
    ]


def _mentioned(query: Query, rows: Any, decided: Decisions) -> dict[tuple[str, int], set[str]]:
    where = {
        "runs": rows.column("run_id").to_pylist(),
        "positions": rows.column("position").to_pylist(),
    }
    mentions = decided.rename(query(_sql("mentions"), where).arrow(), "entity_id")
    names: dict[tuple[str, int], set[str]] = defaultdict(set)
    columns = [mentions.column(name).to_pylist() for name in ("run_id", "position", "entity_id")]
    for run_id, position, entity_id in zip(*columns, strict=True):
        names[run_id, position].add(short_name(entity_id).casefold())
    return names


def path_graph(query: Query, found: Sequence[Found], neighbours: int, decided: Decisions) -> Any:
    """Build the graph of the chosen steps of recalled runs, and of what they touch."""
    chosen = events_of(query, found, neighbours, decided)
    once = {(event.row.run_id, event.row.position): event for event in chosen}
    where = {
        "runs": [run_id for run_id, _ in once],
        "positions": [position for _, position in once],
    }
    mentions = decided.rename(query(_sql("mentions"), where).arrow(), "entity_id")
    relations = query(_sql("relations"), where).arrow()
    relations = decided.rename(relations, "source_id", "target_id")
    ids = set(mentions.column("entity_id").to_pylist())
    ids.update(relations.column("source_id").to_pylist(), relations.column("target_id").to_pylist())
    entities = query(_sql("entities"), {"entities": sorted(ids)}).arrow()
    names = list(dict.fromkeys([*(one.run_id for one in found), *(run for run, _ in once)]))
    runs = read_rows(RunRow, query(_sql("runs"), {"runs": names}).arrow())
    graph = bloom_graph([event.row for event in once.values()], mentions, relations, runs, entities)
    for (run_id, position), event in once.items():
        graph.nodes[f"event:{run_id}:{position}"]["match"] = event.match > 0
    for one in found:
        graph.nodes[f"run:{one.run_id}"].update(score=one.score, warning=one.warning)
    return graph


def as_dict(graph: Any) -> dict[str, list[dict[str, Any]]]:
    """Return a bloomed graph as nodes and relationships of plain values."""
    nodes = [
        {"id": repair(str(node)), "labels": [data["label"]], "properties": _plain(data, "label")}
        for node, data in graph.nodes(data=True)
    ]
    relationships = [
        {"type": type_, "start": repair(str(start)), "end": repair(str(end)),
         "properties": _plain(data, "type")}
        for start, end, type_, data in graph.edges(keys=True, data=True)
    ]  # fmt: skip
    return {"nodes": nodes, "relationships": relationships}


def _plain(data: dict[str, Any], without: str) -> dict[str, Any]:
    """Keep what is known, as values that JSON has."""
    return {
        name: value.item() if isinstance(value, np.generic)
        else repair(value) if isinstance(value, str) else value
        for name, value in data.items() if name != without and value is not None
    }  # fmt: skip


def _sql(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
