"""Steps read by their types, straight from the log's rows.

Nearly all steps are of one shape, and to make no dictionaries of them takes a third of the time.
A step of any other shape is left to the way that takes all events; both give the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research.extract import has_codes
from sag_research.log import RawEvent, RawPage, marked_digest
from sag_research.model import Event
from sag_research.warehouse._values import micros, number, open_file, whole

__all__ = ["TypedStep", "read_page"]

_SECOND: Final = 10**9
_STEP: Final = "agent.step"
_MARK: Final = re.compile(rb'\{"\\u0000":"([0-9a-f]{64})"\}')
"""A mark, which stands for a long text. Inside of texts quotes are escaped: none looks like it."""

_Text: TypeAlias = str | dict[str, str] | None
"""A text, or the mark of a long one."""
_Number: TypeAlias = int | float | None


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    text: _Text = None
    observation: _Text = None
    status: str | None = None
    exit_code: _Number = None


class _Usage(msgspec.Struct, gc=False):
    tokens_in: _Number = None
    tokens_out: _Number = None
    cost_usd: _Number = None


class _State(msgspec.Struct, gc=False):
    open_file: Any = None


class _Body(msgspec.Struct, gc=False):
    thought: _Text = None
    action: _Text = None
    observation: _Text = None
    calls: list[_Call] | None = None
    flags: list[str] | None = None
    usage: _Usage | None = None
    state: _State | str | int | float | bool | list[Any] | None = None
    unreadable: Any = msgspec.UNSET


_decode: Final = msgspec.json.Decoder(_Body).decode
_encode: Final = msgspec.json.encode
_decode_text: Final = msgspec.json.Decoder(str).decode


class TypedStep(NamedTuple):
    """What a step gives to each table, but for its keys and its number."""

    seq: int
    run_id: str
    position: int
    event: tuple[Any, ...]
    """The columns of ``events`` behind the keys."""
    row: tuple[Any, ...]
    """The columns of ``steps`` behind the step's number."""
    calls: list[tuple[Any, ...]]
    """Rows of ``calls`` behind the step's number; none if its only call is told in ``row``."""
    action: str
    observation: str
    open_file: str | None


class _OtherShape(Exception):
    """The step is to be read the other way."""


def read_page(page: RawPage) -> list[Event | TypedStep]:
    """Read a page of the log, in its order: steps by their types where they fit."""
    bodies: dict[int, _Body] = {}
    digests: dict[bytes, None] = {}
    for place, row in enumerate(page.rows):
        if row.type == _STEP and (body := _typed(row.body)) is not None:
            bodies[place] = body
            digests.update(dict.fromkeys(_marks(body)))
    texts = page.texts(digests) if digests else {}
    steps: dict[int, TypedStep] = {}
    for place, body in bodies.items():
        try:
            steps[place] = _step(page.rows[place], body, texts)
        except _OtherShape:
            continue
    others = iter(page.events([row for row, n in zip(page.rows, count()) if n not in steps]))
    return [steps[n] if n in steps else next(others) for n in range(len(page.rows))]


def _typed(body: bytes | None) -> _Body | None:
    try:
        found = None if body is None else _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if found is None or found.unreadable is not msgspec.UNSET:
        return None
    return None if any(map(_says_nothing, found.calls or ())) else found


def _says_nothing(call: _Call) -> bool:
    """Tell whether a call may be the mark of a long text, in which no field has its name."""
    return call.text is None and call.name is None and call.observation is None


def _marks(body: _Body) -> Iterator[bytes]:
    """Yield the digests of the long texts that a step needs."""
    texts = [body.thought, body.action, body.observation]
    for call in body.calls or ():
        texts += (call.text, call.observation)
        for found in _MARK.finditer(call.arguments):
            yield bytes.fromhex(found[1].decode())
    for one in texts:
        if type(one) is dict and (digest := _digest(one)) is not None:
            yield digest


def _digest(mark: dict[str, str]) -> bytes | None:
    try:
        return marked_digest(mark)
    except ValueError:
        return None


def _step(raw: RawEvent, body: _Body, texts: Mapping[bytes, str]) -> TypedStep:
    calls = body.calls or []
    thought = _whole(body.thought, texts) or ""
    action = _whole(body.action, texts) or ""
    observation = _whole(body.observation, texts) or ""
    flags = [*(body.flags or ())]
    if has_codes(thought) or has_codes(action) or has_codes(observation):
        flags.append("terminal")
    last = calls[-1] if calls else _NO_CALL
    usage = body.usage or _NO_USAGE
    only, rows = _of_calls(body, calls, texts)
    row = (
        thought, action, observation, len(calls), last.name, whole(last.exit_code, 31),
        number(raw.seconds), whole(usage.tokens_in), whole(usage.tokens_out),
        number(usage.cost_usd), micros(raw.started), "inherited" in flags, flags, *only,
    )  # fmt: skip
    event = (
        raw.type,
        raw.actor,
        micros(raw.ts_ns / _SECOND),
        raw.cause,
        raw.frame,
        None,
        raw.digest,
    )
    opened = _opened(body.state)
    return TypedStep(
        raw.seq, raw.run_id, raw.position, event, row, rows, action, observation, opened
    )


_NO_CALL: Final = _Call()
_NO_USAGE: Final = _Usage()


def _of_calls(
    body: _Body, calls: list[_Call], texts: Mapping[bytes, str]
) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]]:
    """Give what a step's only call has beside the step's own texts, or else all calls."""
    if len(calls) == 1:
        (call,) = calls
        if (
            call.text is not None
            and call.observation is not None
            and call.text == body.action
            and call.observation == body.observation
        ):
            return (True, call.id, _arguments(call.arguments, texts), call.status), []
    return (False, None, None, None), [
        (
            place, call.id, call.name, _arguments(call.arguments, texts),
            _whole(call.text, texts), _whole(call.observation, texts), call.status,
            whole(call.exit_code, 31),
        )
        for place, call in enumerate(calls)
    ]  # fmt: skip


def _whole(value: _Text, texts: Mapping[bytes, str]) -> str | None:
    if type(value) is not dict:
        return value  # type: ignore[return-value]
    digest = _digest(value)
    found = None if digest is None else texts.get(digest)
    if found is None:
        raise _OtherShape
    return found


def _arguments(raw: msgspec.Raw, texts: Mapping[bytes, str]) -> str | None:
    """Take a call's arguments as text, or as the JSON that they are."""
    data = bytes(raw)
    if data == b"null":
        return None
    if data.startswith(b'"'):
        return _decode_text(data)
    if (alone := _MARK.fullmatch(data)) is not None:
        return _long(alone, texts)
    return _MARK.sub(lambda found: _encode(_long(found, texts)), data).decode()


def _long(mark: re.Match[bytes], texts: Mapping[bytes, str]) -> str:
    found = texts.get(bytes.fromhex(mark[1].decode()))
    if found is None:
        raise _OtherShape
    return found


def _opened(state: Any) -> str | None:
    if type(state) is not _State:
        return None
    if type(state.open_file) is dict:
        raise _OtherShape
    return open_file(state.open_file)
