"""Several processes read: the log and the report are those of one."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sag_research.errors import SagError, UsageError
from sag_research.ingest import _jobs, _pipeline, _reading, ingest
from sag_research.ingest._reading import Rules
from sag_research.ingest._walk import find
from sag_research.log import SQLiteEventStore
from tests.ingest.formats import claude_make
from tests.ingest.make import mini_file, native, swe_file, swe_step, tau_result, write

LONG = "a long text, kept beside " * 60


def history(store: SQLiteEventStore) -> list[object]:
    """All that is in a log, but for clocks and the folder that the files are in."""
    assert store.verify().ok
    heads = [(run.run_id, run.source_id, store.head(run.run_id)) for run in store.runs()]
    events = [(event.run_id, event.type, event.payload, event.cause) for event in store.tail()]
    return [heads, events]


def ingested(folder: Path, jobs: int, **options: object) -> tuple[list[object], object]:
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder], jobs=jobs, progress=False, **options)
        return history(store), replace(report)


def rows(*values: object) -> bytes:
    return b"\n".join(json.dumps(value).encode() for value in values)


def fork(task_id: str) -> bytes:
    """An agent's run and, in the same file, one that cannot be read."""
    return rows(native(task_id), native(f"{task_id}-b", goal=LONG), {"steps": 1})


def session(words: str) -> bytes:
    """A session with a fork, a compaction and a sub-agent."""
    whole = claude_make.lines(*claude_make.family())
    return whole.replace(b"Mend the parser.", f"Mend the {words}.".encode())


CONTENTS = st.one_of(
    st.text("uvw", min_size=1, max_size=3).map(session),
    st.sampled_from(["", " \n", "no JSON", "{", '{"a": 1}', "[]"]).map(str.encode),
    st.builds(
        lambda n, text: json.dumps(
            swe_file(*[swe_step(f"echo {i}\n", text * n) for i in range(n)])
        ).encode(),
        st.integers(1, 4),
        st.sampled_from(["a", "half \ud835 a character", "\x00", LONG]),
    ),
    st.builds(
        lambda name: json.dumps(mini_file(instance_id=name)).encode(), st.text("ab", min_size=1)
    ),
    st.builds(lambda reward: json.dumps([tau_result(reward=reward), 3]).encode(), st.floats(0, 1)),
    st.text("xyz", min_size=1, max_size=3).map(fork),
    st.binary(max_size=30),
)
NAMES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["a/", "b/c/", ""]),
    st.text("mnop", min_size=1, max_size=4),
    st.sampled_from([".traj", ".json", ".jsonl", ".txt", ".traj.gz"]),
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    files=st.dictionaries(NAMES, CONTENTS, min_size=1, max_size=12),
    held=st.sampled_from([10, 2**26]),
)
def test_any_mix_of_files_gives_the_same_with_two_processes(tmp_path_factory, files, held):
    folder = tmp_path_factory.mktemp("mix")
    for name, content in files.items():
        write(folder / name, gzip.compress(content, mtime=0) if name.endswith("gz") else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pipeline, "_HELD_BYTES", held)
        assert ingested(folder, 1) == ingested(folder, 2)


def test_real_work_is_shared_and_in_order(tmp_path, monkeypatch):
    for number in range(60):
        write(tmp_path / f"{number:02}.traj", swe_file(swe_step(f"echo {number}\n", LONG)))
    write(tmp_path / "33.traj", swe_file(swe_step("echo 5\n", LONG)))  # a duplicate
    started = []
    real = _jobs._Reader._start
    monkeypatch.setattr(
        _jobs._Reader, "_start", lambda reader: (started.append(reader), real(reader))[1]
    )
    (heads, events), report = ingested(tmp_path, 2)
    assert len(started) == 2
    assert (report.ingested, report.duplicates) == (59, 1)
    assert ([heads, events], report) == ingested(tmp_path, 1)
    assert len(started) == 2


def test_a_large_file_comes_in_parts(tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl", rows(*[native(f"t{n}", goal=f"{n} {LONG}") for n in range(1_000)]))
    write(tmp_path / "b.traj", swe_file())
    monkeypatch.setattr(_pipeline, "_HELD_BYTES", 1_000)
    found = [(one, 0) for one in find([tmp_path])]
    looks = _jobs.read_in_processes(found, Rules(held=1_000), 2, [])
    first = next(looks)
    parts = [first.first, *first.rest]
    assert len(parts) > 1
    assert sum(len(part.runs) for part in parts) == 1_000
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert [len(look.first.runs) for look in looks] == [1]
    assert ingested(tmp_path, 2) == ingested(tmp_path, 1)


AT_A_FILE = """
import io, os, signal
real = io.open
def opened(file, *args, **kwargs):
    if isinstance(file, (str, os.PathLike)) and "killer" in os.fspath(file):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(file, *args, **kwargs)
io.open = opened
"""
AT_ITS_FOURTH_ANSWER = """
import os, signal
real, sent = os.write, []
def write(*arguments):
    sent.append(arguments)
    if len(sent) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
os.write = write
"""


@pytest.fixture
def deadly(tmp_path, monkeypatch):
    """Let every process that is started from now on die as a script says."""

    def deadly(script):
        write(tmp_path / "site/sitecustomize.py", script.encode())
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))

    return deadly


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_file_that_kills_its_reader_costs_itself(tmp_path, deadly):
    deadly(AT_A_FILE)
    for number in range(8):
        write(tmp_path / f"in/{number}.traj", swe_file(swe_step(f"echo {number}\n")))
    for name in ("in/3-killer.json", "in/5-killer.traj"):
        write(tmp_path / name, swe_file(swe_step(f"echo {name}\n")))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], jobs=2)
        reason = "the process that read it was ended by signal 9, perhaps for want of memory"
        assert report.rejected == [("3-killer.json", reason), ("5-killer.traj", reason)]
        assert (report.files, report.ingested) == (10, 8)
        assert store.verify().ok
        said = [e.payload for e in store.read("@workspace", types=("source.read",))]
        assert [one["status"] for one in said].count("rejected") == 2
        again = ingest(store, [tmp_path / "in"])  # read in this process, it does no harm
        assert (again.ingested, again.duplicates) == (2, 8)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_process_that_dies_halfway_takes_back_what_it_sent(tmp_path, deadly, monkeypatch):
    lines = [native(f"t{n}", goal=f"{n} {LONG}") for n in range(3_000)]
    write(tmp_path / "in/a.jsonl", rows(*lines))
    write(tmp_path / "in/b.traj", swe_file())
    monkeypatch.setattr(_pipeline, "_HELD_BYTES", 1_000)
    deadly(AT_ITS_FOURTH_ANSWER)
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [tmp_path / "in"], jobs=2)
        assert [path for path, _ in report.rejected] == ["a.jsonl"]
        assert [run.task_id for run in store.runs()] == ["b"]
        assert store.verify().ok
        assert ingest(store, [tmp_path / "in"]).runs == 3_000


def test_a_process_that_cannot_be_started_is_an_error(tmp_path, monkeypatch):
    write(tmp_path / "a.traj", swe_file())
    with SQLiteEventStore(":memory:") as store:
        with monkeypatch.context() as patch:
            patch.setattr(_jobs, "_CODE", "raise SystemExit(3)")
            with pytest.raises(SagError, match=r"exit code 3.*; use one job"):
                ingest(store, [tmp_path], jobs=2)
            patch.setattr(sys, "executable", str(tmp_path / "gone"))
            with pytest.raises(SagError, match=r"No such file|cannot find"):
                ingest(store, [tmp_path], jobs=2)
        assert store.runs() == []
        with pytest.raises(UsageError, match="0 jobs"):
            ingest(store, [tmp_path], jobs=0)


def test_no_process_outlives_an_ingest_that_is_broken_off(tmp_path, monkeypatch):
    for number in range(9):
        write(tmp_path / f"{number}.traj", swe_file(swe_step(f"echo {number}\n")))
    readers = []
    real = _jobs._Reader.take
    monkeypatch.setattr(
        _jobs._Reader, "take", lambda reader: (readers.append(reader), real(reader))[1]
    )

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(_pipeline, "_take_group", interrupted)
    with SQLiteEventStore(":memory:") as store, pytest.raises(KeyboardInterrupt):
        ingest(store, [tmp_path], jobs=2)
    assert readers
    assert all(reader._process.poll() is not None for reader in readers)


SCRIPT = """
import sys
from sag_research.ingest import ingest
from sag_research.log import SQLiteEventStore
print(ingest(SQLiteEventStore(":memory:"), sys.argv[1:], jobs=2).ingested)
"""


def test_a_script_needs_no_main_guard(tmp_path):
    write(tmp_path / "in/a.traj", swe_file())
    script = write(tmp_path / "script.py", SCRIPT.encode())
    done = subprocess.run(
        [sys.executable, script, tmp_path / "in"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(_jobs.__file__).parents[2])},
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_all_real_files_are_read_the_same(real_data):
    assert ingested(real_data, 2) == ingested(real_data, 1)


# ---- files that look unchanged


@pytest.fixture
def settled(monkeypatch):
    """Let files count as old at once."""
    monkeypatch.setattr("sag_research.ingest._unchanged._FRESH_NS", -(10**9))


@pytest.fixture
def opened(monkeypatch):
    """Names of the files that are read, in order."""
    names = []
    real = _reading.read_source

    def read_source(found, *arguments):
        names.append(found.name)
        return real(found, *arguments)

    monkeypatch.setattr(_pipeline, "read_source", read_source)
    return names


def test_files_that_look_as_before_are_not_read_again(tmp_path, settled, opened):
    for name in "abc":
        write(tmp_path / f"in/{name}.traj", swe_file(swe_step(f"echo {name}\n")))
    write(tmp_path / "in/d.traj", swe_file(swe_step("echo a\n")))
    write(tmp_path / "in/bad.traj", b"")
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        first = ingest(store, [tmp_path / "in"])
        before = store.last_seq()
        opened.clear()
        again = ingest(store, [tmp_path / "in"])
        assert opened == ["bad.traj"]
        assert (again.files, again.duplicates, again.rejected) == (5, 4, first.rejected)
        assert again.duplicate_of == [
            (f"{n}.traj", f"{'a' if n == 'd' else n}.traj") for n in "abcd"
        ]
        assert "not read again: 4 files, which look as before; see recheck" in again.notes
        assert store.last_seq() == before
        opened.clear()
        checked = ingest(store, [tmp_path / "in"], recheck=True)
        assert len(opened) == 5
        assert checked.duplicate_of == again.duplicate_of


def test_a_change_is_seen_whatever_is_done_to_hide_it(tmp_path, settled):
    path = write(tmp_path / "in/a.traj", swe_file(swe_step("echo 1\n")))
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        ingest(store, [tmp_path / "in"])
        about = path.stat()
        path.write_bytes(path.read_bytes().replace(b"echo 1", b"echo 2"))  # the same size
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        assert ingest(store, [tmp_path / "in"]).ingested == 1


def test_what_was_just_written_is_not_relied_on(tmp_path, opened):
    write(tmp_path / "in/a.traj", swe_file())
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        ingest(store, [tmp_path / "in"])
        ingest(store, [tmp_path / "in"])
    assert opened == ["a.traj", "a.traj"]


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x80", None])
def test_without_its_memory_an_ingest_reads_again(tmp_path, settled, opened, damage):
    write(tmp_path / "in/a.traj", swe_file())
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        ingest(store, [tmp_path / "in"])
    memory = tmp_path / "log.sqlite-seen"
    if damage is None:  # the memory of another log
        kept = memory.read_bytes()
        for file in tmp_path.glob("log.sqlite*"):
            file.unlink()
        memory.write_bytes(kept)
    else:
        memory.write_bytes(damage)
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        report = ingest(store, [tmp_path / "in"])
        assert opened == ["a.traj", "a.traj"]
        assert report.ingested == (damage is None)


def test_the_log_has_the_last_word(tmp_path, settled, opened):
    """A memory that is ahead of its log, as after a restored backup, changes nothing."""
    write(tmp_path / "in/a.traj", swe_file())
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        store.checkpoint()
    empty = (tmp_path / "log.sqlite").read_bytes()
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        ingest(store, [tmp_path / "in"])
    (tmp_path / "log.sqlite").write_bytes(empty)
    with SQLiteEventStore(tmp_path / "log.sqlite") as store:
        assert ingest(store, [tmp_path / "in"]).ingested == 1
    assert opened == ["a.traj", "a.traj"]
