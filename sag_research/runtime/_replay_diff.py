"""The first place where a replay and its recording part, said so that a person can act on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sag_research._text import clip, escape, visible
from sag_research.errors import SagError
from sag_research.model import Event

__all__ = ["Change", "Divergence", "ReplayDivergence", "changes", "parting"]

Kind: TypeAlias = Literal["different", "missing", "extra", "unrecorded"]
"""``different``: another event was written. ``missing``: the recorded event was not written.
``extra``: the recording has ended. ``unrecorded``: something was asked that has no answer."""

_SHOWN: Final = 20
_WIDTH: Final = 200
_ABSENT: Final = "(absent)"


class Change(msgspec.Struct, frozen=True):
    """One value of a payload that differs; ``(absent)`` stands where one side has none."""

    path: str
    recorded: str
    replayed: str


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replay first parts from its recording.

    Attributes
    ----------
    run_id : str
    position : int
        Of the event in the recording, or the one after its end.
    kind : str
        See :data:`Kind`.
    recorded, replayed : Event or None
    fields : tuple of str
        Which of ``type``, ``actor``, ``cause`` and ``payload`` differ.
    changes : tuple of Change
        The payloads' values that differ.
    behavior : str or None
        The behaviour that was running.
    changed : tuple of str
        Behaviours (or the agent) whose source differs from when they were recorded, with a note
        where one is new or gone.
    reason : str
        What else is known.
    """

    run_id: str
    position: int
    kind: Kind
    recorded: Event | None = None
    replayed: Event | None = None
    fields: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    behavior: str | None = None
    changed: tuple[str, ...] = ()
    reason: str = ""

    @property
    def diff(self) -> str:
        """The payloads' differences as text: a path, ``-`` recorded, ``+`` replayed."""
        lines = [
            f"  {change.path}\n- {change.recorded}\n+ {change.replayed}"
            for change in self.changes[:_SHOWN]
        ]
        left_out = len(self.changes) - _SHOWN
        return "\n".join([*lines, f"  … {left_out} more"] if left_out > 0 else lines)

    @property
    def headline(self) -> str:
        """What parted, in one line."""
        recorded, replayed = _name(self.recorded), _name(self.replayed)
        what = {
            "different": f"the recording has {recorded}, the replay wrote {replayed}"
            f" (different: {', '.join(self.fields)})",
            "missing": f"the recording has {recorded}, the replay did not write it",
            "extra": f"the recording has ended, the replay wrote {replayed}",
            "unrecorded": f"the recording has {recorded}, the replay asked something else",
        }[self.kind]
        by = f" in behaviour {visible(clip(self.behavior))!r}" if self.behavior else ""
        return f"event {self.position} of run {self.run_id!r}{by}: {what}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON; of the events what is compared."""
        plain = ("position", "kind", "headline", "behavior", "reason")
        return {
            **{name: getattr(self, name) for name in plain},
            "fields": list(self.fields),
            "changes": [msgspec.to_builtins(change) for change in self.changes],
            "changed": list(self.changed),
            "recorded": _compared(self.recorded),
            "replayed": _compared(self.replayed),
        }

    def __str__(self) -> str:
        parts = [self.headline, self.reason, self.diff]
        if self.changed:
            parts.append("source changed since the recording: " + ", ".join(self.changed))
        return "\n".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        return f"<pre>{'<br>'.join(escape(line) for line in str(self).splitlines())}</pre>"


class ReplayDivergence(SagError):
    """A replay did not write what the recording holds.

    Attributes
    ----------
    divergence : Divergence
    """

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        super().__init__(
            str(divergence),
            fix="what differs from run to run must go through ctx.now, ctx.uuid, ctx.random, "
            "ctx.llm or ctx.tool",
        )


def parting(recorded: Event, replayed: Event) -> tuple[str, ...]:
    """Name the parts of two events that differ, the payload aside."""
    names = ("type", "actor", "cause")
    return tuple(name for name in names if getattr(recorded, name) != getattr(replayed, name))


def changes(recorded: Any, replayed: Any, path: str = "$") -> Iterator[Change]:
    """Yield where two JSON values differ.

    Examples
    --------
    >>> [tuple(c.__struct_fields__) for c in changes(1, 2)]
    [('path', 'recorded', 'replayed')]
    >>> [(c.path, c.recorded, c.replayed) for c in changes({"a": [1]}, {"a": [2], "b": 0})]
    [('$.a[0]', '1', '2'), ('$.b', '(absent)', '0')]
    """
    if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
        for key in sorted({*recorded, *replayed}, key=str):
            inner = f"{path}.{key}"
            if key not in recorded:
                yield Change(inner, _ABSENT, _text(replayed[key]))
            elif key not in replayed:
                yield Change(inner, _text(recorded[key]), _ABSENT)
            else:
                yield from changes(recorded[key], replayed[key], inner)
    elif _is_list(recorded) and _is_list(replayed):
        for number in range(max(len(recorded), len(replayed))):
            inner = f"{path}[{number}]"
            if number >= len(recorded):
                yield Change(inner, _ABSENT, _text(replayed[number]))
            elif number >= len(replayed):
                yield Change(inner, _text(recorded[number]), _ABSENT)
            else:
                yield from changes(recorded[number], replayed[number], inner)
    elif type(recorded) is not type(replayed) or recorded != replayed:
        yield Change(visible(clip(path, _WIDTH)), *_apart(recorded, replayed))


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _apart(recorded: Any, replayed: Any) -> tuple[str, str]:
    """Show two values, of long texts the part where they differ."""
    if isinstance(recorded, str) and isinstance(replayed, str):
        shared = 0
        for one, other in zip(recorded, replayed, strict=False):
            if one != other:
                break
            shared += 1
        if shared > _WIDTH // 2:
            start = shared - _WIDTH // 4
            return tuple(_text("…" + text[start:]) for text in (recorded, replayed))  # type: ignore[return-value]
    return _text(recorded), _text(replayed)


def _text(value: Any) -> str:
    if isinstance(value, str):
        value = value[: 2 * _WIDTH]
    return visible(clip(msgspec.json.encode(value, order="sorted").decode(), _WIDTH))


def _compared(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    names = ("type", "actor", "cause", "payload")
    return {name: getattr(event, name) for name in names}


def _name(event: Event | None) -> str:
    if event is None:
        return "nothing"
    about = event.payload.get("effect") or event.payload.get("name")
    named = event.type in ("effect.recorded", "tool.requested") and isinstance(about, str)
    return visible(clip(f"{event.type} {about!r}" if named else event.type))
