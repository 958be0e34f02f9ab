"""JSON lines that begin with, hold, or end in damaged ones: each costs itself alone."""

import json

import pytest

from sag_research.ingest import ingest
from sag_research.log import SQLiteEventStore
from tests.ingest.formats import claude_make as claude
from tests.ingest.formats import openhands_make as oh
from tests.ingest.formats import rows_make as rows
from tests.ingest.formats import test_atif as atif
from tests.ingest.make import native, write

GARBAGE = {
    "words": b"Starting the agent ...",
    "cut": b'{"task_id": "a", "steps": [{"action": "ls", "obse',
    "cut in a key": b'{"instance_id": "a", "messa',
    "a number": b"7",
    "a text": b'"said"',
    "null": b"null",
    "a list": b"[]",
    "a list of numbers": b"[1, 2]",
    "half a list": b'[{"task_id": "a"',
    "a brace": b"{",
    "bytes": b"\xff\xfe\x00\x01",
    "two objects": b"{} {}",
    "many words": b"x" * 70_000,
}


def lines(*records):
    return [json.dumps(record).encode() for record in records]


SDK = [oh.said("u1", "Mend it."), oh.act("a1", "ls", "r1"), oh.got("o1", "call-a1", "a.py")]
LINES = {
    "native": lines(native("a"), native("b")),
    "openhands-output": lines(oh.record(), oh.record(instance_id="org__repo-8")),
    "openhands-sdk": lines(*SDK),
    "nebius-swe-agent": lines(rows.nebius(), rows.nebius(target=True)),
    "nebius-openhands": lines(rows.rebench(), rows.rebench(resolved=0)),
    "swe-smith": lines(rows.smith("tool"), rows.smith("xml")),
    "swe-gym": lines(rows.gym(), rows.gym(resolved=False)),
    "openai-chat": lines({"messages": rows.chat()}, {"messages": rows.chat()}),
    "atif": lines(atif.trajectory(), atif.trajectory(session_id="s-2")),
    "claude-code": claude.lines(*claude.simple()).splitlines(),
}


def read(path):
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [path])
    return report, report.by_format


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", LINES)
def test_a_damaged_line_costs_that_line(tmp_path, name, garbage):
    good, bad = LINES[name], GARBAGE[garbage]
    _, expected = read(write(tmp_path / "good/x.jsonl", b"\n".join(good)))
    assert set(expected) == {name}
    for place in (0, 1, len(good)):
        data = b"\n".join([*good[:place], bad, *good[place:]])
        report, found = read(write(tmp_path / f"{place}/x.jsonl", data))
        assert (found, report.rejected) == (expected, []), place
        told = [*(f"{at}: {why}" for _, at, why in report.refused_records), *report.notes]
        assert any(f"line {place + 1}: " in one for one in told), told


def test_several_in_front_also_where_the_name_does_not_tell(tmp_path):
    records = [native(f"t{number}") for number in range(9)]
    data = b"\n".join([b"npm WARN", b"", b"Starting", *lines(*records)])
    for name in ("x.jsonl", "x.ndjson", "runs.txt"):
        report, found = read(write(tmp_path / name, data))
        assert found["native"]["runs"] == 9
        assert [at for _, at, _ in report.refused_records] == ["line 1", "line 3"]


def test_an_example_in_a_text_is_no_run(tmp_path):
    text = b"# How to\n\n```json\n" + lines(native("a"))[0] + b"\n```\n"
    write(tmp_path / "in/README.md", text)
    report, found = read(tmp_path / "in")
    assert (found, report.ignored) == ({}, [("README.md", "not JSON")])


def test_lines_that_no_format_knows_are_no_runs(tmp_path):
    data = b"gone\n" + b"\n".join(lines({"a": 1}, {"b": 2}))
    report, found = read(write(tmp_path / "x.jsonl", data))
    assert found == {}
    assert len(report.rejected) == 1
