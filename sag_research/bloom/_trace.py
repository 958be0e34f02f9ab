"""What an agent thought, did, saw and answered, as a numbered line of items.

The log holds steps; items are derived from them by one pure function and never stored there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias
from typing import Final as Constant

import msgspec

from sag_research.errors import FormatError
from sag_research.model import Call, Step

__all__ = [
    "Action",
    "Final",
    "Observation",
    "Thought",
    "TraceItem",
    "TraceStep",
    "Tracer",
    "decode_item",
    "item_kind",
    "item_text",
    "read_item",
    "step_of",
    "trace_items",
]

DROPPED: Constant = frozenset({"rejected", "error"})
"""Flags of steps in which nothing was thought or done that counts."""
FINAL: Constant = "final"

Kind: TypeAlias = Literal["thought", "action", "observation", "final"]


class _Tagged(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """A kind of item; the field ``kind`` tells which, and no other field is taken."""


class Thought(_Tagged, frozen=True, tag="thought"):
    """What the model said before it acted."""

    text: str


class Action(_Tagged, frozen=True, tag="action"):
    """A tool call, as it was asked for."""

    tool: str
    """Empty where the source knows the action as text only."""
    args: Any = None
    """The arguments as the model gave them; the action's text where there are none."""
    call_id: str = ""


class Observation(_Tagged, frozen=True, tag="observation"):
    """What came back from a tool call."""

    output: str
    call_id: str = ""


class Final(_Tagged, frozen=True, tag="final"):
    """An answer that a run gave; it ended with the last one, unless more came after."""

    text: str


TraceStep: TypeAlias = Thought | Action | Observation | Final


class TraceItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One item of a trace."""

    ordinal: Annotated[int, msgspec.Meta(ge=0)]
    """0-based; contiguous within a run's lineage."""
    step: TraceStep
    origin: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Ordinal of the item that the content comes from: an observation's action, or the last
    observation before a final."""


def trace_items(
    steps: Iterable[Step], *, start: int = 0, completed: bool = False
) -> Iterator[TraceItem]:
    """Derive the items of a trace from a run's steps.

    Parameters
    ----------
    steps : iterable of Step
        In order; those of a fork's ancestors first, or ``start`` says how many items they gave.
    start : int
        Ordinal of the first item.
    completed : bool
        Whether the run ended by completing. Its last step then is its answer, if it did nothing.

    Yields
    ------
    TraceItem
        A step gives its thought, where it has text; its actions, and then its observations, in
        order; and a final, where it carries the flag ``final``. Steps flagged ``rejected`` or
        ``error`` give nothing and use no ordinal.

    Examples
    --------
    >>> call = Call(id="c1", name="lookup", arguments={"query": "sag"}, observation="a graph")
    >>> steps = [Step(thought="I look", calls=(call,)), Step(thought="A graph", flags=("final",))]
    >>> for item in trace_items(steps):
    ...     print(item.ordinal, item_kind(item), item_text(item))
    0 thought I look
    1 action lookup({"query": "sag"})
    2 observation a graph
    3 thought A graph
    4 final A graph
    """
    tracer = Tracer(start)
    for step in steps:
        yield from tracer.take(step)
    if completed:
        yield from tracer.complete()


class Tracer:
    """Derives items step by step, for those who follow a run while it goes on.

    Parameters
    ----------
    start : int
        Ordinal of the first item.

    Attributes
    ----------
    ordinal : int
        That of the next item.
    """

    def __init__(self, start: int = 0) -> None:
        self.ordinal = start
        self._seen: int | None = None
        self._answer = ""

    def take(self, step: Step) -> list[TraceItem]:
        """Return the items of the next step."""
        self._answer = ""
        if DROPPED.intersection(step.flags):
            return []
        items: list[TraceItem] = []
        final = FINAL in step.flags
        if step.thought.strip():
            items.append(self._item(Thought(step.thought)))
        calls = step.calls or _told(step, final)
        asked: list[int | None] = []
        for call in calls:
            asked.append(self.ordinal if _asks(call) else None)
            if _asks(call):
                items.append(self._item(Action(call.name, _arguments(call), call.id)))
        for call, origin in zip(calls, asked, strict=True):
            self._seen = self.ordinal
            items.append(self._item(Observation(call.observation, call.id), origin))
        if final:
            items.append(self._item(Final(_answer(step)), self._seen))
        elif not calls:
            self._answer = step.thought
        return items

    def complete(self) -> list[TraceItem]:
        """Return the final that the run's completing makes of its last step, if it does."""
        text, self._answer = self._answer, ""
        return [self._item(Final(text), self._seen)] if text.strip() else []

    def _item(self, step: TraceStep, origin: int | None = None) -> TraceItem:
        self.ordinal += 1
        return TraceItem(self.ordinal - 1, step, origin)


def _told(step: Step, final: bool) -> tuple[Call, ...]:
    """Make a call of what a step without calls tells in its texts; of a final it is the answer."""
    if final or not (step.action.strip() or step.observation.strip()):
        return ()
    return (Call(text=step.action, observation=step.observation, status="unknown"),)


def _answer(step: Step) -> str:
    told = "" if step.calls else step.action
    return told if told.strip() else step.thought


def _asks(call: Call) -> bool:
    return bool(call.name or call.text.strip()) or call.arguments is not None


def _arguments(call: Call) -> Any:
    return call.arguments if call.arguments is not None else call.text or None


def step_of(payload: Mapping[str, Any]) -> Step:
    """Read the payload of an event ``agent.step``, whoever wrote it.

    What is of another type than it should be is left out; a payload without texts is an empty
    step.

    Examples
    --------
    >>> step_of({"thought": "hm", "observation": None, "calls": [{"name": "ls"}, 3]}).calls
    (Call(id='', name='ls', arguments=None, text='', observation='', status='ok', exit_code=None),)
    """
    calls, flags = payload.get("calls"), payload.get("flags")
    return Step(
        thought=_text(payload, "thought"),
        action=_text(payload, "action"),
        observation=_text(payload, "observation"),
        calls=tuple(_call(call) for call in _listed(calls) if isinstance(call, Mapping)),
        flags=tuple(flag for flag in _listed(flags) if isinstance(flag, str)),
        started=_number(payload.get("started")),
        seconds=_number(payload.get("seconds")),
    )


def _call(call: Mapping[str, Any]) -> Call:
    return Call(
        id=_text(call, "id"),
        name=_text(call, "name"),
        arguments=call.get("arguments"),
        text=_text(call, "text"),
        observation=_text(call, "observation"),
        status=_text(call, "status") or "ok",
    )


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def item_kind(item: TraceItem) -> Kind:
    """Return ``thought``, ``action``, ``observation`` or ``final``."""
    return _KINDS[type(item.step)]


_KINDS: Constant[dict[type, Kind]] = {
    Thought: "thought",
    Action: "action",
    Observation: "observation",
    Final: "final",
}


def item_text(item: TraceItem) -> str:
    """Return an item's content as text; an action is written ``tool(arguments as JSON)``.

    Examples
    --------
    >>> item_text(TraceItem(0, Action("", "ls -l"))), item_text(TraceItem(0, Action("now")))
    ('ls -l', 'now()')
    """
    match item.step:
        case Thought(text) | Final(text):
            return text
        case Observation(output):
            return output
        case Action(tool, args):
            if not tool and isinstance(args, str):
                return args
            return f"{tool}({'' if args is None else _json(args)})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def decode_item(data: bytes | str) -> TraceItem:
    """Read an item from JSON.

    Raises
    ------
    FormatError
        If it is none: unknown fields, an unknown kind, a negative ordinal.

    Examples
    --------
    >>> decode_item('{"ordinal": 0, "step": {"kind": "thought", "text": "hm"}}')
    TraceItem(ordinal=0, step=Thought(text='hm'), origin=None)
    """
    try:
        return msgspec.json.decode(data, type=TraceItem)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise FormatError("no trace item", why=str(error)) from error


def read_item(value: object) -> TraceItem:
    """Take an item for what it is: a :class:`TraceItem`, JSON text, or the object it stands for.

    Raises
    ------
    FormatError
        As :func:`decode_item`.
    """
    if isinstance(value, (str, bytes)):
        return decode_item(value)
    try:
        plain = msgspec.to_builtins(value) if isinstance(value, TraceItem) else value
        return msgspec.convert(plain, TraceItem)
    except (msgspec.ValidationError, TypeError) as error:
        raise FormatError("no trace item", why=str(error)) from error
