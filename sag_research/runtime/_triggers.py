"""What sets a behaviour off: types of events, values in their payloads, and sequences."""

from __future__ import annotations

import inspect
import textwrap
import types
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research.errors import UsageError
from sag_research.model import Event

if TYPE_CHECKING:
    from sag_research.runtime._reactive import ReactiveRuntime

__all__ = ["Behavior", "Firing", "Handler", "Trigger", "Triggers", "fingerprint", "matches"]

Handler: TypeAlias = "Callable[[ReactiveRuntime, Event], Awaitable[object] | object]"
"""A behaviour's function: ``handler(rt, event)``, plain or asynchronous."""

ANY: Final = "*"
_MISSING: Final = object()


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
    """

    on_events: tuple[str, ...] = ()
    where: dict[str, Any] = {}
    sequence: tuple[str, ...] = ()
    reset_on: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """Every type of event that the trigger must see, each once."""
        return tuple(dict.fromkeys((*self.on_events, *self.sequence, *self.reset_on)))


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


def make_trigger(
    on_events: str | Sequence[str] | None,
    where: Mapping[str, Any] | None,
    sequence: Sequence[str] | None,
    reset_on: str | Sequence[str],
) -> Trigger:
    """Check and make a trigger.

    Raises
    ------
    UsageError
        If it has neither types nor a sequence, or both.
    """
    trigger = Trigger(
        on_events=_names(on_events), where=dict(where or {}), sequence=_names(sequence),
        reset_on=_names(reset_on),
    )  # fmt: skip
    if bool(trigger.on_events) == bool(trigger.sequence):
        raise UsageError(
            "a behaviour needs something that sets it off",
            fix="give either on_events=['some.type'] or sequence=['some.type', 'some.type']",
        )
    if trigger.reset_on and not trigger.sequence:
        raise UsageError("reset_on belongs to a sequence", fix="give sequence=[…] too")
    return trigger


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


def matches(where: Mapping[str, Any], payload: object) -> bool:
    """Tell whether a payload holds the wanted values.

    A key may be a path with dots; a mapping asks for these values inside, whatever else is
    there; anything else must be equal, and of the same kind (``True`` is not 1).

    Examples
    --------
    >>> matches({"error": {"code": 5}}, {"error": {"code": 5, "text": "gone"}})
    True
    >>> matches({"error.code": 5, "calls.0.name": "ls"}, {"error": {"code": 5}})
    False
    """
    return all(_fits(wanted, _find(payload, key)) for key, wanted in where.items())


def _find(value: object, key: str) -> object:
    if isinstance(value, Mapping) and key in value:
        return value[key]
    for part in key.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else _MISSING
        else:
            return _MISSING
    return value


def _fits(wanted: object, found: object) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and matches(wanted, found)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, (list, tuple)):
        return isinstance(found, (list, tuple)) and list(wanted) == list(found)
    return wanted == found


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
    """The behaviours of a runtime, found by type of event, and how far their sequences are."""

    def __init__(self) -> None:
        self._behaviors: dict[str, Behavior] = {}
        self._by_type: dict[str, list[tuple[int, Behavior]]] = {}
        self._progress: dict[tuple[str, str], tuple[Event, ...]] = {}

    def __iter__(self) -> Iterator[Behavior]:
        return iter(tuple(self._behaviors.values()))

    def __len__(self) -> int:
        return len(self._behaviors)

    def add(self, name: str, handler: Handler, trigger: Trigger) -> Behavior:
        """Enter a behaviour; one that was defined anew takes the place of its former self."""
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
        self._behaviors |= {behavior.name: behavior for behavior in behaviors}
        by_type: dict[str, list[tuple[int, Behavior]]] = defaultdict(list)
        for number, behavior in enumerate(self._behaviors.values()):
            for type_ in behavior.trigger.types:
                by_type[type_].append((number, behavior))
        self._by_type = dict(by_type)

    def forget(self, run_id: str) -> None:
        """Let all sequences of a run begin anew."""
        self._progress = {key: seen for key, seen in self._progress.items() if key[1] != run_id}

    def firing(self, event: Event) -> list[Firing]:
        """Return the behaviours that an event sets off, in the order of their definition."""
        named = self._by_type.get(event.type, ())
        anyhow = self._by_type.get(ANY, ())
        found = dict((*named, *anyhow))
        fired = []
        for number in sorted(found):
            if (matched := self._matched(found[number], event)) is not None:
                fired.append(Firing(found[number], matched))
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
