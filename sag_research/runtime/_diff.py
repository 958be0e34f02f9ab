"""Where two runs part, and what they did after that."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from sag_research._text import clip, escape, html_table
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from sag_research.runtime._diff_align import align

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DiffRow", "RunDiff", "Status", "diff"]

Status: TypeAlias = Literal["same", "changed", "only_a", "only_b"]

_FIELDS: Final = ("thought", "action", "observation", "calls", "flags")
_MARKS: Final[Mapping[str, str]] = {"same": "=", "changed": "≠", "only_a": "−", "only_b": "+"}
_HTML_ROWS: Final = 300
_CLIP: Final = 160


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """Two steps side by side, or one that has no counterpart."""

    position_a: int | None
    position_b: int | None
    step_a: int | None
    step_b: int | None
    status: Status
    """``same``; ``changed``: aligned, but not equal; ``only_a``, ``only_b``."""
    summary: str


class _Turn(NamedTuple):
    """What is kept of a step, so that long observations need no memory."""

    position: int
    step: int
    key: Hashable
    prints: tuple[bytes, ...]
    action: str
    observation: str


class RunDiff:
    """The difference between two runs.

    Attributes
    ----------
    a, b : str
    shared : int
        Positions 1..shared hold the same history.
    shared_steps : int
        Steps in it.
    first_a, first_b : Event or None
        The first event of each side that the other has not; ``None`` where a run ends there.
    rows : list of DiffRow
        The steps after the shared prefix, aligned.
    """

    def __init__(
        self,
        a: str,
        b: str,
        shared: int,
        shared_steps: int,
        first: tuple[Event | None, Event | None],
        pairs: list[tuple[_Turn | None, _Turn | None]],
    ) -> None:
        self.a, self.b, self.shared, self.shared_steps = a, b, shared, shared_steps
        self.first_a, self.first_b = first
        self._pairs = pairs
        self.rows = [_row(left, right) for left, right in pairs]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        names = f"{clip(self.a, 60)!r}, {clip(self.b, 60)!r}"
        counts = ", ".join(f"{n} {status}" for status, n in self.counts_.items())
        return f"RunDiff({names}, {self.shared} events shared; steps: {counts})"

    @property
    def equal(self) -> bool:
        """Whether both histories are the same, clocks and names aside."""
        return self.first_a is None and self.first_b is None

    @property
    def counts_(self) -> dict[Status, int]:
        """Number of rows by status; the shared prefix is not in them."""
        counts: dict[Status, int] = {"same": 0, "changed": 0, "only_a": 0, "only_b": 0}
        for row in self.rows:
            counts[row.status] += 1
        return counts

    @property
    def table_(self) -> pd.DataFrame:
        """One row for each aligned step after the shared prefix; see :class:`DiffRow`."""
        import pandas as pd

        rows = [msgspec.structs.astuple(row) for row in self.rows]
        frame = pd.DataFrame(rows, columns=list(DiffRow.__struct_fields__))
        numbers = ("position_a", "position_b", "step_a", "step_b")
        return frame.astype(dict.fromkeys(numbers, "Int64"))

    def to_html(self, limit: int = _HTML_ROWS) -> str:
        """Return both runs side by side as a piece of HTML; every text is escaped.

        Parameters
        ----------
        limit : int
            Most rows shown.
        """
        columns = ("", "step", self.a, "step", self.b, "what differs")
        cells = [_cells(row, *pair) for row, pair in zip(self.rows, self._pairs, strict=True)]
        table = html_table(columns, cells[:limit], len(cells))
        parted = "".join(
            f"<div>{escape(clip(name, 80))} goes on with {escape(_event_text(event))}</div>"
            for name, event in ((self.a, self.first_a), (self.b, self.first_b))
        )
        return f"<div><b>{escape(repr(self))}</b>{parted}{table}</div>"

    def _repr_html_(self) -> str:
        return self.to_html()


def diff(
    store: SQLiteEventStore,
    a: str,
    b: str,
    *,
    key: Callable[[Mapping[str, Any]], Hashable] | None = None,
) -> RunDiff:
    """Compare two runs: forks of one parent, or any two.

    Parameters
    ----------
    store : SQLiteEventStore
    a, b : str
        Run ids.
    key : callable, optional
        ``key(payload of agent.step)`` by which steps are aligned, e.g. a step's token;
        default: the text of its action.

    Returns
    -------
    RunDiff

    Raises
    ------
    RunNotFoundError

    Notes
    -----
    Digests are chained and leave clocks and run ids out, so the shared prefix is found by
    bisection: it is the last position at which both runs have the same digest.

    Examples
    --------
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="a"))
    >>> _ = store.append(Event(run_id="a", type="agent.step", payload={"action": "ls"}))
    >>> _ = store.fork("a", at=1, run_id="b")
    >>> _ = store.append(Event(run_id="b", type="agent.step", payload={"action": "pwd"}))
    >>> diff(store, "a", "b")
    RunDiff('a', 'b', 1 events shared; steps: 0 same, 0 changed, 1 only_a, 1 only_b)
    """
    shared = _shared_prefix(store, a, b)
    steps = store.count_steps(a, shared + 1)
    key_of = key or _action
    left, right = (_turns(store, run, shared, steps, key_of) for run in (a, b))
    numbers: dict[Hashable, int] = {}  # small numbers compare faster than long texts
    keys = [[numbers.setdefault(t.key, len(numbers)) for t in side] for side in (left, right)]
    pairs = [
        (None if i is None else left[i], None if j is None else right[j]) for i, j in align(*keys)
    ]
    first = (_event_at(store, a, shared + 1), _event_at(store, b, shared + 1))
    return RunDiff(a, b, shared, steps, first, pairs)


def _shared_prefix(store: SQLiteEventStore, a: str, b: str) -> int:
    same, parted = 0, 1 + min(store.head(a).position, store.head(b).position)
    while parted - same > 1:
        middle = (same + parted) // 2
        left, right = _event_at(store, a, middle), _event_at(store, b, middle)
        equal = left is not None and right is not None and left.digest == right.digest
        same, parted = (middle, parted) if equal else (same, middle)
    return same


def _event_at(store: SQLiteEventStore, run: str, position: int) -> Event | None:
    return next(store.read(run, position, position), None)


def _action(payload: Mapping[str, Any]) -> Hashable:
    return str(payload.get("action", ""))


def _turns(
    store: SQLiteEventStore,
    run: str,
    shared: int,
    steps: int,
    key: Callable[[Mapping[str, Any]], Hashable],
) -> list[_Turn]:
    events = store.read(run, shared + 1, types=("agent.step",))
    return [_turn(event, number, key) for number, event in enumerate(events, steps)]


def _turn(event: Event, step: int, key: Callable[[Mapping[str, Any]], Hashable]) -> _Turn:
    payload = event.payload
    return _Turn(
        position=event.position or 0,
        step=step,
        key=key(payload),
        prints=tuple(_print(_content(payload, field)) for field in _FIELDS),
        action=clip(payload.get("action", ""), _CLIP),
        observation=clip(payload.get("observation", ""), _CLIP),
    )


def _content(payload: Mapping[str, Any], field: str) -> Any:
    """A field without what providers number anew each time."""
    value = payload.get(field) or None
    if field == "calls" and isinstance(value, list):
        return [{k: v for k, v in call.items() if k != "id"} if isinstance(call, dict) else call
                for call in value]  # fmt: skip
    return value


def _print(value: Any) -> bytes:
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=12).digest()


def _row(left: _Turn | None, right: _Turn | None) -> DiffRow:
    status: Status = "same"
    shown = left or right
    summary = "" if shown is None else shown.action
    if left is None:
        status = "only_b"
    elif right is None:
        status = "only_a"
    elif left.prints != right.prints:
        status, summary = "changed", _what_differs(left, right)
    return DiffRow(
        position_a=None if left is None else left.position,
        position_b=None if right is None else right.position,
        step_a=None if left is None else left.step,
        step_b=None if right is None else right.step,
        status=status,
        summary=summary,
    )


def _what_differs(left: _Turn, right: _Turn) -> str:
    prints = zip(_FIELDS, left.prints, right.prints, strict=True)
    names = ", ".join(field for field, one, other in prints if one != other)
    if left.action != right.action:
        return f"{names}: {left.action} | {right.action}"
    return f"{names}: {left.action}"


def _cells(row: DiffRow, left: _Turn | None, right: _Turn | None) -> list[Any]:
    what = row.summary.partition(": ")[0] if row.status == "changed" else ""
    return [_MARKS[row.status], row.step_a, _shown(left), row.step_b, _shown(right), what]


def _shown(turn: _Turn | None) -> str | None:
    return None if turn is None else f"{clip(turn.action, 70)} → {clip(turn.observation, 45)}"


def _event_text(event: Event | None) -> str:
    if event is None:
        return "nothing: it ends there"
    said = event.payload.get("action") or event.payload.get("exit_status") or ""
    return f"{event.type} at position {event.position} {clip(said, 80)}".rstrip()
