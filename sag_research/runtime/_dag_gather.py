"""What becomes of the records of a scatter: reducers choose its port, strategies fill the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from sag_research._text import clip
from sag_research.errors import UsageError
from sag_research.runtime._dag_path import MISSING, look, put

__all__ = [
    "ALL", "FAILED_PORTS", "REDUCERS", "STRATEGIES", "Gathering", "ItemRecord", "Needs", "Reducer",
    "Strategy", "gathered_port", "needs_of",
]  # fmt: skip

FAILED_PORTS: Final = frozenset({"error", "failed"})
"""An item whose body ends at one of these ports counts as failed."""


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one item of a scatter, or of one batch of items.

    Examples
    --------
    >>> ItemRecord(index=0, item="a", port="done").ok
    True
    """

    index: int
    """0-based number of the item in the source; of a batch, that of its first item."""
    port: str
    """Where the body ended: a port of a node, or the outcome of a document."""
    item: Any = None
    """The item, or the list of a batch. It, ``value`` and ``changes`` are kept only where a
    gather or a reducer of the document's may ask for them."""
    value: Any = None
    """What the body returned beside its port."""
    changes: Mapping[str, Any] = {}
    """What the body wrote into its copy of the state."""
    error: str = ""
    members: tuple[int, ...] = ()
    """The numbers of a batch's items."""
    marks: tuple[str, ...] = ()
    """Digests of the items, where those are not kept."""

    @property
    def ok(self) -> bool:
        """Whether the body did not fail."""
        return not self.error and self.port not in FAILED_PORTS

    @property
    def yielded(self) -> Any:
        """What the body returned, or the item itself where it returned nothing."""
        return self.item if self.value is None else self.value


class Needs(msgspec.Struct, frozen=True):
    """What of an item must be kept after its body; a stream may be longer than the memory."""

    items: bool = False
    changes: bool = False
    paths: frozenset[str] = frozenset()
    """Keys of the changes that are asked for, where not all are."""

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.items or other.items, self.changes or other.changes, self.paths | other.paths
        )


ALL: Final = Needs(items=True, changes=True)


def needs_of(strategy: str, mapping: Mapping[str, str]) -> Needs:
    """Return what a way to gather asks for.

    Examples
    --------
    >>> needs_of("discard", {}) == Needs()
    True
    >>> sorted(needs_of("map", {"output.text": "texts"}).paths)
    ['output', 'output.text']
    """
    if strategy == "map":
        return Needs(paths=frozenset({*mapping, *(path.partition(".")[0] for path in mapping)}))
    if strategy in ("append", "partition", "collect"):
        return Needs(items=True)
    return Needs() if strategy == "discard" else ALL


Records: TypeAlias = Sequence[ItemRecord]


class Reducer(msgspec.Struct, frozen=True):
    """A function from the records of a scatter, in the source's order, to a port."""

    name: str
    run: Callable[[Records], str]
    ports: tuple[str, ...]
    """The ports it can return."""


def _aggregate(records: Records) -> str:
    good = sum(record.ok for record in records)
    if not records:
        return "empty"
    if good == len(records):
        return "all-success"
    return "partial" if good else "all-error"


def _terminal(records: Records) -> str:
    if not records:
        return "empty"
    if len(records) > 1:
        raise UsageError(
            f"the reducer 'terminal' was given {len(records)} records",
            why="it says how a single one ended", fix="use 'aggregate'",
        )  # fmt: skip
    return "success" if records[0].ok else "error"


def _all_success(records: Records) -> str:
    if not records:
        return "empty"
    return "success" if all(record.ok for record in records) else "error"


def _any_success(records: Records) -> str:
    if not records:
        return "empty"
    return "success" if any(record.ok for record in records) else "error"


REDUCERS: Final[Mapping[str, Reducer]] = {
    "aggregate": Reducer("aggregate", _aggregate, ("all-success", "partial", "all-error", "empty")),
    "terminal": Reducer("terminal", _terminal, ("success", "error", "empty")),
    "all-success": Reducer("all-success", _all_success, ("success", "error", "empty")),
    "any-success": Reducer("any-success", _any_success, ("success", "error", "empty")),
}
"""The reducers that every set of documents knows."""


class Gathering(Protocol):
    """What a strategy may know of the placement that gathers."""

    @property
    def target(self) -> str:
        """Path in the state that it writes to; empty where it needs none."""
        ...

    @property
    def mapping(self) -> Mapping[str, str]:
        """Paths in an item's copy of the state to paths in the state."""
        ...


Strategy: TypeAlias = Callable[[MutableMapping[str, Any], Records, Gathering], object]
"""``strategy(state, records, gathering)`` writes what records hold into the state."""


def _append(state: MutableMapping[str, Any], records: Records, gathering: Gathering) -> None:
    target = _target(gathering, "append")
    before = look(state, target)
    if before is MISSING:
        before = []
    if not isinstance(before, list):
        raise UsageError(f"nothing can be appended at {target!r}", why=clip(repr(before)))
    put(state, target, [*before, *(record.yielded for record in records)])


def _map(state: MutableMapping[str, Any], records: Records, gathering: Gathering) -> None:
    # written anew, never appended: what an earlier turn left there is not of these records
    for inner, outer in gathering.mapping.items():
        found = (look(record.changes, inner) for record in records)
        put(state, outer, [value for value in found if value is not MISSING])


def _partition(state: MutableMapping[str, Any], records: Records, gathering: Gathering) -> None:
    parts: dict[str, list[Any]] = {}
    for record in records:
        parts.setdefault(record.port, []).append(record.yielded)
    put(state, _target(gathering, "partition"), parts)


def _collect(state: MutableMapping[str, Any], records: Records, gathering: Gathering) -> None:
    kept = [
        {"index": r.index, "port": r.port, "item": r.item, "value": r.value, "error": r.error}
        for r in records
    ]
    put(state, _target(gathering, "collect"), kept)


def _discard(state: MutableMapping[str, Any], records: Records, gathering: Gathering) -> None:
    """Keep nothing; the port still says how the items ended."""


def _target(gathering: Gathering, strategy: str) -> str:
    if not gathering.target:
        raise UsageError(
            f"the strategy {strategy!r} needs a target", fix="name a path of the state"
        )
    return gathering.target


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "append": _append,
    "map": _map,
    "partition": _partition,
    "collect": _collect,
    "discard": _discard,
}
"""The strategies that every set of documents knows; ``custom`` is a function of the user's."""


def gathered_port(records: Records) -> str:
    """Return the port of a gather.

    Examples
    --------
    >>> gathered_port([])
    'empty'
    >>> gathered_port([ItemRecord(index=0, item=1, port="failed")])
    'error'
    """
    if not records:
        return "empty"
    return "success" if all(record.ok for record in records) else "error"
