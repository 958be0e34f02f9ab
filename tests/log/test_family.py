"""Relatives of a run, and lineages copied into runs of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import BadPayloadError, RunExistsError, RunNotFoundError, UsageError
from sag_research.log import SQLiteEventStore, canonical_digest, find_call, record_call
from sag_research.model import WORKSPACE_RUN, Event, Run
from sag_research.warehouse import Warehouse

LONG = "a text of more than five hundred bytes " * 20


@pytest.fixture
def store(tmp_path: Path) -> SQLiteEventStore:
    store = SQLiteEventStore(tmp_path / "log.sqlite")
    store.create_run(Run(run_id="root", goal="g", task_id="t"))
    for n in range(4):
        store.append(step("root", n))
    store.fork("root", at=3, run_id="child", intervention={"text": LONG}, label="tried")
    store.append(step("child", 10))
    store.fork("child", at=5, run_id="grandchild")
    store.append(step("grandchild", 11))
    store.fork("grandchild", at=2, run_id="early")  # inside what the root wrote
    store.create_run(Run(run_id="apart"))
    return store


def step(run_id: str, n: int) -> Event:
    payload = {"thought": f"{n} {LONG}", "action": "ls", "observation": f"{n}", "seconds": 0.25}
    return Event(run_id=run_id, type="agent.step", payload=payload, frame="f", ts=1e9 + n)


def test_a_family_is_all_runs_of_one_root(store: SQLiteEventStore) -> None:
    for run_id in ("root", "child", "grandchild", "early"):
        family = store.family(run_id)
        assert [run.run_id for run in family] == ["root", "child", "grandchild", "early"]
        assert [run.parent_id for run in family] == [None, "root", "child", "grandchild"]
        assert {run.goal for run in family} == {"g"}
    assert store.family("apart") == [store.get_run("apart")]
    with pytest.raises(RunNotFoundError):
        store.family("nobody")


def test_a_family_is_found_by_one_search(store: SQLiteEventStore) -> None:
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    store.family("grandchild")
    store._db.set_trace_callback(None)
    [query] = [text for text in statements if "RECURSIVE" in text]
    plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert [line for line in plan if line.startswith("SCAN")] == ["SCAN family"] * 2
    assert len(statements) == 1


def test_a_copy_holds_the_whole_lineage(store: SQLiteEventStore) -> None:
    flat = store.flatten("grandchild", "flat")
    assert flat == store.get_run("flat")
    assert (flat.parent_id, flat.fork_position, flat.goal) == (None, 0, "g")
    copied, original = list(store.read("flat")), list(store.read("grandchild"))
    assert {e.run_id for e in copied} == {"flat"}
    assert [_content(e) for e in copied] == [_content(e) for e in original]
    assert store.head("flat") == store.head("grandchild")
    assert store.family("flat") == [flat]
    assert store.verify().to_dict() == {"ok": True, "runs": 6, "problems": []}


def _content(event: Event) -> tuple[object, ...]:
    return (
        event.position, event.type, event.payload, event.actor, event.cause, event.frame,
        event.ts, event.digest,
    )  # fmt: skip


def test_a_copy_goes_on_by_itself(store: SQLiteEventStore) -> None:
    flat = store.flatten("child")
    assert flat.run_id.startswith("child+")
    assert flat.label == "tried"
    one = store.append(step(flat.run_id, 5))
    assert one.digest == store.append(step("child", 5)).digest
    store.fork(flat.run_id, at=2, run_id="again")
    assert store.verify().ok


def test_a_copy_keeps_what_was_redacted(store: SQLiteEventStore) -> None:
    store.redact("root", 2, "a name")
    store.flatten("grandchild", "flat")
    assert next(store.read("flat", lo=2)).payload == {"redacted": "a name", "seconds": 0.25}
    assert store.verify().ok


def test_a_copy_finds_its_recorded_calls(store: SQLiteEventStore) -> None:
    key = canonical_digest({"ask": "a"})
    payload = {"key": key, "occurrence": 0, "text": "yes"}
    record_call(store, Event(run_id="grandchild", type="llm.responded", payload=payload))
    store.flatten("grandchild", "flat")
    found = find_call(store, key, 0, "flat")
    assert found is not None
    assert (found.run_id, found.payload) == ("flat", payload)


def test_what_cannot_be_copied_is_refused(store: SQLiteEventStore) -> None:
    before = store.last_seq()
    with pytest.raises(RunExistsError):
        store.flatten("child", "apart")
    with pytest.raises(RunNotFoundError):
        store.flatten("nobody")
    with pytest.raises(UsageError, match="workspace"):
        store.flatten(WORKSPACE_RUN)
    assert store.last_seq() == before


def test_a_warehouse_takes_a_copy(store: SQLiteEventStore, tmp_path: Path) -> None:
    store.flatten("grandchild", "flat")
    warehouse = Warehouse(tmp_path / "warehouse", store)
    warehouse.sync()
    query = "SELECT step, position, thought FROM {} WHERE run_id = ? ORDER BY step"
    own = warehouse.sql(query.format("steps"), ["flat"]).rows()
    inherited = warehouse.sql(query.format("steps_all"), ["grandchild"]).rows()
    assert own == inherited
    assert [row[0] for row in own] == [0, 1, 2, 3]
    runs = warehouse.sql("SELECT run_id FROM runs WHERE run_id = 'flat'").rows()
    assert runs == [("flat",)]
    warehouse.close()


@pytest.mark.parametrize("given", [5, "text", [("a", 1)], {"a": float("nan")}])
def test_an_intervention_is_an_object_and_else_there_is_no_fork(
    store: SQLiteEventStore, given: Any
) -> None:
    before = store.runs()
    with pytest.raises(BadPayloadError):
        store.fork("root", intervention=given)
    assert store.runs() == before
