"""Reading traces that others wrote as quads: kind, value, wasGeneratedBy, wasInformedBy.

A common shape for the memory of agents: one named graph a run, and for each step its kind, its
text, the run it belongs to and the step before it. The names of the predicates differ from writer
to writer and are taken for what follows their last ``#``, ``/`` or ``:``. Our own writer gives
steps and contents nodes of their own instead; :func:`read_traces` reads both.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from pyoxigraph import Quad, RdfFormat, parse

from sag_research._text import clip
from sag_research.bloom._prov_json import read_prov_json
from sag_research.bloom._prov_store import name_of, term_value
from sag_research.bloom._trace import Action, Observation, Thought, TraceItem, TraceStep, item_text
from sag_research.bloom._trace import Final as FinalItem
from sag_research.errors import FormatError, UsageError
from sag_research.model import Call, Step

__all__ = ["ReadTrace", "read_quads", "read_traces", "trace_steps"]

_FORMATS: Final = {
    "trig": RdfFormat.TRIG,
    "nquads": RdfFormat.N_QUADS,
    "jsonld": RdfFormat.JSON_LD,
}
_LAST: Final = re.compile(r"[^#/:]*$")
_CALL: Final = re.compile(r"(?P<tool>[^\s(){}\[\]\"']*)\((?P<args>.*)\)", re.DOTALL)

Said: TypeAlias = dict[str, list[Any]]
"""What is said of a node, by the last part of the predicate's name."""


@dataclass(frozen=True)
class ReadTrace:
    """A run that was read from quads.

    Attributes
    ----------
    run_id : str
    items : tuple of TraceItem
        In order.
    faults : tuple of str
        Where the steps form no line, or are none: cycles, gaps, branches, unknown kinds. What
        stands in a cycle is read all the same, behind the rest.
    """

    run_id: str
    items: tuple[TraceItem, ...]
    faults: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """The run as ``ws.add`` takes it."""
        steps = [_plain(step) for step in trace_steps(self.items)]
        ended = bool(self.items) and isinstance(self.items[-1].step, FinalItem)
        end = {} if ended else {"end": None}
        return {"task_id": self.run_id or "unnamed", "steps": steps, **end}


def read_quads(data: bytes | str, format: str) -> list[Quad]:
    """Read quads from text.

    Parameters
    ----------
    data : bytes or str
    format : {"trig", "nquads", "jsonld", "prov-json"}

    Raises
    ------
    FormatError
        If it is not of that format.
    """
    if format == "prov-json":
        return read_prov_json(data)
    if format not in _FORMATS:
        raise UsageError(
            f"the format {format!r} is unknown", fix=f"use {', '.join(_FORMATS)} or prov-json"
        )
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    try:
        # names without a scheme would otherwise be taken for files of this machine
        return list(parse(raw, format=_FORMATS[format], base_iri="urn:relative:"))
    except (SyntaxError, ValueError) as error:
        raise FormatError(f"this is no {format}", why=clip(str(error), 200)) from error


def read_traces(quads: Iterable[Quad]) -> list[ReadTrace]:
    """Read the runs in some quads, one for each graph that holds steps.

    Examples
    --------
    >>> text = '''
    ... <urn:s:0> <urn:t#kind> "thought" <urn:run:r1> .
    ... <urn:s:0> <urn:t#value> "look" <urn:run:r1> .
    ... <urn:s:1> <urn:t#kind> "final" <urn:run:r1> .
    ... <urn:s:1> <urn:t#value> "3" <urn:run:r1> .
    ... <urn:s:1> <urn:t#wasInformedBy> <urn:s:0> <urn:run:r1> .'''
    >>> [trace] = read_traces(read_quads(text, "nquads"))
    >>> trace.run_id, [item.step for item in trace.items]
    ('r1', [Thought(text='look'), Final(text='3')])
    """
    graphs: defaultdict[str, defaultdict[str, Said]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for quad in quads:
        said = graphs[name_of(quad.graph_name)][name_of(quad.subject)]
        said[_last(name_of(quad.predicate))].append(quad.object)
    found = [_read(graph, nodes) for graph, nodes in sorted(graphs.items())]
    return [trace for trace in found if trace.items or trace.faults]


def _read(graph: str, nodes: Mapping[str, Said]) -> ReadTrace:
    steps = {node: said for node, said in nodes.items() if "kind" in said}
    contents: dict[str, tuple[str, Said]] = {}
    for node, said in nodes.items():
        for maker in map(name_of, said.get("wasGeneratedBy", ())):
            if maker in steps and "value" in said:
                contents[maker] = (node, said)
    order, faults = _ordered(steps)
    ordinals = _ordinals(steps, order)
    places = {contents[node][0]: ordinals[node] for node in order if node in contents}
    items = []
    for node in order:
        told = contents[node][1] if node in contents else steps[node]
        step = _step(_text(steps[node], "kind"), told)
        if step is None:
            faults.append(f"{node} is of the unknown kind {_text(steps[node], 'kind')!r}")
            continue
        sources = [places.get(name_of(one)) for one in told.get("wasDerivedFrom", ())]
        items.append(TraceItem(ordinals[node], step, sources[0] if sources else None))
    return ReadTrace(_run_id(graph, nodes), tuple(items), tuple(faults))


def _run_id(graph: str, nodes: Mapping[str, Said]) -> str:
    """Return the run's own word for its id, else the last part of the graph's name."""
    named = [_text(said, "runId") for said in nodes.values() if "runId" in said]
    return named[0] if named else unquote(_last(graph))


def _ordered(steps: Mapping[str, Said]) -> tuple[list[str], list[str]]:
    """Put the steps in the order in which each informs the next; say where that is none."""
    faults: list[str] = []
    after: defaultdict[str, list[str]] = defaultdict(list)
    roots = []
    for node in sorted(steps, key=_natural):
        before = [name_of(one) for one in steps[node].get("wasInformedBy", ())]
        known = [one for one in before if one in steps]
        if len(before) > 1:
            faults.append(f"{node} is informed by {len(before)} steps")
        for one in known[:1]:
            after[one].append(node)
        if not known:
            roots.append(node)
            if before and "ordinal" not in steps[node]:
                faults.append(f"{node} is informed by {before[0]}, which is not there")
    if len(roots) > 1:
        faults.append(f"{len(roots)} steps begin a line, not 1")
    order = list(_walk(roots, after, faults))
    if left := sorted(steps.keys() - set(order), key=_natural):
        faults.append(f"{len(left)} steps stand in a cycle, {left[0]} among them")
        order += left
    return order, faults


def _walk(roots: list[str], after: Mapping[str, list[str]], faults: list[str]) -> Iterator[str]:
    waiting = roots[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        following = after.get(node, [])
        if len(following) > 1:
            faults.append(f"{node} informs {len(following)} steps")
        waiting += following[::-1]


def _ordinals(steps: Mapping[str, Said], order: list[str]) -> dict[str, int]:
    """Return the steps' own ordinals where all have one, else their places in the order."""
    told = [[term_value(one) for one in steps[node].get("ordinal", ())] for node in order]
    if all(len(one) == 1 and isinstance(one[0], int) and one[0] >= 0 for one in told):
        return {node: one[0] for node, one in zip(order, told, strict=True)}
    return {node: number for number, node in enumerate(order)}


def _step(kind: str, told: Said) -> TraceStep | None:
    text, call_id = _text(told, "value"), _text(told, "callId")
    match kind:
        case "thought":
            return Thought(text)
        case "final":
            return FinalItem(text)
        case "observation":
            return Observation(text, call_id)
        case "action" if "arguments" in told:
            return Action(_text(told, "toolName"), _json(_text(told, "arguments")), call_id)
        case "action":
            return _action(text)
    return None


def _action(text: str) -> Action:
    """Read ``tool(arguments as JSON)``; what is none is an action known as text only."""
    call = _CALL.fullmatch(text)
    if call is None or not call["tool"]:
        return Action("", text)
    if not call["args"].strip():
        return Action(call["tool"])
    try:
        return Action(call["tool"], json.loads(call["args"]))
    except ValueError:
        return Action("", text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(said: Mapping[str, list[Any]], name: str) -> str:
    return name_of(said[name][0]) if said.get(name) else ""


def _last(name: str) -> str:
    found = _LAST.search(name)
    return found[0] if found else name


def _natural(node: str) -> list[tuple[int, int, str]]:
    """Sort numbers in names by their value."""
    parts = re.split(r"(\d+)", node)
    return [(1, int(p), "") if p.isdecimal() and len(p) < 20 else (0, 0, p) for p in parts]


def trace_steps(items: Iterable[TraceItem]) -> list[Step]:
    """Put items together to steps again, so that they give the same items.

    Examples
    --------
    >>> trace_steps([TraceItem(0, Thought("A graph")), TraceItem(1, FinalItem("A graph"))])[0].flags
    ('final',)
    """
    steps: list[Step] = []
    turn: list[TraceItem] = []
    stage = -1
    for item in items:
        place = _STAGES[type(item.step)]
        # an answer that follows calls is a step of its own, or its text would have no place
        if turn and (place < stage or place == stage in (0, 3) or (place == 3 and stage > 0)):
            steps.append(_turn(turn))
            turn = []
        turn.append(item)
        stage = place
    return [*steps, _turn(turn)] if turn else steps


_STAGES: Final[dict[type, int]] = {Thought: 0, Action: 1, Observation: 2, FinalItem: 3}


def _turn(items: list[TraceItem]) -> Step:
    thought = "".join(item.step.text for item in items if isinstance(item.step, Thought))
    asked = [item.step for item in items if isinstance(item.step, Action)]
    seen = [item.step for item in items if isinstance(item.step, Observation)]
    answers = [item.step.text for item in items if isinstance(item.step, FinalItem)]
    calls = tuple(
        _joined_call(asked[n] if n < len(asked) else None, seen[n] if n < len(seen) else None)
        for n in range(max(len(asked), len(seen)))
    )
    told = "\n".join(call.text for call in calls if call.text)
    return Step(
        thought=thought,
        action=told if answers[:1] in ([], [thought]) else answers[0],
        observation="\n".join(call.observation for call in calls if call.observation),
        calls=calls,
        flags=("final",) if answers else (),
    )


def _joined_call(asked: Action | None, seen: Observation | None) -> Call:
    """Make a call of an action and what came back."""
    found = Call(status="unknown", observation=seen.output if seen else "")
    if asked is None:
        return found
    # a text beside a name without arguments would be taken for the arguments
    text = "" if asked.args is None else item_text(TraceItem(0, asked))
    as_text = not asked.tool and isinstance(asked.args, str)
    return Call(
        id=asked.call_id,
        name=asked.tool,
        arguments=None if as_text else asked.args,
        text=text,
        observation=found.observation,
        status="unknown",
    )


def _plain(step: Step) -> dict[str, Any]:
    calls = [
        {name: getattr(call, name) for name in ("id", "name", "arguments", "text", "observation")}
        for call in step.calls
    ]
    told = {name: getattr(step, name) for name in ("thought", "action", "observation")}
    return {**told, "calls": calls, "flags": list(step.flags)}
