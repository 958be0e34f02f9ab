"""Which entities of a graph tell most about it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["entity_table", "is_stop", "rarity", "weigh_entities"]

CHANGED_WEIGHT = 2.0
"""What a run changes says more about it than what it reads."""
CROWD = 10
"""An event that names more entities than this (a listing) says less about each of them."""
FEW_RUNS = 3
"""With fewer runs than this, what stands in all of them may still tell something."""


def rarity(total: int, df: int) -> float:
    """Weigh how rare an entity is: ``log((1 + N) / df)``, and 0 for what stands in every run.

    Parameters
    ----------
    total, df : int
        Runs in all, and runs that name it.

    Examples
    --------
    >>> [round(rarity(100, df), 2) for df in (1, 10, 99, 100)]
    [4.62, 2.31, 0.02, 0.0]
    """
    return 0.0 if is_stop(total, df) else math.log((1 + total) / min(max(df, 1), total))


def is_stop(total: int, df: int) -> bool:
    """Tell whether an entity stands in every run, like the stop words of text retrieval."""
    return df >= total >= FEW_RUNS


def weigh_entities(graph: Any) -> dict[str, float]:
    """Weigh each entity: how many events here name it times how rare it is over all runs.

    The weight is ``n * rarity(N, df)`` (the tf-idf of text retrieval; an entity of all runs
    weighs nothing) with ``n`` events of
    this graph that name the entity (one that names m > 10 entities counts 10 / m), ``df`` runs
    that name it and ``N`` runs in all; twice that if an event here changed it. ``df`` and ``N``
    count the whole workspace where the graph knows it (node attribute ``runs_total``, graph
    attribute ``runs_total``), hidden runs left out, else this graph.

    Parameters
    ----------
    graph : networkx.MultiDiGraph
        As made by :func:`~sag_research.bloom.bloom_graph`.

    Returns
    -------
    dict of str to float
        Weight by entity id, heaviest first, equal ones by id.

    Examples
    --------
    >>> from sag_research.bloom import bloom_graph
    >>> graph = bloom_graph([("r", 1), ("r", 2)], [("r", 1, "File|x|a"), ("r", 1, "File|x|b"),
    ...                                            ("r", 2, "File|x|b")])
    >>> list(weigh_entities(graph))
    ['File|x|b', 'File|x|a']
    """
    here = sum(1 for _, label in graph.nodes(data="label") if label == "Run")
    everywhere = graph.graph.get("runs_total", 0)
    total = everywhere or max(here, 1)
    attention = {
        event: min(1.0, CROWD / max(_named(graph, event), 1))
        for event, label in graph.nodes(data="label")
        if label == "Event"
    }
    weights = {}
    for entity_id, data in graph.nodes(data=True):
        if data["label"] == "Entity":
            events, runs, changed = _readers(graph, entity_id)
            # runs of this graph may be hidden: where all runs are known, they count no more
            known = data.get("runs_total") if everywhere else None
            rare = rarity(total, len(runs) if known is None else known)
            told = sum(attention[event] for event in sorted(events))
            weights[entity_id] = told * rare * (CHANGED_WEIGHT if changed else 1.0)
    return dict(sorted(weights.items(), key=lambda item: (-item[1], item[0])))


def _named(graph: Any, event: str) -> int:
    """Count the entities that an event names."""
    return sum(graph.nodes[node]["label"] == "Entity" for node in graph.successors(event))


def _readers(graph: Any, entity_id: str) -> tuple[set[str], set[str], set[str]]:
    """Find the events that name an entity, their runs, and those events that changed it."""
    events, runs, changed = set(), set(), set()
    for event, _, type in graph.in_edges(entity_id, keys=True):
        if graph.nodes[event]["label"] == "Event":
            events.add(event)
            runs.add(graph.nodes[event]["run_id"])
            if type == "MUTATED":
                changed.add(event)
    return events, runs, changed


def entity_table(graph: Any) -> pd.DataFrame:
    """List the entities of a graph, the most telling first.

    Returns
    -------
    pandas.DataFrame
        One row an entity: ``entity_id, kind, scope, name``, ``mentions`` (times named here),
        ``runs`` (runs of this graph that name it), ``mutated`` (events here that changed it),
        ``steps`` (events here that name it), ``runs_total`` (runs of the workspace that name
        it; at least ``runs``), ``weight``.
    """
    import pandas as pd

    records = []
    for entity_id, weight in weigh_entities(graph).items():
        data = graph.nodes[entity_id]
        events, runs, changed = _readers(graph, entity_id)
        edges = graph.in_edges(entity_id, data=True)
        mentions = sum(edge["n"] for event, _, edge in edges if event in events)
        everywhere = max(data.get("runs_total", 0), len(runs))
        names = (entity_id, data["kind"], data["scope"], data["name"])
        numbers = (mentions, len(runs), len(changed), len(events), everywhere, weight)
        records.append((*names, *numbers))
    columns = "entity_id kind scope name mentions runs mutated steps runs_total weight"
    return pd.DataFrame.from_records(records, columns=columns.split())
