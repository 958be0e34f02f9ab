"""Checkpoints of one LangGraph thread as nodes of a tree, and what each of them changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._json import loads
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._langgraph_db import Checkpoint, Write
from sag_research.ingest.formats._langgraph_values import value_of
from sag_research.ingest.formats._openhands_turns import clock, mapping

__all__ = ["Body", "Change", "Node", "Thread", "as_id", "changes_of", "nodes_run", "threads_of"]

_CONTROL: Final = ("branch:", "start:", "__")
"""How channels begin that say what runs next, and no more."""
_PULLED: Final = ", "
_NOBODY: Final = ("__input__", "__interrupt__", "__start__")


class Change(NamedTuple):
    """What a node of the graph wrote to a channel."""

    by: str
    channel: str
    value: Any


@dataclass
class Node:
    """A checkpoint."""

    row: Checkpoint
    id: str
    parent: str | None
    source: str
    step: int | None
    parents: dict[str, Any]
    """Of a subgraph: the checkpoints of the graphs above, by their namespaces."""
    writes: list[Write] = field(default_factory=list)
    """What was written on top of it."""


class _Head(msgspec.Struct):
    """What of a checkpoint is always needed; its values may be large."""

    ts: Any = None
    versions_seen: Any = None


_HEAD: Final = msgspec.msgpack.Decoder(_Head, ext_hook=lambda code, _: f"ext {code}")


class Body:
    """A checkpoint's content, decoded as far as it is asked for."""

    def __init__(self, node: Node | None, notes: list[str]) -> None:
        self._node = node
        self._notes = notes

    @cached_property
    def values(self) -> dict[str, Any]:
        """The state: values of channels."""
        return mapping(self._whole.get("channel_values"))

    @cached_property
    def seen(self) -> dict[str, Any]:
        """Of each node of the graph, the versions of channels that it has seen."""
        return {str(name): one for name, one in mapping(self._head.versions_seen).items()}

    @cached_property
    def started(self) -> float | None:
        """The time of the checkpoint as seconds since the epoch."""
        return clock(self._head.ts) if isinstance(self._head.ts, str) else None

    @cached_property
    def _head(self) -> _Head:
        row = None if self._node is None else self._node.row
        if row is not None and row.type == "msgpack" and isinstance(row.checkpoint, bytes):
            with suppress(msgspec.MsgspecError, RecursionError):
                return _HEAD.decode(row.checkpoint)
        return _Head(self._whole.get("ts"), self._whole.get("versions_seen"))

    @cached_property
    def _whole(self) -> dict[str, Any]:
        """All of it; nothing if that cannot be decoded."""
        if self._node is None:
            return {}
        try:
            return mapping(value_of(self._node.row.type, self._node.row.checkpoint))
        except FormatError as error:
            self._notes.append(f"checkpoint {self._node.id}: {error}")
            return {}


@dataclass
class Thread:
    """The checkpoints of one thread in one namespace."""

    thread_id: str
    namespace: str
    nodes: list[Node] = field(default_factory=list)
    """By id, which is the order of time."""

    @property
    def above(self) -> str:
        """The namespace of the graph that this subgraph is in."""
        return self.namespace.rpartition("|")[0]


def as_id(value: Any) -> str | None:
    """Return an id as text: the file may hold any type in its place."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape") or None
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def threads_of(
    checkpoints: Sequence[Checkpoint], writes: Sequence[Write], notes: list[str]
) -> list[Thread]:
    """Part the rows by thread and namespace: the outer graphs first, each in order of time."""
    found: dict[tuple[str, str], Thread] = {}
    nodes: dict[tuple[str, str, str], Node] = {}
    for row in checkpoints:
        thread, name, own = as_id(row.thread_id), as_id(row.checkpoint_ns), as_id(row.checkpoint_id)
        if own is None:
            notes.append("a checkpoint without an id")
            continue
        key = (thread or "", name or "")
        if (*key, own) in nodes:
            notes.append(f"checkpoint {own}: there twice, the first one is taken")
            continue
        node = nodes[*key, own] = _node(row, own, notes)
        found.setdefault(key, Thread(*key)).nodes.append(node)
    lost = 0
    for one in writes:
        place = (as_id(one.thread_id) or "", as_id(one.checkpoint_ns) or "")
        on = nodes.get((*place, as_id(one.checkpoint_id) or ""))
        if on is None:
            lost += 1
        else:
            on.writes.append(one)
    if lost:
        notes.append(f"{lost} writes on checkpoints that are not there")
    for thread_ in found.values():
        thread_.nodes.sort(key=lambda node: node.id)
    return sorted(found.values(), key=lambda one: (one.namespace.count("|"), bool(one.namespace)))


def _node(row: Checkpoint, own: str, notes: list[str]) -> Node:
    about = _metadata(row.metadata, own, notes)
    source = about.get("source")
    return Node(
        row,
        own,
        as_id(row.parent_checkpoint_id),
        source if isinstance(source, str) else "",
        shared.integer(about.get("step")),
        mapping(about.get("parents")),
    )


def _metadata(data: Any, own: str, notes: list[str]) -> dict[str, Any]:
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    if not isinstance(raw, bytes):
        return {}
    for decode in (loads, _packed):
        try:
            return mapping(decode(raw))
        except FormatError:
            continue
    notes.append(f"checkpoint {own}: its metadata cannot be read")
    return {}


def _packed(raw: bytes) -> Any:
    return value_of("msgpack", raw)


# ---- what changed


def is_control(channel: str) -> bool:
    """Tell whether a channel holds nothing of the graph's state."""
    return channel.startswith(_CONTROL)


def nodes_run(before: Node | None, bodies: tuple[Body, Body]) -> list[str]:
    """Return the nodes of the graph that ran, by their tasks' paths, or by what they have seen."""
    writes = [] if before is None else sorted(before.writes, key=_place)
    names = [name for one in writes if (name := node_name(one)) not in ("", *_NOBODY)]
    return list(dict.fromkeys(names)) or _ran(*bodies)


def changes_of(before: Node | None, bodies: tuple[Body, Body], notes: list[str]) -> list[Change]:
    """Say what was written on the way to a checkpoint.

    Parameters
    ----------
    before : Node or None
        The checkpoint that it follows; None if what was written on top of that one may be another
        run's, too: then the states are compared.
    bodies : tuple of Body
        The checkpoint and the one that it follows.
    notes : list of str
        Receives what could not be read.
    """
    if before is not None and before.writes:
        return list(_written(before, notes))
    return list(_compared(*bodies))


def _written(before: Node, notes: list[str]) -> Iterator[Change]:
    for one in sorted(before.writes, key=_place):
        channel = as_id(one.channel) or ""
        if is_control(channel):
            continue
        try:
            value = value_of(one.type, one.value)
        except FormatError as error:
            notes.append(f"checkpoint {before.id}: what was written to {channel}: {error}")
            continue
        yield Change(node_name(one), channel, value)


def _place(one: Write) -> tuple[str, str, int]:
    return as_id(one.task_path) or "", as_id(one.task_id) or "", shared.integer(one.idx) or 0


def node_name(one: Write) -> str:
    """Return the node that wrote: the last part of its task's path.

    Examples
    --------
    >>> node_name(Write("t", "", "c", "1", "~__pregel_pull, agent", 0, "foo", "null", b""))
    'agent'
    """
    path = as_id(one.task_path) or ""
    last = path.rpartition(_PULLED)[2].strip("~ ")
    return last if path.startswith("~__pregel_pull") else ""


def _compared(now: Body, before: Body) -> Iterator[Change]:
    by = ", ".join(_ran(now, before))
    for channel, value in now.values.items():
        if is_control(channel):
            continue
        if channel not in before.values or before.values[channel] != value:
            yield Change(by, channel, _added(value, before.values.get(channel)))


def _ran(now: Body, before: Body) -> list[str]:
    return sorted(
        name
        for name, versions in now.seen.items()
        if name not in _NOBODY and versions != before.seen.get(name)
    )


def _added(value: Any, old: Any) -> Any:
    """Return what a longer list has more than the old one; of other values, all."""
    if isinstance(value, list) and isinstance(old, list) and value[: len(old)] == old:
        return value[len(old) :]
    return value
