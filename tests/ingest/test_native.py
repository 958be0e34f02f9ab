import gzip
import json

import pytest

from sag_research.errors import BadPayloadError, FormatError
from sag_research.ingest import Source, add, ingest
from sag_research.ingest.formats import by_name
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Usage
from tests.ingest.make import native, write

FORMAT = by_name("native")


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


@pytest.fixture
def read(tmp_path):
    def read_(data, name="runs.jsonl"):
        reading = FORMAT.read(Source(write(tmp_path / name, data)))
        return list(reading), reading

    return read_


def lines(*records):
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_one_object_a_line(read):
    runs, _ = read(lines(native("a"), native("b", outcome="success")))
    assert [(run.task_id, run.record) for run in runs] == [("a", "0"), ("b", "1")]
    assert runs[1].outcome.outcome == "success"
    (step,) = runs[0].steps
    assert (step.thought, step.action, step.observation) == ("look", "ls", "a.py")
    assert (step.calls[0].text, step.calls[0].observation) == ("ls", "a.py")


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_alone(read, indent):
    (run,), _ = read(json.dumps(native(goal="x" * 100_000), indent=indent).encode(), "run.json")
    assert (run.task_id, run.record) == ("t", None)


def test_a_bad_line_costs_that_line(read):
    bad = {"task_id": "b", "steps": [{"action": 3}]}
    data = b"{broken\n" + lines(native("a"), bad, native("c"))
    runs, reading = read(data)
    assert [run.task_id for run in runs] == ["a", "c"]
    assert [where for where, _ in reading.refused] == ["line 1", "line 3"]
    assert reading.refused[1][1] == "$.steps[0].action: Expected str | null, got int"


@pytest.mark.parametrize("line", [b"[1]", b"null", b'"task_id"', b"{", b"\xff", b"{}"])
def test_a_line_that_is_no_record_is_refused(read, line):
    runs, reading = read(lines(native("a")) + line + b"\n\n")
    assert ([run.task_id for run in runs], len(reading.refused)) == (["a"], 1)
    assert reading.refused[0][0] == "line 2"
    assert reading.refused[0][1]


def test_calls_make_action_and_observation(read):
    calls = [{"name": "ls", "text": "ls", "observation": "a"}, {"text": "pwd", "observation": "b"}]
    (run,), _ = read(lines({"task_id": 7, "steps": [{"calls": calls}]}))
    (step,) = run.steps
    assert run.task_id == "7"
    assert (step.action, step.observation) == ("ls\npwd", "a\nb")


def test_an_outcome_may_say_more(read):
    said = {"outcome": "failure", "detail": "partial", "score": 0.5, "known_at_step": 3}
    (run,), _ = read(lines(native(outcome=said)))
    assert (run.outcome.detail, run.outcome.score, run.outcome.known_at_step) == ("partial", 0.5, 3)


def recorded(store):
    return store.read("@workspace", types=("outcome.recorded",))


@pytest.mark.parametrize(
    ("flag", "outcome"), [(True, "success"), (1, "success"), (False, "failure"), (0, "failure")]
)
def test_an_outcome_may_be_a_flag(store, read, flag, outcome):
    for said in (flag, {"outcome": flag, "detail": "d"}):
        (run,), _ = read(lines(native(outcome=said)))
        assert run.outcome.outcome == outcome
        (run_id,) = add(store, native("b", outcome=said))
        (event,) = (one for one in recorded(store) if one.payload["run"] == run_id)
        assert event.payload["outcome"] == outcome


def test_no_flag_is_no_outcome(read):
    (run,), _ = read(lines(native(outcome=None)))
    assert run.outcome is None


def test_files_are_claimed_by_content(tmp_path):
    def sniff(data):
        return FORMAT.sniff(data, tmp_path / "x.jsonl") > 0

    assert sniff(lines(native()))
    assert sniff(b"{broken\n" + lines(native()))
    assert sniff(json.dumps(native(), indent=2).encode())
    assert not sniff(lines({"task_id": "t", "steps": [{"step_id": 1}]}))
    assert not sniff(lines({"steps": []}))
    assert not sniff(b"")


def test_adding_a_record_twice_makes_one_run(store):
    record = native("org__repo-1", outcome="failure")
    (run_id,) = add(store, record)
    assert add(store, [record, native("other")]) == [run_id, add(store, native("other"))[0]]
    assert run_id.startswith("org__repo-1~")
    assert [run.run_id for run in store.runs()] == [run_id, add(store, native("other"))[0]]
    assert [event.type for event in store.read(run_id)] == [
        "run.created",
        "agent.step",
        "run.completed",
    ]
    outcomes = list(store.read("@workspace", types=("outcome.recorded",)))
    assert [event.payload for event in outcomes] == [
        {"run": run_id, "outcome": "failure", "source": "record"}
    ]


def test_the_order_of_keys_does_not_matter(store):
    record = native(goal="g")
    assert add(store, record) == add(store, dict(reversed(record.items())))


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ({"steps": []}, "$"),
        (native(""), "$.task_id"),
        (native(steps=[{"action": "ls"}, {"action": 3}]), "$.steps[1].action"),
        (native(steps=[{"observations": "x"}]), "$.steps[0]"),
        (native(steps=[{"seconds": float("nan")}]), "$.steps[0].seconds"),
        (native(steps={"action": "ls"}), "$.steps"),
        (native(outcome="won"), "$.outcome"),
        (native(outcome={"outcome": "success", "known_at_step": -1}), "$.outcome.known_at_step"),
        (native(attempt=2**70), "$.attempt"),
        (native(usage={"tokens_in": -1}), "$.usage.tokens_in"),
        (native(model=object()), "$.model"),
        (["no", "mapping"], "$"),
    ],
)
def test_a_record_that_is_wrong_says_where(store, record, path):
    with pytest.raises(BadPayloadError) as caught:
        add(store, [native(), record])
    assert caught.value.path == path
    assert store.runs() == []


def test_spoilt_text_is_repaired_and_kept_beside(store):
    (run_id,) = add(store, native(steps=[{"action": "cat x", "observation": "half \ud835 char"}]))
    (event,) = store.read(run_id, types=("agent.step",))
    assert event.payload["observation"] == "half \ufffd char"
    assert event.payload["flags"] == ["repaired"]
    raw = store.blob(event.payload["raw"]["observation"])
    assert raw.decode("utf-8", "surrogatepass") == "half \ud835 char"


def test_a_compressed_file_needs_no_suffix(read):
    runs, _ = read(gzip.compress(lines(native("a"), native("b"))), "runs")
    assert len(runs) == 2


def test_one_bad_object_alone_is_refused(read):
    with pytest.raises(FormatError, match=r"^\$\.steps\[0\]: unknown field 'wrong'; allow"):
        read(json.dumps(native(steps=[{"action": "ls", "wrong": 1}])).encode(), "x.json")


@pytest.mark.parametrize(
    ("record", "tail"),
    [
        (native(resolved=True), "; allowed: task_id, steps, goal, "),
        (native(steps=[{"tool": "x"}]), "; allowed: thought, action, "),
        (native(steps=[{"calls": [{"tool": "x"}]}]), "; allowed: id, name, arguments, "),
        (native(usage={"tokens": 1}), "; allowed: tokens_in, tokens_out, cost_usd"),
        (native(steps=[{"usage": {"tokens": 1}}]), "; allowed: tokens_in, tokens_out, cost_usd"),
        (native(outcome={"outcome": "success", "why": "x"}), "; allowed: outcome, detail, score"),
        (native(outcome="won"), "; allowed: success, failure, unknown"),
        (native(outcome=2), "; allowed: success, failure, unknown, true, false, 1, 0"),
        (native(outcome=0.5), "; allowed: success, failure, unknown, true, false, 1, 0"),
        (native(outcome="true"), "; allowed: success, failure, unknown"),
        (native(outcome={"outcome": -1}), "; allowed: success, failure, unknown"),
        (native(end="done"), "; allowed: run.abandoned, run.cancelled, run.completed, run.failed"),
        (native(steps=[{"calls": [{"status": "bad"}]}]), "; allowed: ok, error, unknown"),
    ],
)
def test_a_refusal_lists_what_is_allowed_there(store, read, record, tail):
    with pytest.raises(BadPayloadError) as caught:
        add(store, record)
    assert tail in caught.value.why
    _, reading = read(lines(native(), record))
    ((where, why),) = reading.refused
    assert (where, tail in why) == ("line 2", True)


def test_other_faults_list_no_fields(store):
    with pytest.raises(BadPayloadError) as caught:
        add(store, native(steps=[{"action": 3}]))
    assert "allowed" not in caught.value.why


def test_a_hostile_name_of_a_field_is_shown_short_and_on_one_line(store):
    with pytest.raises(BadPayloadError) as caught:
        add(store, native(**{"x\n\x1b[31m" + "y" * 500: 1}))
    assert "\n" not in caught.value.why
    assert "\x1b" not in caught.value.why
    assert len(caught.value.why) < 300


# ---- numbers that no field can hold


def bad_numbers():
    call = {"text": "ls", "exit_code": 2**60}
    usage = {"tokens_in": -5, "tokens_out": 2.5, "cost_usd": 0.5}
    steps = [
        {"action": "ls", "seconds": "NAN", "started": "HUGE", "usage": usage},
        {"calls": [call], "flags": ["rejected"]},
        {"action": "pwd", "seconds": 1, "state": {"seconds": "NAN"}},
    ]
    outcome = {"outcome": "failure", "score": "NAN", "known_at_step": -1}
    record = native("b", steps=steps, attempt="LONG", usage={"cost_usd": "HUGE"}, outcome=outcome)
    text = json.dumps(record).replace('"NAN"', "NaN").replace('"HUGE"', "1e400")
    return text.replace('"LONG"', "9" * 5000).encode()


@pytest.mark.parametrize("alone", [True, False])
def test_a_bad_number_costs_that_number(read, alone):
    data = bad_numbers() if alone else lines(native("a")) + bad_numbers() + b"\n"
    runs, reading = read(data)
    run = runs[-1]
    assert (run.task_id, reading.refused) == ("b", [])
    assert (run.attempt, run.usage) == (None, Usage())
    assert run.outcome == Outcome(outcome="failure", source="record")
    first, second, third = run.steps
    assert (first.seconds, first.started, first.usage) == (None, None, Usage(cost_usd=0.5))
    assert (first.flags, second.flags, third.flags) == (
        ("bad-number",), ("rejected", "bad-number"), (),
    )  # fmt: skip
    assert (second.calls[0].exit_code, third.seconds) == (None, 1)
    assert [note.removeprefix("line 2: ").partition(":")[0] for note in reading.notes] == [
        "$.attempt",
        "$.usage.cost_usd",
        "$.outcome.score",
        "$.outcome.known_at_step",
        "$.steps[0].seconds",
        "$.steps[0].started",
        "$.steps[0].usage.tokens_in",
        "$.steps[0].usage.tokens_out",
        "$.steps[1].calls[0].exit_code",
    ]
    assert all(note.startswith("line 2: ") != alone for note in reading.notes)
    assert reading.notes[-1].endswith(f"{2**60} was dropped: no number it can hold")


def test_a_bad_number_does_not_save_a_record_that_is_wrong_elsewhere(read):
    bad = native("b", attempt=2**60, steps=[{"action": 3, "seconds": -1e301}])
    runs, reading = read(lines(native("a"), bad))
    assert (len(runs), reading.notes) == (1, [])
    assert reading.refused == [("line 2", "$.steps[0].action: Expected str | null, got int")]


# ---- objects that are no JSON


@pytest.mark.parametrize(
    ("record", "path", "why"),
    [
        (native(config={"a": [1, {2}]}), "$.config.a[1]", "set is not JSON"),
        (native(steps=[{"state": object()}]), "$.steps[0].state", "object is not JSON"),
        (native(steps=[{}, {"calls": [{"arguments": {"x": b"y"}}]}]),
         "$.steps[1].calls[0].arguments.x", "bytes is not JSON"),
        (native(steps=[{"state": {"a": {1: 2}}}]), "$.steps[0].state.a", "the key 1 is no text"),
    ],
)  # fmt: skip
def test_an_object_that_is_no_json_is_refused_with_its_place(store, record, path, why):
    with pytest.raises(BadPayloadError) as caught:
        add(store, [native(), record])
    assert (caught.value.path, caught.value.why) == (path, why)
    assert store.last_seq() == 0


def test_what_can_be_written_as_json_is_taken(store):
    state = {"pair": (1, 2), "n": float("nan"), "half": "\ud835", "big": 2**70}
    deep = json.loads("[" * 90 + "]" * 90)
    assert add(store, native(steps=[{"state": state}], config={"deep": deep}))


def test_a_blank_task_is_none(store, tmp_path):
    path = write(tmp_path / "a.jsonl", b'{"task_id": " \\t", "steps": []}\n')
    report = ingest(store, [path])
    assert report.runs == 0
    assert "task_id" in report.rejected[0][1]
