"""Sub-agents of Claude Code that have a file of their own, and the session that began them."""

import gzip
import itertools

import pytest

import sag_research as sag
from sag_research.ingest import apply_labels, ingest, read_labels
from sag_research.log import SQLiteEventStore
from tests.ingest.formats.claude_make import (
    SESSION,
    call,
    lines,
    reply,
    result,
    simple,
    user,
)
from tests.ingest.make import write


def main(*asked):
    """A session that calls a sub-agent for each prompt, in its third step and behind."""
    entries, last = simple(), "a2"
    for number, (agent, prompt) in enumerate(asked):
        block = call(f"t{agent}", "Task", prompt=prompt, subagent_type="Tester")
        entries += [
            reply(f"c{number}", last, [block], f"mc{number}", 20 + number),
            result(f"d{number}", f"c{number}", f"t{agent}", "Done.", 21 + number,
                   {"agentId": agent} if agent.startswith("ag") else None),
        ]  # fmt: skip
        last = f"d{number}"
    return lines(*entries, reply("z", last, "All done.", "mz", 90))


def agent(name, prompt="Run all tests.", session=SESSION):
    side = {"isSidechain": True, "agentId": name, "sessionId": session}
    return lines(
        user(f"s1{name}", None, prompt, 30, **side),
        reply(f"s2{name}", f"s1{name}", [call("t9", command="pytest")], f"ms{name}", 31, **side),
        result(f"s3{name}", f"s2{name}", "t9", "3 passed", 32, **side),
    )


def study(folder, *asked, layout="beside"):
    """Write a session and its sub-agents; returns all files."""
    asked = asked or (("ag1", "Run all tests."), ("ag2", "Read the docs."))
    below = folder if layout == "beside" else folder / SESSION / "subagents"
    return [
        write(folder / f"{SESSION}.jsonl", main(*asked)),
        *(write(below / f"agent-{name}.jsonl", agent(name, prompt)) for name, prompt in asked),
    ]


def called(store):
    """By agent: the run that called it, and the step."""
    return {
        run.task_id.removeprefix("agent-"): (
            run.config["called_by"]["run"],
            run.config["called_by"]["step"],
        )
        for run in store.runs()
        if "called_by" in run.config
    }


def session_of(store):
    (found,) = (run.run_id for run in store.runs() if run.agent == "claude-code")
    return found


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


@pytest.mark.parametrize("layout", ["beside", "below"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_they_are_linked_to_the_step_that_called_them(store, tmp_path, layout, jobs):
    study(tmp_path, layout=layout)
    report = ingest(store, [tmp_path], jobs=jobs)
    assert (report.runs, report.rejected) == (3, [])
    whole = session_of(store)
    assert called(store) == {"ag1": (whole, 2), "ag2": (whole, 3)}
    kinds = {run.config.get("subagent_type") for run in store.runs() if "called_by" in run.config}
    assert kinds == {"Tester"}
    steps = [event.payload for event in store.read(whole, types=("agent.step",))]
    assert steps[2]["calls"][0]["arguments"]["prompt"] == "Run all tests."


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("at_once", [True, False])
def test_in_whatever_order_they_are_read(store, tmp_path, order, at_once):
    files = study(tmp_path)
    chosen = [files[number] for number in order]
    for paths in [chosen] if at_once else [[path] for path in chosen]:
        ingest(store, paths)
    whole = session_of(store)
    assert called(store) == {"ag1": (whole, 2), "ag2": (whole, 3)}


def test_without_an_id_a_prompt_that_was_given_once_tells(store, tmp_path):
    study(tmp_path, ("x1", "One."), ("x2", "Twice."), ("x3", "Twice."))
    ingest(store, [tmp_path])
    whole = session_of(store)
    assert called(store) == {"x1": (whole, 2), "x2": (whole, None), "x3": (whole, None)}


def test_a_branch_that_called_is_named(tmp_path):
    """A session of several runs: the one with the call is meant."""
    entries = [
        *simple(),
        user("u8", "a1", "No, try again.", 80),
        reply("c8", "u8", [call("t8", "Task", prompt="Look.", subagent_type="Tester")], "m8", 81),
        result("r8", "c8", "t8", "Seen.", 82, {"agentId": "ag1"}),
    ]
    more = [user("u9", "a2", "Go on.", 90), reply("a9", "u9", "Yes.", "m9", 91)]
    for name, last in (("a", []), ("b", more)):  # the branch is the run, or left it
        write(tmp_path / name / f"{SESSION}.jsonl", lines(*entries, *last))
        write(tmp_path / name / "agent-ag1.jsonl", agent("ag1", "Look."))
        with sag.open(":memory:") as ws:
            report = ws.ingest(tmp_path / name)
            assert report.runs == 3
            ((run_id, step),) = called(ws.store).values()
            steps = ws.steps(run_id).set_index("step")
            assert "Look." in steps.action[step]


def test_a_compressed_session_is_found(store, tmp_path):
    (file, *_) = study(tmp_path)
    write(tmp_path / f"{SESSION}.jsonl.gz", gzip.compress(file.read_bytes()))
    file.unlink()
    ingest(store, [tmp_path])
    whole = session_of(store)
    assert called(store)["ag1"] == (whole, 2)


@pytest.mark.parametrize("session", ["gone", "..", "a/b", "", ".", "x" * 300, "\x00"])
def test_without_its_session_it_is_a_run_of_its_own(store, tmp_path, session):
    write(tmp_path / "agent-ag1.jsonl", agent("ag1", session=session))
    report = ingest(store, [tmp_path])
    assert (report.runs, called(store)) == (1, {})


@pytest.mark.parametrize("data", [b"", b"gone\n", b'{"type": "summary", "summary": "x"}\n'])
def test_a_session_that_cannot_be_read(store, tmp_path, data):
    write(tmp_path / f"{SESSION}.jsonl", data)
    write(tmp_path / "agent-ag1.jsonl", agent("ag1"))
    report = ingest(store, [tmp_path / "agent-ag1.jsonl"])
    assert (report.runs, called(store)) == (1, {})


def test_ids_do_not_depend_on_the_session(tmp_path):
    files = study(tmp_path / "a")
    alone = write(tmp_path / "b/agent-ag1.jsonl", files[1].read_bytes())
    found = []
    for path in (files[1], alone):
        with SQLiteEventStore(":memory:") as store:
            ingest(store, [path])
            found += [run.run_id for run in store.runs()]
    assert found[0] == found[1]


def test_a_label_of_the_session_is_about_its_run(store, tmp_path):
    study(tmp_path / "in")
    ingest(store, [tmp_path / "in"])
    labels = write(tmp_path / "r.json", {"resolved_ids": [SESSION]})
    assert apply_labels(store, read_labels(labels)).applied == 1
