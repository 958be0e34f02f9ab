"""Runs for the tests of provenance: a scripted one, hostile texts, and a log with everything."""

from __future__ import annotations

from sag_research.bloom import Action, Final, Named, Observation, Recorder, Thought, TraceItem
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Entity, Event, Mention, Run

SETUP = Entity("File", "a/b", "setup.py")
ERROR = Entity("Error", "", "TimeoutError")

HOSTILE = (
    "<t>", "a b", "a|b", "诊断", "x" * 100_000, "../../etc", 'q"uo\'te\\', "a:b#c?d%e", "\u202eexe",
    "line\nbreak\ttab\r", "\x00\x01\x1b[31m", "}; DROP GRAPH <urn:x>", "@prefix : <a> .", "",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "{\"@id\": \"x\"}",
)  # fmt: skip


def scripted() -> list[TraceItem]:
    """One tool call, then the answer."""
    return [
        TraceItem(0, Thought("planning to invoke a tool")),
        TraceItem(1, Action("lookup", {"query": "sag"}, "c1")),
        TraceItem(2, Observation('{"hits": 3}', "c1"), 1),
        TraceItem(3, Thought("Based on 3 hits")),
        TraceItem(4, Final("Based on 3 hits"), 2),
    ]


def named(item: TraceItem) -> tuple[Named, ...]:
    """Each action changes a file, each observation names an error."""
    if isinstance(item.step, Action):
        return (Named(SETUP, "MUTATED"), Named(SETUP))
    return (Named(ERROR),) if isinstance(item.step, Observation) else ()


def line(turns: int) -> list[TraceItem]:
    """A line of turns that each change the file."""
    items: list[TraceItem] = []
    for n in range(turns):
        at = 3 * n
        items += [
            TraceItem(at, Thought(f"turn {n}")),
            TraceItem(at + 1, Action("edit", {"n": n})),
            TraceItem(at + 2, Observation(f"done {n}"), at + 1),
        ]
    return items


def recorded(run_id: str, items: list[TraceItem], *, run: bool = True) -> Recorder:
    """Record items in their order."""
    recorder = Recorder()
    if run:
        recorder.add_run(Run(run_id=run_id, agent="scripted", created_at=1.0))
    for item in items:
        assert recorder.add(run_id, item, named=named(item))
    return recorder


def step(n: int, **more: object) -> dict[str, object]:
    """The payload of a step with one call."""
    call = {"id": f"c{n}", "name": "edit", "arguments": {"n": n}, "text": "edit setup.py",
            "observation": f"TimeoutError {n}", "status": "ok", "exit_code": None}  # fmt: skip
    told = {
        "thought": f"thought {n}",
        "action": "edit setup.py",
        "observation": f"TimeoutError {n}",
    }
    return {**told, "calls": [call], "flags": [], **more}


def mentions(events: list[Event]) -> dict[tuple[str, int], list[Mention]]:
    """Every edit changes setup.py, and every observation names the error."""
    found = {}
    for event in events:
        edit = Mention(entity=SETUP, field="action", start=5, end=13, role="MUTATED")
        seen = Mention(entity=ERROR, field="observation", start=0, end=12)
        found[event.run_id, event.position or 0] = (
            [edit, seen] if event.payload.get("calls") else []
        )
    return found


def full_log(store: SQLiteEventStore | None = None) -> SQLiteEventStore:
    """A run, a fork of it, a fork of the fork, labels, a hint, evidence, and a rejected step."""
    store = store or SQLiteEventStore(":memory:")
    store.create_run(Run(run_id="r1", goal="mend it", agent="scripted", repo="a/b"))
    for n in range(3):
        store.append(Event(run_id="r1", type="agent.step", payload=step(n, started=1_000.0 + n)))
    rejected = step(9, flags=["rejected"])
    store.append(Event(run_id="r1", type="agent.step", payload=rejected))
    evidence = {"name": "log", "kind": "evidence", "sha256": "ab" * 32}
    store.append(Event(run_id="r1", type="evidence.recorded", payload=evidence))
    report = {"name": "report", "kind": "report", "sha256": "cd" * 32, "derived_from": ["log"]}
    store.append(Event(run_id="r1", type="evidence.recorded", payload=report))
    done = {"thought": "it works", "action": "", "observation": "", "calls": [], "flags": []}
    store.append(Event(run_id="r1", type="agent.step", payload=done))
    store.append(Event(run_id="r1", type="run.completed", payload={"exit_status": "submitted"}))
    store.fork("r1", step=1, run_id="r2", intervention={"prompt": "again"})
    store.append(Event(run_id="r2", type="agent.step", payload=step(7)))
    store.append(Event(run_id="r2", type="run.failed", payload={}))
    store.fork("r2", step=0, run_id="r3")
    given = {"text": "Prior reasoning", "run": "r1", "items": [["r1", 0], ["r1", 1]]}
    store.append(Event(run_id="r3", type="hint.given", payload=given))
    store.append(Event(run_id="r3", type="agent.step", payload=step(8)))
    label(store, "r1", "success")
    label(store, "r2", "failure")
    return store


def label(store: SQLiteEventStore, run_id: str, outcome: str) -> None:
    """Say what became of a run."""
    if not store.has_run(WORKSPACE_RUN):
        store.create_run(Run(run_id=WORKSPACE_RUN, kind="workspace"))
    told = {"run": run_id, "outcome": outcome, "source": "report.json", "score": 0.5}
    store.append(Event(run_id=WORKSPACE_RUN, type="outcome.recorded", payload=told))
