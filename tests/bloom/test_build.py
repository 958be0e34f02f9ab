"""Rows in, graph out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sag_research.bloom import EventRow, bloom_graph, entity_table, weigh_entities
from tests.viz.sample import FORK_AT, entity_id, graph, tables


def keys(g, kind):
    return sorted((source, target) for source, target, key in g.edges(keys=True) if key == kind)


def test_episodic_layer_of_one_run():
    g = bloom_graph([("r", 1, "run.created"), EventRow("r", 2, cause=1), EventRow("r", 3, cause=2)])
    assert keys(g, "CONTAINS") == [("run:r", f"event:r:{n}") for n in (1, 2, 3)]
    assert keys(g, "NEXT") == [("event:r:1", "event:r:2"), ("event:r:2", "event:r:3")]
    assert keys(g, "CAUSED_BY") == [("event:r:2", "event:r:1"), ("event:r:3", "event:r:2")]
    assert g.nodes["event:r:2"]["label"] == "Event"
    assert g.nodes["run:r"]["label"] == "Run"


def test_a_fork_shows_the_inherited_events_once_under_their_writer():
    g = graph()
    point = f"event:leap-day~1:{FORK_AT}"
    first = f"event:leap-day~1-fork:{FORK_AT + 1}"
    assert keys(g, "FORKED_FROM") == [("run:leap-day~1-fork", point)]
    assert (point, first) in keys(g, "NEXT")
    assert (point, f"event:leap-day~1:{FORK_AT + 1}") in keys(g, "NEXT")
    contained = [
        target for source, target in keys(g, "CONTAINS") if source == "run:leap-day~1-fork"
    ]
    assert len(contained) == 9
    assert len(set(keys(g, "CONTAINS"))) == sum(1 for n in g if n.startswith("event:"))
    assert g.nodes[first]["rank"] == FORK_AT + 1
    assert (f"event:leap-day~1-fork:{FORK_AT + 2}", first) in keys(g, "CAUSED_BY")


def test_a_cause_in_the_inherited_part_is_found_under_its_writer():
    runs = [("p",), ("c", "p", 2), ("d", "c", 3)]
    events = [("p", 1), ("p", 2), ("p", 3), ("c", 3), EventRow("d", 4, cause=2), ("c", 4)]
    g = bloom_graph(events, runs=runs)
    assert keys(g, "CAUSED_BY") == [("event:d:4", "event:p:2")]
    assert ("event:c:3", "event:d:4") in keys(g, "NEXT")
    assert ("event:p:3", "event:d:4") not in keys(g, "NEXT")
    assert [n for n, label in g.nodes(data="label") if label == "Run"] == [
        "run:p",
        "run:c",
        "run:d",
    ]


def test_a_gap_is_not_bridged():
    rows = [EventRow("r", 5, rank=5), EventRow("r", 6, rank=6), EventRow("r", 9, rank=8)]
    assert keys(bloom_graph(rows), "NEXT") == [("event:r:5", "event:r:6")]


def test_a_fork_point_outside_the_graph_is_not_replaced_by_another_event():
    runs = [("p",), ("c", "p", 9)]
    far = bloom_graph([EventRow("p", 3, rank=3), EventRow("c", 12, rank=11)], runs=runs)
    assert keys(far, "FORKED_FROM") == []
    near = bloom_graph([EventRow("p", 8, rank=5), EventRow("c", 10, rank=6)], runs=runs)
    assert keys(near, "FORKED_FROM") == [("run:c", "event:p:8")]


def test_mentions_are_counted_and_strangers_left_out():
    mentions = [
        ("r", 1, "Error||KeyError", "PROCESSED", 2, "a"),
        ("r", 1, "Error||KeyError"),
        ("r", 1, "Error||KeyError", "MUTATED"),
        ("other", 1, "Error||ValueError"),
    ]
    g = bloom_graph([("r", 1)], mentions)
    edge = g.edges["event:r:1", "Error||KeyError", "PROCESSED"]
    assert (edge["n"], edge["type"]) == (3, "PROCESSED")
    assert g.edges["event:r:1", "Error||KeyError", "MUTATED"]["n"] == 1
    assert "Error||ValueError" not in g
    assert g.nodes["Error||KeyError"]["kind"] == "Error"


def test_an_entity_is_one_node_over_all_runs():
    g = bloom_graph([("a", 1), ("b", 1)], [("a", 1, "Error||E"), ("b", 1, "Error||E")])
    assert g.in_degree("Error||E") == 2


def test_relations_of_a_type_are_one_edge_with_the_place_of_the_first():
    rows = [("File|x|a", "IMPORTS", "Module|x|b", "r", 9, "import"),
            ("File|x|a", "IMPORTS", "Module|x|b", "r", 4, "import"),
            ("File|x|a", "DEFINES", "Module|x|b", "r", 4, "def")]  # fmt: skip
    g = bloom_graph([("r", 4), ("r", 9)], relations=rows)
    edge = g.edges["File|x|a", "Module|x|b", "IMPORTS"]
    assert (edge["position"], edge["n"], edge["rule"]) == (4, 2, "import")
    assert g.number_of_edges("File|x|a", "Module|x|b") == 2


@pytest.mark.parametrize("kind", ["events", "mentions", "relations", "runs"])
def test_arrow_tables_and_tuples_give_the_same_graph(kind):
    import networkx as nx

    rows = tables()
    columns = {name: [getattr(row, name) for row in rows[kind]] for name in rows[kind][0]._fields}
    changed = rows | {kind: pa.table({**columns, "a_column_of_no_interest": [0] * len(rows[kind])})}
    assert nx.utils.graphs_equal(bloom_graph(**rows), bloom_graph(**changed))


def test_half_characters_are_repaired():
    g = bloom_graph([EventRow("r", 1, observation="half \ud835")], [("r", 1, "File|x|\ud835.py")])
    assert g.nodes["event:r:1"]["observation"] == "half \ufffd"
    assert g.nodes["File|x|\ud835.py"]["name"] == "\ufffd.py"


def test_rare_entities_weigh_more_and_changed_ones_twice():
    events = [("r", 1), ("r", 2)]
    mentions = [
        ("r", 1, "File||common"),
        ("r", 1, "File||rare"),
        ("r", 2, "File||changed", "MUTATED"),
    ]
    entities = [("File||common", "File", "", "common", 50), ("File||rare", "File", "", "rare", 2),
                ("File||changed", "File", "", "changed", 2)]  # fmt: skip
    g = bloom_graph(events, mentions, entities=entities)
    g.graph["runs_total"] = 100
    weights = weigh_entities(g)
    assert list(weights) == ["File||changed", "File||rare", "File||common"]
    assert weights["File||changed"] == 2 * weights["File||rare"]


def test_entity_table_adds_up():
    g = graph()
    table = entity_table(g)
    assert set(table.entity_id) == {
        key for key, label in g.nodes(data="label") if label == "Entity"
    }
    bridge = [e["n"] for *_, e in g.edges(data=True) if e["type"] in ("PROCESSED", "MUTATED")]
    assert table.mentions.sum() == sum(bridge)
    zones = table.set_index("entity_id").loc[entity_id("F", "calendar/zones.py")]
    assert (zones.runs, zones.mutated, zones.steps, zones.mentions) == (1, 5, 10, 10)
    assert table.weight.is_monotonic_decreasing
    assert entity_table(bloom_graph([("r", 1)])).empty
