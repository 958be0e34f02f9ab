"""Runs out of spans: a trace is a run, its model calls are steps, its tools' spans answer them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest._format import Reading
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import Turn, Turns, mapping
from sag_research.ingest.formats._span_messages import (
    Message,
    ToolRun,
    decoded,
    first_text,
    inputs_of,
    kind_of,
    model_of,
    outputs_of,
    response_of,
    tool_of,
    usage_of,
)
from sag_research.ingest.formats._span_nested import Nested, nested_replies
from sag_research.ingest.formats._spans import Span, spans_of
from sag_research.ingest.formats._told import run_told, step_told
from sag_research.model import Call, Outcome, Step, Trajectory

__all__ = ["read_spans"]

_TASK: Final = ("sag.task_id", "task.id", "task_id", "metadata.task_id")
_SESSION: Final = ("session.id", "gen_ai.conversation.id", "ai.telemetry.metadata.sessionId")
_AGENT: Final = ("gen_ai.agent.name", "agent.name", "ai.telemetry.functionId")
_FINISH: Final = ("gen_ai.response.finish_reasons", "llm.finish_reason", "ai.response.finishReason")
_OUTCOMES: Final = ("success", "failure", "unknown")


def read_spans(source: Source, version: str) -> Reading:
    """Read the traces of a source as runs."""
    notes: list[str] = []
    refused: list[tuple[str, str]] = []
    traces = _traces(spans_of(source, refused), notes)
    name = shared.bare_id(source.path)
    return Reading(version, _trajectories(traces, name, notes, refused), notes, refused)


def _traces(spans: Iterable[Span], notes: list[str]) -> dict[str, list[Span]]:
    """Part the spans by trace; of a span that is there twice, the later one is taken."""
    found: dict[str, dict[str, Span]] = {}
    again = bare = 0
    for span in spans:
        if not span.trace:
            bare += 1
        trace = found.setdefault(span.trace or f"#{bare}", {})
        own = span.id or f"#{len(trace)}"
        again += own in trace
        trace[own] = span
    if again:
        notes.append(f"{again} spans are there twice: the last one of each is taken")
    return {name: list(trace.values()) for name, trace in found.items()}


def _trajectories(
    traces: dict[str, list[Span]], name: str, notes: list[str], refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    inner = {
        one
        for spans in traces.values()
        for span in spans
        if kind_of(span) == "llm" and (one := response_of(span))
    }
    alone = len(traces) == 1
    for number, (trace, spans) in enumerate(traces.items()):
        place = f"trace {number + 1}" if trace.startswith("#") else f"trace {trace}"
        reader = _Reader(_in_order(spans))
        try:
            reader.read(inner)
            told = reader.trajectory(name, None if alone else str(number))
        except RecursionError:
            refused.append((place, "nested too deeply"))
            continue
        notes += [f"{place}: {note}" for note in reader.notes]
        if told is None:
            notes.append(f"{place}: no reply of a model in it: {_kinds(spans)}")
        else:
            yield told


def _in_order(spans: list[Span]) -> list[Span]:
    """Sort spans by their start; if one of them has none, the order of the file stays."""
    starts = [span.start for span in spans]
    if any(one is None for one in starts):
        return spans
    return sorted(spans, key=lambda span: span.start or 0.0)


def _kinds(spans: Sequence[Span]) -> str:
    counts = Counter(span.name or "unnamed" for span in spans)
    shown = [f"{name} {counts[name]}" for name in sorted(counts)]
    return ", ".join(shared.first_of(shown))


@dataclass
class _Reader:
    """Makes one run of the spans of a trace."""

    spans: list[Span]
    turns: Turns = field(default_factory=Turns)
    notes: list[str] = field(default_factory=list)
    _states: list[dict[str, Any]] = field(default_factory=list)
    _told: list[Any] = field(default_factory=list)
    """Of each turn, what an export of this package put beside the words."""
    _tools: list[list[float]] = field(default_factory=list)
    """Of each turn, when its tools began and ended."""
    _opening: list[Message] = field(default_factory=list)
    _heard: set[str] = field(default_factory=set)
    _by_id: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _by_name: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _waiting: list[tuple[Span, ToolRun]] = field(default_factory=list)
    """Runs of tools of which several calls could be the one."""
    _model: str | None = None
    _nested: Nested = field(default_factory=Nested)

    # ---- reading

    def read(self, inner: set[str]) -> None:
        """Read the spans in order.

        ``inner`` are the ids of replies that have a span of their own somewhere in the source.
        """
        step = "llm" if any(kind_of(span) == "llm" for span in self.spans) else "outer"
        above = self._above("outer") if step == "outer" else set[str]()
        self._nested = nested_replies(self.spans)
        lost = 0
        for span in self.spans:
            kind = kind_of(span)
            if kind == "outer" and (step == "llm" or span.id in above):
                continue
            if span.id in self._nested.repeated:
                continue
            if kind == "outer" and response_of(span) in inner:
                lost += 1
            elif kind == step:
                self._reply(span)
            elif kind == "tool":
                self._tool(span, tool_of(span))
        self._settle()
        if lost:
            self.notes.append(f"{lost} spans repeat the reply of another one")
        if others := self._nested.others:
            self.notes.append(f"{others} model calls are around others that say something else")

    def _above(self, kind: str) -> set[str]:
        """Return the spans above those of a kind; parents may lead in a circle."""
        up = {span.id: span.parent for span in self.spans if span.id}
        found: set[str] = set()
        for span in self.spans:
            node = span.parent if kind_of(span) == kind else ""
            while node and node not in found:
                found.add(node)
                node = up.get(node, "")
        return found

    def _reply(self, span: Span) -> None:
        self._listen(inputs_of(span))
        turn = self.turns.reply(None, span.start)
        replies = [one for one in outputs_of(span) if one.role in ("assistant", "")]
        turn.thoughts = [one.text for one in replies if one.text]
        for reply in replies:
            for call in reply.calls:
                self._ask(turn, call)
            for result in reply.results:
                self.turns.answer(result, None, None)
        turn.usage = usage_of(span) or self._nested.usage.get(span.id)
        self._model = self._model or model_of(span)
        finish = next(
            (span.attributes[name] for name in _FINISH if span.attributes.get(name)), None
        )
        state = {"span": span.id, "finish": finish, "error": self._fault(span)}
        self._states.append({name: one for name, one in state.items() if one})
        self._told.append(decoded(span.attributes.get("sag.step")))
        self._tools.append([])

    @staticmethod
    def _fault(span: Span) -> str:
        return (span.message or "error") if span.failed else ""

    def _listen(self, messages: list[Message]) -> None:
        """Take from what a model was given what came back since its last reply."""
        if not self.turns.all:
            self._opening = messages
            self._heard.update(one.text for one in messages)
            return
        for result in (one for message in messages for one in message.results):
            if self._waits(result.call_id):
                self.turns.answer(result, None, None)
        self._settle()
        last = max((at for at, one in enumerate(messages) if one.role == "assistant"), default=None)
        for one in messages[last + 1 :] if last is not None else ():
            if one.role == "user" and one.text and one.text not in self._heard:
                self.turns.hear(one.text)
                self._heard.add(one.text)

    def _waits(self, call_id: str | None) -> bool:
        places = self._by_id.get(call_id, ()) if call_id else ()
        return any(not self._answers(one) for one in places)

    def _tool(self, span: Span, tool: ToolRun) -> None:
        if not self.turns.all:
            self.notes.append(f"a tool ran before the first reply: {tool.name}")
            return
        places = self._places(tool)
        if len(places) > 1:
            self._waiting.append((span, tool))  # the next reply's messages may tell
        elif places:
            self._answer(places[0], span, tool)
        else:  # the model's span does not show its calls, or a program called
            function = {"name": tool.name, "arguments": tool.arguments}
            (asked,) = shared.calls_from([{"id": tool.result.call_id or "", "function": function}])
            self._answer(self._ask(self.turns.all[-1], asked), span, tool)

    def _answer(self, place: tuple[int, int], span: Span, tool: ToolRun) -> None:
        number, at = place
        self.turns.all[number].answers[at].append(tool.result)
        if span.start is not None and span.end is not None:
            self._tools[number] += [span.start, span.end]

    def _places(self, tool: ToolRun) -> list[tuple[int, int]]:
        """Find the call that a tool's span belongs to, or all that it may belong to.

        That is the one of its id; else an open one of its name, and best with its arguments.
        """
        named = tool.result.call_id
        if named and (by_id := self._by_id.get(named)):
            return [next((one for one in by_id if not self._answers(one)), by_id[-1])]
        by_name = [one for one in self._by_name.get(tool.name, ()) if not self._answers(one)]
        self._by_name[tool.name] = by_name  # what is answered is not asked for again
        open_ = [one for one in by_name if not (named and self._call(one).id)]
        alike = [one for one in open_ if self._call(one).arguments == tool.arguments]
        return alike[:1] or open_

    def _ask(self, turn: Turn, call: Call) -> tuple[int, int]:
        place = (len(self.turns.all) - 1, len(turn.calls))
        self.turns.ask(turn, call, None)
        self._by_name.setdefault(call.name, []).append(place)
        if call.id:
            self._by_id.setdefault(call.id, []).append(place)
        return place

    def _settle(self) -> None:
        """Give what waits to calls that are still open, in their order; others are answered."""
        for span, tool in self._waiting:
            if places := self._places(tool):
                self._answer(places[0], span, tool)
        self._waiting.clear()

    def _call(self, place: tuple[int, int]) -> Call:
        return self.turns.all[place[0]].calls[place[1]]

    def _answers(self, place: tuple[int, int]) -> list[shared.Result]:
        return self.turns.all[place[0]].answers[place[1]]

    # ---- what comes out

    def trajectory(self, name: str, record: str | None) -> Trajectory | None:
        """Return the run; None if no model replied in it."""
        if not self.turns.all:
            return None
        root = self._root()
        said = [one.text for one in self._opening if one.role == "user" and one.text]
        about = self._about(root)
        session = about.get("session_id")
        end = None if root.end is None else "run.failed" if root.failed else "run.completed"
        run = Trajectory(
            task_id=self._named(_TASK) or session or root.trace or name or "unnamed",
            record=record,
            goal=shared.problem_text(said[0]) if said else "",
            steps=tuple(map(self._step, range(len(self.turns.all)))),
            dataset=self._named(("sag.dataset",)),
            agent=self._named(_AGENT) or self._service(root),
            model=self._model,
            end=end,
            exit_status=self._fault(root) or None,
            outcome=self._outcome(),
            config={key: value for key, value in about.items() if value not in (None, "", [], {})},
        )
        return run_told(run, decoded(root.attributes.get("sag.record")))

    def _root(self) -> Span:
        ids = {span.id for span in self.spans}
        roots = (span for span in self.spans if not span.parent or span.parent not in ids)
        return next(roots, self.spans[0])

    def _named(self, names: tuple[str, ...]) -> str | None:
        own = (first_text(span, *names) for span in self.spans)
        found = next((one for one in own if one), None)
        if found is None and names is _TASK:
            about = (mapping(decoded(span.attributes.get("metadata"))) for span in self.spans)
            found = next((one for told in about if (one := shared.word(told.get("task_id")))), None)
        return found

    @staticmethod
    def _service(root: Span) -> str | None:
        name = shared.word(root.resource.get("service.name"))
        return None if name is None or name.startswith("unknown_service") else name

    def _about(self, root: Span) -> dict[str, Any]:
        history = [one for one in self._opening if one.role in ("assistant", "tool")]
        return {
            "trace_id": root.trace,
            "session_id": self._named(_SESSION),
            "root": root.name,
            "system": shared.joined([one.text for one in self._opening if one.role == "system"]),
            "history": [
                {"role": one.role, "content": one.text, "calls": [call.text for call in one.calls]}
                for one in history
            ],
            "resource": {name: one for name, one in root.resource.items() if "." in name
                         and isinstance(one, str | int | float)},
        }  # fmt: skip

    def _outcome(self) -> Outcome | None:
        """Return a label that was exported with the run; the status of a span is none."""
        told = self._named(("sag.outcome",))
        if told not in _OUTCOMES:
            return None
        source = self._named(("sag.outcome.source",)) or "sag.outcome"
        return Outcome(outcome=told, source=source)  # type: ignore[arg-type]

    def _step(self, number: int) -> Step:
        turn: Turn = self.turns.all[number]
        times = self._tools[number]
        lasted = max(times) - min(times) if times else None
        step = replace(
            turn.step(),
            seconds=lasted if lasted is not None and lasted >= 0 else None,
            state=self._states[number] or None,
        )
        return step_told(step, self._told[number])
