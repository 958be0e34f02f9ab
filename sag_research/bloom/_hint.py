"""What an earlier run thought, did and saw, as one line of text for the next run's prompt.

The text is quoted from a trajectory, so it may be hostile. Whatever could be taken for a part of
the prompt is written as a JSON string: data, not an instruction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyoxigraph import Literal, NamedNode

from sag_research._text import clip
from sag_research.bloom._prov_quads import Ref
from sag_research.bloom._prov_record import HINT
from sag_research.bloom._prov_store import TraceStore, name_of, term_value
from sag_research.bloom._prov_terms import graph_node, prov, run_node, sag
from sag_research.errors import UsageError
from sag_research.model import Event

__all__ = ["Hint", "hint", "walk_back"]

MAX_ITEMS: Final = 200
_CAPS: Final = (2_000, 1_000, 500, 250, 120, 60)
_LEAST: Final = 80
_SHARES: Final = 12
"""Where not all items fit, none takes more than this share of the room."""


class Hint(str):
    """The text of a hint, which knows where it comes from; empty where there is nothing to say.

    Attributes
    ----------
    run_id : str
        The run it recalls.
    items : tuple of Ref
        The trace items it was made from, oldest first: (run, ordinal).
    """

    run_id: str
    items: tuple[Ref, ...]

    def __new__(cls, text: str = "", run_id: str = "", items: tuple[Ref, ...] = ()) -> Hint:
        self = super().__new__(cls, text)
        self.run_id, self.items = run_id, items
        return self

    def event(self, run_id: str) -> Event:
        """Return the event that says that a run was given this hint, to be appended to the log.

        In the run's provenance the hint is an entity derived from the contents it recalls, and
        used by the run's first step.
        """
        payload = {"text": str(self), "run": self.run_id, "items": [list(i) for i in self.items]}
        return Event(run_id=run_id, type=HINT, payload=payload)


class _Told(NamedTuple):
    ref: Ref
    kind: str
    text: str


def hint(traces: TraceStore, run_id: str, *, max_chars: int = 2_000) -> Hint:
    """Recall a run: its items from the root to its final, or to its last one.

    Parameters
    ----------
    traces : TraceStore
        Where the run was recorded.
    run_id : str
    max_chars : int
        The text is not longer. Long items are cut first, then the oldest are left out; at least
        80.

    Returns
    -------
    Hint
        ``Prior reasoning (RUN): kind: text; kind: text; …``, oldest first. A run that did not
        end with an answer, or that failed, says so behind its name. Empty where the run has no
        items.

    Notes
    -----
    The way back along ``prov:wasInformedBy`` stays in the run's graph (and those of the
    ancestors that it was forked from), ends after 200 items and visits none twice.

    Examples
    --------
    >>> from sag_research.bloom import Final, Recorder, Thought, TraceItem
    >>> recorder = Recorder()
    >>> for number, step in enumerate([Thought("look"), Final("3")]):
    ...     _ = recorder.add("run-1", TraceItem(number, step))
    >>> hint(recorder.traces, "run-1")
    'Prior reasoning (run-1): thought: look; final: 3'
    """
    if max_chars < _LEAST:
        raise UsageError(f"max_chars={max_chars} is too short", fix=f"give {_LEAST} or more")
    told = list(walk_back(traces, run_id))[::-1]
    if not told:
        return Hint("", run_id)
    flags = _flags(traces, run_id, told)
    name = _quoted(clip(run_id, 60))
    head = f"Prior reasoning ({', '.join([name, *flags])}): "[: max_chars // 2]
    room = max_chars - len(head)
    not_walked = told[0].ref.ordinal if len(told) == MAX_ITEMS else 0
    for cap in _CAPS if not not_walked else ():
        body = "; ".join(_shown(one, cap) for one in told)
        if len(body) <= room:
            return Hint(head + body, run_id, tuple(one.ref for one in told))
    return _newest(head, room, run_id, told, not_walked)


def _newest(head: str, room: int, run_id: str, told: list[_Told], not_walked: int) -> Hint:
    """Keep as many of the newest items as there is room for, cut short."""
    kept: list[str] = []
    count = len(told) + not_walked
    left = room - len(f"({count} earlier items left out); ")
    cap = max(_CAPS[-1], room // _SHARES)
    for one in reversed(told):
        shown = _shown(one, cap)
        if not kept and len(shown) + 2 > left:
            shown = _shown(one, _CAPS[-1])
        if len(shown) + 2 > left:
            break
        kept.append(shown)
        left -= len(shown) + 2
    if not kept:  # escapes can make even a short text long
        return Hint(f"{head}({count} items left out)"[: room + len(head)], run_id)
    text = f"{head}({count - len(kept)} earlier items left out); {'; '.join(kept[::-1])}"
    return Hint(text, run_id, tuple(one.ref for one in told[-len(kept) :]))


def walk_back(traces: TraceStore, run_id: str, *, most: int = MAX_ITEMS) -> Iterator[_Told]:
    """Yield a run's items from its final, or else its last, back to the root.

    Cycles and gaps end the walk, and so does the step limit. It goes on in an ancestor's graph
    only at the step that the run was forked from.
    """
    seen: set[str] = set()
    owner: str | None = run_id
    node = _start(traces, run_id)
    while node is not None and node.value not in seen and len(seen) < most:
        owner = _owner(traces, owner or run_id, node)
        if owner is None:
            return
        seen.add(node.value)
        graph = graph_node(owner)
        ordinal = term_value(_one(traces, node, "ordinal", graph))
        kind = name_of(_one(traces, node, "kind", graph))
        yield _Told(Ref(owner, ordinal), kind, _content(traces, node, graph))
        node = _next(traces, node, graph)


def _start(traces: TraceStore, run_id: str) -> NamedNode | None:
    """Return the final, else the last step, else the one that the run was forked from."""
    graph = graph_node(run_id)
    last: tuple[bool, int, Any] | None = None
    for quad in traces.match(None, sag("ordinal"), None, graph):
        final = traces.ask(quad.subject, sag("kind"), Literal("final"), graph)
        one = (final, int(name_of(quad.object)), quad.subject)
        if last is None or one[:2] > last[:2]:
            last = one
    found = _one(traces, run_node(run_id), "forkedFromStep", graph) if last is None else last[2]
    return found if isinstance(found, NamedNode) else None


def _owner(traces: TraceStore, run_id: str, node: NamedNode) -> str | None:
    """Return the run in whose graph a step is described: this one, or one it was forked from."""
    graph = graph_node(run_id)
    if traces.ask(node, sag("ordinal"), None, graph):
        return run_id
    if not traces.ask(run_node(run_id), sag("forkedFromStep"), node, graph):
        return None
    seen = {run_id}
    while (parent := _parent(traces, run_id)) is not None and parent not in seen:
        if traces.ask(node, sag("ordinal"), None, graph_node(parent)):
            return parent
        seen.add(parent)
        run_id = parent
    return None


def _parent(traces: TraceStore, run_id: str) -> str | None:
    node = _next(traces, run_node(run_id), graph_node(run_id))
    found = None if node is None else next(traces.match(node, sag("runId")), None)
    return None if found is None else name_of(found.object)


def _next(traces: TraceStore, node: NamedNode, graph: NamedNode) -> NamedNode | None:
    found = next(traces.match(node, prov("wasInformedBy"), None, graph), None)
    return found.object if found is not None and isinstance(found.object, NamedNode) else None


def _one(traces: TraceStore, node: NamedNode, name: str, graph: NamedNode) -> Any:
    found = next(traces.match(node, sag(name), None, graph), None)
    return None if found is None else found.object


def _content(traces: TraceStore, step: NamedNode, graph: NamedNode) -> str:
    """Return the text that a step generated; versions of entities have none."""
    for made in traces.match(None, prov("wasGeneratedBy"), step, graph):
        for said in traces.match(made.subject, prov("value"), None, graph):
            return name_of(said.object)
    return ""


def _flags(traces: TraceStore, run_id: str, told: list[_Told]) -> list[str]:
    """Say how a run ended, where that was not with an answer, and that it failed."""
    graph = graph_node(run_id)
    ended = _one(traces, run_node(run_id), "ended", graph)
    word = None if ended is None else name_of(ended)
    flags = []
    if word not in (None, "completed"):
        flags.append(str(word))
    elif told[-1].kind != "final":
        flags.append("unfinished" if word is None else "completed without an answer")
    outcomes = {name_of(q.object) for q in traces.match(None, sag("outcome"), None, graph)}
    if "failure" in outcomes:
        flags.append("outcome: failure" if outcomes == {"failure"} else "outcome: in dispute")
    return flags


def _shown(one: _Told, cap: int) -> str:
    text = one.text if len(one.text) <= cap else one.text[: cap - 1] + "…"
    return f"{one.kind}: {_quoted(text)}"


# What could end an item, begin another one, or be read as a part of the prompt.
_UNSAFE: Final = re.compile(
    r"[<>]|;\s|;$|^\s|\s$|^\"|```|\[/?INST"
    r"|\b(?:system|user|assistant|human|developer|thought|action|observation|final)\s*:"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,60}"
    r"\b(?:instructions?|prompts?|rules?|above|previous|prior|before)\b",
    re.IGNORECASE,
)


def _quoted(text: str) -> str:
    """Return a text as it is, or as a JSON string where it could be more than text."""
    if _UNSAFE.search(text) or not text.isprintable():
        return json.dumps(text)
    return text
