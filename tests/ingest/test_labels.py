import json

import pytest

from sag_research.errors import LabelError, UsageError
from sag_research.ingest import (
    Contradiction,
    LabelReport,
    add,
    apply_labels,
    ingest,
    read_labels,
)
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from tests.ingest.make import native, swe_file, swe_step, write

FIELDS = ("outcome", "detail")


def said(labels):
    """Outcome and detail by key; a key with two labels has two."""
    found = {}
    for label in labels:
        found.setdefault(label.key, []).append(tuple(getattr(label.outcome, f) for f in FIELDS))
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


SUCCESS, FAILURE, UNKNOWN = ("success", None), ("failure", None), ("unknown", None)
EMPTY, ERROR = ("failure", "empty"), ("unknown", "error")


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({"a-1": {"resolved": True}, "a-2": {"resolved": False}}, {"a-1": SUCCESS, "a-2": FAILURE}),
        ({"a-1": {"resolved": None}}, {"a-1": UNKNOWN}),
        ({"a": {"resolved": True}, "total": 5, "by": "me"}, {"a": SUCCESS}),
        ({"resolved_ids": [7, "a", True, 1.5], "unresolved_ids": [0]},
         {"7": SUCCESS, "a": SUCCESS, "0": FAILURE}),
        ({"a-1": {"resolved": 1}, "a-2": {"resolved": 0}}, {"a-1": SUCCESS, "a-2": FAILURE}),
        ({"a-1": {"resolved": False, "patch_is_None": True}}, {"a-1": EMPTY}),
        ({"a-1": {"resolved": False, "patch_exists": False}}, {"a-1": EMPTY}),
        (
            {"resolved": 1, "unresolved": 9, "ids_resolved": ["a"], "ids_unresolved": ["b"]},
            {"a": SUCCESS, "b": FAILURE},
        ),
        (
            {
                "resolved_ids": ["a"],
                "unresolved_ids": ["b"],
                "error_ids": ["c"],
                "empty_patch_ids": ["d"],
                "incomplete_ids": ["e"],
                "completed_ids": ["a", "b"],
                "resolved_instances": 371,
                "submitted_ids": ["a", "b", "c", "d", "e", "f"],
            },
            {"a": SUCCESS, "b": FAILURE, "c": ERROR, "d": EMPTY, "e": ("unknown", "incomplete")},
        ),
        (
            {"unresolved_ids": ["a", "b"], "empty_error_patch_ids": ["b"], "resolved_ids": []},
            {"a": FAILURE, "b": EMPTY},
        ),
        (
            {
                "resolved": ["a"],
                "generated": ["a", "b"],
                "no_generation": ["c"],
                "applied": ["a", "b"],
                "test_errored": ["d"],
                "no_apply": ["e"],
            },
            {
                "a": SUCCESS,
                "b": FAILURE,
                "c": EMPTY,
                "d": ERROR,
                "e": ("failure", "no-apply"),
            },
        ),
        ({"resolved_ids": ["a"], "unresolved_ids": ["a"]}, {"a": [SUCCESS, FAILURE]}),
        ([{"instance_id": "a", "resolved": True}, {"instance_id": "b", "resolved": None}],
         {"a": SUCCESS, "b": UNKNOWN}),
        ({"total": 9, "passed": 9, "instances": [{"instance_id": "a", "resolved": False}]},
         {"a": FAILURE}),
        ({"instance_id": "a", "resolved": False, "tries": 2}, {"a": FAILURE}),
    ],
)  # fmt: skip
def test_every_shape_of_report(tmp_path, report, expected):
    labels = read_labels(write(tmp_path / "r1/results.json", report))
    assert said(labels) == expected
    assert {label.outcome.source for label in labels} == {"r1/results.json"}


@pytest.mark.parametrize("name", ["org__repo-1.report.json", "org__repo-1/report.json"])
def test_a_report_of_one_instance_is_named_after_it(tmp_path, name):
    path = write(tmp_path / name, {"resolved": True, "model_name_or_path": "m"})
    (label,) = read_labels(path)
    assert (label.key, label.outcome.outcome, label.model) == ("org__repo-1", "success", "m")


def test_reports_as_lines(tmp_path):
    lines = b'{"instance_id": "a", "resolved": 1}\n{"instance_id": "b", "resolved": 0}\n'
    labels = read_labels(write(tmp_path / "x.jsonl", lines))
    assert said(labels) == {"a": SUCCESS, "b": FAILURE}


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"plain text", {}, [], {"a": 1}, {"a": {"model_patch": "x"}}, {"resolved": "yes"},
     {"a": {"resolved": True}, "b": {}}, {"a": {"resolved": True}, "b": []}, {"use_cache": True},
     {"resolved": 2}],
)  # fmt: skip
def test_what_is_no_report_is_an_error_that_says_so(tmp_path, value):
    with pytest.raises(LabelError, match="no labels"):
        read_labels(write(tmp_path / "x.json", value))


def test_a_folder_is_read_to_its_end_and_what_is_no_report_is_noted(tmp_path):
    write(tmp_path / "r/a.report.json", {"resolved": True})
    write(tmp_path / "r/deep/b/report.json", {"resolved": False})
    write(tmp_path / "r/preds.json", {"a": {"model_patch": ""}})
    write(tmp_path / "r/cut.json", b'{"resolved": tr')
    labels = read_labels(tmp_path / "r")
    assert said(labels) == {"a": SUCCESS, "b": FAILURE}
    assert [label.outcome.source for label in labels] == [
        "r/a.report.json",
        "r/deep/b/report.json",
    ]
    assert [note.partition(":")[0] for note in labels.notes] == ["r/cut.json", "r/preds.json"]
    assert repr(labels) == "Labels(2 labels: 1 success, 1 failure, 0 unknown; 2 files)"


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(UsageError):
        read_labels(tmp_path / "gone.json")


def test_csv(tmp_path):
    text = (
        "\ufefftask_id,outcome,model,score,detail,known_at_step\r\n"
        'a,success,m,0.5,,3\r\n"b,c",FALSE,,,partial,\r\nd,,,,,\r\ne,empty,,,,\r\nf,infra\r\n'
    )
    labels = read_labels(write(tmp_path / "x.csv", text.encode()))
    assert said(labels) == {
        "a": SUCCESS,
        "b,c": ("failure", "partial"),
        "d": UNKNOWN,
        "e": EMPTY,
        "f": ("unknown", "infra"),
    }
    first = labels.labels[0]
    assert (first.model, first.outcome.score, first.outcome.known_at_step) == ("m", 0.5, 3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("task_id,model\na,m\n", "columns"),
        ("name,outcome\na,success\n", "columns"),
        ("", "columns"),
        (
            "task_id,outcome\na,won\n",
            "^l/x.csv line 2: 'won' is no outcome; use success, failure or unknown$",
        ),
        ("task_id,outcome\n\n\nb,won\n", "^l/x.csv line 4: "),
        (
            "name,outcome\na,success\n",
            r"^l/x.csv line 1: .*\(found: name, outcome\); needed are path",
        ),
        ("instance_id;resolved\na;1\n", "commas, not by semicolons$"),
        ("instance_id\tresolved\na\t1\n", "commas, not by tabs$"),
        ("task_id,outcome,score\na,success,high\n", "^l/x.csv line 2: 'high' is no score"),
        ("task_id,outcome,known_at_step\na,success,-1\n", "'-1' is no known_at_step"),
    ],
)
def test_a_csv_that_is_wrong_says_where(tmp_path, text, reason):
    with pytest.raises(LabelError, match=reason):
        read_labels(write(tmp_path / "l/x.csv", text.encode()))


# ---- finding the run


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


def label(store, tmp_path, text, name="x.csv"):
    data = text if isinstance(text, (bytes, dict, list)) else text.encode()
    return apply_labels(store, read_labels(write(tmp_path / "l" / name, data)))


def outcomes(store):
    if not store.has_run("@workspace"):
        return []
    events = store.read("@workspace", types=("outcome.recorded",))
    return [(event.payload["run"], event.payload["outcome"]) for event in events]


def test_labels_are_recorded_once(store, tmp_path):
    a, b = add(store, [native("a"), native("b")])
    report = {"resolved_ids": ["a", "elsewhere"], "unresolved_ids": ["b"]}
    first = label(store, tmp_path, report, "r.json")
    assert (first.labels, first.applied, first.unmatched, first.unlabelled) == (3, 2, 1, 0)
    assert first.outcomes == {"failure": 1, "success": 1}
    assert outcomes(store) == [(a, "success"), (b, "failure")]
    before = store.last_seq()
    again = label(store, tmp_path, report, "r.json")
    assert (again.applied, again.unchanged, again.unmatched) == (0, 2, 1)
    assert store.last_seq() == before


def test_a_label_that_changed_is_recorded_again(store, tmp_path):
    (a,) = add(store, native("a"))
    label(store, tmp_path, "task_id,outcome\na,failure\n")
    report = label(store, tmp_path, "task_id,outcome\na,success\n")
    assert (report.applied, report.conflicts) == (1, [])
    assert outcomes(store) == [(a, "failure"), (a, "success")]


def test_sources_that_disagree_are_both_recorded_and_listed(store, tmp_path):
    (a,) = add(store, native("a", outcome="success"))
    report = label(store, tmp_path, "task_id,outcome\na,failure\n")
    assert report.conflicts == [(a, {"l/x.csv": "failure", "record": "success"})]
    assert outcomes(store) == [(a, "success"), (a, "failure")]


def test_unknown_is_no_conflict_and_no_label(store, tmp_path):
    (a,) = add(store, native("a", outcome="success"))
    add(store, native("b"))
    report = label(store, tmp_path, {"error_ids": ["a", "b"], "resolved_ids": []}, "r.json")
    assert (report.conflicts, report.unlabelled, report.outcomes) == ([], 1, {"unknown": 2})
    assert outcomes(store)[0] == (a, "success")


def test_a_source_that_contradicts_itself_is_not_believed(store, tmp_path):
    (a,) = add(store, native("a"))
    report = label(store, tmp_path, {"resolved_ids": ["a"], "unresolved_ids": ["a"]}, "r.json")
    values = {"failure": ["unresolved"], "success": ["resolved"]}
    assert report.contradictory == [Contradiction(a, "a", "l/r.json", values)]
    assert (report.labels, report.n_contradictory, report.applied) == (2, 2, 0)
    assert outcomes(store) == []
    shown = f"{a} (l/r.json: failure in unresolved, success in resolved)"
    assert f"contradictory inside one source: {shown}" in repr(report)


def test_a_csv_that_contradicts_itself_says_in_which_lines(store, tmp_path):
    (a,) = add(store, native("a"))
    report = label(store, tmp_path, "task_id,outcome\na,1\nz,1\na,0\na,0\n")
    assert report.to_dict()["contradictory"] == [
        {
            "run": a,
            "key": "a",
            "source": "l/x.csv",
            "values": {"failure": ["line 4", "line 5"], "success": ["line 2"]},
        }
    ]
    assert f"{a} (l/x.csv: failure in line 4, line 5, success in line 2)" in repr(report)


def test_every_exception_is_named(store, tmp_path):
    (a, *twins) = add(store, [native("a", outcome="success"), native("b"), native("b", model="m")])
    rows = "".join(f"none-{number:02},,1\n" for number in range(30))
    report = label(store, tmp_path, f"instance_id,run_id,resolved\n,{a},0\nb,,1\n{rows}")
    plain = report.to_dict()
    assert plain["unmatched"] == 30
    assert plain["unmatched_keys"] == [f"none-{number:02}" for number in range(20)]
    assert plain["ambiguous"] == [{"label": "b", "runs": twins}]
    shown = repr(report)
    assert f"in conflict between sources: {a} (l/x.csv: failure, record: success)" in shown
    assert f"ambiguous: b ({', '.join(twins)})" in shown
    assert "unmatched: none-00, none-01, none-02, none-03, none-04 and 25 more" in shown
    assert "contradictory inside" not in shown
    assert "none-10" in report._repr_html_()


def test_names_do_not_break_the_line(store, tmp_path):
    report = label(store, tmp_path, 'task_id,outcome\n"a\nb\x1b[31m\u202e",1\n')
    assert repr(report).endswith("unmatched: a b⟨U+202E⟩)")


def test_each_source_is_counted(store, tmp_path):
    runs = [native("a"), native("b"), native("c"), native("c", model="m")]
    a, b, *_ = add(store, runs)
    rows = f"run_id,outcome\n{a},1\n{b},1\n{b},0\nc,1\nz,1\n{a},1\n"
    write(tmp_path / "l/1.csv", rows.encode())
    write(tmp_path / "l/2.json", {"a": {"resolved": True}})
    table = apply_labels(store, read_labels(tmp_path / "l")).table_
    assert list(table.columns) == [
        "source", "labels", "applied", "unchanged", "unmatched", "contradictory", "ambiguous",
    ]  # fmt: skip
    assert table.to_numpy().tolist() == [
        ["l/1.csv", 6, 1, 1, 1, 2, 1],
        ["l/2.json", 1, 1, 0, 0, 0, 0],
    ]
    assert list(LabelReport().table_.columns) == list(table.columns)


def test_a_bad_csv_in_a_folder_is_noted_with_file_and_line(tmp_path):
    write(tmp_path / "r/a.csv", b"task_id,outcome\na,maybe\n")
    write(tmp_path / "r/b.csv", b"instance_id,resolved\na,true\n")
    labels = read_labels(tmp_path / "r")
    assert said(labels) == {"a": SUCCESS}
    assert labels.notes == ["r/a.csv line 2: 'maybe' is no outcome"]


def test_a_task_with_several_runs_is_not_guessed(store, tmp_path):
    runs = add(store, [native("a", model="m1"), native("a", model="m2")])
    report = label(store, tmp_path, "task_id,outcome\na,success\n")
    assert report.ambiguous == [("a", runs)]
    assert outcomes(store) == []


def test_a_model_tells_runs_of_one_task_apart(store, tmp_path):
    m1, m2 = add(store, [native("a", model="m1"), native("a", model="m2")])
    text = "task_id,outcome,model\na,success,M2\na,failure,m1\na,success,m3\n"
    report = label(store, tmp_path, text)
    assert (report.applied, report.unmatched) == (2, 1)
    assert outcomes(store) == [(m2, "success"), (m1, "failure")]


def test_a_csv_that_names_another_model_is_about_another_run(store, tmp_path):
    add(store, native("a", model="m1"))
    report = label(store, tmp_path, "task_id,outcome,model\na,success,m2\n")
    assert (report.applied, report.unmatched) == (0, 1)


def test_a_reports_name_for_a_model_need_not_be_the_runs(store, tmp_path):
    (a,) = add(store, native("a", model="claude-3-7-sonnet-20250219"))
    one = {"resolved": True, "instance_id": "a", "model_name_or_path": "gen__claude-3.7__t-0.00"}
    report = label(store, tmp_path, one, "r.json")
    assert outcomes(store) == [(a, "success")]
    two = [one, {**one, "resolved": False, "model_name_or_path": "gpt"}]
    report = label(store, tmp_path, two, "two.json")
    assert (report.applied, report.unmatched) == (0, 2)


def test_runs_are_named_by_id_or_its_beginning(store, tmp_path):
    a, b = add(store, [native("a"), native("b")])
    report = label(store, tmp_path, f"run_id,outcome\n{a},success\n{b[:6]},failure\nzzz,success\n")
    assert (report.applied, report.unmatched) == (2, 1)
    assert outcomes(store) == [(a, "success"), (b, "failure")]


def test_files_are_named_by_their_path(store, tmp_path):
    write(tmp_path / "in/deep/x.traj", swe_file())
    write(tmp_path / "in/copy.traj", swe_file())
    write(tmp_path / "in/y.traj", swe_file(swe_step("pwd\n")))
    rows = "path,outcome\ncopy.traj,success\ny.traj,failure\nz.traj,success\n"
    labels = write(tmp_path / "l.csv", rows.encode())
    report = ingest(store, [tmp_path / "in"], labels=labels)
    assert (report.duplicates, report.labels.applied, report.labels.unmatched) == (1, 2, 1)
    later = label(store, tmp_path, "path,outcome\ndeep/x.traj,success\n", "later.csv")
    assert later.applied == 1
    copy, y = store.runs()
    assert outcomes(store) == [
        (copy.run_id, "success"),
        (y.run_id, "failure"),
        (copy.run_id, "success"),
    ]


def test_a_task_narrows_a_path(store, tmp_path):
    lines = b"".join(json.dumps(native(task)).encode() + b"\n" for task in "ab")
    write(tmp_path / "in/x.jsonl", lines)
    ingest(store, [tmp_path / "in"])
    report = label(store, tmp_path, "path,task_id,outcome\nx.jsonl,b,success\nx.jsonl,,failure\n")
    assert (report.applied, len(report.ambiguous)) == (1, 1)
    assert outcomes(store) == [(store.runs()[1].run_id, "success")]


def test_of_a_retry_agents_attempts_the_chosen_one_is_labelled(store, tmp_path):
    attempts = [swe_file(), swe_file(swe_step("pwd\n"))]
    file = {**attempts[1], "attempts": attempts, "info": {"best_attempt_idx": 1}}
    write(tmp_path / "in/a.traj", file)
    labels = write(tmp_path / "r.json", {"resolved_ids": ["a"], "unresolved_ids": []})
    report = ingest(store, [tmp_path / "in"], labels=labels)
    assert (report.runs, report.labels.applied, report.labels.unlabelled) == (2, 1, 1)
    assert outcomes(store) == [(store.runs()[1].run_id, "success")]


def test_a_report_knows_no_forks(store, tmp_path):
    (a,) = add(store, native("a"))
    store.fork(a, at=2)
    report = label(store, tmp_path, {"resolved_ids": ["a"]}, "r.json")
    assert (report.applied, outcomes(store)) == (1, [(a, "success")])


def test_labels_given_at_ingest_are_about_its_runs_alone(store, tmp_path):
    add(store, native("x"))
    write(tmp_path / "in/x.traj", swe_file())
    labels = write(tmp_path / "r.json", {"resolved_ids": ["x"]})
    report = ingest(store, [tmp_path / "in"], labels=labels)
    assert report.labels.applied == 1
    again = ingest(store, [tmp_path / "in"], labels=labels)  # the run is there already
    assert (again.duplicates, again.labels.unchanged) == (1, 1)


def test_every_label_is_counted_once(store, tmp_path):
    add(store, [native("a"), native("b", model="1"), native("b", model="2"), native("c")])
    text = "task_id,outcome\na,success\nb,success\nc,success\nc,failure\nd,success\na,success\n"
    report = label(store, tmp_path, text)
    counted = report.applied + report.unchanged + report.n_contradictory
    assert counted + len(report.ambiguous) + report.unmatched == report.labels == 6
    assert json.loads(json.dumps(report.to_dict()))["labels"] == 6


def test_reports_escape_what_they_show(store, tmp_path):
    (a,) = add(store, native("<script>alert(1)</script>", outcome="success"))
    rows = f'run_id,outcome\n"{a}",failure\n'
    report = label(store, tmp_path, rows)
    assert len(report.conflicts) == 1
    assert "<script" not in report._repr_html_()


# ---- sources of labels


def test_files_of_one_name_in_two_folders_are_two_sources(store, tmp_path):
    (a,) = add(store, native("a"))
    label(store, tmp_path / "one", {"resolved_ids": ["a"]}, "r1/results.json")
    report = label(store, tmp_path / "two", {"unresolved_ids": ["a"]}, "r2/results.json")
    assert report.conflicts == [(a, {"r1/results.json": "success", "r2/results.json": "failure"})]


def test_a_corrected_file_takes_back_what_it_said(store, tmp_path, monkeypatch):
    (a,) = add(store, native("a"))
    label(store, tmp_path, {"unresolved_ids": ["a"]}, "r.json")
    write(tmp_path / "l/r.json", {"resolved_ids": ["a"]})
    monkeypatch.chdir(tmp_path / "l")
    (tmp_path / "link").symlink_to(tmp_path / "l")
    for path in ("r.json", "../l/r.json", tmp_path / "link/r.json", tmp_path / "link"):
        report = apply_labels(store, read_labels(path))
        assert (report.labels, report.conflicts) == (1, [])
    assert outcomes(store) == [(a, "failure"), (a, "success")]


@pytest.mark.parametrize("source", ["record", "l/record", ""])
def test_no_label_file_has_the_name_of_a_records_own_word(store, tmp_path, source):
    (a,) = add(store, native("a", outcome={"outcome": "success", "source": source}))
    report = label(store, tmp_path, {"unresolved_ids": ["a"]}, "record")
    ((run, said),) = report.conflicts
    assert (run, said["l/record"], len(said)) == (a, "failure", 2)


def paths_of_two(tmp_path):
    write(tmp_path / "a/x.jsonl", native("t1", model="m1"))
    write(tmp_path / "b/x.jsonl", native("t1", model="m2"))
    return [tmp_path / "a", tmp_path / "b"]


def test_files_of_one_path_in_two_folders_are_both_labelled(store, tmp_path):
    text = b"task_id,model,outcome\nt1,m1,success\nt1,m2,failure\n"
    labels = write(tmp_path / "l.csv", text)
    report = ingest(store, paths_of_two(tmp_path), labels=labels).labels
    assert (report.applied, report.unmatched, report.unlabelled) == (2, 0, 0)
    m1, m2 = (run.run_id for run in store.runs())
    assert outcomes(store) == [(m1, "success"), (m2, "failure")]


@pytest.mark.parametrize("row", ["task_id,outcome\nt1,1\n", "path,outcome\nx.jsonl,1\n"])
def test_a_label_of_two_folders_is_not_guessed(store, tmp_path, row):
    labels = write(tmp_path / "l.csv", row.encode())
    report = ingest(store, paths_of_two(tmp_path), labels=labels).labels
    assert [runs for _, runs in report.ambiguous] == [[run.run_id for run in store.runs()]]
    assert outcomes(store) == []


def test_a_bad_row_costs_that_row(store, tmp_path):
    add(store, [native("a"), native("b")])
    text = "task_id,outcome,score\na,success,\nb,maybe,\nb,failure,high\nb,failure,1\n"
    report = label(store, tmp_path, text)
    assert (report.labels, report.applied) == (2, 2)
    assert [one.partition(";")[0] for one in report.refused] == [
        "l/x.csv line 3: 'maybe' is no outcome",
        "l/x.csv line 4: 'high' is no score",
    ]
    assert "rows refused: l/x.csv line 3: 'maybe'" in repr(report)
    assert report.to_dict()["refused"] == report.refused


def test_a_bad_line_of_records_costs_that_line(tmp_path):
    good = [json.dumps({"instance_id": one, "resolved": one == "a"}) for one in "ab"]
    text = "\n".join([good[0], '{"instance_id": "c", "resol', "", good[1]])
    labels = read_labels(write(tmp_path / "r/x.jsonl", text.encode()))
    assert said(labels) == {"a": SUCCESS, "b": FAILURE}
    assert len(labels.refused) == 1
    assert labels.refused[0].startswith("r/x.jsonl line 2: JSON")


@pytest.mark.parametrize("text", [b'{"resolved_ids": [\n"a",\n"b"', b'[1]\n{"a"\n', b"{\n{}\n"])
def test_a_report_that_is_cut_short_is_no_list_of_lines(tmp_path, text):
    with pytest.raises(LabelError, match=r"no labels in it \((not valid JSON|.*cut short)"):
        read_labels(write(tmp_path / "x.json", text))


def test_a_row_is_about_the_first_key_that_is_filled_in(tmp_path):
    text = b"run_id,task_id,outcome\nr,t,1\n,t,0\n,,1\n , ,\n"
    labels = read_labels(write(tmp_path / "r/x.csv", text))
    assert [(one.kind, one.key) for one in labels] == [("run_id", "r"), ("task_id", "t")]
    assert [one.partition(";")[0] for one in labels.refused] == ["r/x.csv line 4: names no run"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_csv_in_the_encodings_of_spreadsheets(tmp_path, encoding):
    text = "task_id,outcome\nà,success\nb,0\n"
    labels = read_labels(write(tmp_path / "x.csv", text.encode(encoding)))
    assert said(labels) == {"à": SUCCESS, "b": FAILURE}


def test_flags_that_became_floats_beside_missing_ones(tmp_path):
    labels = read_labels(write(tmp_path / "x.csv", b"task_id,resolved\na,1.0\nb,0.0\nc,\nd,0.5\n"))
    assert said(labels) == {"a": SUCCESS, "b": FAILURE, "c": UNKNOWN}
    assert len(labels.refused) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("task_id,outcome,outcome\na,1,1\n", "line 1: the column outcome is there twice"),
        ("task_id,task_id,outcome\na,b,1\n", "line 1: the column task_id is there twice"),
        ("task_id,outcome,resolved\na,1,true\nb,1,0\n", "line 3: .* outcome and resolved disag"),
        ("task_id,outcome,resolved\na,success,\n", "line 2: .* outcome and resolved disagree"),
        ("task_id,instance_id,outcome\na,b,1\n", "line 2: .* task_id and instance_id disagree"),
    ],
)
def test_two_columns_of_one_meaning_are_refused(tmp_path, text, reason):
    with pytest.raises(LabelError, match=reason):
        read_labels(write(tmp_path / "x.csv", text.encode()))


def test_two_columns_that_agree_are_read(tmp_path):
    text = b"task_id,instance_id,outcome,resolved\na,a,success,true\nb,b,failure,0\n"
    assert said(read_labels(write(tmp_path / "x.csv", text))) == {"a": SUCCESS, "b": FAILURE}


def test_events_of_another_shape_count_for_nothing(store, tmp_path):
    (a,) = add(store, native("a"))
    write(tmp_path / "in/x.traj", swe_file())
    for payload in ({"x": 1}, {"run": a}, {"run": a, "outcome": "won"}, {"run": 3, "outcome": 1}):
        store.append(Event(run_id="@workspace", type="outcome.recorded", payload=payload))
    for payload in ({"x": 1}, {"path": 1, "root": [], "status": {}}):
        store.append(Event(run_id="@workspace", type="source.read", payload=payload))
    labels = write(tmp_path / "l/r.json", {"resolved_ids": ["a", "x"]})
    assert apply_labels(store, read_labels(labels)).applied == 1
    assert ingest(store, [tmp_path / "in"], labels=labels).labels.applied == 1
    assert ingest(store, [tmp_path / "in"]).duplicates == 1


def test_the_beginning_of_an_id_that_fits_two_runs_is_not_guessed(store, tmp_path):
    runs = add(store, [native("b1"), native("a1"), native("b2"), native("c")])
    report = label(store, tmp_path, f"run_id,outcome\nb,1\n{runs[3][:4]},1\n,1\nzz,1\n")
    assert report.ambiguous == [("b", [runs[0], runs[2]])]
    assert (report.applied, report.unmatched, len(report.refused)) == (1, 1, 1)


def test_a_cell_that_is_too_long_costs_its_row(tmp_path):
    text = f"task_id,outcome,detail\na,1,\nb,1,{'x' * 200_000}\nc,0,\n"
    labels = read_labels(write(tmp_path / "l/x.csv", text.encode()))
    assert said(labels) == {"a": SUCCESS, "c": FAILURE}
    (fault,) = labels.refused
    assert fault.startswith("l/x.csv line 3: a damaged CSV (field larger")
    with pytest.raises(LabelError, match="a damaged CSV"):
        read_labels(write(tmp_path / "y.csv", b"task_id,outcome," + b"x" * 200_000 + b"\na,1\n"))
