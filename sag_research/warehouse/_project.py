"""From events to rows: a pure function of the log, so a rebuild gives the same bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sag_research.extract import EntityExtractor, StepTexts, has_codes
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN, Event, Run
from sag_research.warehouse._tables import BASE_TABLES, MENTION_TABLES, SCHEMAS, to_table

__all__ = ["Projector", "chunked", "step_table"]

_KNOWN_RUNS: Final = 50_000

Row: TypeAlias = tuple[Any, ...]
"""The values of one row, in the order of the table's schema."""


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

    def project(self, events: Sequence[Event]) -> dict[str, pa.Table]:
        """Project events, given in the log's order; tables without rows are left out."""
        tables, extract = self.begin(events)
        return tables | extract()

    def begin(self, events: Sequence[Event]) -> tuple[dict[str, pa.Table], Extract]:
        """Project all but the mentions, and give the call that extracts those.

        The call shares nothing with this object, so it may run in another thread while the
        next events are projected.
        """
        self._learn_runs({event.run_id for event in events})
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        steps: list[tuple[Event, int]] = []
        for event in events:
            key = (event.seq, event.run_id, event.position)
            rows["events"].append(key + _event_row(event))
            if event.type == "agent.step":
                step = self._number(event)
                steps.append((event, step))
                calls = _calls(event.payload)
                only = _only_call(event.payload, calls)
                rows["steps"].append((*key, step, *_step_row(event.payload, calls), *only))
                if not only[0]:
                    rows["calls"] += [(*key, step, *_call_row(n, c)) for n, c in enumerate(calls)]
            elif self._is_first(event):
                rows["run_rows"].append(key + _run_row(self._runs[event.run_id]))
            elif event.type in TERMINAL_TYPES:
                rows["end_rows"].append(key + _end_row(event))
            elif event.run_id == WORKSPACE_RUN and event.type in _FACTS:
                table, fact_row = _FACTS[event.type]
                rows[table].append(key + fact_row(event.payload))
        result = {name: to_table(name, rows[name]) for name in BASE_TABLES if rows[name]}
        return result, (self._extraction(steps) if steps else dict)

    def _learn_runs(self, run_ids: set[str]) -> None:
        if unknown := run_ids - self._runs.keys():
            if len(self._runs) > _KNOWN_RUNS:
                self._runs.clear()
                self._next_step.clear()
                unknown = run_ids
            for run_id, run in self._store.get_runs(sorted(unknown)).items():
                self._runs[run_id] = msgspec.structs.replace(run, config={})

    def _is_first(self, event: Event) -> bool:
        """Tell whether an event is its run's own first one: there is one row a run."""
        return event.position == self._runs[event.run_id].fork_position + 1

    def _number(self, event: Event) -> int:
        """Return the 0-based step number of an event ``agent.step`` in its lineage."""
        step = self._next_step.get(event.run_id)
        if step is None:
            before = event.position or 1
            # only a run's beginning can come before position 2
            step = 0 if before <= 2 else self._store.count_steps(event.run_id, before)
        self._next_step[event.run_id] = step + 1
        return step

    def _extraction(self, steps: Sequence[tuple[Event, int]]) -> Extract:
        payloads = [event.payload for event, _ in steps]
        texts = StepTexts(
            action=[_text(payload.get("action")) or "" for payload in payloads],
            observation=[_text(payload.get("observation")) or "" for payload in payloads],
            scope=[_text(self._runs[event.run_id].repo) or "" for event, _ in steps],
            open_file=[_open_file(payload.get("state")) for payload in payloads],
        )
        keys = {
            "seq": pa.array([event.seq for event, _ in steps], pa.int64()),
            "run_id": pa.array([event.run_id for event, _ in steps], pa.string()),
            "position": pa.array([event.position for event, _ in steps], pa.int64()),
            "step": pa.array([step for _, step in steps], pa.int64()),
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
    for number, event in enumerate(events):
        calls = _calls(event.payload)
        key = (event.seq, event.run_id, event.position, number)
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
    return event.type, event.actor, _micros(event.ts), event.cause, event.frame, body, digest


def _step_row(payload: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> Row:
    flags = [_text(flag) or "" for flag in _list(payload.get("flags"))]
    if "unreadable" in payload:  # the log lost its texts; `verify` says more
        flags.append("unreadable")
    texts = tuple(_text(payload.get(name)) or "" for name in ("thought", "action", "observation"))
    if any(map(has_codes, texts)):
        flags.append("terminal")
    last = calls[-1] if calls else {}
    return (
        *texts,
        len(calls),
        _text(last.get("name")),
        _int(last.get("exit_code"), 31),
        _float(payload.get("seconds")),
        *_usage(payload.get("usage")),
        _micros(payload.get("started")),
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
    return True, _text(call.get("id")), _text(call.get("arguments")), _text(call.get("status"))


def _call_row(number: int, call: Mapping[str, Any]) -> Row:
    texts = ("id", "name", "arguments", "text", "observation", "status")
    return (number, *(_text(call.get(name)) for name in texts), _int(call.get("exit_code"), 31))


def _run_row(run: Run) -> Row:
    texts = (run.kind, run.goal, run.task_id, run.dataset, run.repo, run.agent, run.model)
    return (
        *map(_text, texts),
        run.label,
        run.attempt,
        run.source_id,
        _micros(run.created_at),
        run.parent_id,
        run.fork_position or None,
    )


def _end_row(event: Event) -> Row:
    exit_status = _text(event.payload.get("exit_status"))
    return event.type, _micros(event.ts), exit_status, *_usage(event.payload.get("usage"))


def _outcome_row(payload: Mapping[str, Any]) -> Row:
    return (
        _text(payload.get("run")),
        _text(payload.get("outcome")),
        _text(payload.get("detail")),
        _float(payload.get("score")),
        _text(payload.get("source")) or "",
        _int(payload.get("known_at_step")),
    )


def _source_row(payload: Mapping[str, Any]) -> Row:
    return (
        *(_text(payload.get(name)) for name in ("source_id", "path", "root", "digest")),
        _int(payload.get("bytes")),
        *(_text(payload.get(name)) for name in ("format", "format_version", "status", "reason")),
        *(_int(payload.get(name)) for name in ("n_runs", "n_steps")),
    )


_FACTS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Row]]]] = {
    "outcome.recorded": ("outcome_rows", _outcome_row),
    "source.read": ("source_rows", _source_row),
}
"""Facts about other runs count only where they stand on the workspace's own run: a run that
says of itself that it succeeded has not been judged."""


# ---- a user's event may hold anything; what is not of the expected type is unknown


def _usage(usage: Any) -> Row:
    if not isinstance(usage, dict):
        return None, None, None
    tokens = _int(usage.get("tokens_in")), _int(usage.get("tokens_out"))
    return *tokens, _float(usage.get("cost_usd"))


def _calls(payload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = _list(payload.get("calls"))
    return [call if isinstance(call, dict) else {"text": call} for call in calls]


def _open_file(state: Any) -> str | None:
    opened = state.get("open_file") if isinstance(state, dict) else None
    return opened if isinstance(opened, str) and opened not in ("", "n/a") else None


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _text(value: Any) -> str | None:
    """Take a value as text: as it is, or as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _int(value: Any, bits: int = 63) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -(2**bits) <= value < 2**bits else None


def _float(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and abs(value) < 1e300 else None


_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
"""The years 1 to 9999, which are those of Python: a source may give milliseconds by mistake."""


def _micros(seconds: Any) -> int | None:
    value = _float(seconds)
    if value is None or not _FIRST_SECOND <= value <= _LAST_SECOND:
        return None
    return round(value * 1e6)


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
