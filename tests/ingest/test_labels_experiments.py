"""Labels that name tasks alone, in a workspace with runs of several experiments."""

import json
import shutil

import pytest
from msgspec.structs import replace

from sag_research.errors import LabelError
from sag_research.ingest import add, apply_labels, ingest, read_labels
from sag_research.log import SQLiteEventStore
from tests.ingest.make import native, write

FIRST, SECOND = ("t1", "t2", "t3"), ("t2", "t3", "t4")
REPORTS = {
    "lists": lambda tasks: {"resolved_ids": [*tasks[:2]], "unresolved_ids": [*tasks[2:]]},
    "mapping": lambda tasks: {task: {"resolved": True} for task in tasks},
    "records": lambda tasks: [{"instance_id": task, "resolved": True} for task in tasks],
    "table": lambda tasks: [{"task_id": task, "outcome": "success"} for task in tasks],
    "csv": lambda tasks: ("task_id,outcome\n" + "".join(f"{t},1\n" for t in tasks)).encode(),
}
SUFFIX = {"csv": "csv"}


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def runs(folder, tasks, **more):
    """Write a file a run."""
    for task in tasks:
        step = {"action": f"cat {task} of {folder}"}
        write(folder / f"{task}.jsonl", native(task, steps=[step], **more))
    return folder


def labelled(store):
    if not store.has_run("@workspace"):
        return []
    events = store.read("@workspace", types=("outcome.recorded",))
    return sorted({event.payload["run"] for event in events})


def ids(store, name, value):
    return sorted(run.run_id for run in store.runs() if getattr(run, name) == value)


def under(store, folder):
    sources = {
        event.payload["source_id"]
        for event in store.read("@workspace", types=("source.read",))
        if event.payload["root"] == str(folder)
    }
    return sorted(run.run_id for run in store.runs() if run.source_id in sources)


def apply(store, path, value):
    return apply_labels(store, read_labels(write(path, value)))


TWO = {
    "models": ({"model": "m1"}, {"model": "m2"}),
    "agents": ({"agent": "a1"}, {"agent": "a2"}),
    "datasets": ({"dataset": "d1"}, {"dataset": "d2"}),
    "folders": ({}, {}),
}


@pytest.mark.parametrize("kind", REPORTS)
@pytest.mark.parametrize("differ", TWO)
def test_a_report_from_elsewhere_is_given_to_nobody(store, tmp_path, differ, kind):
    for name, tasks, more in zip("ab", (FIRST, SECOND), TWO[differ], strict=True):
        ingest(store, [runs(tmp_path / "in" / name, tasks, **more)])
    file = tmp_path / "other/deep" / f"r.{SUFFIX.get(kind, 'json')}"
    report = apply(store, file, REPORTS[kind](("t1", "t2", "t3", "t4", "t5")))
    assert labelled(store) == []
    assert (report.applied, report.unmatched, len(report.ambiguous)) == (0, 1, 4)
    found = dict(report.ambiguous)
    assert found["t4"] == ids(store, "task_id", "t4")  # one run, and not guessed
    assert len(found["t2"]) == 2
    (hint,) = report.hints
    assert differ in hint
    assert "run_id, path or model" in hint
    assert hint[:40] in repr(report)
    assert report.to_dict()["hints"] == [hint]


@pytest.mark.parametrize("place", ["a/r.json", "a/logs/deep/r.json", "a.r.json"])
def test_a_report_in_the_folder_of_an_experiment_is_about_it(store, tmp_path, place):
    for name, tasks in zip("ab", (FIRST, SECOND), strict=True):
        ingest(store, [runs(tmp_path / name / "trajs", tasks)])
    report = apply(store, tmp_path / place, {"resolved_ids": ["t1", "t2", "t3", "t4"]})
    own = under(store, tmp_path / "a/trajs") if "/" in place else []
    assert labelled(store) == own
    assert (report.applied, report.unmatched) == ((3, 1) if own else (0, 0))


def test_a_report_beside_the_only_experiment_there(store, tmp_path):
    ingest(store, [runs(tmp_path / "study/trajs", FIRST)])
    ingest(store, [runs(tmp_path / "elsewhere/trajs", SECOND)])
    apply(store, tmp_path / "study/reports/r.json", {"resolved_ids": ["t2", "t4"]})
    assert labelled(store) == under(store, tmp_path / "study/trajs")[1:2]


def test_a_report_of_tasks_that_only_another_experiment_has(store, tmp_path):
    for name, tasks in zip("ab", (FIRST, SECOND), strict=True):
        ingest(store, [runs(tmp_path / name, tasks)])
    report = apply(store, tmp_path / "a/r.json", {"resolved_ids": ["t4"]})
    assert (labelled(store), len(report.ambiguous), len(report.hints)) == ([], 1, 1)


def test_a_report_beside_an_experiment_with_other_tasks(store, tmp_path):
    ingest(store, [runs(tmp_path / "study/b", ("u1", "u2"))])
    ingest(store, [runs(tmp_path / "data/a", FIRST)])
    report = apply(store, tmp_path / "study/r.json", {"resolved_ids": [*FIRST]})
    assert (report.applied, report.hints) == (3, [])


def test_one_ingest_of_a_folder_with_two_experiments(store, tmp_path):
    runs(tmp_path / "all/a", FIRST, model="m1")
    runs(tmp_path / "all/b", SECOND, model="m2")
    outer = write(tmp_path / "all/r.json", {"resolved_ids": ["t1", "t4"]})
    report = ingest(store, [tmp_path / "all"], labels=outer).labels
    assert (labelled(store), len(report.ambiguous)) == ([], 2)
    inner = write(tmp_path / "all/a/r.json", {"resolved_ids": ["t1", "t4"]})
    report = ingest(store, [tmp_path / "all"], labels=inner).labels
    assert (report.applied, report.unmatched) == (1, 1)
    assert labelled(store) == [run for run in ids(store, "model", "m1") if run.startswith("t1")]


def test_an_ingest_of_one_experiment_with_its_own_labels(store, tmp_path):
    ingest(store, [runs(tmp_path / "b", SECOND, model="m2")])
    labels = write(tmp_path / "r.json", {"resolved_ids": ["t1", "t2", "t4"]})
    report = ingest(store, [runs(tmp_path / "a", FIRST, model="m1")], labels=labels).labels
    assert (report.applied, report.unmatched, report.hints) == (2, 1, [])
    assert labelled(store) == ids(store, "model", "m1")[:2]


@pytest.mark.parametrize("model", ["m1", "M1", "maker/m1"])
def test_the_reports_own_model_tells(store, tmp_path, model):
    ingest(store, [runs(tmp_path / "a", FIRST, model="m1")])
    ingest(store, [runs(tmp_path / "b", SECOND, model="m2")])
    value = {"resolved_ids": ["t1", "t2", "t4"], "model_name_or_path": model}
    report = apply(store, tmp_path / "x/y/r.json", value)
    assert labelled(store) == ids(store, "model", "m1")[:2]
    assert [key for key, _ in report.ambiguous] + report.unmatched_keys == ["t4"]


def test_a_model_with_two_experiments_does_not_tell(store, tmp_path):
    for name, tasks in zip("ab", (FIRST, SECOND), strict=True):
        ingest(store, [runs(tmp_path / name, tasks, model="m1")])
    value = {"resolved_ids": ["t1", "t4"], "model": "m1"}
    report = apply(store, tmp_path / "x/y/r.json", value)
    assert (labelled(store), len(report.ambiguous)) == ([], 2)
    assert "folders" in report.hints[0]


def test_a_model_that_nobody_has_does_not_tell(store, tmp_path):
    ingest(store, [runs(tmp_path / "a", FIRST, model="m1")])
    ingest(store, [runs(tmp_path / "b", SECOND, model="m2")])
    value = {"resolved_ids": ["t1", "t4"], "model_name_or_path": "gen__m2__t-0"}
    report = apply(store, tmp_path / "x/y/r.json", value)
    assert (labelled(store), len(report.ambiguous)) == ([], 2)


def test_a_column_with_the_model_tells(store, tmp_path):
    ingest(store, [runs(tmp_path / "a", FIRST, model="m1")])
    ingest(store, [runs(tmp_path / "b", SECOND, model="m2")])
    text = b"task_id,model,outcome\nt1,m1,1\nt2,m2,0\nt4,m1,1\nt4,m2,1\n"
    report = apply(store, tmp_path / "x/y/l.csv", text)
    assert (report.applied, report.unmatched, report.ambiguous) == (3, 1, [])


def test_several_attempts_are_several_experiments(store, tmp_path):
    first = runs(tmp_path / "in/attempt-1", FIRST, attempt=1)
    runs(tmp_path / "in/attempt-2", SECOND, attempt=2)
    ingest(store, [tmp_path / "in"])
    value = {"resolved_ids": ["t1", "t2", "t4"]}
    report = apply(store, tmp_path / "r.json", value)
    assert (labelled(store), len(report.ambiguous)) == ([], 3)
    assert "several runs of t2" in report.hints[0]
    report = apply(store, first / "r.json", value)
    assert (report.applied, report.unmatched) == (2, 1)


def test_reports_of_one_task_each_tell_together(store, tmp_path):
    """A report of t4 alone may be the other experiment's, whose run of it is not here."""
    ingest(store, [runs(tmp_path / "in/a", FIRST, model="m1")])
    ingest(store, [runs(tmp_path / "in/b", SECOND, model="m2")])
    for task in ("t1", "t2", "t3", "t4"):
        write(tmp_path / f"x/y/logs/{task}/report.json", {"resolved": True})
    report = apply_labels(store, read_labels(tmp_path / "x/y/logs"))
    assert (labelled(store), len(report.ambiguous), len(report.hints)) == ([], 4, 1)


def test_experiments_with_other_tasks_do_not_disturb(store, tmp_path):
    ingest(store, [runs(tmp_path / "a", FIRST, model="m1", dataset="d1")])
    ingest(store, [runs(tmp_path / "b", ("u1", "u2"), model="m2", dataset="d2")])
    add(store, native("v1", model="m3"))
    report = apply(store, tmp_path / "x/y/r.json", {"resolved_ids": [*FIRST], "error_ids": ["w"]})
    assert (report.applied, report.unmatched, report.hints) == (3, 1, [])


def test_what_is_not_known_of_a_run_does_not_part_it(store, tmp_path):
    runs(tmp_path / "in/a", FIRST[:2], model="m1", agent="a")
    runs(tmp_path / "in/b", SECOND[2:])
    ingest(store, [tmp_path / "in"])
    report = apply(store, tmp_path / "x/y/r.json", {"resolved_ids": ["t1", "t2", "t4"]})
    assert report.applied == 3


@pytest.mark.parametrize("files", [True, False])
def test_a_folder_for_each_run_is_one_experiment(store, tmp_path, files):
    for task in FIRST:
        runs(tmp_path / f"exp/{task}", [task], model="m1")
    found = sorted((tmp_path / "exp").glob("*/*" if files else "*"))
    ingest(store, found)
    report = apply(store, tmp_path / "x/y/r.json", {"resolved_ids": [*FIRST]})
    assert (report.applied, report.hints) == (3, [])


def test_a_folder_that_is_ingested_again_from_above_is_one_experiment(store, tmp_path):
    ingest(store, [runs(tmp_path / "exp/trajs", FIRST)])
    ingest(store, [tmp_path / "exp"])
    assert apply(store, tmp_path / "x/y/r.json", {"resolved_ids": [*FIRST]}).applied == 3


def test_copies_are_no_experiment(store, tmp_path):
    steps = [{"action": "cat setup.py and a few more words of it", "thought": "I look at it."}]
    for place in ("a", "b"):
        extra = {"config": {"from": place}}
        for task in FIRST:
            write(tmp_path / f"{place}/{task}.jsonl", native(task, steps=steps, **extra))
    assert ingest(store, [tmp_path / "a", tmp_path / "b"]).n_copies == 3
    report = apply(store, tmp_path / "x/y/r.json", {"resolved_ids": [*FIRST]})
    assert report.applied == 3


def test_results_of_trials_without_a_folder_here(store, tmp_path):
    """They are about tasks, too, if nothing was read from their folders."""
    ingest(store, [runs(tmp_path / "in/a", FIRST, model="m1")])
    ingest(store, [runs(tmp_path / "in/b", SECOND, model="m2")])
    for task in ("t1", "t4"):
        value = {"task_id": task, "trial_name": f"{task}.1", "is_resolved": True, "id": task}
        write(tmp_path / f"x/y/bench/{task}/results.json", value)
    report = apply_labels(store, read_labels(tmp_path / "x/y/bench"))
    assert (labelled(store), len(report.ambiguous)) == ([], 2)


def test_an_agent_that_was_called_is_not_judged(store, tmp_path):
    (main,) = add(store, native("t1"))
    (called,) = add(store, native("t1", config={"called_by": {"run": main, "step": 0}}))
    report = apply(store, tmp_path / "r.json", {"resolved_ids": ["t1"]})
    assert (report.applied, labelled(store), called in report.ambiguous) == (1, [main], False)


# ---- paths


@pytest.fixture
def one(store, tmp_path):
    write(tmp_path / "in/deep/x.jsonl", native("a"))
    write(tmp_path / "in/y.jsonl", native("b"))
    ingest(store, [tmp_path / "in"])
    return tmp_path / "in"


@pytest.mark.parametrize(
    "path",
    ["deep/x.jsonl", "./deep/x.jsonl", "deep//x.jsonl", "deep/../deep/x.jsonl", "{}/deep/x.jsonl",
     "{}/./deep/../deep/x.jsonl", "in/deep/x.jsonl", "./in/deep/x.jsonl",
     "{}/../link/deep/x.jsonl"],
)  # fmt: skip
@pytest.mark.parametrize("at_ingest", [True, False])
def test_a_path_may_be_written_in_many_ways(store, tmp_path, one, path, at_ingest):
    (tmp_path / "link").symlink_to(one)
    text = f"path,outcome\n{path.format(one)},1\n".encode()
    labels = read_labels(write(tmp_path / "l.csv", text))
    if at_ingest:
        report = ingest(store, [one], labels=labels).labels
    else:
        report = apply_labels(store, labels)
    assert (report.applied, report.unmatched) == (1, 0)
    assert labelled(store) == ids(store, "task_id", "a")


@pytest.mark.parametrize("path", ["x.jsonl", "{}/x.jsonl", "/", ".", "{}", "deep", "../in", "./"])
def test_a_path_of_no_file_is_unmatched(store, tmp_path, one, path):
    text = f"path,outcome\n{path.format(one)},1\n".encode()
    report = apply_labels(store, read_labels(write(tmp_path / "l.csv", text)))
    assert (report.applied, report.unmatched, report.ambiguous) == (0, 1, [])


def test_a_path_in_full_tells_files_of_one_path_apart(store, tmp_path):
    for name in "ab":
        write(tmp_path / name / "x.jsonl", native("t", model=name))
    ingest(store, [tmp_path / "a", tmp_path / "b"])
    text = f"path,outcome\nx.jsonl,1\n{tmp_path}/b/x.jsonl,0\n".encode()
    report = apply_labels(store, read_labels(write(tmp_path / "c/l.csv", text)))
    assert (report.applied, [key for key, _ in report.ambiguous]) == (1, ["x.jsonl"])
    assert labelled(store) == ids(store, "model", "b")


# ---- contradictions inside a file


def contradictory(store, path, value):
    add(store, [native("a"), native("b")])
    report = apply(store, path, value)
    return report, [(one.key, set(one.values)) for one in report.contradictory]


OTHER_LISTS = {
    "unresolved_ids": "failure",
    "error_ids": "unknown",
    "incomplete_ids": "unknown",
    "infra_ids": "unknown",
    "empty_patch_ids": "failure",
    "no_apply_ids": "failure",
    "test_timeout": "unknown",
}


@pytest.mark.parametrize("name", OTHER_LISTS)
def test_an_id_that_is_resolved_and_something_else(store, tmp_path, name):
    value = {"resolved_ids": ["a", "b"], name: ["a"], "completed_ids": ["a", "b"]}
    report, found = contradictory(store, tmp_path / "r.json", value)
    assert found == [("a", {"success", OTHER_LISTS[name]})]
    assert labelled(store) == ids(store, "task_id", "b")
    assert "success in resolved" in repr(report)


@pytest.mark.parametrize(
    "record",
    [
        {"resolved": True, "error_eval": True},
        {"resolved": True, "patch_exists": False},
        {"resolved": True, "report": {"resolved": False}},
        {"resolved": 0, "test_result": {"report": {"resolved": True}}},
    ],
)
def test_a_record_that_says_two_things(store, tmp_path, record):
    _, found = contradictory(store, tmp_path / "r.json", {"a": record, "b": {"resolved": True}})
    assert [key for key, _ in found] == ["a"]
    assert labelled(store) == ids(store, "task_id", "b")


TWICE = {
    "r.json": [
        b'{"a": {"resolved": true}, "b": {"resolved": true}, "a": {"resolved": false}}',
        b'{"a": {"resolved": true, "resolved": false}, "b": {"resolved": true}}',
        b'{"resolved_ids": ["a", "b"], "unresolved_ids": ["a"], "unresolved_ids": []}',
        b'{"resolved_ids": ["a", "b"], "resolved_ids": ["b"], "unresolved_ids": ["a"]}',
        b'{"resolved_ids": ["b", "a"], "resolved_ids": ["b"], "completed_ids": ["a", "b"]}',
        b'[{"task_id": "a", "outcome": "success", "outcome": "failure"},'
        b' {"task_id": "b", "outcome": "success"}]',
        b'{"a": {"resolved": true}, "b": {"resolved": true}, "a": {"resolved": false},'
        b' "a": {"resolved": true}}',
    ],
    "r.jsonl": [
        b'{"instance_id": "a", "resolved": true, "resolved": false}\n'
        b'{"instance_id": "b", "resolved": true}',
    ],
}


@pytest.mark.parametrize(("name", "data"), [(n, d) for n, many in TWICE.items() for d in many])
def test_a_repeated_key_that_says_two_things(store, tmp_path, name, data):
    report, found = contradictory(store, tmp_path / "l" / name, data)
    assert found == [("a", {"success", "failure"})]
    assert labelled(store) == ids(store, "task_id", "b")
    assert any("is there" in note and "times" in note for note in report.notes)
    counted = report.applied + report.unchanged + report.n_contradictory + report.unmatched
    assert counted + len(report.ambiguous) == report.labels


def test_a_repeated_key_that_says_the_same_is_noted(store, tmp_path):
    data = b'{"a": {"resolved": true}, "b": {"resolved": false}, "a": {"resolved": true}}'
    report, found = contradictory(store, tmp_path / "l/r.json", data)
    assert (found, report.applied) == ([], 2)
    assert report.notes == ["l/r.json: the key 'a' is there 2 times"]


def test_a_key_that_is_repeated_without_end_comes_to_one(tmp_path):
    data = b"{" + b",".join(b'"a": {"resolved": true}' for _ in range(5_000)) + b"}"
    with pytest.raises(LabelError, match=r"no labels in it .*5000 times"):
        read_labels(write(tmp_path / "r.json", data))


# ---- names of sources


def outcomes(store):
    events = store.read("@workspace", types=("outcome.recorded",))
    return [(event.payload["source"], event.payload["outcome"]) for event in events]


def test_two_files_of_one_name_are_two_sources(store, tmp_path):
    add(store, native("a"))
    apply(store, tmp_path / "x/r1/results.json", {"resolved_ids": ["a"]})
    report = apply(store, tmp_path / "y/r1/results.json", {"unresolved_ids": ["a"]})
    ((_, said),) = report.conflicts
    assert said == {"r1/results.json": "success", "y/r1/results.json": "failure"}
    assert list(report.by_source) == ["y/r1/results.json"]


def test_each_keeps_its_name_and_takes_back_what_it_said(store, tmp_path):
    add(store, native("a"))
    for outcome in ("resolved_ids", "unresolved_ids"):
        for place in ("x/r1", "y/r1", "z/y/r1"):
            value = {"resolved_ids": [], outcome: ["a"]}
            report = apply(store, tmp_path / place / "results.json", value)
    assert report.conflicts == []
    assert {source for source, _ in outcomes(store)} == {
        "r1/results.json", "y/r1/results.json", "z/y/r1/results.json",
    }  # fmt: skip
    assert len(outcomes(store)) == 6


def test_a_file_has_one_name_by_whatever_folder_it_is_found(store, tmp_path):
    add(store, native("a"))
    write(tmp_path / "x/r1/results.json", {"resolved_ids": ["a"]})
    for place in ("x/r1/results.json", "x/r1", "x"):
        report = apply_labels(store, read_labels(tmp_path / place))
        assert list(report.by_source) == ["r1/results.json"]
    assert len(outcomes(store)) == 1


def test_two_folders_of_one_name(store, tmp_path):
    add(store, [native("a"), native("b")])
    for place, outcome in (("x", "resolved_ids"), ("y", "unresolved_ids")):
        write(tmp_path / place / "r1/1.json", {"resolved_ids": [], outcome: ["a"]})
        write(tmp_path / place / "r1/2.json", {"resolved_ids": [], outcome: ["b"]})
        report = apply_labels(store, read_labels(tmp_path / place / "r1"))
    assert len(report.conflicts) == 2


def test_what_was_said_before_names_were_kept_is_the_same_file(store, tmp_path):
    (run,) = add(store, native("a"))
    apply(store, tmp_path / "x/r1/results.json", {"resolved_ids": ["a"]})
    events = list(store.read("@workspace", types=("outcome.recorded",)))
    assert len(events[0].payload["place"]) == 16
    assert str(tmp_path) not in json.dumps(events[0].payload)
    with SQLiteEventStore(":memory:") as older:
        add(older, native("a"))
        payload = {name: v for name, v in events[0].payload.items() if name != "place"}
        older.append(replace(events[0], payload=payload, position=None, seq=None))
        report = apply_labels(older, read_labels(tmp_path / "x/r1/results.json"))
        assert (report.unchanged, report.conflicts) == (1, [])
        shutil.rmtree(tmp_path / "x")
        assert run
