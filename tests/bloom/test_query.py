"""From views to a graph, on a plain in-memory DuckDB that holds tables of the views' names."""

from __future__ import annotations

import duckdb
import pytest

from sag_research.bloom import bloom, weigh_entities
from sag_research.errors import MissingDataError, RunNotFoundError, UsageError
from tests.viz.sample import FORK_AT, entity_id, tables

RUN, FORK = "leap-day~1", "leap-day~1-fork"


class Answer:
    def __init__(self, table):
        self.table = table

    def arrow(self):
        return self.table


@pytest.fixture
def query():
    connection = duckdb.connect()
    connection.execute(
        "create table runs (run_id text, parent_id text, fork_position bigint, task_id text,"
        " agent text, model text, goal text, outcome text, exit_status text, n_steps bigint,"
        " hidden boolean default false)"
    )
    connection.execute(
        "create table events (run_id text, position bigint, type text, cause bigint, body text)"
    )
    connection.execute(
        "create table steps (run_id text, position bigint, step bigint, thought text, action text,"
        " observation text, exit_code integer, inherited boolean)"
    )
    connection.execute(
        "create table mentions (run_id text, position bigint, entity_id text, role text, rule text)"
    )
    connection.execute(
        "create table relations (source_id text, type text, target_id text, run_id text,"
        " position bigint, rule text)"
    )
    rows = tables()
    connection.executemany("insert into runs values (?,?,?,?,?,?,?,?,?,?,false)", rows["runs"])
    for e in rows["events"]:
        connection.execute(
            "insert into events values (?,?,?,?,?)", [e.run_id, e.position, e.type, e.cause, e.body]
        )
        if e.type == "agent.step":
            connection.execute(
                "insert into steps values (?,?,?,?,?,?,?,?)",
                [
                    e.run_id,
                    e.position,
                    e.step,
                    e.thought,
                    e.action,
                    e.observation,
                    e.exit_code,
                    False,
                ],
            )
    connection.execute("insert into runs (run_id) values ('@workspace')")
    connection.execute("insert into events values ('@workspace', 1, 'agent.step', null, null)")
    told = [(m.run_id, m.position, m.entity_id, m.role, m.rule) for m in rows["mentions"]]
    connection.executemany("insert into mentions values (?,?,?,?,?)", told)
    related = [tuple(row)[:6] for row in rows["relations"]]
    connection.executemany("insert into relations values (?,?,?,?,?,?)", related)
    connection.execute(
        "create view entities as select distinct entity_id, split_part(entity_id, '|', 1) as kind,"
        " split_part(entity_id, '|', 2) as scope, split_part(entity_id, '|', 3) as name"
        " from mentions"
    )

    def answer(sql, parameters):
        return Answer(connection.sql(sql, params=parameters).to_arrow_table())

    answer.connection = connection
    return answer


def events_of(bloomed):
    data = [d for _, d in bloomed.nx.nodes(data=True) if d["label"] == "Event"]
    return sorted((d["run_id"], d["position"]) for d in data)


def test_one_run(query):
    assert repr(bloom(query, RUN)) == "BloomGraph(1 run, 32 events, 29 entities, 180 edges)"


def test_a_fork_brings_what_it_took_over_and_no_more(query):
    bloomed = bloom(query, [FORK])
    assert bloomed.runs == [RUN, FORK]
    inherited = [(RUN, n) for n in range(1, FORK_AT + 1)]
    assert events_of(bloomed) == inherited + [(FORK, n) for n in range(FORK_AT + 1, FORK_AT + 10)]


def test_the_graph_from_sql_is_the_graph_from_rows(query):
    import networkx as nx

    from sag_research.bloom import bloom_graph

    rows = tables()
    ours, theirs = bloom(query).nx, bloom_graph(**rows)
    assert set(ours.edges(keys=True)) == set(theirs.edges(keys=True))
    assert {n: ours.nodes[n]["rank"] for n in ours if n.startswith("event:")} == {
        n: theirs.nodes[n]["rank"] for n in theirs if n.startswith("event:")
    }
    assert nx.is_weakly_connected(ours)


def test_all_events_or_steps_with_their_frame(query):
    query.connection.execute(
        "insert into events values (?, 20, 'annotation.added', 19, '{\"by\":\"me\"}')", [FORK]
    )
    types = {d["type"] for _, d in bloom(query, FORK).nx.nodes(data=True) if d["label"] == "Event"}
    assert types == {"run.created", "run.forked", "agent.step", "run.completed"}
    every = bloom(query, FORK, events="all")
    assert "annotation.added" in {d.get("type") for _, d in every.nx.nodes(data=True)}
    assert "@workspace" not in bloom(query, events="all").runs


def test_neighbourhood_of_an_entity(query):
    error = entity_id("E", "ConnectionRefusedError")
    bloomed = bloom(query, entity="ConnectionRefusedError", neighbours=1)
    assert events_of(bloomed) == [(RUN, 19), (RUN, 20), (RUN, 21)]  # step 18 and its neighbours
    assert error in bloomed.nx
    assert bloom(query, entity=error, neighbours=0).nx.number_of_nodes() == 5
    assert bloomed.nx.nodes[error]["runs_total"] == 1
    assert bloomed.nx.graph["runs_total"] == 2
    assert bloomed.nx.graph["focus"] == [error]


class TestHidden:
    COPY = "leap-day~1-copy"

    @pytest.fixture
    def query(self, query):
        """The first run once more, hidden."""
        for table in ("events", "steps", "mentions"):
            query.connection.execute(
                f"insert into {table} select * replace ('{self.COPY}' as run_id) from {table}"
                f" where run_id = '{RUN}'"
            )
        query.connection.execute(
            f"insert into runs select * replace ('{self.COPY}' as run_id, true as hidden)"
            f" from runs where run_id = '{RUN}'"
        )
        return query

    def test_runs_are_left_out_unless_they_are_named(self, query):
        assert bloom(query).runs == [RUN, FORK]
        assert bloom(query, entity="ConnectionRefusedError").runs == [RUN]
        assert bloom(query, self.COPY).runs == [self.COPY]
        assert bloom(query, self.COPY, entity="ConnectionRefusedError").runs == [self.COPY]

    @pytest.mark.parametrize("runs", [RUN, [RUN, COPY], None])
    def test_runs_are_no_support(self, query, runs):
        error = entity_id("E", "ConnectionRefusedError")
        bloomed = bloom(query, runs, entity=None)
        assert bloomed.nx.nodes[error]["runs_total"] == 1
        assert bloomed.nx.graph["runs_total"] == 2

    def test_weights_are_the_same_without_them(self, query):
        before = weigh_entities(bloom(query, RUN).nx)
        query.connection.execute(f"delete from runs where run_id = '{self.COPY}'")
        assert weigh_entities(bloom(query, RUN).nx) == before

    def test_one_that_is_named_beside_its_original_makes_nothing_common(self, query):
        error = entity_id("E", "ConnectionRefusedError")
        both = weigh_entities(bloom(query, [RUN, self.COPY]).nx)
        assert both[error] == pytest.approx(2 * weigh_entities(bloom(query, RUN).nx)[error])


def test_inherited_steps_are_no_support(query):
    error = entity_id("E", "ConnectionRefusedError")
    query.connection.execute("update steps set inherited = true")
    assert bloom(query, RUN).nx.nodes[error]["runs_total"] == 0


def test_neighbours_are_found_over_a_fork(query):
    # test_offset is named in step 8, the fork point: both continuations follow it
    bloomed = bloom(query, entity="test_offset", neighbours=1)
    assert {(RUN, FORK_AT - 1), (RUN, FORK_AT), (RUN, FORK_AT + 1), (FORK, FORK_AT + 2)} <= set(
        events_of(bloomed)
    )
    assert bloomed.nx.has_edge(f"event:{RUN}:{FORK_AT}", f"event:{FORK}:{FORK_AT + 2}", "NEXT")
    assert bloomed.nx.has_edge(f"run:{FORK}", f"event:{RUN}:{FORK_AT}", "FORKED_FROM")
    only_parent = bloom(query, RUN, entity="test_offset", neighbours=1)
    assert only_parent.runs == [RUN]


def test_texts_are_cut(query):
    data = bloom(query, RUN, clip=5).nx.nodes[f"event:{RUN}:2"]
    assert (data["thought"], data["action"]) == ("Find ", "find ")


def test_values_are_bound_never_pasted(query):
    with pytest.raises(RunNotFoundError, match="no such run"):
        bloom(query, "x'; drop table runs; --")
    with pytest.raises(MissingDataError, match="nearest"):
        bloom(query, entity="'; drop table runs; --")
    assert bloom(query, RUN).runs == [RUN]


def test_a_misspelt_entity_is_told_its_neighbours(query):
    with pytest.raises(MissingDataError, match="ConnectionRefusedError"):
        bloom(query, entity="ConnectionRefused")


def test_too_many_events_are_refused_not_cut(query):
    with pytest.raises(UsageError, match="more than 31 events"):
        bloom(query, RUN, limit=31)
    assert len(events_of(bloom(query, RUN, limit=32))) == 32


@pytest.mark.parametrize("wrong", [{"events": "none"}, {"neighbours": -1}])
def test_wrong_arguments(query, wrong):
    with pytest.raises(UsageError):
        bloom(query, RUN, **wrong)


def test_an_empty_workspace(query):
    for table in ("runs", "events", "steps", "mentions", "relations"):
        query.connection.execute(f"delete from {table}")
    assert repr(bloom(query)) == "BloomGraph(0 runs, 0 events, 0 entities, 0 edges)"
