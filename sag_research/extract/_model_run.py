"""Extraction by a model as a run of its own: hidden, recorded, paid once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..errors import RunExistsError
from ..llm import Context, Model
from ..log import SQLiteEventStore
from ..model import FIELDS, WORKSPACE_RUN, Event, Run
from ._model import ModelExtraction, ModelExtractor, Way

__all__ = ["ExtractionRun", "extract_run"]


class ExtractionRun(NamedTuple):
    """A run that extracted, and its counts.

    Attributes
    ----------
    run_id : str
    mentions : int
    dropped : int
        Names that the texts do not hold.
    asked : int
    malformed : int
    """

    run_id: str
    mentions: int
    dropped: int
    asked: int
    malformed: int


def extract_run(
    store: SQLiteEventStore,
    run_id: str,
    model: Model,
    way: Way = "names",
    *,
    clip: int = 2_000,
) -> ExtractionRun:
    """Extract from every step of a run with a model.

    The extraction is a run of the kind ``extraction``, hidden from statistics. Its calls are
    recorded there; each mention is an event ``object.created`` with ``run``, ``position``,
    ``field``, ``start``, ``end``, ``kind``, ``scope``, ``name`` and ``rule``; its last event has
    the counts. Carried out again, nothing is asked that was answered, and nothing is written twice.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
        The run whose own steps are read.
    model : Model
    way : {"names", "spans"}
    clip : int
        Characters of each text that the model gets to read.

    Raises
    ------
    RunNotFoundError
        If there is no such run.
    """
    source = store.get_run(run_id)
    identity = model.identity()
    asked_of = f"{identity.provider}/{identity.model}/{way}/{clip}"
    own = f"{run_id}~extraction-{hashlib.sha256(asked_of.encode()).hexdigest()[:8]}"
    config = {"of": run_id, "model": identity.model, "way": way, "clip": clip}
    _begin(store, Run(run_id=own, kind="extraction", goal=f"entities of {run_id}", config=config))
    done = [event.payload for event in store.read(own, types=("run.completed",))]
    if done:
        return ExtractionRun(own, **{name: done[-1][name] for name in ExtractionRun._fields[1:]})
    known = {_place(e.payload) for e in store.read(own, types=("object.created",))}
    context = Context(store, own, model=model, mode="reuse", retry_failures=True, actor="extractor")
    extractor = ModelExtractor(context, way, clip=clip)
    counts = dict.fromkeys(ExtractionRun._fields[1:], 0)
    for step in list(store.read(run_id, types=("agent.step",))):
        if step.run_id != run_id:
            continue
        for field in FIELDS:
            text = step.payload.get(field)
            if not isinstance(text, str):
                continue
            found = extractor.extract(text, source.repo or "", field)
            rows = [row for row in _payloads(step, found) if _place(row) not in known]
            store.append_many(
                Event(run_id=own, type="object.created", payload=row, actor="extractor")
                for row in rows
            )
            counts["mentions"] += len(found.mentions)
            counts["dropped"] += len(found.dropped)
            counts["asked"] += found.asked
            counts["malformed"] += found.malformed
    payload = {"exit_status": "completed", **counts}
    store.append(Event(run_id=own, type="run.completed", payload=payload, actor="extractor"))
    return ExtractionRun(own, **counts)


def _begin(store: SQLiteEventStore, run: Run) -> None:
    """Create a run and hide it, unless an earlier try did."""
    try:
        store.create_run(run)
    except RunExistsError:
        return
    payload = {"run": run.run_id, "reason": "extraction"}
    store.append(Event(run_id=WORKSPACE_RUN, type="run.hidden", payload=payload, actor="extractor"))


def _payloads(step: Event, found: ModelExtraction) -> Iterator[dict[str, Any]]:
    for mention in found.mentions:
        entity = mention.entity
        yield {
            "run": step.run_id, "position": step.position, "field": mention.field,
            "start": mention.start, "end": mention.end, "kind": entity.kind,
            "scope": entity.scope, "name": entity.name, "rule": mention.rule,
        }  # fmt: skip


def _place(payload: dict[str, Any]) -> tuple[Any, ...]:
    names = ("run", "position", "field", "start", "end", "kind", "name")
    return tuple(payload.get(name) for name in names)
