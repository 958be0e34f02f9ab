import json
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _parquet, recognise
from sag_research.ingest.formats.nebius_swe_agent import NebiusSweAgent
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome
from tests.ingest.formats.openhands_make import damaged
from tests.ingest.formats.rows_make import (
    CONTAINERS,
    PROMPT,
    ai,
    container,
    heard,
    nebius,
    read,
    seen,
)

FORMAT = NebiusSweAgent()


def one(tmp_path, row):
    (run,), reading = read(FORMAT, container(tmp_path / "a", [row], "jsonl"))
    return run, reading


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_row_is_a_run(tmp_path, kind):
    (run, other), reading = read(FORMAT, container(tmp_path / "a", [nebius(), nebius()], kind))
    assert reading.version == ("parquet" if kind.startswith("parquet") else "json")
    assert seen(run) == [("Let us look.", "ls -F", "a.py"), ("Done.", "submit", "")]
    assert [step.state for step in run.steps] == [
        {"open_file": "n/a", "working_dir": "/repo"},
        None,
    ]
    assert [(call.name, call.observation) for step in run.steps for call in step.calls] == [
        ("bash", "a.py"),
        ("submit", ""),
    ]
    assert (run.task_id, run.repo, run.model) == ("org__repo-1", "org/repo", "swe-agent-llama-70b")
    assert (run.goal, run.agent) == ("It breaks – often.", "swe-agent")
    assert (run.end, run.exit_status, run.usage) == ("run.completed", "submitted", None)
    assert (run.record, other.record, reading.refused) == ("0", "1", [])
    assert run.submission == "diff --git a/a.py b/a.py\n"


@pytest.mark.parametrize(
    ("target", "patch", "outcome"),
    [
        (True, "diff", Outcome(outcome="success", source="nebius target")),
        (False, "diff", Outcome(outcome="failure", source="nebius target")),
        (False, " \n", Outcome(outcome="failure", detail="empty", source="nebius target")),
        (False, None, Outcome(outcome="failure", source="nebius target")),
        (True, "", Outcome(outcome="success", source="nebius target")),
        (None, "", None),
    ],
)
def test_target_is_the_outcome(tmp_path, target, patch, outcome):
    run, _ = one(tmp_path, nebius(target=target, generated_patch=patch))
    assert run.outcome == outcome


def test_a_label_that_is_neither_is_left_out(tmp_path):
    run, reading = one(tmp_path, nebius(target="maybe"))
    assert run.outcome is None
    assert reading.notes == ["line 1: its label says neither yes nor no and was left out"]


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ("submitted (exit_context)", "run.completed"),
        ("exit_cost", "run.failed"),
        ("early_exit", "run.failed"),
        (None, None),
    ],
)
def test_exit_status_is_no_outcome(tmp_path, status, end):
    run, _ = one(tmp_path, nebius(exit_status=status, target=True))
    assert (run.exit_status, run.end, run.outcome.outcome) == (status, end, "success")


def test_the_last_fenced_block_is_the_action(tmp_path):
    action = "edit 1:2\nx = '```'\nend_of_edit"
    said = f"It says:\n```python\nx = 1\n```\nSo:\n\n```\n{action}\n```\nThen go."
    run, _ = one(tmp_path, nebius(ai(said), heard("ok")))
    ((thought, done, observation),) = seen(run)
    assert done == action
    assert thought.endswith("So:\n\nThen go.")
    assert observation == "ok"
    assert run.steps[0].calls[0].name == "edit"


@pytest.mark.parametrize("said", ["No command.", "```\n\n```", "``` \nls", ""])
def test_a_reply_without_a_command_was_not_run(tmp_path, said):
    run, _ = one(tmp_path, nebius(ai(said), heard("Your output was not formatted well.")))
    (step,) = run.steps
    assert (step.flags, step.calls, step.action, step.observation) == (("rejected",), (), "", "")
    assert step.state == {"corrections": ["Your output was not formatted well."]}


def test_a_prompt_inside_an_observation_stays(tmp_path):
    shown = PROMPT.format("a.py") + "\nand more\n"
    run, _ = one(tmp_path, nebius(ai("```\ncat log\n```"), heard(shown)))
    assert (run.steps[0].observation, run.steps[0].state) == (shown, None)


def test_replies_in_a_row_are_steps(tmp_path):
    run, _ = one(tmp_path, nebius(ai("```\nls\n```"), ai("```\npwd\n```"), heard("a"), heard("b")))
    assert [(step.action, step.observation) for step in run.steps] == [("ls", ""), ("pwd", "a\nb")]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"trajectory": None}, "no messages"),
        ({"trajectory": 7}, "its messages are no list"),
        ({"instance_id": None}, "names no task"),
        ({"instance_id": " "}, "names no task"),
    ],
)
def test_a_row_that_cannot_be_read_costs_that_row(tmp_path, change, why):
    runs, reading = read(FORMAT, container(tmp_path / "a", [nebius(), nebius(**change)], "jsonl"))
    assert len(runs) == 1
    assert reading.refused == [("line 2", why)]


def test_more_processes_give_the_same_runs(tmp_path):
    rows = [nebius(instance_id=f"org__repo-{number}") for number in range(5)]
    container(tmp_path / "in/a", rows, "parquet")
    container(tmp_path / "in/b", rows[:2], "jsonl.zst")
    found = []
    for jobs in (1, 2):
        with SQLiteEventStore(tmp_path / f"{jobs}.sqlite") as store:
            assert ingest(store, [tmp_path / "in"], jobs=jobs, progress=False).runs == 7
            found.append([(run.run_id, store.head(run.run_id).digest) for run in store.runs()])
    assert found[0] == found[1]


def test_rows_are_kept_apart_in_a_log(tmp_path):
    container(tmp_path / "in/train", [nebius(), nebius(target=True), nebius()], "parquet")
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], progress=False)
        assert report.by_format == {"nebius-swe-agent": {"files": 1, "runs": 3, "steps": 6}}
        assert len({run.run_id for run in store.runs() if run.source_id}) == 3
        again = ingest(store, [tmp_path / "in"], progress=False)
        assert (again.duplicates, again.runs) == (1, 0)


# ---- odd tables


def table(tmp_path, *rows, **casts):
    """A Parquet file whose columns have other types than usual."""
    found = pa.Table.from_pylist([*rows])
    for name, kind in casts.items():
        place = found.schema.get_field_index(name)
        found = found.set_column(place, name, found.column(name).cast(kind))
    pq.write_table(found, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_columns_may_have_other_types(tmp_path):
    words = pa.dictionary(pa.int32(), pa.string())
    path = table(
        tmp_path,
        nebius(),
        nebius(instance_id="org__repo-2", model_name=None),
        instance_id=pa.large_string(),
        model_name=words,
        target=pa.int8(),
        exit_status=pa.string_view(),
        generated_patch=pa.binary(),
        trajectory=pa.large_list(pa.struct([("role", pa.string()), ("text", pa.large_string())])),
    )
    plain, _ = read(FORMAT, container(tmp_path / "b", [nebius()], "parquet"))
    (run, other), _ = read(FORMAT, path)
    assert run == plain[0]
    assert (other.task_id, other.model, other.steps) == ("org__repo-2", None, run.steps)


def test_roles_may_be_a_dictionary(tmp_path):
    role = pa.dictionary(pa.int8(), pa.string())
    found = pa.Table.from_pylist([nebius(), nebius()])
    messages = found.column("trajectory").combine_chunks()
    values = messages.values
    parts = [values.field("role").dictionary_encode().cast(role), values.field("text")]
    struct = pa.StructArray.from_arrays(parts, names=["role", "text"])
    lists = pa.ListArray.from_arrays(messages.offsets, struct)
    pq.write_table(
        found.set_column(3, "trajectory", lists), tmp_path / "a.parquet", use_dictionary=["role"]
    )
    plain, _ = read(FORMAT, container(tmp_path / "b", [nebius(), nebius()], "parquet"))
    assert read(FORMAT, tmp_path / "a.parquet")[0] == plain


def test_missing_columns_are_unknown(tmp_path):
    row = {name: nebius()[name] for name in ("instance_id", "trajectory")}
    (run,), _ = read(FORMAT, container(tmp_path / "a", [row], "parquet"))
    assert (run.model, run.outcome, run.exit_status, run.end) == (None, None, None, None)
    assert len(run.steps) == 2


def test_null_rows_and_null_messages(tmp_path):
    rows = [nebius(), nebius(trajectory=None), nebius(trajectory=[]), nebius()]
    rows[3]["trajectory"].insert(2, None)
    runs, reading = read(FORMAT, container(tmp_path / "a", rows, "parquet"))
    assert [(run.record, len(run.steps)) for run in runs] == [("0", 2), ("2", 0), ("3", 2)]
    assert reading.refused == [("row 1", "no messages")]
    assert reading.notes == ["row 3: 1 message is no object and was left out"]


def test_text_that_is_no_utf_8_is_kept(tmp_path):
    found = pa.Table.from_pylist([nebius()])
    spoilt = pa.array([b"org__repo-\xff"], pa.binary()).view(pa.string())
    pq.write_table(found.set_column(0, "instance_id", spoilt), tmp_path / "a.parquet")
    (run,), _ = read(FORMAT, tmp_path / "a.parquet")
    assert run.task_id == "org__repo-\udcff"


def test_many_small_and_large_batches_give_the_same(tmp_path, monkeypatch):
    rows = [
        nebius(instance_id=f"org__repo-{number}", target=bool(number % 3)) for number in range(7)
    ]
    path = container(tmp_path / "a", rows, "parquet")
    runs, _ = read(FORMAT, path)
    assert [run.task_id for run in runs] == [row["instance_id"] for row in rows]
    monkeypatch.setattr("sag_research.ingest.formats._parquet._BATCH_ROWS", 1)
    assert read(FORMAT, path)[0] == runs


def test_parquet_is_read_without_making_an_object_of_each_cell(tmp_path, monkeypatch):
    path = container(tmp_path / "a", [nebius(), nebius()], "parquet")
    others, kinds = _parquet._others, []
    monkeypatch.setattr(
        _parquet, "_others", lambda array: kinds.append(array.type) or others(array)
    )
    runs, _ = read(FORMAT, path)
    assert len(runs) == 2
    assert set(kinds) == {pa.bool_()}  # the labels alone: all that is text goes another way


# ---- damage


def test_a_damaged_row_group_costs_its_rows(tmp_path):
    rows = [nebius(instance_id=f"org__repo-{number}") for number in range(6)]
    path = container(tmp_path / "a", rows, "parquet")
    group = pq.ParquetFile(path).metadata.row_group(1)
    data = bytearray(path.read_bytes())
    start = min(
        group.column(place).dictionary_page_offset or group.column(place).data_page_offset
        for place in range(group.num_columns)
    )
    data[start : start + 60] = b"\xff" * 60
    path.write_bytes(data)
    runs, reading = read(FORMAT, path)
    assert [run.record for run in runs] == ["0", "1", "4", "5"]
    ((where, why),) = reading.refused
    assert where == "rows 2 to 3"
    assert "cannot be read" in why


@pytest.mark.parametrize("keep", [5, 100, -4, -40])
def test_parquet_that_is_cut_short_is_rejected_with_a_reason(tmp_path, keep):
    path = container(tmp_path / "in/a", [nebius()], "parquet")
    path.write_bytes(path.read_bytes()[:keep])
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], progress=False)
    ((name, why),) = report.rejected
    assert name == "a.parquet"
    assert "Parquet that is damaged or cut short" in why


@pytest.mark.parametrize(
    ("limit", "why"),
    [("_CELLS", "10000 values in one row group"), ("_LARGEST", "expands to [0-9]+ bytes")],
)
def test_parquet_that_expands_without_bounds_is_refused(tmp_path, monkeypatch, limit, why):
    path = tmp_path / "a.parquet"
    row = nebius(trajectory=[ai("x")] * 10)
    pq.write_table(pa.Table.from_pylist([row] * 1000), path, compression="zstd")
    assert len(list(FORMAT.read(Source(path)))) == 1000
    monkeypatch.setattr(_parquet, limit, 5_000)
    with pytest.raises(FormatError, match=why):
        list(FORMAT.read(Source(path)))


def test_values_that_are_stored_once_and_meant_often_are_refused(tmp_path, monkeypatch):
    path = container(tmp_path / "a", [nebius(ai("x" * 1_000)), nebius()], "parquet")
    monkeypatch.setattr(_parquet, "_BATCH_LARGEST", 500)
    runs, reading = read(FORMAT, path)
    assert runs == []
    ((where, why),) = reading.refused
    assert where == "rows 0 to 1"
    assert "bytes in 2 rows" in why


def test_a_table_of_something_else_is_not_claimed(tmp_path):
    pq.write_table(pa.table({"a": [1], "trajectory": [["x"]]}), tmp_path / "a.parquet")
    assert recognise(Source(tmp_path / "a.parquet")) is None


@pytest.mark.parametrize(
    ("row", "claimed"),
    [
        (nebius(), True),
        ({"instance_id": "a", "trajectory": [{"role": "ai", "text": "x"}]}, True),
        ({"instance_id": "a", "trajectory": [{"role": "ai", "content": "x"}]}, False),
        ({"instance_id": "a", "trajectory": [{"action": "ls"}]}, False),
        ({"trajectory": [{"role": "ai", "text": "x"}]}, False),
    ],
)
def test_files_are_claimed_by_content(tmp_path, row, claimed):
    assert (FORMAT.sniff(json.dumps(row).encode(), tmp_path / "a.json") > 0) == claimed


def test_a_bad_first_line_does_not_hide_the_others(tmp_path):
    path = tmp_path / "a.jsonl"
    good = json.dumps(nebius()).encode()
    path.write_bytes(b'{"instance_id": "a", "traj\n' + good + b"\n\n" + good + b"\n")
    assert recognise(Source(path)).name == "nebius-swe-agent"
    runs, reading = read(FORMAT, path)
    assert [run.record for run in runs] == ["1", "3"]
    assert [where for where, _ in reading.refused] == ["line 1"]


def test_fences_without_an_end_take_no_time(tmp_path):
    run, _ = one(tmp_path, nebius(ai("```a\n" * 60_000), heard("(Open file: " * 60_000)))
    assert run.steps[0].flags == ("rejected",)


@settings(max_examples=60)
@given(damaged([nebius(), nebius()]))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with suppress(FormatError):  # nothing else may come out
        for run in FORMAT.read(Source(path)):
            assert run.agent == "swe-agent"


def test_a_table_that_nobody_claims_is_ignored_with_its_columns(tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1], "text": ["x"]}), tmp_path / "in/a.parquet")
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], progress=False)
    reason = "a Parquet table that no format claims (columns: id, text)"
    assert report.ignored == [("a.parquet", reason)]
