"""Each query against what plain Python counts, and what a query must say of itself."""

from __future__ import annotations

from collections import Counter, defaultdict

import pyarrow.parquet as pq
import pytest

import sag_research as sag
from sag_research.errors import QueryError, UsageError
from sag_research.warehouse.corpus import queries, query
from sag_research.warehouse.corpus._queries import parsed


@pytest.fixture(scope="module")
def tables(corpus):
    names = ("runs", "steps", "tokens", "mentions")
    return {name: pq.read_table(corpus.folder(name)).to_pylist() for name in names}


@pytest.fixture(scope="module")
def runs(tables):
    return {one["run_id"]: one for one in tables["runs"]}


@pytest.fixture(scope="module")
def of_run(tables):
    found = defaultdict(list)
    for one in tables["steps"]:
        found[one["run_id"]].append(one)
    return found


def ask(duck, corpus, name, **parameters):
    answer = duck.ask(name, corpus, **parameters)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]


def test_there_is_an_answer_to_each(duck, corpus):
    for name in queries():
        answer = duck.ask(name, corpus)
        assert answer.columns == list(query(name).outputs)
        assert len(answer) > 0, name


def test_they_say_what_they_mean():
    for name in queries():
        assert query(name).meaning.endswith("."), name
        assert query(name).text.startswith(f"-- {name}: ")


def test_what_a_query_reads_is_what_it_says(duck, corpus):
    """A query that used a column it does not declare would fail over a narrower view."""
    import duckdb

    for name in queries():
        asked = query(name)
        with duckdb.connect() as db:
            for table, names in asked.inputs.items():
                file = f"{corpus.folder(table)}/*.parquet"
                db.execute(
                    f"CREATE VIEW {table} AS SELECT {', '.join(names)} FROM read_parquet('{file}')"
                )
            db.execute(asked.text, asked.parameters or None)


def test_summary(duck, corpus, runs):
    rows = ask(duck, corpus, "summary")
    counts = Counter(one["outcome"] for one in runs.values())
    assert {one["outcome"]: one["n_runs"] for one in rows} == {**counts, "all": len(runs)}
    assert rows[-1]["outcome"] == "all"
    assert rows[-1]["n_steps"] == sum(one["n_steps"] for one in runs.values())
    assert rows[-1]["n_tasks"] == len({one["task_id"] for one in runs.values()})


def test_outcomes_by_model(duck, corpus, runs):
    from statsmodels.stats.proportion import proportion_confint

    rows = ask(duck, corpus, "outcomes_by_model")
    assert sum(one["n_runs"] for one in rows) == len(runs)
    for row in rows:
        known = [
            one["failed"] for one in runs.values()
            if one["model"] == row["model"] and one["failed"] is not None
        ]  # fmt: skip
        assert (row["n_known"], row["n_success"]) == (len(known), known.count(0))
        low, high = proportion_confint(known.count(0), len(known), method="wilson")
        assert (row["low"], row["high"]) == (pytest.approx(low), pytest.approx(high))


def test_no_known_outcome_no_rate(duck, tmp_path):
    with sag.open(":memory:") as ws:
        step = {"thought": "", "action": "ls", "observation": ""}
        ws.add({"task_id": "t", "steps": [step]})
        (row,) = ask(duck, ws.corpus(tmp_path / "c"), "outcomes_by_model")
    assert (row["n_unknown"], row["rate"], row["low"], row["high"]) == (1, None, None, None)


def test_hazard(duck, corpus, runs):
    rows = ask(duck, corpus, "hazard")
    known = [one for one in runs.values() if one["failed"] is not None]
    for row in rows:
        alive = [one for one in known if one["n_steps"] > row["step"]]
        ends = [one["failed"] for one in alive if one["n_steps"] == row["step"] + 1]
        assert (row["alive"], row["failed_later"]) == (
            len(alive), sum(one["failed"] for one in alive),
        )  # fmt: skip
        assert (row["end_failed"], row["end_succeeded"]) == (ends.count(1), ends.count(0))


def test_prefixes(duck, corpus, runs, of_run):
    counted = defaultdict(list)
    for run, steps in of_run.items():
        if runs[run]["failed"] is not None:
            for end in range(1, len(steps) + 1):
                counted[tuple(one["token"] for one in steps[:end])].append(run)
    wanted = Counter(
        (len(prefix), len(members), sum(runs[run]["failed"] for run in members), min(members))
        for prefix, members in counted.items()
        if len(members) >= 3
    )
    rows = ask(duck, corpus, "prefixes", min_runs=3)
    assert (
        Counter((one["depth"], one["n"], one["n_failed"], one["example"]) for one in rows) == wanted
    )
    assert len(wanted) > 20


def test_dead_ends_are_the_first_on_their_way(duck, corpus):
    every = {
        (one["depth"], one["prefix"]): one for one in ask(duck, corpus, "prefixes", min_runs=3)
    }
    rows = ask(duck, corpus, "dead_ends", min_runs=3, min_percent=80)
    assert rows
    for row in rows:
        same = every[row["depth"], row["prefix"]]
        assert (row["n"], row["n_failed"]) == (same["n"], same["n_failed"])
        assert row["n_failed"] >= 0.8 * row["n"]
        assert row["before_failed"] < 0.8 * row["before_n"]
        assert row["before_n"] >= row["n"]


def test_loops(duck, corpus, of_run, tables):
    names = {one["token"]: one["name"] for one in tables["tokens"]}
    found = {one["run_id"]: one for one in ask(duck, corpus, "loops", min_length=4)}
    for run, steps in of_run.items():
        best = (0, 0, None)
        length = 0
        for at, one in enumerate(steps):
            length = length + 1 if at and one["token"] == steps[at - 1]["token"] else 1
            if length > best[0]:
                best = (length, at - length + 1, names[one["token"]])
        if best[0] >= 4:
            row = found.pop(run)
            assert (row["length"], row["first_step"], row["name"]) == best
    assert not found


def test_suffixes(duck, corpus, runs, of_run):
    counted = defaultdict(set)
    for run, steps in of_run.items():
        tokens = [one["token"] for one in steps]
        for at in range(2, len(tokens)):
            counted[tuple(tokens[at - 2 : at + 1])].add(run)
    wanted = {}
    for context, members in counted.items():
        known = [runs[run]["failed"] for run in members if runs[run]["failed"] is not None]
        if len(known) >= 5:
            wanted[context] = (len(known), sum(known))
    rows = ask(duck, corpus, "suffixes")
    assert {(o["third"], o["second"], o["last"]): (o["n"], o["n_failed"]) for o in rows} == wanted


def test_transitions_add_up(duck, corpus, runs, of_run):
    rows = ask(duck, corpus, "transitions")
    known = [run for run in of_run if runs[run]["failed"] is not None]
    total = sum(len(of_run[run]) for run in known)
    assert sum(one["n_failed"] + one["n_succeeded"] for one in rows) == total
    ends = [one for one in rows if one["next"] is None]
    assert sum(one["n_failed"] + one["n_succeeded"] for one in ends) == len(known)


def test_first_error_counts_each_run_once(duck, corpus, runs):
    rows = ask(duck, corpus, "first_error")
    known = [one["failed"] for one in runs.values() if one["failed"] is not None]
    assert sum(one["n"] for one in rows) == len(known)
    assert sum(one["n_failed"] for one in rows) == sum(known)
    assert sum(one["step"] is None for one in rows) <= 1


def test_tools_actions_lengths_and_tasks_add_up(duck, corpus, runs, tables):
    n_steps = len(tables["steps"])
    assert sum(one["n_steps"] for one in ask(duck, corpus, "tools")) == n_steps
    assert sum(one["n_steps"] for one in ask(duck, corpus, "actions")) == n_steps
    assert sum(one["n_runs"] for one in ask(duck, corpus, "lengths", width=7)) == len(runs)
    for row in ask(duck, corpus, "task_outcomes"):
        assert row["n_runs"] == row["n_success"] + row["n_failure"] + row["n_unknown"]


def test_entities_and_their_pairs(duck, corpus, runs, tables):
    named = defaultdict(set)
    for one in tables["mentions"]:
        if runs[one["run_id"]]["failed"] is not None:
            named[one["entity_id"]].add(one["run_id"])
    rows = ask(duck, corpus, "entities")
    assert {one["entity_id"]: one["n"] for one in rows} == {
        entity: len(members) for entity, members in named.items() if len(members) >= 5
    }
    pairs = ask(duck, corpus, "entity_pairs", max_runs=40)
    assert pairs
    for one in pairs[:200]:
        both = named[one["entity_a"]] & named[one["entity_b"]]
        assert (one["n"], one["n_failed"]) == (len(both), sum(runs[r]["failed"] for r in both))


def test_divergence_and_alike(duck, corpus, runs, of_run):
    for row in ask(duck, corpus, "divergence"):
        members = [run for run in of_run if runs[run]["task_id"] == row["task_id"]]
        ways = {
            failed: [[o["token"] for o in of_run[run]] for run in members
                     if runs[run]["failed"] == failed]
            for failed in (0, 1)
        }  # fmt: skip
        assert (row["n_failed"], row["n_succeeded"]) == (len(ways[1]), len(ways[0]))
        assert row["common_steps"] == max(_common(a, b) for a in ways[0] for b in ways[1])
    for row in ask(duck, corpus, "alike"):
        same = [
            run for run in of_run
            if runs[run]["task_id"] == row["task_id"] and of_run[run][-1]["prefix"] == row["prefix"]
        ]  # fmt: skip
        assert (row["n"], row["first_run"]) == (len(same), min(same))


def _common(a, b):
    return next(
        (at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        ("nothing", {}, "no query"),
        ("prefixes", {"least": 1}, "no parameter"),
        ("tools", {"min_runs": 1}, "no parameter"),
        ("prefixes", {"min_runs": "1; DROP"}, "no whole number"),
        ("prefixes", {"min_runs": True}, "no whole number"),
        ("prefixes", {"min_runs": 2.0}, "no whole number"),
    ],
)
def test_what_cannot_be_asked(duck, corpus, name, parameters, why):
    with pytest.raises(UsageError, match=why):
        duck.ask(name, corpus, **parameters)


def test_sql_of_ones_own(duck, corpus):
    assert duck.sql("SELECT count(*) AS n FROM runs", corpus).rows()[0][0] > 100
    with pytest.raises(QueryError, match="DuckDB refused"):
        duck.sql("SELECT nothing FROM runs", corpus)


@pytest.mark.parametrize(
    "text", ["SELECT 1", "-- in: runs(run_id)", "-- in: runs(colour)\n-- out: n BIGINT"]
)
def test_a_query_must_say_what_it_reads_and_gives(text):
    with pytest.raises(UsageError):
        parsed("mine", text)
