"""JSON lines whose first line is longer than what is looked at to tell what a file is."""

import json

import pytest

from sag_research.ingest._source import HEAD_BYTES, Source
from sag_research.ingest.formats import by_name, recognise
from tests.ingest.formats import claude_make, rows_make, spans_make, test_activegraph
from tests.ingest.formats import test_atif as atif
from tests.ingest.formats import test_codex as codex
from tests.ingest.formats import test_copilot_cli as copilot
from tests.ingest.formats import test_cursor as cursor
from tests.ingest.formats import test_gemini_cli as gemini
from tests.ingest.formats import test_openclaw as openclaw
from tests.ingest.formats import test_opencode as opencode
from tests.ingest.formats import test_openhands_sdk as openhands_sdk
from tests.ingest.formats.openhands_make import record
from tests.ingest.make import native, write

LONG = 200_000


def otlp():
    return [spans_make.otlp(one) for one in spans_make.trace()]


LINES = {
    "openinference": otlp(),
    "openinference, rows": list(map(spans_make.row, spans_make.trace())),
    "openinference, python": list(map(spans_make.sdk_python, spans_make.trace())),
    "codex": codex.simple(),
    "codex, bare": codex.bare(*codex.simple()),
    "claude-code": claude_make.simple(),
    "gemini-cli": [gemini.head(), *gemini.simple()],
    "gemini-cli, replies": gemini.recorded(),
    "copilot-cli": copilot.session(),
    "cursor": cursor.stream(),
    "cursor, transcript": cursor.transcript(),
    "openclaw": openclaw.transcript(),
    "openclaw, telemetry": openclaw.telemetry(),
    "opencode": opencode.run_lines(),
    "activegraph": test_activegraph.simulation(),
    "atif": [atif.trajectory(), atif.trajectory(session_id="other")],
    "native": [native("a"), native("b")],
    "openhands-sdk": openhands_sdk.conversation(),
    "openhands-output": [record(), record(instance_id="other__repo-2")],
    "swe-gym": [rows_make.gym(), rows_make.gym()],
}

FIELDS = {"native": "config", "cursor": "cwd"}
"""Where something long may stand, if a field of no known name will not do."""


def runs(path):
    reading = recognise(Source(path)).read(Source(path))
    said = [
        (run.goal, [(step.thought, step.action, step.observation) for step in run.steps])
        for run in reading
    ]
    return said, list(reading.refused)


@pytest.mark.parametrize("name", LINES)
def test_a_long_first_line_changes_nothing(tmp_path, name):
    first, *rest = LINES[name]
    assert rest
    longer = first | {FIELDS.get(name, "padding"): {"a": ["{\n" * (LONG // 3)]}}
    short, long = tmp_path / "a" / "x.jsonl", tmp_path / "b" / "x.jsonl"
    for path, begin in ((short, first), (long, longer)):
        path.parent.mkdir()
        write(path, b"".join(json.dumps(one).encode() + b"\n" for one in (begin, *rest)))
    assert len(long.read_bytes().split(b"\n")[0]) > LONG > HEAD_BYTES
    assert recognise(Source(long)).name == name.partition(",")[0]
    assert runs(long) == runs(short)
    assert runs(long)[0]


def test_spans_of_a_line_that_is_all_text(tmp_path):
    spans = spans_make.trace()
    spans[0]["attributes"]["llm.output_messages.0.message.content"] = "x" * LONG
    path = write(tmp_path / "x.jsonl", spans_make.lines(*map(spans_make.otlp, spans)))
    (run,) = by_name("openinference").read(Source(path))
    assert [len(step.thought) for step in run.steps] == [LONG, len("Done.")]


def test_spans_that_stand_behind_each_other_over_many_lines(tmp_path):
    spans = spans_make.trace()
    spans[0]["attributes"]["llm.output_messages.0.message.content"] = "x" * LONG
    shown = "\n".join(json.dumps(spans_make.sdk_python(one), indent=4) for one in spans)
    (run,) = by_name("openinference").read(Source(write(tmp_path / "x.json", shown.encode())))
    assert [len(step.thought) for step in run.steps] == [LONG, len("Done.")]


@pytest.mark.parametrize("indent", [None, 2])
def test_one_long_value_of_spans(tmp_path, indent):
    spans = spans_make.trace()
    spans[0]["attributes"]["llm.output_messages.0.message.content"] = "x" * LONG
    value = json.dumps(spans_make.otlp(*spans), indent=indent)
    (run,) = by_name("openinference").read(Source(write(tmp_path / "x.json", value.encode())))
    assert [len(step.thought) for step in run.steps] == [LONG, len("Done.")]
