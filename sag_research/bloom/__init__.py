"""The bloomed graph: runs, their events, and the entities that their texts name.

An episodic layer (Run -CONTAINS-> Event, Event -NEXT-> Event, Event -CAUSED_BY-> Event,
Run -FORKED_FROM-> Event) and a semantic layer (Entity -typed relation-> Entity), joined by
Event -PROCESSED-> Entity (read) and Event -MUTATED-> Entity (changed). Entities are global: one
node for ``TimeoutError`` over all runs.
"""

from __future__ import annotations

from sag_research.bloom._build import bloom_graph
from sag_research.bloom._entities import Entities
from sag_research.bloom._entities_decisions import read_decisions
from sag_research.bloom._graph import BloomGraph
from sag_research.bloom._hint import Hint, hint
from sag_research.bloom._memory import MemoryTool
from sag_research.bloom._prov import (
    PROV_FORMATS,
    ProvFormat,
    RunProvenance,
    mentions_from,
    provenance_text,
    run_provenance,
    write_provenance,
)
from sag_research.bloom._prov_check import Fault, ProvenanceReport, validate_graph
from sag_research.bloom._prov_import import ReadTrace, read_quads, read_traces, trace_steps
from sag_research.bloom._prov_quads import Named, Place, Ref, evidence_quads, item_quads, run_quads
from sag_research.bloom._prov_record import EVIDENCE, HINT, RecordCounts, Recorder
from sag_research.bloom._prov_store import TraceStore
from sag_research.bloom._query import bloom
from sag_research.bloom._recall import Found, Recall, recall
from sag_research.bloom._recall_eval import RecallEvaluation, evaluate_recall
from sag_research.bloom._recall_index import RecallIndex
from sag_research.bloom._recall_prompt import estimate_tokens
from sag_research.bloom._rows import EntityRow, EventRow, MentionRow, RelationRow, RunRow
from sag_research.bloom._trace import (
    Action,
    Final,
    Observation,
    Thought,
    TraceItem,
    Tracer,
    decode_item,
    item_kind,
    item_text,
    step_of,
    trace_items,
)
from sag_research.bloom._weigh import entity_table, weigh_entities

__all__ = [  # noqa: RUF022
    "BloomGraph",
    "Entities",
    "EntityRow",
    "EventRow",
    "MentionRow",
    "RelationRow",
    "RunRow",
    "bloom",
    "bloom_graph",
    "entity_table",
    "read_decisions",
    "weigh_entities",
    # recall
    "Found",
    "MemoryTool",
    "Recall",
    "RecallEvaluation",
    "RecallIndex",
    "estimate_tokens",
    "evaluate_recall",
    "recall",
    # traces
    "Action",
    "Final",
    "Observation",
    "Thought",
    "TraceItem",
    "Tracer",
    "decode_item",
    "item_kind",
    "item_text",
    "step_of",
    "trace_items",
    # provenance
    "EVIDENCE",
    "Fault",
    "HINT",
    "Hint",
    "Named",
    "PROV_FORMATS",
    "Place",
    "ProvFormat",
    "ProvenanceReport",
    "ReadTrace",
    "RecordCounts",
    "Recorder",
    "Ref",
    "RunProvenance",
    "TraceStore",
    "evidence_quads",
    "hint",
    "item_quads",
    "mentions_from",
    "provenance_text",
    "read_quads",
    "read_traces",
    "run_provenance",
    "run_quads",
    "trace_steps",
    "validate_graph",
    "write_provenance",
]
