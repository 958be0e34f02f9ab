"""From the warehouse's views to a graph; the SQL lies beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal, Protocol

from sag_research.bloom._build import bloom_graph
from sag_research.bloom._entities_decisions import read_decisions
from sag_research.bloom._graph import BloomGraph
from sag_research.bloom._rows import EventRow, RunRow, read_rows
from sag_research.errors import MissingDataError, RunNotFoundError, UsageError
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN

__all__ = ["Query", "Rows", "bloom"]

FRAME_TYPES = ("agent.step", "run.created", "run.forked", *sorted(TERMINAL_TYPES))
"""What ``events="steps"`` shows: the steps and where each run begins and ends."""


class Rows(Protocol):
    """An answer that can be had as a pyarrow table."""

    def arrow(self) -> Any:
        """Give the whole answer as a ``pyarrow.Table``."""


Query = Callable[[str, Mapping[str, Any]], Rows]
"""``Warehouse.sql`` or anything that answers SQL with named parameters (``$name``) alike."""


def bloom(
    query: Query,
    runs: str | Sequence[str] | None = None,
    *,
    entity: str | None = None,
    neighbours: int = 1,
    events: Literal["steps", "all"] = "steps",
    clip: int = 2_000,
    limit: int = 50_000,
) -> BloomGraph:
    """Bloom some runs, or what happened around an entity.

    Parameters
    ----------
    query : callable
        Answers SQL over the views ``runs, steps, events, mentions, relations, entities``, as
        ``Warehouse.sql`` does.
    runs : str or sequence of str, optional
        Full run ids. A fork brings the events it took over, under the run that wrote them.
        Default: all runs that are not hidden.
    entity : str, optional
        An entity id (``Error||TimeoutError``) or a name (``TimeoutError``; all entities of that
        name). The graph then holds the steps that name it and their neighbours.
    neighbours : int
        With ``entity``: how many steps before and after along NEXT, also over forks.
    events : {"steps", "all"}
        Steps with each run's first and terminal event, or every event.
    clip : int
        Texts are cut after this many characters; the whole ones are in ``steps``.
    limit : int
        Refuse to build a graph of more events than this.

    Raises
    ------
    RunNotFoundError
        A run id is not in the view ``runs``.
    MissingDataError
        No entity has that id or name.
    UsageError
        The arguments do not fit, or more than ``limit`` events match.
    """
    wanted = [runs] if isinstance(runs, str) else None if runs is None else list(runs)
    if events not in ("steps", "all"):
        raise UsageError(f"events={events!r} is unknown", fix="use 'steps' or 'all'")
    if neighbours < 0:
        raise UsageError(f"neighbours={neighbours} is negative", fix="use 0 or more")
    if wanted is not None:
        _check_runs(query, wanted)
    found = None if entity is None else _find_entity(query, entity)
    chosen = _choose_events(query, wanted, found, neighbours, events, clip, limit)
    graph = _assemble(query, wanted if found is None else None, chosen)
    graph.graph["focus"] = found or []
    return BloomGraph(graph)


def _sql(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def _check_runs(query: Query, wanted: list[str]) -> None:
    rows = query(_sql("runs"), {"runs": wanted}).arrow()
    missing = sorted(set(wanted) - set(rows.column("run_id").to_pylist()))
    if missing:
        raise RunNotFoundError(
            f"no such run: {missing[0]!r}",
            why="" if len(missing) == 1 else f"and {len(missing) - 1} more",
            fix="give full run ids as the view `runs` lists them",
        )


def _find_entity(query: Query, entity: str) -> list[str]:
    found = query(_sql("find_entity"), {"entity": entity}).arrow()
    if found.num_rows:
        return read_decisions(query).meant([str(v) for v in found.column("entity_id").to_pylist()])
    near = query(_sql("near_entity"), {"entity": entity}).arrow().column("entity_id").to_pylist()
    raise MissingDataError(
        f"no entity has the id or name {entity!r}",
        why=f"nearest: {', '.join(near)}" if near else "no entities were extracted yet",
        fix="look it up in the view `entities`",
    )


def _choose_events(
    query: Query,
    wanted: list[str] | None,
    found: list[str] | None,
    neighbours: int,
    events: str,
    clip: int,
    limit: int,
) -> list[EventRow]:
    types = None if events == "all" else list(FRAME_TYPES)
    parameters: dict[str, Any] = {"runs": wanted, "types": types, "clip": clip, "most": limit + 1}
    parameters["workspace"] = WORKSPACE_RUN
    if found is None:
        answer = query(_sql("run_events"), parameters)
    else:
        # a neighbour is a step: a run's first event must not use up the distance
        parameters["types"] = None if events == "all" else ["agent.step"]
        parameters |= {"entities": found, "neighbours": neighbours}
        answer = query(_sql("entity_events"), parameters)
    rows = read_rows(EventRow, answer.arrow())
    if len(rows) > limit:
        raise UsageError(
            f"more than {limit:,} events match", fix="name fewer runs, or raise `limit`"
        )
    return rows


def _assemble(query: Query, wanted: list[str] | None, chosen: list[EventRow]) -> Any:
    where = {
        "runs": [row.run_id for row in chosen],
        "positions": [row.position for row in chosen],
    }
    decided = read_decisions(query)
    mentions = decided.rename(query(_sql("mentions"), where).arrow(), "entity_id")
    relations = query(_sql("relations"), where).arrow()
    relations = decided.rename(relations, "source_id", "target_id")
    ids = set(mentions.column("entity_id").to_pylist())
    ids.update(relations.column("source_id").to_pylist(), relations.column("target_id").to_pylist())
    entities = query(_sql("entities"), {"entities": sorted(ids)}).arrow()
    names = list(dict.fromkeys([*(wanted or ()), *(row.run_id for row in chosen)]))
    runs = read_rows(RunRow, query(_sql("runs"), {"runs": names}).arrow())
    order = {name: number for number, name in enumerate(names)}
    runs.sort(key=lambda row: order[row.run_id])
    graph = bloom_graph(chosen, mentions, relations, runs, entities)
    total = query(_sql("total"), {"workspace": WORKSPACE_RUN}).arrow()
    graph.graph["runs_total"] = total.column("n").to_pylist()[0]
    return graph
