"""The package's own tables: runs, steps and calls, each a Parquet file, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from sag_research.errors import BadPayloadError, FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import loads
from sag_research.ingest._source import Source
from sag_research.ingest.formats._parquet import columns_of, is_parquet, table_rows
from sag_research.ingest.formats.native import trajectory_of
from sag_research.model import Trajectory

__all__ = ["Tables"]

_USAGE: Final = ("tokens_in", "tokens_out", "cost_usd")
_ABOUT: Final = (
    "task_id", "goal", "dataset", "repo", "agent", "model", "attempt", "end", "exit_status",
    "submission",
)  # fmt: skip
_LABEL: Final = {
    "outcome": "outcome", "outcome_detail": "detail", "outcome_score": "score",
    "outcome_source": "source", "outcome_known_at_step": "known_at_step",
}  # fmt: skip
_RUN: Final = ("run_id", "n_steps", "config", *_ABOUT, *_LABEL, *_USAGE)
_SAID: Final = ("thought", "action", "observation", "flags", "started", "seconds")
_STEP: Final = ("run_id", "step", "n_calls", "state", *_SAID, *_USAGE)
_CALLED: Final = ("id", "name", "text", "observation", "status", "exit_code")
_CALL: Final = ("run_id", "step", "call", "arguments", *_CALLED)
_NEEDED: Final = {"run_id", "task_id", "n_steps", "end", "outcome_source", "config"}
_BESIDE: Final = ("steps.parquet", "calls.parquet")


class Tables:
    """The Parquet tables that ``sag export parquet`` writes: ``runs``, ``steps`` and ``calls``.

    The file with the runs is named as the source; ``steps.parquet`` and ``calls.parquet`` beside it
    are a part of it, and no sources of their own.

    Traps that are honoured

    * Rows of the three tables are joined by ``run_id`` in one pass, so the runs must be in the same
      order. Within a run, rows are in the order of ``step`` and ``call``, whatever that of the
      file is. A run of which there are not as many steps or calls as it says, or two of one
      number, costs that run. Rows of no run are left out, and a note says how many.
    * All three are one source: where one of them changed, they are read again.
    * ``config``, ``state`` and ``arguments`` are JSON as text; NULL is nothing, which is not
      ``null`` of the JSON.
    * A run without a label has NULL as its outcome, one that a source calls unknown has
      ``unknown``.
    * ``end`` is NULL where the run is not known to have stopped.
    """

    name = "sag-tables"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim a Parquet file with the columns of runs."""
        columns = columns_of(head, path) if is_parquet(head) else None
        return 0.95 if columns is not None and columns.keys() >= _NEEDED else 0.0

    def read(self, source: Source) -> Reading:
        """Read the runs, with the steps and calls beside them."""
        missing = [name for name in _BESIDE if not source.path.with_name(name).is_file()]
        if missing:
            raise FormatError(
                f"runs without {' and '.join(missing)}",
                fix="put the tables of one export in one folder",
            )
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        return Reading("1", _runs(source.path, notes, refused), notes, refused)


def _runs(path: Path, notes: list[str], refused: list[tuple[str, str]]) -> Iterator[Trajectory]:
    ids = {name for _, (name,) in table_rows(Source(path), _wanted(("run_id",)), {}, [])}
    steps = _Beside(path.with_name(_BESIDE[0]), _STEP, ids, refused)
    calls = _Beside(path.with_name(_BESIDE[1]), _CALL, ids, refused)
    for number, values in table_rows(Source(path), _wanted(_RUN), {}, refused):
        row = dict(zip(_RUN, values, strict=True))
        try:
            yield _run(row, number, steps, calls)
        except (FormatError, BadPayloadError) as error:
            refused.append((f"row {number}", str(error)))
    notes += [*steps.notes(), *calls.notes()]


def _wanted(names: tuple[str, ...]) -> dict[str, frozenset[str]]:
    return dict.fromkeys(names, frozenset())


class _Beside:
    """A table whose runs are in the order of the runs."""

    def __init__(
        self, path: Path, names: tuple[str, ...], ids: set[Any], refused: list[tuple[str, str]]
    ) -> None:
        own: list[tuple[str, str]] = []
        rows = table_rows(Source(path), _wanted(names), {}, own)
        named = (dict(zip(names, values, strict=True)) for _, values in rows)
        self._groups = groupby(named, key=itemgetter("run_id"))
        self._next: tuple[Any, list[dict[str, Any]]] | None = None
        self._waited = set(ids)
        """Runs that were not asked for yet."""
        self._surplus = 0
        self._name = path.name
        self._refused, self._own = refused, own

    def of(self, run_id: Any, expected: int) -> list[dict[str, Any]]:
        """Return the rows of a run; those of no run that is to come are passed over."""
        self._pass_over()
        self._waited.discard(run_id)
        found: list[dict[str, Any]] = []
        if self._next is not None and self._next[0] == run_id:
            found, self._next = self._next[1], None
        if len(found) == expected:
            return found
        self._refused += [(f"{self._name}, {where}", why) for where, why in self._own]
        self._own.clear()
        raise FormatError(f"{self._name} has not the {expected} rows of this run")

    def _pass_over(self) -> None:
        while self._next is None or self._next[0] not in self._waited:
            self._surplus += 0 if self._next is None else len(self._next[1])
            self._next = None
            group = next(self._groups, None)
            if group is None:
                return
            self._next = group[0], list(group[1])

    def notes(self) -> Iterator[str]:
        """Say what is left over, once all runs were asked for."""
        self._waited.clear()
        self._pass_over()
        if self._surplus:
            yield f"{self._name}: {self._surplus} rows are of no run, or not where it stands"


def _in_order(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Sort rows by their numbers; tables without such columns stay as they are."""
    places = [tuple(row[name] for name in names) for row in rows]
    if all(one is None for place in places for one in place):
        return rows
    if not all(isinstance(one, int) for place in places for one in place):
        raise FormatError(f"{' and '.join(names)} are no numbers")
    if len(set(places)) < len(places):
        raise FormatError(f"two rows of one {' and '.join(names)}")
    return [row for _, row in sorted(zip(places, rows, strict=True), key=itemgetter(0))]


def _run(row: dict[str, Any], number: int, steps: _Beside, calls: _Beside) -> Trajectory:
    if not isinstance(row["n_steps"], int):
        raise FormatError("n_steps is no number")
    listed = steps.of(row["run_id"], row["n_steps"])
    counts = [one["n_calls"] for one in listed]
    if not all(isinstance(one, int) and one >= 0 for one in counts):
        raise FormatError("n_calls is no number")
    called = calls.of(row["run_id"], sum(counts))
    listed, called = _in_order(listed, "step"), _in_order(called, "step", "call")
    owners = [one["step"] for one in listed for _ in range(one["n_calls"])]
    if called and called[0]["step"] is not None and owners != [one["step"] for one in called]:
        raise FormatError("calls.parquet has not the calls that the steps say")
    rest = iter(called)
    record: dict[str, Any] = {name: row[name] for name in _ABOUT}
    record["steps"] = [
        _step(one, [_call(next(rest)) for _ in range(one["n_calls"])]) for one in listed
    ]
    if row["outcome"] is not None:
        label = {short: row[name] for name, short in _LABEL.items()}
        record["outcome"] = {name: value for name, value in label.items() if value is not None}
    record |= _optional(row, "config")
    record["usage"] = _usage(row)
    run = trajectory_of(record)
    return replace(run, record=str(number))


def _step(row: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    step: dict[str, Any] = {name: row[name] for name in _SAID}
    step |= {"calls": calls, "usage": _usage(row)}
    flags = step["flags"] = step["flags"] or []
    if isinstance(flags, list):  # what is none is refused with the other types
        step["flags"] = [one for one in flags if one is not None]
    return step | _optional(row, "state")


def _call(row: dict[str, Any]) -> dict[str, Any]:
    call = {name: row[name] for name in _CALLED if row[name] is not None}
    return call | _optional(row, "arguments")


def _usage(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _USAGE}


def _optional(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a field that is JSON as text, if it is there."""
    value = row[name]
    if value is None:
        return {}
    if not isinstance(value, str):
        raise FormatError(f"{name} is no text")
    return {name: loads(value.encode("utf-8", "surrogatepass"))}
