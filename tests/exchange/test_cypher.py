"""The graph as CSV for Cypher databases, loaded into an embedded one and asked the same as SQL."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess

import pytest

import sag_research as sag
from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.exchange import export_cypher
from sag_research.model import Event

HOSTILE = '<t> "quoted", a;b \\ back|slash\n\r\nline\t诊断 $(rm -rf /) \'; DROP'
NAMES = ["TimeoutError", "setup.py", "Postgres"]


def step(thought, action, observation):
    return {"thought": thought, "action": action, "observation": observation}


@pytest.fixture(scope="module")
def ws():
    with sag.open(":memory:") as ws:
        look = step("look", "cat setup.py", "")
        late = step("", "psql", "TimeoutError: connection to postgres timed out")
        edit = step(HOSTILE, "sed -i s/a/b/ setup.py", HOSTILE)
        runs = [[look, late], [look, edit], [late, edit, late], [look, late, edit]]
        for n, steps in enumerate(runs):
            ws.add({"task_id": f"t{n}", "repo": "a/b", "steps": steps, "goal": HOSTILE,
                    "outcome": ("failure", "success", "failure", None)[n]})  # fmt: skip
        first = ws.resolve("t0")
        ws.fork(first, step=0, run_id="child")
        payload = edit | {"calls": []}
        ws.store.append(Event(run_id="child", type="agent.step", payload=payload))
        ws.fork("child", step=0, run_id="grandchild")
        ws.store.append(Event(run_id="grandchild", type="note.taken", payload={}))
        yield ws


def read(folder, name):
    text = (folder / f"{name}.csv").read_bytes().decode("utf-8")
    return list(csv.reader(io.StringIO(text, newline="")))


def test_every_relationship_joins_nodes_that_are_there(ws, tmp_path):
    report = export_cypher(ws, tmp_path, texts=True)
    ids = {name: {row[0] for row in read(tmp_path, name)[1:]}
           for name in ("runs", "events", "entities")}  # fmt: skip
    ends = {
        "contains": ("runs", "events"), "next": ("events", "events"),
        "caused_by": ("events", "events"), "forked_from": ("runs", "events"),
        "processed": ("events", "entities"), "mutated": ("events", "entities"),
        "relations": ("entities", "entities"),
    }  # fmt: skip
    for name, (source, target) in ends.items():
        rows = read(tmp_path, name)[1:]
        assert rows, name
        assert len(rows) == report.counts[name]
        assert all(row[0] in ids[source] and row[1] in ids[target] for row in rows)
    assert {name: len(found) for name, found in ids.items()} == {
        name: report.counts[name] for name in ids
    }
    assert report.replaced == 0


def test_counts_are_those_of_the_views(ws, tmp_path):
    counts = export_cypher(ws, tmp_path).counts
    info = ws.info()["counts"]
    own = "SELECT count(*) FROM events WHERE run_id <> '@workspace'"
    pairs = "SELECT count(*) FROM (SELECT DISTINCT run_id, position, entity_id, role FROM mentions)"
    assert counts["runs"] == info["runs"] == 6
    assert counts["events"] == counts["contains"] == ws.sql(own).rows()[0][0]
    assert counts["processed"] + counts["mutated"] == ws.sql(pairs).rows()[0][0]
    assert counts["entities"] == info["entities"]
    assert counts["forked_from"] == 2
    # one chain a root run: every event but the first of each has one before it
    assert counts["next"] == counts["events"] - 4


def test_next_goes_over_forks_to_who_wrote_the_event(ws, tmp_path):
    export_cypher(ws, tmp_path)
    first = ws.resolve("t0")
    after = {row[1]: row[0] for row in read(tmp_path, "next")[1:]}
    assert after["child:3"] == f"{first}:2"
    assert after["grandchild:3"] == f"{first}:2"
    assert after["child:4"] == "child:3"
    assert [row for row in read(tmp_path, "forked_from")[1:] if row[0] == "grandchild"] == [
        ["grandchild", f"{first}:2"]
    ]


def test_a_fork_brings_its_ancestors(ws, tmp_path):
    report = export_cypher(ws, tmp_path, where="run_id = ?", parameters=["grandchild"])
    assert [row[0] for row in read(tmp_path, "runs")[1:]] == sorted(
        ["grandchild", "child", ws.resolve("t0")]
    )
    assert report.counts["runs"] == 3


def test_texts_are_written_when_asked_for_and_missing_is_not_empty(ws, tmp_path):
    export_cypher(ws, tmp_path / "without")
    export_cypher(ws, tmp_path / "with", texts=True)
    without = (tmp_path / "without" / "events.csv").read_text(encoding="utf-8")
    assert "sed -i" not in without
    rows = read(tmp_path / "with", "events")
    place = rows[0].index("thought")
    assert HOSTILE in {row[place] for row in rows}
    raw = (tmp_path / "with" / "events.csv").read_bytes().decode("utf-8")
    assert ',"",' in raw  # an empty thought
    assert raw.splitlines()[1].endswith(",,,")  # a run's first event has no texts


def test_the_same_runs_give_the_same_bytes(ws, tmp_path):
    for name in ("one", "two"):
        export_cypher(ws, tmp_path / name, texts=True)
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert one == two
    assert len(one) == 14


@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell")
def test_the_script_names_every_file(ws, tmp_path):
    """A stand-in for neo4j-admin writes down what it is asked to load."""
    export_cypher(ws, tmp_path / "out")
    fake = tmp_path / "bin" / "neo4j-admin"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\npwd; for a in "$@"; do echo "$a"; done\n', encoding="utf-8")
    fake.chmod(0o755)
    done = subprocess.run(
        ["sh", str(tmp_path / "out" / "import.sh"), "study"], capture_output=True, text=True,
        check=True, env={"PATH": f"{fake.parent}:/usr/bin:/bin"}, cwd=tmp_path,
    )  # fmt: skip
    folder, *words = done.stdout.splitlines()
    assert folder == str(tmp_path / "out")
    assert words[:4] == ["database", "import", "full", "study"]
    named = {word.rpartition("=")[2] for word in words if word.endswith(".csv")}
    assert named == {f.name for f in (tmp_path / "out").glob("*.csv")}


def statements(path):
    lines = [ln for ln in path.read_text(encoding="utf-8").splitlines() if not ln.startswith("//")]
    return [one.strip() for one in "\n".join(lines).split(";\n") if one.strip()]


@pytest.fixture
def database(ws, tmp_path, monkeypatch):
    ladybug = pytest.importorskip("ladybug")
    export_cypher(ws, tmp_path / "out", texts=True)
    monkeypatch.chdir(tmp_path / "out")
    with (
        ladybug.Database(str(tmp_path / "graph.db")) as graph,
        ladybug.Connection(graph) as connection,
    ):
        for statement in statements(tmp_path / "out" / "embedded.cypher"):
            connection.execute(statement).close()

        def ask(query, parameters=None):
            answer = connection.execute(query.rstrip().rstrip(";"), parameters or {})
            rows = answer.get_all()
            answer.close()
            return rows

        yield ask


def test_an_embedded_database_counts_what_we_count(ws, database, tmp_path):
    report = export_cypher(ws, tmp_path / "again", texts=True)
    nodes = {"runs": "Run", "events": "Event", "entities": "Entity"}
    for name, label in nodes.items():
        assert database(f"MATCH (n:{label}) RETURN count(*)") == [[report.counts[name]]]
    for name, count in report.counts.items():
        if name not in nodes:
            label = "RELATES" if name == "relations" else name.upper()
            assert database(f"MATCH ()-[r:{label}]->() RETURN count(*)") == [[count]], name


def test_an_embedded_database_keeps_hostile_texts(database):
    found = database("MATCH (e:Event) WHERE e.step IS NOT NULL RETURN e.thought, e.observation")
    assert [HOSTILE, HOSTILE] in found
    assert database("MATCH (r:Run) WHERE r.task_id = 't0' RETURN r.goal")[0] == [HOSTILE]
    assert database("MATCH (e:Event) WHERE e.thought = '' RETURN count(*)")[0][0] > 0


def test_cypher_finds_the_dead_ends_that_sql_finds(ws, database, tmp_path):
    [query] = statements(tmp_path / "out" / "deadend.cypher")
    by_sql = ws.sql(
        """
        SELECT run_id, outcome, count(DISTINCT name) AS shared
        FROM mentions JOIN runs USING (run_id)
        WHERE list_contains($names::varchar[], name) AND outcome <> 'unknown'
        GROUP BY run_id, outcome HAVING count(DISTINCT name) >= 2
        ORDER BY shared DESC, run_id""",
        {"names": NAMES},
    ).rows()
    assert len(by_sql) >= 2
    assert [tuple(row) for row in database(query, {"names": NAMES})] == by_sql


def test_neighbours_along_next_are_those_of_sql(ws, database):
    found = database(
        "MATCH (e:Event)-[:NEXT]->(f:Event) WHERE f.run_id = 'child' RETURN e.event_id, f.position"
    )
    assert sorted(found, key=json.dumps) == sorted(
        [[f"{ws.resolve('t0')}:2", 3], ["child:3", 4]], key=json.dumps
    )


def test_what_cannot_be_exported_is_said(ws, tmp_path):
    with pytest.raises(NotEnoughDataError):
        export_cypher(ws, tmp_path / "x", where="false")
    assert not (tmp_path / "x").exists()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="is a file"):
        export_cypher(ws, tmp_path / "file")
