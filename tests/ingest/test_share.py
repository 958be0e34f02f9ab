"""One large file, read by several: what comes out is what one reader gives."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.ingest import Source, _jobs, _share, ingest
from sag_research.ingest._events import read_run
from sag_research.ingest._reading import Read, Rules, read_source, source_of
from sag_research.ingest._share import can_be_shared
from sag_research.ingest._together import put_together
from sag_research.ingest._walk import find
from sag_research.ingest.formats import FORMATS, _parquet
from sag_research.ingest.formats._rows import Rows
from sag_research.ingest.plugins import available
from sag_research.log import SQLiteEventStore
from sag_research.model import Step, Trajectory
from tests.ingest.make import native, swe_file, swe_step, write
from tests.ingest.test_jobs import AT_ITS_FOURTH_ANSWER, LONG, deadly, ingested, rows

__all__ = ["deadly"]


def parts(path, shared=None):
    (found,) = find([path])
    never = lambda digest: False  # noqa: E731
    return read_source(found, source_of(found), Rules(), available(), never, shared)


def as_one(found):
    """Parts as one: runs in order, and what the last part says."""
    found = [*found]
    assert [part.more for part in found] == [True] * (len(found) - 1) + [False]
    assert all(part.runs for part in found[:-1])
    assert not any(part.turn or part.told for part in found)
    last = found[-1]
    runs = [] if last.reason else [one for part in found for one in part.runs]
    digests = {(part.digest, part.size, part.format, part.claimed) for part in found}
    return runs, digests, last.version, last.reason, last.notes, last.refused


def nebius(number, **more):
    said = [{"role": "user", "text": "Mend it."}, {"role": "ai", "text": "so\n```\nls\n```"}]
    return {"instance_id": f"a__b-{number}", "trajectory": said, "target": True, **more}


LINES = st.one_of(
    st.builds(lambda n: json.dumps(native(f"t{n}")).encode(), st.integers(0, 99)),
    st.builds(lambda n: json.dumps(native(f"half \ud835 {n}")).encode(), st.integers(0, 9)),
    st.builds(lambda n: json.dumps(native("n", attempt=n)).encode(), st.integers(2**60, 2**70)),
    st.sampled_from([b"", b" ", b"no JSON", b'{"task_id": "t"}', b'{"task_id": 3, "steps": []}']),
)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINES, max_size=30), of=st.integers(1, 4), block=st.integers(1, 600))
def test_any_lines_come_out_as_from_one_reader(tmp_path_factory, lines, of, block):
    content = b"\n".join([rows(native("first"), native("second")), *lines])
    path = write(tmp_path_factory.mktemp("lines") / "a.jsonl", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_share, "_BLOCK_BYTES", block)
        shares = [parts(path, (number, of)) for number in range(of)]
        together = as_one(put_together([one.__next__ for one in shares]))
    assert together == as_one(parts(path))
    assert [next(one, None) for one in shares] == [None] * of


@pytest.mark.parametrize("batch", [2, 512])
@pytest.mark.parametrize("group", [1, 3, 7, 100])
@pytest.mark.parametrize("of", [2, 3])
def test_a_table_comes_out_as_from_one_reader(tmp_path, monkeypatch, of, group, batch):
    monkeypatch.setattr(_parquet, "_BATCH_ROWS", batch)
    told = [nebius(n, target=None if n % 5 else True) for n in range(23)]
    told[4]["instance_id"] = told[11]["trajectory"] = None
    pq.write_table(pa.Table.from_pylist(told), tmp_path / "a.parquet", row_group_size=group)
    shares = [parts(tmp_path / "a.parquet", (number, of)) for number in range(of)]
    together = as_one(put_together([one.__next__ for one in shares]))
    assert together == as_one(parts(tmp_path / "a.parquet"))
    runs, *_, refused = together
    assert (len(runs), [where for where, _ in refused]) == (21, ["row 4", "row 11"])


@pytest.mark.parametrize("of", [1, 2, 3])
def test_pages_that_cannot_be_read_cost_the_same_rows(tmp_path, monkeypatch, of):
    monkeypatch.setattr(_parquet, "_BATCH_ROWS", 2)
    told = [nebius(n, target=bool(n % 2)) for n in range(40)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.Table.from_pylist(told), path, row_group_size=20, compression="none",
        use_dictionary=False, data_page_size=64, write_batch_size=2, write_statistics=False,
    )  # fmt: skip
    data = path.read_bytes()
    place = data.index(b"a__b-11") - 12
    path.write_bytes(data[:place] + b"\xff" * 12 + data[place + 12 :])
    shares = [parts(path, (number, of)) for number in range(of)]
    runs, *_, refused = together = as_one(put_together([one.__next__ for one in shares]))
    assert together == as_one(parts(path))
    ((where, _),) = refused
    assert where.startswith("rows ")
    assert where.endswith(" to 19")
    assert 20 < len(runs) < 40


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}\n{"a": 2}', b'{"task_id": "t"}\n{}'])
def test_what_holds_no_run_is_refused_alike(tmp_path, content):
    path = write(tmp_path / "a.jsonl", content)
    shares = [parts(path, (number, 2)) for number in range(2)]
    together = as_one(put_together([one.__next__ for one in shares]))
    assert together == as_one(parts(path))
    assert together[3]


def test_what_is_of_one_piece_goes_to_the_first_reader(tmp_path):
    path = write(tmp_path / "a.traj", swe_file(swe_step("echo 1\n")))
    first, second = (list(parts(path, (number, 2))) for number in range(2))
    assert (len(first[0].runs), second) == (1, [Read()])


def test_two_runs_of_one_id_refuse_the_source():
    step = Step(action="ls")
    run = read_run(Trajectory(task_id="t", steps=(step,)), "t~0", "0")
    ends = [iter([Read(digest="d", runs=[run])]), iter([Read(digest="d", runs=[run])])]
    *_, last = put_together([one.__next__ for one in ends])
    assert last.reason == f"two runs of the id {run.run.run_id!r}"
    assert (last.runs, last.more) == ([], False)


def test_every_format_of_rows_is_shared():
    """The formats that read rows by :class:`Rows` are those that are shared, and native's."""
    modules = {one.name: sys.modules[type(one).__module__] for one in FORMATS}
    by_row = {name for name, m in modules.items() if any(type(v) is Rows for v in vars(m).values())}
    assert by_row | {"native"} == _share.BY_ROW


@pytest.mark.parametrize(
    ("content", "shared"),
    [
        (b'{"a": 1}\n{"b": 1}', True),
        (b'{"a": 1}\n\n {"b": 1}\n', True),
        (b'{"a": "' + b"x" * 100_000 + b'"}\n{"b": 1}', True),
        (b"PAR1 and what follows", True),
        (zstandard.compress(b'{"a": 1}\n{"b": 1}'), True),
        (b'{"a": 1}', False),
        (b'{\n"a": 1}\n{"b": 1}', False),
        (b'{"a"\n{"b": 1}', False),
        (b'[{"a": 1},\n{"b": 1}]', False),
        (b"", False),
        (zstandard.compress(b'{"a": 1}\n{"b": 1}')[:-4], False),
    ],
)
def test_tables_and_lines_can_be_shared(tmp_path, content, shared):
    assert can_be_shared(Source(write(tmp_path / "a", content))) is shared


@pytest.mark.parametrize("packed", [False, True])
def test_processes_share_a_file_and_give_the_same(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(_jobs, "_LARGE", 100)
    lines = [native(f"t{n}", goal=f"{n} {LONG * 20}") for n in range(150)]
    content = rows(*lines[:70], {"steps": 1}, *lines[70:], {})
    write(tmp_path / "b.jsonl", zstandard.compress(content) if packed else content)
    write(tmp_path / "a.traj", swe_file(swe_step("echo 1\n")))
    write(tmp_path / "c.traj", swe_file(swe_step("echo 2\n")))
    sent = []
    real = _jobs._Reader.send
    monkeypatch.setattr(
        _jobs._Reader, "send", lambda reader, task: (sent.append(task), real(reader, task))[1]
    )
    history, report = ingested(tmp_path, 2)
    assert [(task.name, task.shared) for task in sent if task.shared] == [
        ("b.jsonl", (0, 2)), ("b.jsonl", (1, 2)),
    ]  # fmt: skip
    assert (history, report) == ingested(tmp_path, 1)
    assert (report.runs, len(report.refused_records)) == (152, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_process_that_dies_in_its_share_takes_back_all_of_it(tmp_path, monkeypatch, deadly):
    monkeypatch.setattr(_jobs, "_LARGE", 100)
    lines = [native(f"t{n}", goal=f"{n} {LONG * 100}") for n in range(100)]
    write(tmp_path / "in/a.jsonl", rows(*lines))
    write(tmp_path / "in/b.traj", swe_file())
    deadly(AT_ITS_FOURTH_ANSWER)
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], jobs=2)
        assert [path for path, _ in report.rejected] == ["a.jsonl"]
        assert [run.task_id for run in store.runs()] == ["b"]
        assert store.verify().ok
        monkeypatch.delenv("PYTHONPATH")
        assert ingest(store, [tmp_path / "in"], jobs=2).runs == 100
        with SQLiteEventStore(":memory:") as other:
            ingest(other, [tmp_path / "in"])
            heads = [
                {run.run_id: one.head(run.run_id) for run in one.runs()} for one in (store, other)
            ]
            assert heads[0] == heads[1]
