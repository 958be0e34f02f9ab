"""Where two runs part, and how the rest is aligned."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import RunNotFoundError
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import diff
from sag_research.runtime._diff_align import align


def step(run_id: str, action: str, observation: str = "", **more: object) -> Event:
    payload = {"action": action, "observation": observation, **more}
    return Event(run_id=run_id, type="agent.step", payload=payload)


@pytest.fixture
def store() -> Iterator[SQLiteEventStore]:
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="p", task_id="t"))
        store.append_many([step("p", action) for action in ("ls", "cat a", "edit a", "pytest")])
        yield store


def test_a_fork_and_its_parent_part_at_the_fork(store: SQLiteEventStore) -> None:
    store.fork("p", step=1, run_id="f")
    store.append_many([step("f", "cat b"), step("f", "edit a", "other"), step("f", "pytest")])
    found = diff(store, "p", "f")
    assert (found.shared, found.shared_steps) == (3, 2)
    assert found.first_a is not None
    assert (found.first_a.type, found.first_a.position) == ("agent.step", 4)
    assert found.first_b is not None
    assert (found.first_b.type, found.first_b.position) == ("run.forked", 4)
    rows = [(r.position_a, r.position_b, r.step_a, r.step_b, r.status) for r in found.rows]
    assert rows == [
        (None, 5, None, 2, "only_b"),
        (4, 6, 2, 3, "changed"),
        (5, 7, 3, 4, "same"),
    ]
    assert found.rows[1].summary == "observation: edit a"
    assert found.counts_ == {"same": 1, "changed": 1, "only_a": 0, "only_b": 1}
    assert not found.equal
    assert list(found.table_.columns) == [
        "position_a", "position_b", "step_a", "step_b", "status", "summary",
    ]  # fmt: skip
    assert found.table_["step_a"].tolist()[1:] == [2, 3]


def test_sides_can_be_swapped(store: SQLiteEventStore) -> None:
    store.fork("p", step=0, run_id="f")
    store.append(step("f", "pytest"))
    one, other = diff(store, "p", "f"), diff(store, "f", "p")
    assert one.counts_ == {"same": 1, "changed": 0, "only_a": 2, "only_b": 0}
    assert other.counts_ == {"same": 1, "changed": 0, "only_a": 0, "only_b": 2}


def test_the_prefix_is_found_at_every_length() -> None:
    """Against a plain comparison, for every place where two histories can part."""
    with SQLiteEventStore(":memory:") as store:
        for place in range(9):
            for name in ("a", "b"):
                run = f"{name}{place}"
                store.create_run(Run(run_id=run))
                for i in range(8):
                    other = name if i >= place else ""
                    store.append(step(run, f"{i}{other}"))
            assert diff(store, f"a{place}", f"b{place}").shared == 1 + place


def test_clocks_and_names_do_not_matter(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="q", task_id="t", label="other", created_at=5.0))
    for action in ("ls", "cat a", "edit a", "pytest"):
        store.append(step("q", action, started=1.0, seconds=2.0))
    found = diff(store, "p", "q")
    assert found.equal
    assert (found.shared, found.rows) == (5, [])


def test_unrelated_runs_share_nothing_and_are_aligned(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="q", task_id="another"))
    store.append_many([step("q", "ls"), step("q", "edit a"), step("q", "submit")])
    found = diff(store, "p", "q")
    assert found.shared == 0
    assert [row.status for row in found.rows] == ["same", "only_a", "same", "only_a", "only_b"]
    assert found.first_a is not None
    assert found.first_a.type == "run.created"


def test_a_run_that_is_the_others_beginning(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="q", task_id="t"))
    store.append(step("q", "ls"))
    found = diff(store, "p", "q")
    assert found.shared == 2
    assert found.first_b is None
    assert found.counts_["only_a"] == 3
    assert "nothing: it ends there" in found.to_html()


def test_ids_of_calls_and_usage_are_no_difference(store: SQLiteEventStore) -> None:
    for run, number in (("x", "1"), ("y", "2")):
        store.create_run(Run(run_id=run, goal=run))
        calls = [{"id": number, "name": "bash", "text": "ls", "observation": "a"}]
        store.append(step(run, "ls", "a", calls=calls, usage={"tokens_in": int(number)}))
    assert [row.status for row in diff(store, "x", "y").rows] == ["same"]


def test_steps_can_be_aligned_by_a_token(store: SQLiteEventStore) -> None:
    store.create_run(Run(run_id="q", goal="x"))
    store.append_many([step("q", "ls -a"), step("q", "cat z")])
    found = diff(store, "p", "q", key=lambda payload: payload["action"].split()[0])
    assert [row.status for row in found.rows] == ["changed", "changed", "only_a", "only_a"]
    assert found.rows[1].summary == "action: cat a | cat z"


def test_texts_are_stable_and_escaped(store: SQLiteEventStore) -> None:
    store.fork("p", step=1, run_id="<f>")
    store.append(step("<f>", "<script>alert(1)</script>\x1b[31m", "<img src=x>"))
    found = diff(store, "p", "<f>")
    assert repr(found) == (
        "RunDiff('p', '<f>', 3 events shared; steps: 0 same, 0 changed, 2 only_a, 1 only_b)"
    )
    html = found._repr_html_()
    assert "&lt;script&gt;" in html
    for raw in ("<script", "<img", "<f>", "\x1b"):
        assert raw not in html
    assert "2 of 3 rows shown" in found.to_html(limit=2)


def test_an_unknown_run_is_named(store: SQLiteEventStore) -> None:
    with pytest.raises(RunNotFoundError):
        diff(store, "p", "nobody")


def common_length(a: str, b: str) -> int:
    """The textbook's table."""
    row = [0] * (len(b) + 1)
    for x in a:
        above, row = row, [0]
        for j, y in enumerate(b):
            row.append(above[j] + 1 if x == y else max(above[j + 1], row[j]))
    return row[-1]


@given(st.text("abc", max_size=40), st.text("abc", max_size=40))
def test_alignment_is_whole_ordered_and_longest(a: str, b: str) -> None:
    pairs = align(a, b)
    assert [i for i, _ in pairs if i is not None] == list(range(len(a)))
    assert [j for _, j in pairs if j is not None] == list(range(len(b)))
    matched = [(i, j) for i, j in pairs if i is not None and j is not None]
    assert all(a[i] == b[j] for i, j in matched)
    assert len(matched) == common_length(a, b)


def test_alignment_of_long_runs_with_frequent_items() -> None:
    rng = random.Random(3)
    a, b = ("".join(rng.choices("abcdxyz" + chr(300 + k), k=600)) for k in (0, 1))
    matched = [pair for pair in align(a, b) if None not in pair]
    assert len(matched) == common_length(a, b)
