"""The family tree of a run."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pytest
from matplotlib import pyplot

from sag_research.errors import RunNotFoundError
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run
from sag_research.runtime import lineage

matplotlib.use("agg")


def step(run_id: str, action: str) -> Event:
    return Event(run_id=run_id, type="agent.step", payload={"action": action})


@pytest.fixture
def store() -> Iterator[SQLiteEventStore]:
    """root (created, s0, s1, s2); a forks at s1, b at s0; c forks a below b's fork."""
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="root", task_id="t"))
        store.append_many([step("root", str(i)) for i in range(3)])
        store.fork("root", step=1, run_id="a", intervention={"model": "<b>m</b>"})
        store.append_many([step("a", "x"), step("a", "y")])
        store.fork("root", step=0, run_id="b")
        store.fork("a", at=2, run_id="c", intervention={"seed": 3})
        store.append(step("c", "z"))
        store.create_run(Run(run_id="stranger"))
        yield store


def test_every_member_finds_the_same_family(store: SQLiteEventStore) -> None:
    for member in ("root", "a", "b", "c"):
        found = lineage(store, member)
        assert [kin.run_id for kin in found.runs] == ["root", "b", "a", "c"]
        assert found.root_id == "root"
    assert lineage(store, "c").ancestors_ == ["root", "a"]
    assert len(lineage(store, "stranger")) == 1


def test_the_table_counts_own_and_inherited(store: SQLiteEventStore) -> None:
    table = lineage(store, "root").table_.set_index("run_id")
    rows = table[["depth", "fork_position", "n_events", "n_steps", "n_inherited"]]
    assert rows.to_dict("index") == {
        "root": dict(zip(rows.columns, (0, 0, 4, 3, 0), strict=True)),
        "b": dict(zip(rows.columns, (1, 2, 1, 0, 1), strict=True)),
        "a": dict(zip(rows.columns, (1, 3, 3, 2, 2), strict=True)),
        "c": dict(zip(rows.columns, (2, 2, 2, 1, 1), strict=True)),
    }
    assert table["fork_step"].isna().to_dict() == {"root": True, "b": False, "a": False, "c": False}
    assert table.loc["a", "fork_step"] == 1
    assert table.loc["c", "intervention"] == '{"seed":3}'
    assert table["n_events"].sum() == store.last_seq() - 1  # all but the stranger's


def test_outcomes_come_from_labels_or_the_caller(store: SQLiteEventStore) -> None:
    for run, outcome, source in (
        ("a", "failure", "x"), ("a", "success", "x"), ("b", "success", "x"), ("b", "failure", "y"),
    ):  # fmt: skip
        payload = {"run": run, "outcome": outcome, "source": source}
        store.append(Event(run_id=WORKSPACE_RUN, type="outcome.recorded", payload=payload))
    said = {kin.run_id: kin.outcome for kin in lineage(store, "root").runs}
    assert said == {"root": "unknown", "a": "success", "b": "unknown", "c": "unknown"}
    given = lineage(store, "root", outcomes={"c": "failure"}).runs
    assert [kin.outcome for kin in given] == ["unknown", "unknown", "unknown", "failure"]
    by_call = lineage(store, "root", outcomes=lambda run: "success" if run == "b" else None).runs
    assert [kin.outcome for kin in by_call] == ["unknown", "success", "unknown", "unknown"]


def test_texts_are_stable_and_escaped(store: SQLiteEventStore) -> None:
    found = lineage(store, "a")
    assert repr(found) == "Lineage('a', root 'root', 4 runs, depth 2)"
    html = found._repr_html_()
    assert "<b>m" not in html
    assert "&lt;b&gt;m" in html


def test_a_plot_shows_every_run_where_it_is(store: SQLiteEventStore) -> None:
    store.fork("root", at=1, run_id="$\\frac$")  # no formula
    axes = pyplot.subplots()[1]
    assert lineage(store, "a").plot(axes) is axes
    segments = [s.tolist() for c in axes.collections[:3] for s in c.get_segments()]
    # rows: root, the fork at 1, b, a, c
    assert sorted(segments, key=lambda s: s[0][1]) == [
        [[0, 0], [4, 0]], [[1, 1], [2, 1]], [[2, 2], [3, 2]], [[3, 3], [6, 3]], [[2, 4], [4, 4]],
    ]  # fmt: skip
    joins = [s.tolist() for s in axes.collections[3].get_segments()]
    assert [[2, 3], [2, 4]] in joins  # c hangs on a
    axes.figure.canvas.draw()
    pyplot.close("all")


def test_a_plot_makes_its_own_axes(store: SQLiteEventStore) -> None:
    assert lineage(store, "c").plot().get_xlabel() == "position"
    pyplot.close("all")


def test_thousands_of_forks_and_a_deep_chain() -> None:
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r"))
        store.append_many([step("r", str(i)) for i in range(20)])
        with store.transaction():
            for i in range(2_000):
                store.fork("r", at=2 + i % 19, run_id=f"f{i}")
            for i in range(150):
                store.fork(f"d{i - 1}" if i else "r", at=5 + i, run_id=f"d{i}")
        reads = 0
        read = store.read

        def counting(*args: object, **kwargs: object) -> Iterator[Event]:
            nonlocal reads
            for event in read(*args, **kwargs):  # type: ignore[arg-type]
                reads += 1
                yield event

        store.read = counting  # type: ignore[method-assign]
        found = lineage(store, "d149")
        assert len(found) == 2_151
        assert len(found.ancestors_) == 150
        assert reads == 2_150  # one intervention a fork, and no run as a whole


def test_an_unknown_run_is_named(store: SQLiteEventStore) -> None:
    with pytest.raises(RunNotFoundError):
        lineage(store, "nobody")
