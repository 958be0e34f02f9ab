"""The graph as CSV for Cypher databases, loaded into an embedded one and asked the same as SQL."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import subprocess
import tracemalloc
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

import sag_research as sag
from sag_research.cli import sag as cli
from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.exchange import _cypher, export_cypher
from sag_research.model import WORKSPACE_RUN, Event

HOSTILE = '<t> "quoted", a;b \\ back|slash\\"\n\r\nline\t诊断 $(rm -rf /) \'; DROP {buffer}'
PAGE = Path(__file__).parents[2] / "docs/cypher.md"
NODES = {"runs": "Run", "events": "Event", "entities": "Entity"}
FILES = {
    "runs": "nodes_run", "events": "nodes_event", "entities": "nodes_entity",
    "contains": "contains", "next": "next", "caused_by": "caused_by",
    "forked_from": "forked_from", "mentions": "mentions", "relations": "relations",
}  # fmt: skip


def step(thought, action, observation, **more):
    return {"thought": thought, "action": action, "observation": observation} | more


LOOK = step("look", "cat setup.py", "")
LATE = step("", "psql", "TimeoutError: connection to postgres timed out")
EDIT = step(HOSTILE, "sed -i s/a/b/ setup.py", HOSTILE)
OTHER = step("", "psql", "billing.BillError: no\nKeyError: x")
SHORT = step("", "psql", "raise BillError()")
COPIED = step("", "cat setup.py", "TimeoutError", flags=["inherited"])


def fill(ws):
    """Runs that fail and succeed; forks, hidden runs, copies, copied steps, and merged names."""
    kinds = [[LOOK, LATE], [LOOK, EDIT], [LATE, EDIT, LATE], [LOOK, LATE, EDIT], [OTHER, LATE],
             [SHORT, LATE, EDIT], [COPIED, SHORT, OTHER], [LATE, OTHER, EDIT]]  # fmt: skip
    for n in range(24):
        outcome = ("failure", "success", "failure", None, "failure", "failure", "success")[n % 7]
        ws.add({"task_id": f"t{n}", "repo": "a/b", "steps": kinds[n % len(kinds)],
                "goal": HOSTILE, "outcome": outcome})  # fmt: skip
    ws.add({"task_id": "empty", "steps": [], "outcome": "failure"})
    ws.hide("t2", reason="broken world")
    payload = {"run": ws.resolve("t4"), "copy_of": ws.resolve("t3"), "reason": "copy"}
    ws.store.append(Event(run_id=WORKSPACE_RUN, type="run.hidden", payload=payload))
    ws.fork(ws.resolve("t0"), step=0, run_id="child")
    ws.store.append(Event(run_id="child", type="agent.step", payload=EDIT | {"calls": []}))
    ws.store.append(Event(run_id="child", type="agent.step", payload=LATE | {"calls": []}))
    ws.fork("child", step=0, run_id="grandchild")
    ws.store.append(Event(run_id="grandchild", type="note.taken", payload={}))
    failed = {"outcome": "failure", "source": "test"}
    for fork in ("child", "grandchild"):
        ws.store.append(Event(run_id=fork, type="outcome.recorded", payload=failed))
    ws.entities().merge("BillError", "billing.BillError", by="me")


@pytest.fixture(scope="module")
def ws():
    with sag.open(":memory:") as ws:
        fill(ws)
        yield ws


def read(folder, name):
    text = (folder / f"{FILES[name]}.csv").read_bytes().decode("utf-8")
    return list(csv.reader(io.StringIO(text, newline="")))


def table(folder, name):
    head, *rows = read(folder, name)
    names = [cell.partition(":")[0] for cell in head]
    return [dict(zip(names, row, strict=True)) for row in rows]


# ---- the files


def test_every_relationship_joins_nodes_that_are_there(ws, tmp_path):
    report = export_cypher(ws, tmp_path, texts=True)
    rows = {name: read(tmp_path, name)[1:] for name in FILES}
    assert {name: len(found) for name, found in rows.items()} == report.counts
    ids = {name: {row[0] for row in rows[name]} for name in NODES}
    assert all(len(ids[name]) == len(rows[name]) for name in NODES)
    ends = {
        "contains": ("runs", "events"), "next": ("events", "events"),
        "caused_by": ("events", "events"), "forked_from": ("runs", "events"),
        "mentions": ("events", "entities"), "relations": ("entities", "entities"),
    }  # fmt: skip
    for name, (source, target) in ends.items():
        assert rows[name], name
        assert all(row[0] in ids[source] and row[1] in ids[target] for row in rows[name])
    assert report.replaced == 0


def test_headers_say_what_the_importer_needs(ws, tmp_path):
    export_cypher(ws, tmp_path)
    for name in FILES:
        head, *rows = read(tmp_path, name)
        assert all(len(row) == len(head) for row in rows)
        if name in NODES:
            assert head[0].endswith(f":ID({NODES[name]})")
            assert head[-1] == ":LABEL"
            assert {row[-1] for row in rows} == {NODES[name]}
        else:
            assert re.fullmatch(r":START_ID\((Run|Event|Entity)\)", head[0])
            assert re.fullmatch(r":END_ID\((Run|Event|Entity)\)", head[1])
            assert head[-1] == ":TYPE"
            assert all(row[-1].replace("_", "").isupper() for row in rows)
    assert {row[-1] for row in read(tmp_path, "mentions")[1:]} == {"PROCESSED", "MUTATED"}


def test_counts_are_those_of_the_views(ws, tmp_path):
    report = export_cypher(ws, tmp_path)
    counts = report.counts
    shown = "run_id IN (SELECT run_id FROM runs WHERE NOT hidden)"

    def count(what):
        return ws.sql(f"SELECT count(*) FROM ({what})").rows()[0][0]

    assert counts["runs"] == count("FROM runs WHERE NOT hidden") == 25
    own = "FROM runs WHERE NOT hidden AND parent_id IS NULL AND n_steps > 0"
    assert report.counted == count(own) == 22
    assert counts["events"] == counts["contains"] == count(f"FROM events WHERE {shown}")
    merged = (
        "CASE entity_id WHEN 'Error||BillError' THEN 'Error||billing.BillError' ELSE entity_id END"
    )
    pairs = f"SELECT DISTINCT run_id, position, {merged}, role FROM mentions WHERE {shown}"
    assert counts["mentions"] == count(pairs)
    assert counts["entities"] == count("FROM entities") - 1
    assert counts["forked_from"] == 2
    # one chain a root run: every event but the first of each has one before it
    assert counts["next"] == counts["events"] - 23


def test_hidden_runs_are_written_when_asked_for_and_never_counted(ws, tmp_path):
    hidden = {ws.resolve("t2"), ws.resolve("t4")}
    first = export_cypher(ws, tmp_path / "without")
    assert not hidden & {row["run_id"] for row in table(tmp_path / "without", "runs")}
    report = export_cypher(ws, tmp_path / "with", hidden=True)
    assert report.counts["runs"] == first.counts["runs"] + 2
    assert report.counted == first.counted
    said = {row["run_id"]: row for row in table(tmp_path / "with", "runs")}
    not_counted = {run_id for run_id, row in said.items() if row["counted"] == "false"}
    assert not_counted == hidden | {"child", "grandchild", ws.resolve("empty")}
    assert {run_id for run_id, row in said.items() if row["hidden"] == "true"} == hidden
    with pytest.raises(NotEnoughDataError, match="hidden"):
        export_cypher(ws, tmp_path / "x", where="hidden")


def test_the_command_writes_hidden_runs_when_asked_to(tmp_path):
    with sag.open(tmp_path / "ws") as ws:
        ws.add([{"task_id": f"t{n}", "steps": [LOOK]} for n in range(3)])
        ws.hide("t1")
    command = ["export", "cypher", "-w", str(tmp_path / "ws"), "--json", "-o", str(tmp_path / "g")]
    for more, runs in ([], 2), (["--hidden"], 3):
        done = CliRunner().invoke(cli, [*command, *more], catch_exceptions=False)
        told = json.loads(done.output)
        assert (told["counts"]["runs"], told["counted"]) == (runs, 2)


def test_a_decision_may_name_what_no_text_does(tmp_path):
    with sag.open(":memory:") as ws:
        ws.add({"task_id": "t", "steps": [LATE]})
        payload = {"source": "Error||TimeoutError", "target": "Error||a|b\nc", "by": "me"}
        ws.store.append(Event(run_id=WORKSPACE_RUN, type="entity.merged", payload=payload))
        export_cypher(ws, tmp_path)
    [row] = [row for row in table(tmp_path, "entities") if row["kind"] == "Error"]
    assert (row["entity_id"], row["scope"], row["name"]) == ("Error||a|b\nc", "", "a|b\nc")


def test_next_goes_over_forks_to_who_wrote_the_event(ws, tmp_path):
    export_cypher(ws, tmp_path)
    first = ws.resolve("t0")
    after = {row[1]: row[0] for row in read(tmp_path, "next")[1:]}
    assert after["child:3"] == f"{first}:2"
    assert after["grandchild:3"] == f"{first}:2"
    assert after["child:4"] == "child:3"
    forked = [row[:2] for row in read(tmp_path, "forked_from")[1:]]
    assert forked == [["child", f"{first}:2"], ["grandchild", f"{first}:2"]]


def test_a_fork_brings_its_ancestors_which_nobody_chose(ws, tmp_path):
    report = export_cypher(ws, tmp_path, where="run_id = ?", parameters=["grandchild"])
    runs = {row["run_id"]: row["counted"] for row in table(tmp_path, "runs")}
    assert runs == dict.fromkeys(["grandchild", "child", ws.resolve("t0")], "false")
    assert report.counted == 0


def test_merged_names_are_one_entity_until_they_are_split(tmp_path):
    with sag.open(":memory:") as ws:
        fill(ws)
        export_cypher(ws, tmp_path / "merged")
        graph = ws.bloom(events="all").nx
        ws.entities().split("BillError", by="me")
        export_cypher(ws, tmp_path / "split")
    merged, split = ({row["entity_id"]: row for row in table(tmp_path / n, "entities")}
                     for n in ("merged", "split"))  # fmt: skip
    assert split.keys() - merged.keys() == {"Error||BillError"}
    assert merged["Error||billing.BillError"]["name"] == "billing.BillError"
    assert merged.keys() == {n for n, label in graph.nodes(data="label") if label == "Entity"}
    # edges to entities are those of the bloomed graph, each as often
    places = {n: f"{row['run_id']}:{row.get('position')}" for n, row in graph.nodes(data=True)
              if row["label"] == "Event"}  # fmt: skip
    edges = graph.edges(keys=True, data=True)
    bloomed = {(places.get(a, a), b, t, str(row["n"])) for a, b, t, row in edges if b in merged}
    written = {(*row[:2], row[-1], row[2]) for name in ("mentions", "relations")
               for row in read(tmp_path / "merged", name)[1:]}  # fmt: skip
    assert written == bloomed
    both = Counter(row[1] for row in read(tmp_path / "merged", "mentions")[1:])
    each = Counter(row[1] for row in read(tmp_path / "split", "mentions")[1:])
    assert both["Error||billing.BillError"] > each["Error||billing.BillError"] > 0


def test_texts_are_written_when_asked_for_and_missing_is_not_empty(ws, tmp_path):
    export_cypher(ws, tmp_path / "without")
    export_cypher(ws, tmp_path / "with", texts=True)
    without = (tmp_path / "without" / "nodes_event.csv").read_text(encoding="utf-8")
    assert "sed -i" not in without
    rows = table(tmp_path / "with", "events")
    assert HOSTILE in {row["thought"] for row in rows}
    assert all(bool(row["body"]) == (row["type"] != "agent.step") for row in rows)
    raw = (tmp_path / "with" / "nodes_event.csv").read_bytes().decode("utf-8")
    assert ',"",' in raw  # an empty thought
    assert ",,,,," in without  # a run's first event has no step, no tool, no exit code


def test_values_are_written_as_both_readers_take_them(tmp_path):
    with sag.open(":memory:") as ws:
        ws.add({"task_id": "t", "steps": [step("a\x00b", "ls", "", started=1767323045.678)]})
        report = export_cypher(ws, tmp_path, texts=True)
    [row] = [row for row in table(tmp_path, "events") if row["step"]]
    assert row["started_at"] == "2026-01-02T03:04:05.678+00:00"
    assert row["inherited"] == "false"
    assert "\x00" not in row["thought"]
    assert report.longest == max(
        len(line) + 1 for path in tmp_path.glob("*.csv") for line in path.read_bytes().split(b"\n")
    )


def test_the_same_runs_give_the_same_bytes(ws, tmp_path, monkeypatch):
    export_cypher(ws, tmp_path / "one", texts=True)
    # however the events are cut into portions
    monkeypatch.setattr(_cypher, "EVENTS_AT_ONCE", 2)
    monkeypatch.setattr(_cypher, "RUNS_AT_ONCE", 3)
    export_cypher(ws, tmp_path / "two", texts=True)
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert one == two
    assert set(one) == {f"{name}.csv" for name in FILES.values()} | {
        "import.sh", "schema.cypher", "queries.cypher", "embedded.cypher"
    }  # fmt: skip


def test_names_in_portions_are_the_same_names(ws, tmp_path, monkeypatch):
    whole = export_cypher(ws, tmp_path / "one")
    monkeypatch.setattr(_cypher, "NAMES_AT_ONCE", 2)
    assert export_cypher(ws, tmp_path / "two").counts == whole.counts
    for name in ("entities", "relations"):
        assert sorted(read(tmp_path / "one", name)) == sorted(read(tmp_path / "two", name))


# ---- memory


class Watched:
    """Answers as a workspace does, and notes the largest answer to each query but the first."""

    def __init__(self, ws):
        self.ws, self.largest, self.asked = ws, 0, 0

    def sql(self, query, parameters=None, /):
        found = self.ws.sql(query, parameters)
        if "{" not in query and not query.startswith("-- The chosen runs"):
            self.largest, self.asked = max(self.largest, len(found)), self.asked + 1
        return found


def test_memory_does_not_grow_with_the_number_of_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(_cypher, "EVENTS_AT_ONCE", 50)
    monkeypatch.setattr(_cypher, "RUNS_AT_ONCE", 25)

    def export(n):
        with sag.open(":memory:") as ws:
            steps = [LOOK, step("x" * 4_000, "psql", "TimeoutError\n" * 50), EDIT] * 2
            ws.add([{"task_id": f"t{i}", "steps": steps, "goal": "g" * 2_000} for i in range(n)])
            ws.sql("SELECT 1")
            watched = Watched(ws)
            tracemalloc.start()
            report = export_cypher(watched, tmp_path / str(n), texts=True)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert report.counts["runs"] == n
        return peak, watched

    export(10)
    (few, one), (many, four) = export(60), export(240)
    assert (tmp_path / "240" / "nodes_event.csv").stat().st_size > 3 * few
    assert many < 1.5 * few
    assert one.largest == four.largest
    assert four.asked > 3 * one.asked


# ---- the script


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
    assert "--legacy-style-quoting=false" in words
    assert "--ignore-empty-strings=false" in words
    assert '--quote="' in words


def test_the_buffer_holds_the_longest_row(tmp_path):
    def options(goal):
        with sag.open(":memory:") as ws:
            ws.add({"task_id": "t", "goal": goal, "steps": [LOOK]})
            report = export_cypher(ws, tmp_path)
        script = (tmp_path / "import.sh").read_text(encoding="utf-8")
        assert not re.search(r"\{(buffer|multiline)\}", script)
        words = shlex.split(script, comments=True)
        said = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        return int(said["read-buffer-size"]), said["multiline-fields"], report.longest

    small, multiline, longest = options("short")
    assert (small, multiline) == (4 << 20, "false")
    assert longest < 1_000
    large, multiline, longest = options("诊" * 2_000_000 + "\n")
    assert large > longest > 6_000_000
    assert multiline == "true"


# ---- an embedded database


def statements(path):
    lines = [ln for ln in path.read_text(encoding="utf-8").splitlines() if not ln.startswith("//")]
    return [one.strip().rstrip(";") for one in "\n".join(lines).split(";\n") if one.strip()]


def embedded_database() -> ModuleType:
    """Load the embedded database, after the local model's engine where that is installed.

    The other way round, loading the engine ends the process with ``std::bad_alloc``.
    """
    if find_spec("xllamacpp") is not None:
        import_module("xllamacpp")
    module: ModuleType = pytest.importorskip("ladybug")
    return module


@pytest.fixture(scope="module")
def loaded(ws, tmp_path_factory):
    """The folder with all runs, hidden ones too, and a function that asks the graph in it."""
    ladybug = embedded_database()
    folder = tmp_path_factory.mktemp("graph")
    report = export_cypher(ws, folder, texts=True, hidden=True)
    with (
        pytest.MonkeyPatch.context() as patch,
        ladybug.Database(":memory:") as graph,
        ladybug.Connection(graph) as connection,
    ):
        patch.chdir(folder)

        def ask(query, parameters=None):
            answer = connection.execute(query, parameters or {})
            rows = answer.get_all()
            answer.close()
            return [tuple(row) for row in rows]

        for statement in statements(folder / "embedded.cypher"):
            connection.execute(statement).close()
        patch.undo()
        yield folder, report, ask


def test_an_embedded_database_counts_what_we_count(loaded):
    _, report, ask = loaded
    for name, label in NODES.items():
        assert ask(f"MATCH (n:{label}) RETURN count(*)") == [(report.counts[name],)]
    types = {"mentions": "PROCESSED|MUTATED", "relations": "RELATES"}
    for name, count in report.counts.items():
        if name not in NODES:
            label = types.get(name, name.upper())
            assert ask(f"MATCH ()-[r:{label}]->() RETURN count(*)") == [(count,)], name


def test_an_embedded_database_keeps_hostile_texts(ws, loaded):
    _, _, ask = loaded
    found = ask("MATCH (e:Event) WHERE e.step IS NOT NULL RETURN e.thought, e.observation")
    by_sql = ws.sql("SELECT thought, observation FROM steps").rows()
    assert Counter(found) == Counter(by_sql)
    assert (HOSTILE, HOSTILE) in found
    assert ask("MATCH (r:Run) WHERE r.task_id = 't1' RETURN r.goal") == [(HOSTILE,)]
    assert ask("MATCH (e:Event) WHERE e.thought = '' RETURN count(*)")[0][0] > 0


def test_neighbours_along_next_are_those_of_sql(ws, loaded):
    _, _, ask = loaded
    found = ask(
        "MATCH (e:Event)-[:NEXT]->(f:Event) WHERE f.run_id = 'child' RETURN e.event_id, f.position"
    )
    positions = ws.sql("SELECT position FROM events WHERE run_id = 'child'").rows()
    before = {3: f"{ws.resolve('t0')}:2"}
    assert sorted(found) == sorted((before.get(n, f"child:{n - 1}"), n) for (n,) in positions)


NAMES = """
    WITH own AS (
        SELECT DISTINCT m.run_id,
               CASE m.entity_id WHEN 'Error||BillError' THEN 'Error||billing.BillError'
                                ELSE m.entity_id END AS entity_id
        FROM mentions m JOIN steps s USING (run_id, position) WHERE NOT s.inherited
    ),
    counted AS (
        SELECT * FROM runs
        WHERE NOT hidden AND parent_id IS NULL AND n_steps > 0 AND outcome <> 'unknown'
    )"""
DEAD_ENDS = f"""{NAMES},
    shared AS (
        SELECT a.run_id AS run_id, b.run_id AS other
        FROM own a JOIN own b USING (entity_id) GROUP BY ALL HAVING count(*) >= 2
    )
    SELECT count(*) AS n, sum((p.outcome = 'failure')::INT)::INT AS failed,
           failed / n AS rate, wilson_low(failed, n), wilson_high(failed, n), rate >= 0.75
    FROM shared JOIN counted p ON p.run_id = shared.other JOIN runs r ON r.run_id = shared.run_id
    WHERE r.run_id = $run AND p.seq < r.seq AND p.run_id <> r.run_id HAVING count(*) > 0"""
PAIRS = f"""{NAMES},
    other AS (
        SELECT o.run_id, o.entity_id, p.outcome
        FROM own o JOIN counted p USING (run_id)
        WHERE p.seq < (SELECT seq FROM runs WHERE run_id = $run)
          AND o.entity_id IN (SELECT entity_id FROM own WHERE run_id = $run)
    )
    SELECT a.entity_id AS x, b.entity_id AS y, count(*) AS n,
           sum((a.outcome = 'failure')::INT)::INT AS failed, failed / n AS rate,
           wilson_low(failed, n), wilson_high(failed, n)
    FROM other a JOIN other b ON a.run_id = b.run_id AND a.entity_id < b.entity_id
    GROUP BY ALL HAVING n >= 5 AND rate >= 0.75 ORDER BY rate DESC, n DESC, x, y"""
REACTIONS = f"""{NAMES},
    shown AS (
        SELECT DISTINCT m.run_id, s.step,
               CASE m.entity_id WHEN 'Error||BillError' THEN 'Error||billing.BillError'
                                ELSE m.entity_id END AS error
        FROM mentions m JOIN steps s USING (run_id, position)
        WHERE NOT s.inherited AND m.kind = 'Error' AND m.role = 'PROCESSED'
    ),
    did AS (
        SELECT DISTINCT e.run_id, e.error, coalesce(nullif(f.tool, ''), 'none') AS tool,
               EXISTS (FROM mentions m WHERE m.run_id = f.run_id AND m.position = f.position
                       AND m.role = 'MUTATED') AS changed
        FROM shown e JOIN steps f ON f.run_id = e.run_id AND f.step = e.step + 1
        WHERE NOT f.inherited
    )
    SELECT error, tool, changed, count(*) AS n, sum((outcome = 'failure')::INT)::INT AS failed,
           failed / n AS rate, wilson_low(failed, n), wilson_high(failed, n)
    FROM did JOIN counted USING (run_id) GROUP BY ALL HAVING n >= 5
    ORDER BY error, rate DESC, n DESC, tool, changed"""


def numbers_alike(rows):
    """Rows to compare: both databases round the last digits their own way."""
    return [tuple(v if isinstance(v, str) else round(float(v), 7) + 0.0 for v in row)
            for row in rows]  # fmt: skip


def alike(found, expected):
    return numbers_alike(found) == numbers_alike(expected)


def test_cypher_finds_the_dead_ends_that_sql_finds(ws, loaded):
    folder, _, ask = loaded
    query = statements(folder / "queries.cypher")[0]
    verdicts = Counter()
    for (run_id,) in ws.sql("SELECT run_id FROM runs").rows():
        expected = ws.sql(DEAD_ENDS, {"run": run_id}).rows()
        assert alike(ask(query, {"run": run_id}), expected), run_id
        verdicts.update(row[-1] for row in expected)
    assert verdicts[True] >= 2
    assert verdicts[False] >= 2


def test_cypher_finds_the_pairs_that_sql_finds(ws, loaded):
    folder, _, ask = loaded
    query = statements(folder / "queries.cypher")[1]
    found = 0
    for (run_id,) in ws.sql("SELECT run_id FROM runs").rows():
        expected = ws.sql(PAIRS, {"run": run_id}).rows()
        assert alike(ask(query, {"run": run_id}), expected), run_id
        found += len(expected)
    assert found > 0


def test_cypher_finds_the_reactions_that_sql_finds(ws, loaded):
    folder, _, ask = loaded
    query = statements(folder / "queries.cypher")[2]
    expected = ws.sql(REACTIONS).rows()
    assert {row[2] for row in expected} == {True, False}
    assert alike(ask(query), expected)


def test_what_cannot_be_exported_is_said(ws, tmp_path):
    with pytest.raises(NotEnoughDataError):
        export_cypher(ws, tmp_path / "x", where="false")
    assert not (tmp_path / "x").exists()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="is a file"):
        export_cypher(ws, tmp_path / "file")


def test_a_failed_export_leaves_the_earlier_one(ws, tmp_path):
    export_cypher(ws, tmp_path)
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}

    class Broken:
        def sql(self, query, parameters=None, /):
            if query.startswith("-- How many entities"):
                raise KeyError("gone")
            return ws.sql(query, parameters)

    with pytest.raises(KeyError):
        export_cypher(Broken(), tmp_path, where="run_id = 'child'")
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


# ---- the page about it


def test_the_examples_of_the_page_run(ws, tmp_path, monkeypatch):
    embedded_database()
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names = {"ws": ws, "run": ws.resolve("t20")}
    for block in blocks:
        exec(block.replace("dataset = 'crates'", "true"), names)
    assert names["report"].counts["runs"] == 25
    assert alike(names["rows"], ws.sql(DEAD_ENDS, {"run": names["run"]}).rows())
    assert len(names["rows"]) == 1
    names["graph"].close()


def test_the_page_names_every_file_and_option(ws, tmp_path):
    export_cypher(ws, tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} <= set(re.findall(r"`([\w.]+)`", page))
    command = cli.commands["export"].commands["cypher"]
    options = {name for param in command.params for name in param.opts}
    assert set(re.findall(r"--[a-z]+\b(?!-)", page)) <= options
