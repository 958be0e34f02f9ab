"""Runs of a LangGraph file: every leaf of a thread's tree of checkpoints is the end of one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._langgraph_db import Write
from sag_research.ingest.formats._langgraph_nodes import (
    Body,
    Change,
    Node,
    Thread,
    as_id,
    changes_of,
    nodes_run,
)
from sag_research.ingest.formats._langgraph_values import (
    Message,
    as_text,
    messages_in,
    told_by,
    value_of,
)
from sag_research.ingest.formats._openhands_turns import Turn, Turns
from sag_research.ingest.formats._shared import Result
from sag_research.ingest.formats._tree import Branch, branches, links
from sag_research.model import Call, Step, Trajectory, Usage

__all__ = ["Run", "runs_of", "trajectory_of"]

_BY_HAND: Final = ("input", "update", "fork")
"""What a checkpoint came from if no node of the graph ran."""
_NAME: Final = re.compile(r"[\w.-]{1,80}")


@dataclass
class Run:
    """A path of checkpoints from a root, or from where it left another run, to a leaf."""

    thread: Thread
    nodes: list[Node]
    parent: Run | None = None
    at: int | None = None
    """Number of the checkpoint, in the thread, that it left."""
    relation: str = "fork"
    call_step: int | None = None
    """Of a subgraph: the step of the graph above that ran it."""
    first: int = 0
    """Number of its first step, counted from the start of the whole run."""
    turns: Turns = field(default_factory=Turns)
    places: list[int] = field(default_factory=list)
    """Of each turn, the place of its checkpoint in ``nodes``."""
    states: list[dict[str, Any]] = field(default_factory=list)
    steps_at: dict[str, int] = field(default_factory=dict)
    """Number of the last step, by checkpoint."""
    goal: str = ""
    told: list[Any] = field(default_factory=list)
    """What people did to the state, before a step that follows it."""
    opening: list[Any] = field(default_factory=list)
    """The same, before its first step."""
    model: str | None = None
    record: str = ""
    end: str | None = None
    exit_status: str | None = None
    config: dict[str, Any] = field(default_factory=dict)


def runs_of(threads: Sequence[Thread], notes: list[str]) -> list[Run]:
    """Make runs of all threads, each behind the one that it left or that called it."""
    found: list[Run] = []
    by_checkpoint: dict[tuple[str, str, str], Run] = {}
    for thread in threads:
        made = _Reader(thread, notes).runs()
        for run in made:
            by_checkpoint.update(
                {(thread.thread_id, thread.namespace, n.id): run for n in run.nodes}
            )
            if thread.namespace and run.parent is None:
                _serve(run, by_checkpoint, threads)
        found += made
    names: Counter[str] = Counter()
    for number, run in enumerate(found):
        leaf = run.nodes[-1].id
        run.record = leaf if _NAME.fullmatch(leaf) else f"checkpoint-{number}"
        names[run.record] += 1
        if names[run.record] > 1:
            run.record = f"{run.record}~{number}"
    return found


def _serve(
    run: Run, by_checkpoint: dict[tuple[str, str, str], Run], threads: Sequence[Thread]
) -> None:
    """Say which run, and which of its steps, a subgraph's run belongs to."""
    thread = run.thread
    on = as_id(run.nodes[0].parents.get(thread.above))
    if on is None or (caller := by_checkpoint.get((thread.thread_id, thread.above, on))) is None:
        return
    above = next(
        one for one in threads
        if (one.thread_id, one.namespace) == (thread.thread_id, thread.above)
    )  # fmt: skip
    after = (one for one in above.nodes if one.parent == on and one.id > run.nodes[0].id)
    result = next((one for one in after if one.source not in _BY_HAND), None)
    if result is not None:
        caller = by_checkpoint[thread.thread_id, thread.above, result.id]
        run.call_step = caller.steps_at.get(result.id)
    run.parent, run.relation = caller, "subagent"


class _Reader:
    """Walks the branches of one thread, each from where it left another one."""

    def __init__(self, thread: Thread, notes: list[str]) -> None:
        self._thread = thread
        self._notes = notes
        nodes = thread.nodes
        self._up, missing, _ = links([one.id for one in nodes], [one.parent for one in nodes])
        if missing:
            notes.append(f"{len(missing)} checkpoints name a parent that is not there")
        # what came first goes on; all that leaves it later is a fork
        self._branches, cycles = branches(self._up, [-number for number in range(len(nodes))])
        if cycles:
            notes.append(f"{cycles} circles of checkpoints were cut")
        self._followers = Counter(
            parent
            for number, parent in enumerate(self._up)
            if parent is not None and nodes[number].source not in _BY_HAND
        )
        self._left = {branch.at for branch in self._branches}

    def runs(self) -> list[Run]:
        found: list[Run] = []
        for branch in self._branches:
            found.append(self._run(branch, found))
        return found

    def _run(self, branch: Branch, found: list[Run]) -> Run:
        nodes = [self._thread.nodes[number] for number in branch.nodes]
        run = Run(self._thread, nodes, at=branch.at)
        before = None if branch.at is None else self._thread.nodes[branch.at]
        if branch.parent is not None and before is not None:
            run.parent = found[branch.parent]
            run.first = run.parent.steps_at.get(before.id, -1) + 1
        last = Body(before, self._notes)
        for place in range(len(nodes)):
            body = Body(nodes[place], self._notes)
            self._take(run, branch, place, (body, last))
            run.steps_at[nodes[place].id] = run.first + len(run.turns.all) - 1
            last = body
        _end(run, last)
        return run

    def _take(self, run: Run, branch: Branch, place: int, bodies: tuple[Body, Body]) -> None:
        node, number = run.nodes[place], branch.nodes[place]
        parent = self._up[number]
        before = None if parent is None else self._thread.nodes[parent]
        if node.source == "input":
            self._input(run, branch, place, bodies[0].values)
        elif node.source in _BY_HAND:
            self._by_hand(run, node, bodies)
        else:
            alone = parent is not None and self._followers[parent] == 1
            ran = nodes_run(before if alone else None, bodies)
            changes = changes_of(before if alone else None, bodies, self._notes)
            run.told += _resumed(before) if before is not None and alone else []
            if ran:
                self._ran(run, branch, place, ran, changes, bodies[0].started)

    def _input(self, run: Run, branch: Branch, place: int, values: dict[str, Any]) -> None:
        text = told_by(values.get("__start__"))
        if not (run.first or run.turns.all or run.goal) and run.parent is None:
            run.goal = shared.problem_text(text)
        elif text and not (self._is_own(run, branch, -1, place) and run.turns.hear(text)):
            run.told.append({"input": text})

    def _by_hand(self, run: Run, node: Node, bodies: tuple[Body, Body]) -> None:
        changed = {one.channel: one.value for one in changes_of(None, bodies, self._notes)}
        told = {node.source: changed} if changed else {node.source: node.id}
        (run.told if run.turns.all else run.opening).append(told)

    def _is_own(self, run: Run, branch: Branch, turn: int, place: int) -> bool:
        """Tell whether what comes at a place belongs to a turn in the eyes of every run."""
        if not run.places:
            return False
        return self._left.isdisjoint(branch.nodes[run.places[turn] : place])

    def _ran(
        self, run: Run, branch: Branch, place: int, ran: list[str], changes: list[Change],
        at: float | None,
    ) -> None:  # fmt: skip
        said = [one for change in changes for one in messages_in(change.value)]
        rest = [one for one in changes if not messages_in(one.value)]
        results = [one for one in said if one.role == "tool"]
        replies = [one for one in said if one.role == "assistant"]
        if not replies and results == said and said and not rest:
            turns = [_asked(run, one.call_id) for one in results]
            if all(one is not None and self._is_own(run, branch, one, place) for one in turns):
                for one in results:
                    run.turns.answer(_result(one), None, None)
                return
        turn = run.turns.reply(None, at)
        run.places.append(place)
        node = run.nodes[place]
        state: dict[str, Any] = {"checkpoint": node.id, "step": node.step, "nodes": ran}
        if replies:
            _reply(run, turn, replies, results)
            if written := _by_channel(rest):
                state["writes"] = written if len(written) > 1 else written[0]
        else:
            _work(turn, ran, changes)
        if run.told:
            state["told"], run.told = run.told, []
        run.states.append(state)


def _resumed(before: Node) -> list[Any]:
    """Return what people answered where the graph had stopped to ask."""
    answers = [one for one in before.writes if as_id(one.channel) == "__resume__"]
    return [{"resume": _written(one)} for one in answers]


def _asked(run: Run, call_id: str | None) -> int | None:
    """Return the last turn that made a call of this id."""
    for number in range(len(run.turns.all) - 1, -1, -1):
        if call_id and any(call.id == call_id for call in run.turns.all[number].calls):
            return number
    return None


def _result(message: Message) -> Result:
    return Result(message.call_id, message.text, None, message.status)


def _reply(run: Run, turn: Turn, replies: list[Message], results: list[Message]) -> None:
    """Fill a turn with what models said in it."""
    turn.thoughts = [one.text for one in replies]
    used = [one.usage for one in replies if one.usage is not None]
    turn.usage = _sum(used) if used else None
    for reply in replies:
        run.model = run.model or reply.model
        for call in reply.calls:
            run.turns.ask(turn, call, None)
    for result in results:
        if not run.turns.answer(_result(result), None, None):
            turn.heard.append(result.text)


def _sum(used: list[Usage]) -> Usage:
    def total(name: str) -> int | None:
        amounts = [one for usage in used if (one := getattr(usage, name)) is not None]
        return sum(amounts) if amounts else None

    return Usage(tokens_in=total("tokens_in"), tokens_out=total("tokens_out"))


def _work(turn: Turn, ran: list[str], changes: list[Change]) -> None:
    """Fill a turn in which no model spoke: the nodes that ran are what was done."""
    for node in ran:
        own = changes if len(ran) == 1 else [one for one in changes if one.by == node]
        turn.calls.append(Call(name=node, text=node, observation=_shown(own), status="unknown"))
        turn.answers.append([])
    if len(ran) > 1:
        turn.heard.append(_shown([one for one in changes if one.by not in ran]))


def _shown(changes: list[Change]) -> str:
    """Return what was written, as text: messages by what they say, other values as JSON."""
    said = [one.text for change in changes for one in messages_in(change.value)]
    rest = [one for one in changes if not messages_in(one.value)]
    return shared.joined([*said, *map(as_text, _by_channel(rest))])


def _by_channel(changes: list[Change]) -> list[dict[str, Any]]:
    """Return what was written, by channel; where one was written to again, in a further object."""
    found: list[dict[str, Any]] = []
    for one in changes:
        if not found or one.channel in found[-1]:
            found.append({})
        found[-1][one.channel] = one.value
    return found


# ---- how it ended


def _end(run: Run, last: Body) -> None:
    """Say how a run ended, by what waits on top of its leaf."""
    leaf = run.nodes[-1]
    waiting = [(as_id(one.channel) or "", one) for one in leaf.writes]
    errors = [as_text(_written(one)) for name, one in waiting if name == "__error__"]
    asked = [as_text(_written(one)) for name, one in waiting if name == "__interrupt__"]
    if errors:
        run.end, run.exit_status = "run.failed", "error"
        run.config["errors"] = errors
    elif asked:
        run.exit_status = "interrupted"
        run.config["interrupts"] = asked
    elif leaf.source not in _BY_HAND and not any(one.startswith("branch:") for one in last.values):
        run.end = "run.completed"


def _written(one: Write) -> Any:
    try:
        return value_of(one.type, one.value)
    except FormatError as error:
        return str(error)


def trajectory_of(run: Run, latest: str) -> Trajectory:
    """Return a run as a trajectory.

    Parameters
    ----------
    run : Run
    latest : str
        The newest checkpoint of its thread: where LangGraph itself would go on.
    """
    leaf = run.nodes[-1]
    served = run.relation == "subagent"
    about: dict[str, Any] = {
        "thread_id": run.thread.thread_id,
        "checkpoint_ns": run.thread.namespace,
        "checkpoint_id": leaf.id,
        "latest": leaf.id == latest,
        "opening": run.opening,
        "told": run.told,
        **run.config,
    }
    forked = run.parent is not None and not served
    return Trajectory(
        task_id=run.thread.thread_id.strip() or "unnamed",
        record=run.record,
        goal=run.goal,
        steps=_steps(run),
        agent="langgraph",
        model=run.model,
        end=run.end,
        exit_status=run.exit_status,
        parent=run.parent.record if run.parent else None,
        parent_step=run.call_step if served else run.first - 1 if forked else None,
        relation=run.relation,
        config={name: value for name, value in about.items() if value not in (None, "", [], {})},
    )


def _steps(run: Run) -> tuple[Step, ...]:
    return tuple(
        replace(turn.step(), state=state)
        for turn, state in zip(run.turns.all, run.states, strict=True)
    )
