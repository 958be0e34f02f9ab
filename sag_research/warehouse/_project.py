"""From events to rows: a pure function of the log, so a rebuild gives the same bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sag_research.errors import StoreError
from sag_research.extract import EntityExtractor, StepTexts, has_codes
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN, Event, Run
from sag_research.warehouse._steps import TypedStep
from sag_research.warehouse._tables import BASE_TABLES, MENTION_TABLES, SCHEMAS, to_table
from sag_research.warehouse._values import as_list, micros, number, open_file, text, whole

__all__ = ["Projector", "Searched", "chunked", "step_table"]

_KNOWN_RUNS: Final = 50_000

Key: TypeAlias = tuple[int | None, str, int | None]
"""Sequence number, run and position of an event."""
Row: TypeAlias = tuple[Any, ...]
"""The values of one row, in the order of the table's schema."""


class Searched(NamedTuple):
    """A step in which mentions are looked for."""

    seq: int | None
    run_id: str
    position: int | None
    step: int
    action: str
    observation: str
    open_file: str | None


_SEARCHED: Final = ("action", "observation")

Extract: TypeAlias = Callable[[], dict[str, pa.Table]]


class Projector:
    """Turns consecutive events of a log into rows of the projected tables.

    Parameters
    ----------
    store : SQLiteEventStore
        Asked for the runs' envelopes and for the number of a run's first step in the range.
    extractor : EntityExtractor
    """

    def __init__(self, store: SQLiteEventStore, extractor: EntityExtractor) -> None:
        self._store = store
        self._extractor = extractor
        self._next_step: dict[str, int] = {}
        self._runs: dict[str, Run] = {}

    def project(self, events: Sequence[Event | TypedStep]) -> dict[str, pa.Table]:
        """Project events, given in the log's order; tables without rows are left out."""
        tables, searched = self.begin(events)
        return tables | (self.extraction(searched)() if searched else {})

    def begin(
        self, events: Sequence[Event | TypedStep]
    ) -> tuple[dict[str, pa.Table], list[Searched]]:
        """Project all but the mentions, and give the steps in which to look for those."""
        self._learn_runs({event.run_id for event in events})
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        searched: list[Searched] = []
        for event in events:
            key = (event.seq, event.run_id, event.position)
            if isinstance(event, TypedStep):
                step = self._number(event)
                rows["events"].append(key + event.event)
                rows["steps"].append((*key, step, *event.row))
                if event.calls:
                    rows["calls"] += [(*key, step, *call) for call in event.calls]
                texts = (event.action, event.observation, event.open_file)
                searched.append(Searched(*key, step, *texts))
            else:
                self._add(event, key, rows, searched)
        result = {name: to_table(name, rows[name]) for name in BASE_TABLES if rows[name]}
        return result, searched

    def _add(
        self,
        event: Event,
        key: Key,
        rows: defaultdict[str, list[Row]],
        searched: list[Searched],
    ) -> None:
        """Project an event of any type and shape."""
        rows["events"].append(key + _event_row(event))
        payload = event.payload
        if event.type == "agent.step":
            step = self._number(event)
            calls = _calls(payload)
            only = _only_call(payload, calls)
            rows["steps"].append((*key, step, *_step_row(payload, calls), *only))
            if not only[0]:
                rows["calls"] += [(*key, step, *_call_row(n, c)) for n, c in enumerate(calls)]
            action, observation = (text(payload.get(name)) or "" for name in _SEARCHED)
            searched.append(
                Searched(*key, step, action, observation, _open_file(payload.get("state")))
            )
        elif self._is_first(event):
            rows["run_rows"].append(key + _run_row(self._runs[event.run_id]))
        elif event.type in TERMINAL_TYPES:
            rows["end_rows"].append(key + _end_row(event))
        elif event.run_id == WORKSPACE_RUN and event.type in _FACTS:
            table, fact_row = _FACTS[event.type]
            rows[table].append(key + fact_row(payload))

    def _learn_runs(self, run_ids: set[str]) -> None:
        if unknown := run_ids - self._runs.keys():
            if len(self._runs) > _KNOWN_RUNS:
                self._runs.clear()
                self._next_step.clear()
                unknown = run_ids
            for run_id, run in self._store.get_runs(sorted(unknown)).items():
                self._runs[run_id] = msgspec.structs.replace(run, config={})
            if lost := sorted(unknown - self._runs.keys()):
                raise StoreError(
                    f"{self._store.path} is damaged",
                    why=f"run {lost[0]!r} has events and cannot be found",
                    fix="run `sag rebuild`, then `sag verify`",
                )

    def _is_first(self, event: Event) -> bool:
        """Tell whether an event is its run's own first one: there is one row a run."""
        return event.position == self._runs[event.run_id].fork_position + 1

    def _number(self, event: Event | TypedStep) -> int:
        """Return the 0-based step number of an event ``agent.step`` in its lineage."""
        step = self._next_step.get(event.run_id)
        if step is None:
            before = event.position or 1
            # only a run's beginning can come before position 2
            step = 0 if before <= 2 else self._store.count_steps(event.run_id, before)
        self._next_step[event.run_id] = step + 1
        return step

    def extraction(self, searched: Sequence[Searched]) -> Extract:
        """Give the call that extracts mentions from steps.

        It shares nothing with this object, so it may run in another thread while the next
        events are projected.
        """
        seqs, run_ids, positions, steps, actions, observations, open_files = map(
            list, zip(*searched, strict=True)
        )
        scopes = {run_id: text(self._runs[run_id].repo) or "" for run_id in set(run_ids)}
        texts = StepTexts(
            action=actions,
            observation=observations,
            scope=[scopes[run_id] for run_id in run_ids],
            open_file=open_files,
        )
        keys = {
            "seq": pa.array(seqs, pa.int64()),
            "run_id": pa.array(run_ids, pa.string()),
            "position": pa.array(positions, pa.int64()),
            "step": pa.array(steps, pa.int64()),
        }
        return partial(_extract, self._extractor, texts, keys)


def step_table(events: Iterable[Event], run_id: str) -> pa.Table:
    """Make the steps of a run's lineage a table with the columns of the view ``steps``.

    Parameters
    ----------
    events : iterable of Event
        All ``agent.step`` events of the lineage, in order.
    run_id : str
        The run that is asked for; steps written by others are inherited.
    """
    rows = []
    for step, event in enumerate(events):
        calls = _calls(event.payload)
        key = (event.seq, event.run_id, event.position, step)
        rows.append((*key, *_step_row(event.payload, calls), *_only_call(event.payload, calls)))
    table = to_table("steps", rows) if rows else SCHEMAS["steps"].empty_table()
    own = pa.array([event_run == run_id for event_run in table["run_id"].to_pylist()], pa.bool_())
    place = table.schema.get_field_index("inherited")
    inherited = pc.or_(table["inherited"], pc.invert(own))
    return table.set_column(place, "inherited", inherited)


def _extract(
    extractor: EntityExtractor, texts: StepTexts, keys: Mapping[str, pa.Array]
) -> dict[str, pa.Table]:
    """Extract from steps; tables without rows are left out."""
    found = extractor.extract_steps(texts)
    return {
        name: _keyed(SCHEMAS[name], keys, rows, extractor.version)
        for name, rows in zip(MENTION_TABLES, found, strict=True)
        if rows.num_rows
    }


def _keyed(
    schema: pa.Schema, keys: Mapping[str, pa.Array], rows: pa.Table, version: str
) -> pa.Table:
    """Put the event's keys in front of extracted rows, in the place of the row number."""
    columns = []
    for field in schema:
        if field.name == "version":
            column = pa.repeat(pa.scalar(version, field.type), rows.num_rows)
        elif field.name in keys:
            column = keys[field.name].take(rows["row"])
        else:
            column = rows[field.name]
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


# ---- one function a table; each gives the columns after the key, in the order of the schema


def _event_row(event: Event) -> Row:
    # the text of a step is in the table of steps
    step = event.type == "agent.step"
    body = None if step else msgspec.json.encode(event.payload).decode()
    digest = bytes.fromhex(event.digest or "")
    return event.type, event.actor, micros(event.ts), event.cause, event.frame, body, digest


def _step_row(payload: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> Row:
    flags = [text(flag) or "" for flag in as_list(payload.get("flags"))]
    if "unreadable" in payload:  # the log lost its texts; `verify` says more
        flags.append("unreadable")
    texts = tuple(text(payload.get(name)) or "" for name in ("thought", "action", "observation"))
    if any(map(has_codes, texts)):
        flags.append("terminal")
    last = calls[-1] if calls else {}
    return (
        *texts,
        len(calls),
        text(last.get("name")),
        whole(last.get("exit_code"), 31),
        number(payload.get("seconds")),
        *_usage(payload.get("usage")),
        micros(payload.get("started")),
        "inherited" in flags,
        flags,
    )


def _only_call(payload: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> Row:
    """Give what a step's only call has beside the step's own texts, if that is all there is."""
    if len(calls) != 1:
        return False, None, None, None
    (call,) = calls
    for ours, theirs in (("text", "action"), ("observation", "observation")):
        if not isinstance(call.get(ours), str) or call[ours] != payload.get(theirs):
            return False, None, None, None
    return True, text(call.get("id")), text(call.get("arguments")), text(call.get("status"))


def _call_row(number: int, call: Mapping[str, Any]) -> Row:
    texts = ("id", "name", "arguments", "text", "observation", "status")
    return (number, *(text(call.get(name)) for name in texts), whole(call.get("exit_code"), 31))


def _run_row(run: Run) -> Row:
    texts = (run.kind, run.goal, run.task_id, run.dataset, run.repo, run.agent, run.model)
    return (
        *map(text, texts),
        run.label,
        run.attempt,
        run.source_id,
        micros(run.created_at),
        run.parent_id,
        run.fork_position or None,
    )


def _end_row(event: Event) -> Row:
    exit_status = text(event.payload.get("exit_status"))
    return event.type, micros(event.ts), exit_status, *_usage(event.payload.get("usage"))


def _outcome_row(payload: Mapping[str, Any]) -> Row:
    return (
        text(payload.get("run")),
        text(payload.get("outcome")),
        text(payload.get("detail")),
        number(payload.get("score")),
        text(payload.get("source")) or "",
        whole(payload.get("known_at_step")),
    )


def _source_row(payload: Mapping[str, Any]) -> Row:
    return (
        *(text(payload.get(name)) for name in ("source_id", "path", "root", "digest")),
        whole(payload.get("bytes")),
        *(text(payload.get(name)) for name in ("format", "format_version", "status", "reason")),
        *(whole(payload.get(name)) for name in ("n_runs", "n_steps")),
    )


_FACTS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Row]]]] = {
    "outcome.recorded": ("outcome_rows", _outcome_row),
    "source.read": ("source_rows", _source_row),
}
"""Facts about other runs count only where they stand on the workspace's own run: a run that
says of itself that it succeeded has not been judged."""


def _usage(usage: Any) -> Row:
    if not isinstance(usage, dict):
        return None, None, None
    tokens = whole(usage.get("tokens_in")), whole(usage.get("tokens_out"))
    return *tokens, number(usage.get("cost_usd"))


def _calls(payload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = as_list(payload.get("calls"))
    return [call if isinstance(call, dict) else {"text": call} for call in calls]


def _open_file(state: Any) -> str | None:
    return open_file(state.get("open_file")) if isinstance(state, dict) else None


def chunked(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    """Group events into lists of at most ``size``."""
    chunk: list[Event] = []
    for event in events:
        chunk.append(event)
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
