"""OpenTelemetry spans out of JSON, whoever wrote it: OTLP, an SDK's exporter, or a store's dump."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from sag_research.errors import FormatError
from sag_research.ingest._json import first_character, loads, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import clock, mapping

__all__ = ["BARE", "Span", "looks_like_spans", "spans_of"]

_DEEPEST: Final = 20
_NESTED: Final = 4
"""Levels of lists and objects above a span."""
_RESOURCES: Final = ("resourceSpans", "resource_spans", "batches")
_SCOPES: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_CONTEXT: Final = ("spanContext", "context", "traceId", "trace_id", "spanId", "span_id")
_COLUMN: Final = "attributes."
BARE: Final = ("openinference.", "gen_ai.", "llm.", "ai.operationId")
"""How the names of attributes begin in an object that is no span, but its attributes alone."""
_HEX: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{16}|[0-9a-fA-F]{32})")
_ID_BYTES: Final = (8, 16)


class Span(NamedTuple):
    """A span, whatever its writer calls its parts."""

    trace: str
    """32 hex digits where it is an OpenTelemetry id; empty if there is none."""
    id: str
    parent: str
    name: str
    attributes: dict[str, Any]
    """Flat: what was nested stands under dotted names, and whole under its own."""
    events: list[tuple[str, dict[str, Any]]]
    start: float | None
    end: float | None
    failed: bool
    message: str
    resource: dict[str, Any]


def looks_like_spans(head: bytes, names: re.Pattern[bytes]) -> bool:
    """Tell whether a beginning shows spans, or attributes alone, with a name of this pattern."""
    if names.search(head) is None:
        return False
    seen = outline(head)
    if seen.root == "":
        return False
    keys = seen.keys.keys()
    if any(one in keys for one in _RESOURCES) or any(one.startswith(BARE) for one in keys):
        return True
    if any(one.startswith(_COLUMN) for one in keys):
        return True
    return any(
        "attributes" in one and any(name in one for name in _CONTEXT)
        for one in (keys, *seen.keys.values())
    )


def spans_of(source: Source, refused: list[tuple[str, str]]) -> Iterator[Span]:
    """Read the spans of a source, in its order: one JSON value, JSON lines, or several in a row."""
    for place, value in _values(source, refused):
        found = list(_spans_in(value, {}, 0))
        if not found:
            refused.append((place, "no span in it"))
        yield from found


def _values(source: Source, refused: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    lines = list(islice(filter(bytes.strip, source.lines()), 2))
    if len(lines) < 2 and not outline(source.head).more:
        yield "the file", loads(source.bytes())
    elif _is_alone(lines[0]) or (len(lines) > 1 and _is_alone(lines[1])):
        yield from _of_lines(source, refused)
    elif outline(source.head).more:
        yield from _in_a_row(source.bytes(), refused)
    else:
        try:
            value = loads(source.bytes())
        except FormatError:
            if not (found := list(_in_a_row(source.bytes(), refused))):
                refused.clear()
                raise  # of one value, which says best what is wrong
            yield from found
        else:
            yield "the file", value


def _is_alone(line: bytes) -> bool:
    """Tell whether a line is an object by itself; what stands in a list has a comma behind it."""
    if first_character(line) != b"{" or not line.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(loads(line), dict)
    except FormatError:
        return False


def _of_lines(source: Source, refused: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", loads(line)
        except FormatError as error:
            refused.append((f"line {number}", str(error)))


def _in_a_row(data: bytes, refused: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    """Read values that stand behind each other, each over many lines, as a console shows them."""
    text = data.decode("utf-8", "surrogateescape")
    decoder, at, number = json.JSONDecoder(strict=False), 0, 0
    while at < len(text):
        if text[at].isspace() or text[at] in ",\ufeff":
            at += 1
            continue
        number += 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            refused.append((f"value {number}", "not valid JSON, or nested too deeply: the rest"))
            return
        yield f"value {number}", value


def _spans_in(value: Any, resource: dict[str, Any], depth: int) -> Iterator[Span]:
    if depth > _NESTED:
        return
    if isinstance(value, list):
        for one in value:
            yield from _spans_in(one, resource, depth + 1)
    elif isinstance(value, dict):
        yield from _spans_of_object(value, resource, depth)


def _spans_of_object(value: dict[str, Any], resource: dict[str, Any], depth: int) -> Iterator[Span]:
    if lists := [value[name] for name in _RESOURCES if isinstance(value.get(name), list)]:
        for one in (one for found in lists for one in found):
            about = mapping(one)
            own = _attributes(mapping(about.get("resource")).get("attributes"))
            for scope in (one for name in _SCOPES for one in _listed(about.get(name))):
                for span in _listed(mapping(scope).get("spans")):
                    yield from _spans_in(span, own, depth + 1)
    elif any(name.startswith(_COLUMN) for name in value):
        yield _span(_from_columns(value), resource)
    elif "attributes" in value and any(name in value for name in _CONTEXT):
        yield _span(value, resource)
    elif any(name.startswith(BARE) for name in value):
        yield _span({"attributes": value}, resource)
    else:
        for one in value.values():
            yield from _spans_in(one, resource, depth + 1)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _from_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Make a span of a table's row, with columns like ``attributes.llm.model_name``."""
    own = {name.removeprefix(_COLUMN): value for name, value in row.items()
           if name.startswith(_COLUMN) and value is not None}  # fmt: skip
    rest = {name: value for name, value in row.items() if not name.startswith(_COLUMN)}
    context = {name: rest.get(f"context.{name}") for name in ("trace_id", "span_id")}
    kind = rest.get("span_kind")
    if isinstance(kind, str):
        own.setdefault("openinference.span.kind", kind)
    return {**rest, "context": context, "attributes": own}


def _span(value: dict[str, Any], resource: dict[str, Any]) -> Span:
    context = mapping(value.get("spanContext")) or mapping(value.get("context"))
    parent = mapping(value.get("parentSpanContext"))
    status = value.get("status")
    failed, message = _status(status if status is not None else value.get("status_code"))
    attributes = _attributes(value.get("attributes"))
    if isinstance(kind := value.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", kind)
    about = mapping(value.get("resource")).get("attributes")
    return Span(
        _id(_first(context, value, names=("traceId", "trace_id"))),
        _id(_first(context, value, names=("spanId", "span_id"))),
        _id(
            _first(value, names=("parentSpanId", "parent_span_id", "parent_id"))
            or parent.get("spanId")
        ),
        shared.word(value.get("name")) or "",
        attributes,
        list(_events(value.get("events"))),
        _time(_first(value, names=("startTimeUnixNano", "startTime", "start_time"))),
        _time(_first(value, names=("endTimeUnixNano", "endTime", "end_time"))),
        failed,
        message or shared.text_of(value.get("status_message")),
        resource or (_attributes(about) if about else {}),
    )


def _first(*places: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next(
        (place[name] for place in places for name in names if place.get(name) is not None), None
    )


def _id(value: Any) -> str:
    """Return an id as hex digits; protobuf's JSON has base64 instead.

    Examples
    --------
    >>> _id("0xEEE19B7EC3C1B174"), _id("7uGbfsPBsXQ="), _id("t-1"), _id(None)
    ('eee19b7ec3c1b174', 'eee19b7ec3c1b174', 't-1', '')
    """
    text = value.strip() if isinstance(value, str) else ""
    if (found := _HEX.fullmatch(text)) is not None:
        return "" if set(found[1]) == {"0"} else found[1].lower()
    if text.endswith("="):
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return text
        return data.hex() if len(data) in _ID_BYTES else text
    return text


def _time(value: Any) -> float | None:
    """Return seconds since the epoch: of nanoseconds, of ``[seconds, nanoseconds]``, or of text.

    Examples
    --------
    >>> _time("1544712660000000000"), _time([1544712660, 500000000]), _time("soon")
    (1544712660.0, 1544712660.5, None)
    """
    if isinstance(value, list) and len(value) == 2:
        seconds, nano = shared.number(value[0]), shared.number(value[1])
        return None if seconds is None or nano is None else _sane(seconds + nano / 1e9)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, str):
        return clock(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or abs(value) > 1e19:
        return None
    for least, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if value >= least:
            return _sane(value / unit)
    return _sane(float(value))


def _sane(seconds: float) -> float | None:
    return seconds if 0 < seconds < 1e11 else None


def _status(value: Any) -> tuple[bool, str]:
    about = mapping(value)
    code = _first(about, names=("code", "status_code", "statusCode")) if about else value
    message = about.get("message") or about.get("description")
    failed = code == 2 or (isinstance(code, str) and code.upper().endswith("ERROR"))
    return failed, shared.text_of(message)


def _events(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in _listed(value):
        about = mapping(one)
        own = _attributes(about.get("attributes"))
        name = shared.word(about.get("name")) or shared.word(own.get("event.name"))
        if name:
            body = about.get("body")
            yield name, {**own, **mapping(body)} if isinstance(body, dict) else own


# ---- attributes


def _attributes(value: Any) -> dict[str, Any]:
    """Return attributes flat; a list of keys and values is OTLP's."""
    if isinstance(value, str):
        try:
            value = loads(value.encode("utf-8", "surrogateescape"))
        except (FormatError, UnicodeEncodeError):
            value = {}
    found: dict[str, Any] = {}
    if isinstance(value, list):
        value = {
            one["key"]: _plain(one.get("value"), 0)
            for one in value
            if isinstance(one, dict) and isinstance(one.get("key"), str)
        }
    for name, one in mapping(value).items():
        _flatten(name, one, found, 0)
    return found


def _plain(value: Any, depth: int) -> Any:
    """Undo OTLP's typed values; whole numbers of 64 bits are text there."""
    about = mapping(value)
    if depth > _DEEPEST or len(about) != 1:
        return None if isinstance(value, dict) else value
    kind, one = next(iter(about.items()))
    if kind in ("intValue", "int_value"):
        text = one if isinstance(one, str) else ""
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII) else one
    if kind in ("arrayValue", "array_value"):
        return [_plain(item, depth + 1) for item in _listed(mapping(one).get("values"))]
    if kind in ("kvlistValue", "kvlist_value"):
        return {
            item["key"]: _plain(item.get("value"), depth + 1)
            for item in _listed(mapping(one).get("values"))
            if isinstance(item, dict) and isinstance(item.get("key"), str)
        }
    return one


def _flatten(name: str, value: Any, found: dict[str, Any], depth: int) -> None:
    found[name] = value
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        for key, one in value.items():
            _flatten(f"{name}.{key}", one, found, depth + 1)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value):
            _flatten(f"{name}.{number}", one, found, depth + 1)
