"""What sets a behaviour off: types of events, values in them, sequences, and shapes of objects."""

from __future__ import annotations

import inspect
import textwrap
import types
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research.errors import BadPayloadError, UsageError
from sag_research.log import canonical_digest
from sag_research.model import Event
from sag_research.runtime._object_graph import GRAPH_TYPES
from sag_research.runtime._patterns import Match, Patterns, Read, Wanted, check_pattern
from sag_research.runtime._where import matches

if TYPE_CHECKING:
    from sag_research.runtime._reactive import ReactiveRuntime

__all__ = ["Behavior", "Firing", "Handler", "Trigger", "Triggers", "fingerprint", "make_trigger"]

Handler: TypeAlias = "Callable[[ReactiveRuntime, Event], Awaitable[object] | object]"
"""A behaviour's function: ``handler(rt, event)``, plain or asynchronous."""

ANY: Final = "*"


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """When a behaviour is run.

    Attributes
    ----------
    on_events : tuple of str
        Types; ``*`` is any.
    where : dict
        Values that the payload must hold; see :func:`matches`.
    sequence : tuple of str
        Types that must follow one another within a run, others between them allowed.
    reset_on : tuple of str
        Types that make a sequence begin anew.
    objects : dict of str to dict
        Names of the objects of a shape, each with the values that it must hold.
    relations : tuple of (str, str, str)
        How they are joined: name, type of the relation, name.
    """

    on_events: tuple[str, ...] = ()
    where: dict[str, Any] = {}
    sequence: tuple[str, ...] = ()
    reset_on: tuple[str, ...] = ()
    objects: dict[str, dict[str, Any]] = {}
    relations: tuple[Wanted, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """Every type of event that the trigger must see, each once."""
        graph = GRAPH_TYPES if self.objects else ()
        return tuple(dict.fromkeys((*self.on_events, *self.sequence, *self.reset_on, *graph)))


class Behavior(msgspec.Struct, frozen=True, kw_only=True):
    """A function, what sets it off, and the fingerprint of its source."""

    name: str
    handler: Handler
    trigger: Trigger
    fingerprint: str

    @property
    def is_async(self) -> bool:
        """Whether the function must be awaited."""
        call = getattr(self.handler, "__call__", None)  # noqa: B004 - the method is looked at
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)

    def describe(self) -> dict[str, Any]:
        """Return what the log keeps of it."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "trigger": msgspec.to_builtins(self.trigger),
        }


class Firing(NamedTuple):
    """A behaviour that an event sets off, and the events that did (several for a sequence)."""

    behavior: Behavior
    matched: tuple[Event, ...]
    objects: Match | None = None
    """Those of a shape, by their names in it."""


def make_trigger(
    on_events: str | Sequence[str] | None = None,
    where: Mapping[str, Any] | None = None,
    sequence: Sequence[str] | None = None,
    reset_on: str | Sequence[str] = (),
    objects: Mapping[str, Any] | None = None,
    relations: Sequence[Sequence[str]] = (),
) -> Trigger:
    """Check and make a trigger.

    Raises
    ------
    UsageError
        If it has not exactly one of types, a sequence and a shape, or the shape is none, or a
        wanted value is one that no payload can hold.
    """
    wheres, triples = check_pattern(objects, relations) if objects else ({}, ())
    if not isinstance(where, (Mapping, type(None))):
        raise UsageError(
            f"where={where!r} says nothing of a payload", fix="give values: {'error.code': 5}"
        )
    _check_recordable({"where": where or {}, "objects": wheres})
    trigger = Trigger(
        on_events=_names(on_events), where=dict(where or {}), sequence=_names(sequence),
        reset_on=_names(reset_on), objects=wheres, relations=triples,
    )  # fmt: skip
    if [bool(trigger.on_events), bool(trigger.sequence), bool(wheres)].count(True) != 1:
        raise UsageError(
            "a behaviour needs one thing that sets it off",
            fix="give either on_events=['some.type'] or sequence=['some.type', 'some.type'], "
            "or objects={'file': 'File'}",
        )
    if trigger.reset_on and not trigger.sequence:
        raise UsageError("reset_on belongs to a sequence", fix="give sequence=[…] too")
    if relations and not wheres:
        raise UsageError("relations join the objects of a shape", fix="give objects={…} too")
    if trigger.where and wheres:
        raise UsageError(
            "where looks into one event, and a shape is made of several",
            fix="write conditions into objects: {'error': {'kind': 'Error', 'attributes.code': 5}}",
        )
    return trigger


def _check_recordable(about: Mapping[str, Any]) -> None:
    """Refuse at the definition what the log could not keep of a behaviour."""
    try:
        canonical_digest(about)
    except BadPayloadError as error:
        raise UsageError(
            "a behaviour cannot be written down",
            why=f"{error.args[0]}: {error.args[1]}",
            fix="give names and plain values",
        ) from None


def _check_definition(name: Any, handler: Any) -> None:
    if not callable(handler) or not isinstance(name, str) or not name:
        raise UsageError(
            f"{handler!r} named {name!r} is no behaviour", fix="give a function and a name"
        )
    _check_recordable({"name": name})


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    if not isinstance(given, (Iterable, type(None))):
        raise UsageError(
            "a behaviour needs something that sets it off",
            why=f"{type(given).__name__} was given where types of events belong",
            fix="write @runtime.behavior(on_events=['some.type'])",
        )
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given or ())
    if not all(isinstance(name, str) and name for name in names):
        raise UsageError(
            f"{given!r} are no types of events", fix="give names such as 'tool.failed'"
        )
    return names


def fingerprint(function: object) -> str:
    """Return 16 hex digits over a function's source, or over its code where there is no source.

    What the function calls is not covered.
    """
    while (inner := getattr(function, "func", None)) is not None and callable(inner):
        function = inner  # functools.partial
    function = inspect.unwrap(function) if callable(function) else function
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        function = type(function)
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        text = _code_text(getattr(function, "__code__", None)) or repr(function)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _code_text(code: types.CodeType | None) -> str:
    """Write down what a code object does, without the addresses that its repr holds."""
    if code is None:
        return ""
    constants = [
        _code_text(item) if isinstance(item, types.CodeType) else repr(item)
        for item in code.co_consts
    ]
    return repr((code.co_code, constants, code.co_names, code.co_varnames))


class Triggers:
    """The behaviours of a runtime, found by type of event, and how far their sequences are.

    Parameters
    ----------
    read : callable
        ``read(run_id, first, last)`` gives the events of a run's objects between two positions.
    """

    def __init__(self, read: Read) -> None:
        self.patterns = Patterns(read)
        self._behaviors: dict[str, Behavior] = {}
        self._by_type: dict[str, list[tuple[int, Behavior]]] = {}
        self._progress: dict[tuple[str, str], tuple[Event, ...]] = {}

    def __iter__(self) -> Iterator[Behavior]:
        return iter(tuple(self._behaviors.values()))

    def __len__(self) -> int:
        return len(self._behaviors)

    def add(self, name: str, handler: Handler, trigger: Trigger) -> Behavior:
        """Enter a behaviour; one that was defined anew takes the place of its former self."""
        _check_definition(name, handler)
        old = self._behaviors.get(name)
        if old is not None and not _is_redefined(old, handler, trigger):
            number = 2
            while f"{name}#{number}" in self._behaviors:
                number += 1
            name = f"{name}#{number}"
        behavior = Behavior(
            name=name, handler=handler, trigger=trigger, fingerprint=fingerprint(handler)
        )
        self.enter([behavior])
        return behavior

    def enter(self, behaviors: Sequence[Behavior]) -> None:
        """Enter behaviours as they are."""
        for behavior in behaviors:
            old = self._behaviors.get(behavior.name)
            if old is not None and old.trigger != behavior.trigger:
                self._progress = {k: s for k, s in self._progress.items() if k[0] != behavior.name}
        self._behaviors |= {behavior.name: behavior for behavior in behaviors}
        by_type: dict[str, list[tuple[int, Behavior]]] = defaultdict(list)
        for number, behavior in enumerate(self._behaviors.values()):
            for type_ in behavior.trigger.types:
                by_type[type_].append((number, behavior))
        self._by_type = dict(by_type)
        self.patterns.enter(
            {
                name: (behavior.trigger.objects, behavior.trigger.relations)
                for name, behavior in self._behaviors.items()
                if behavior.trigger.objects
            }
        )

    def forget(self, run_id: str) -> None:
        """Let all sequences of a run begin anew."""
        self._progress = {key: seen for key, seen in self._progress.items() if key[1] != run_id}

    def firing(self, event: Event) -> list[Firing]:
        """Return the behaviours that an event sets off, in the order of their definition."""
        named = self._by_type.get(event.type, ())
        anyhow = self._by_type.get(ANY, ())
        found = dict((*named, *anyhow))
        shapes = self.patterns.completed(event)
        fired = []
        for number in sorted(found):
            behavior = found[number]
            if behavior.trigger.objects:
                shape = shapes.get(behavior.name, ())
                fired += [Firing(behavior, (event,), objects) for objects in shape]
            elif (matched := self._matched(behavior, event)) is not None:
                fired.append(Firing(behavior, matched))
        return fired

    def _matched(self, behavior: Behavior, event: Event) -> tuple[Event, ...] | None:
        trigger = behavior.trigger
        if not trigger.sequence:
            return (event,) if matches(trigger.where, event.payload) else None
        key = (behavior.name, event.run_id)
        seen = self._progress.get(key, ())
        if event.type in trigger.reset_on:
            self._progress.pop(key, None)
            return None
        wanted = trigger.sequence[len(seen)]
        if wanted not in (event.type, ANY) or not matches(trigger.where, event.payload):
            return None
        seen = (*seen, event)
        if len(seen) < len(trigger.sequence):
            self._progress[key] = seen
            return None
        self._progress.pop(key, None)
        return seen


def _is_redefined(old: Behavior, handler: Handler, trigger: Trigger) -> bool:
    """Tell a cell that is run again from several functions that share a name.

    A function at the top level replaces its namesake, unless the two come from one and the same
    line with different triggers, as in a loop.
    """
    code, old_code = getattr(handler, "__code__", None), getattr(old.handler, "__code__", None)
    if code is None or old_code is None or "<" in code.co_qualname:
        return False
    place = (code.co_filename, code.co_firstlineno)
    return place != (old_code.co_filename, old_code.co_firstlineno) or trigger == old.trigger
