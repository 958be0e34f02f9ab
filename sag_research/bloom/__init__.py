"""The bloomed graph: runs, their events, and the entities that their texts name.

An episodic layer (Run -CONTAINS-> Event, Event -NEXT-> Event, Event -CAUSED_BY-> Event,
Run -FORKED_FROM-> Event) and a semantic layer (Entity -typed relation-> Entity), joined by
Event -PROCESSED-> Entity (read) and Event -MUTATED-> Entity (changed). Entities are global: one
node for ``TimeoutError`` over all runs.
"""

from __future__ import annotations

from sag_research.bloom._build import bloom_graph
from sag_research.bloom._graph import BloomGraph
from sag_research.bloom._query import bloom
from sag_research.bloom._rows import EntityRow, EventRow, MentionRow, RelationRow, RunRow
from sag_research.bloom._weigh import entity_table, weigh_entities

__all__ = [
    "BloomGraph",
    "EntityRow",
    "EventRow",
    "MentionRow",
    "RelationRow",
    "RunRow",
    "bloom",
    "bloom_graph",
    "entity_table",
    "weigh_entities",
]
