"""OTLP in JSON: spans of OpenInference and of OpenTelemetry's conventions, a request a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.exchange._round import (
    InterchangeReport,
    Recorded,
    Whole,
    calls_as_text,
    whole_runs,
)
from sag_research.exchange._round_aside import aside_of, positive, unique_ids
from sag_research.exchange._traces import Parameters, opened

__all__ = ["export_otlp"]

_BEGIN: Final = 946_684_800 * 10**9
"""The first instant of 2000: where a run begins of which no time is known."""
_INSTANT: Final = 1_000
"""Nanoseconds between made-up times."""
_LEAST: Final = 10**17
"""Nanoseconds; readers take smaller numbers for microseconds."""
_MOST: Final = 2**63
_CODES: Final = {"ok": 1, "error": 2}
_INTERNAL: Final = 1
_CLIENT: Final = 3
_COUNTS: Final = {
    "tokens_in": ("llm.token_count.prompt", "gen_ai.usage.input_tokens"),
    "tokens_out": ("llm.token_count.completion", "gen_ai.usage.output_tokens"),
    "cost_usd": ("llm.cost.total",),
}


def export_otlp(
    source: Recorded,
    path: str | PathLike[str],
    *,
    where: str = "true",
    parameters: Parameters = None,
) -> InterchangeReport:
    """Write runs as OTLP in JSON, one request a line, as the file exporter of OpenTelemetry does.

    A run is a trace: a root span of kind ``AGENT``, below it one of kind ``LLM`` for each step,
    and below this one of kind ``TOOL`` for each call. Memory holds one run. The same runs give the
    same bytes: ids are digests of the run's id and history.

    Parameters
    ----------
    source : Workspace
    path : path-like
        The file to write; compressed if its name ends in ``.gz``.
    where, parameters
        An SQL condition on the view ``runs``, and its values. Hidden runs, copies and extractions
        are left out.

    Returns
    -------
    InterchangeReport
        What the conventions have no word for is in ``aside``: it stands as JSON in the attributes
        ``sag.record`` of the root and ``sag.step`` of a step, and ``sag ingest`` takes it from
        there.

    Raises
    ------
    NotEnoughDataError
        If there is no run to export.

    Notes
    -----
    A span must have times. Where the log knows none, the span begins a microsecond after the one
    before it, in a run without any time in the year 2000, and has the attribute
    ``sag.time.made_up``. What a model was given is not repeated in each span: the first one has
    the goal, and each of the others what came back before it without being a call's result.

    References
    ----------
    OpenTelemetry protocol (OTLP) 1.x; OpenInference semantic conventions; OpenTelemetry semantic
    conventions for generative AI.
    """
    report = InterchangeReport(Path(path), "otlp")
    encode = msgspec.json.Encoder().encode
    with opened(path) as file:
        for whole in whole_runs(source, where, parameters, report):
            file.write(encode(_Trace(whole, report).request()) + b"\n")
    return report


class _When(NamedTuple):
    start: int
    end: int
    made_up: bool


class _Trace:
    """Makes the spans of one run."""

    def __init__(self, whole: Whole, report: InterchangeReport) -> None:
        self._whole = whole
        self._report = report
        self._aside: Counter[str] = Counter()
        self._made_up: Counter[str] = Counter()
        self._key = f"{whole.run_id}\n{whole.digest}"
        known = (_nanoseconds(step.get("started")) for step in whole.steps)
        self._now = next((one for one in known if one is not None), _BEGIN)
        self._heard: str | None = whole.record.get("goal")

    def request(self) -> dict[str, Any]:
        """Return the request that sends the trace."""
        start = self._now
        spans = [span for number, step in enumerate(self._whole.steps)
                 for span in self._spans(number, step)]  # fmt: skip
        root = self._root(_When(start, self._now, any(map(_is_made_up, spans)) or not spans))
        record = self._whole.record
        self._aside.update(
            f"run.{name}" for name in record if name not in ("goal", "agent", "model")
        )
        if not spans:
            self._report.add("lost", {"run.whole: without a step it is not read back": 1})
        self._report.add("aside", self._aside)
        self._report.add("made_up", +self._made_up)
        resource = {"service.name": record.get("agent") or "unknown_service"}
        scope = {"name": "sag_research"}
        return {
            "resourceSpans": [{
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": [root, *spans]}],
            }]
        }  # fmt: skip

    def _id(self, place: str, size: int = 8) -> str:
        text = f"{self._key}\n{place}".encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=size).hexdigest()

    def _root(self, when: _When) -> dict[str, Any]:
        record = self._whole.record
        label = record.get("outcome") or {}
        return self._span(
            "run", None, record.get("agent") or "agent", when, _INTERNAL, 0,
            {
                "openinference.span.kind": "AGENT",
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": record.get("agent"),
                "agent.name": record.get("agent"),
                "session.id": self._whole.run_id,
                "gen_ai.conversation.id": self._whole.run_id,
                "input.value": record.get("goal"),
                "output.value": record.get("submission"),
                "sag.task_id": record["task_id"],
                "sag.dataset": record.get("dataset"),
                "sag.outcome": label.get("outcome", "unknown"),
                "sag.outcome.source": label.get("source"),
                "sag.record": _json(record),
            },
        )  # fmt: skip

    def _spans(self, number: int, step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        ids = unique_ids(step["calls"], number, self._made_up)
        when = self._when(step)
        told = self._told(step, ids)
        attributes = self._said(step) | _reply(step, ids) | {"sag.step": _json(told)}
        yield self._span(f"step {number}", "run", "llm", when, _CLIENT, 0, attributes)
        for place, (call, own) in enumerate(zip(step["calls"], ids, strict=True)):
            yield self._span(
                f"call {number} {place}", f"step {number}", call["name"] or "tool", when,
                _INTERNAL, _CODES.get(call["status"], 0), _called(call, own),
            )  # fmt: skip

    def _when(self, step: Mapping[str, Any]) -> _When:
        """Return when a step was: at a time of its own behind the one before it, or made up."""
        start, seconds = _nanoseconds(step.get("started")), _nanoseconds(step.get("seconds"), 0)
        own = start is not None and start >= self._now
        begun = self._now if start is None or not own else start
        end = begun + (_INSTANT if seconds is None else seconds)
        self._made_up["started"] += not own
        self._made_up["seconds"] += seconds is None
        self._now = begun + _INSTANT
        return _When(begun, end, not own or seconds is None)

    def _told(self, step: Mapping[str, Any], ids: list[str]) -> dict[str, Any]:
        """Return what is beside the words; clocks always, for those of the span may be made up."""
        said = {
            "thought": step["thought"],
            "observation": calls_as_text(step, "observation"),
            "usage": positive(step.get("usage")),
            "started": step.get("started"),
            "seconds": step.get("seconds"),
            "calls": [_known(call, own) for call, own in zip(step["calls"], ids, strict=True)],
        }
        clocks = {"state": None} | {name: step.get(name) for name in ("started", "seconds")}
        return clocks | aside_of(step, said, self._aside)

    def _said(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """Return who replied, what had been said to it, and what it cost."""
        model = self._whole.record.get("model")
        found = {
            "openinference.span.kind": "LLM",
            "gen_ai.operation.name": "chat",
            "session.id": self._whole.run_id,
            "llm.model_name": model,
            "gen_ai.request.model": model,
        }
        if self._heard:
            found |= {
                "input.value": self._heard,
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": self._heard,
            }
        own, observed = calls_as_text(step, "observation"), step["observation"]
        self._heard = observed.removeprefix(own).lstrip("\n")
        usage = positive(step.get("usage")) or {}
        return found | {name: usage.get(count) for count, names in _COUNTS.items()
                        for name in names}  # fmt: skip

    def _span(
        self, place: str, parent: str | None, name: str, when: _When, kind: int, code: int,
        attributes: Mapping[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        made_up = {"sag.time.made_up": True} if when.made_up else {}
        above = {} if parent is None else {"parentSpanId": self._id(parent)}
        return {
            "traceId": self._id("trace", 16),
            "spanId": self._id(place),
            **above,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(when.start),
            "endTimeUnixNano": str(when.end),
            "attributes": _attributes({**attributes, **made_up}),
            "status": {"code": code} if code else {},
        }


def _is_made_up(span: Mapping[str, Any]) -> bool:
    return any(one["key"] == "sag.time.made_up" for one in span["attributes"])


def _reply(step: Mapping[str, Any], ids: list[str]) -> dict[str, Any]:
    start = "llm.output_messages.0.message"
    found = {
        "output.value": step["thought"],
        f"{start}.role": "assistant",
        f"{start}.content": step["thought"],
    }
    for place, (call, own) in enumerate(zip(step["calls"], ids, strict=True)):
        below = f"{start}.tool_calls.{place}.tool_call"
        found |= {
            f"{below}.id": own,
            f"{below}.function.name": call["name"],
            f"{below}.function.arguments": _arguments(call),
        }
    return found


def _called(call: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    return {
        "openinference.span.kind": "TOOL",
        "gen_ai.operation.name": "execute_tool",
        "tool.name": call["name"],
        "gen_ai.tool.name": call["name"],
        "tool_call.id": own_id,
        "gen_ai.tool.call.id": own_id,
        "tool_call.function.arguments": _arguments(call),
        "input.value": call["text"],
        "output.value": call["observation"],
    }


def _known(call: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    """Return what a reader surely makes of a call; it makes the text itself."""
    found = {"id": own_id, "name": call["name"], "exit_code": None}
    if isinstance(call["arguments"], dict):
        found["arguments"] = call["arguments"]
        if call["arguments"] == {"command": call["text"]}:
            found["text"] = call["text"]
    if call["status"] in _CODES:
        found["status"] = call["status"]
    return found | {"observation": call["observation"]}


def _arguments(call: Mapping[str, Any]) -> str | None:
    return None if call["arguments"] is None else _json(call["arguments"])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _typed(value)} for name, value in values.items()
            if value is not None]  # fmt: skip


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # whole numbers of 64 bits are text in OTLP's JSON
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _nanoseconds(seconds: float | None, least: int = _LEAST) -> int | None:
    """Return a time in whole nanoseconds, if a span can say it."""
    if seconds is None:
        return None
    found = round(Fraction(seconds) * 10**9)
    return found if least <= found < _MOST // 2 else None
