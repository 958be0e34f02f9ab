"""Power cuts, and a log file that is damaged or replaced.

The log is the truth: what can be made anew from its events (indices, the free list, the index of
calls) is, by `sag rebuild`; what cannot is named, never passed over; and a warehouse that reached
further than the log now does shows nothing that is no longer there.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

import sag_research as sag
from sag_research.errors import StoreError
from sag_research.log import SQLiteEventStore
from sag_research.log._verify import file_fault
from sag_research.model import Event, Run
from tests.faults.study import (
    ONCE_AND_OFTEN,
    Study,
    asked,
    assert_whole,
    at_rest,
    build,
    complaint,
    everything,
    in_order,
    projected,
    rebuilt,
    record,
    seeds,
    words_of,
)

PAGE = 4096
Harm = Callable[[Study, Random], object]


# ---- power cuts


def beside(log: Path, end: str) -> Path:
    return log.with_name(log.name + end)


def unplugged(study: Study, random: Random) -> tuple[Study, int]:
    """Go on writing, and copy the files of a moment in the middle, as a power cut leaves them.

    Returns the copy, and how many events were safe on the disk before that.
    """
    cut = study.path.with_name(study.path.name + "-cut")
    with sag.open(study.path) as ws:
        ws.store.checkpoint()
        safe = ws.store.last_seq()
        ws.store.create_run(Run(run_id="late"))
        for number in range(random.randint(3, 30)):
            ws.store.append(Event(run_id="late", type="note.taken", payload={"n": number}))
        shutil.copytree(study.path, cut)
    return at_rest_of(cut, study), safe


def at_rest_of(path: Path, study: Study) -> Study:
    return Study(path, study.said, study.answers)


def torn(study: Study, random: Random) -> None:
    tail = beside(study.log, "-wal")
    data = tail.read_bytes()
    tail.write_bytes(data[: random.randrange(len(data))])


def zeroed(study: Study, random: Random) -> None:
    tail = beside(study.log, "-wal")
    data = tail.read_bytes()
    start = random.randrange(len(data))
    tail.write_bytes(data[:start] + bytes(len(data) - start))


def overwritten(study: Study, random: Random) -> None:
    tail = beside(study.log, "-wal")
    data = tail.read_bytes()
    start = random.randrange(len(data))
    tail.write_bytes(data[:start] + random.randbytes(len(data) - start))


def one_page_lost(study: Study, random: Random) -> None:
    """A page in the middle did not reach the disk, later ones did."""
    tail = beside(study.log, "-wal")
    data = bytearray(tail.read_bytes())
    frames = (len(data) - 32) // (PAGE + 24)
    start = 32 + random.randrange(frames) * (PAGE + 24) + 24
    data[start : start + PAGE] = bytes(PAGE)
    tail.write_bytes(data)


def longer(study: Study, random: Random) -> None:
    with beside(study.log, "-wal").open("ab") as file:
        file.write(random.randbytes(random.randint(1, 9000)))


def without_tail(study: Study, random: Random) -> None:
    beside(study.log, "-wal").unlink()
    beside(study.log, "-shm").unlink(missing_ok=True)


def other_memory(study: Study, random: Random) -> None:
    beside(study.log, "-shm").write_bytes(random.randbytes(32768))


CUTS: dict[str, tuple[Harm, bool]] = {  # with whether the last commits may be lost by it
    "the last pages are torn": (torn, True),
    "the last pages are zeros": (zeroed, True),
    "the last pages are garbage": (overwritten, True),
    "a page did not arrive": (one_page_lost, True),
    "the file -wal is gone": (without_tail, True),
    "garbage behind the last page": (longer, False),
    "the file -shm is garbage": (other_memory, False),
    "the file -shm is gone": (
        lambda study, random: beside(study.log, "-shm").unlink(missing_ok=True), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize(("harm", "loses"), CUTS.values(), ids=CUTS.keys())
def test_after_a_power_cut_the_log_is_a_prefix_that_holds_all_that_was_synced(
    template: Study, tmp_path: Path, harm: Harm, loses: bool, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        cut, safe = unplugged(study, random)
        harm(cut, random)
        with sag.open(study.path) as ws:
            order = [(e.run_id, e.position, e.digest) for e in ws.store.tail()]
        with sag.open(cut.path) as ws:
            left = [(e.run_id, e.position, e.digest) for e in ws.store.tail()]
            assert left == order[: len(left)]
            assert len(left) >= safe if loses else len(left) == len(order)
            assert ws.verify().ok
            assert everything(ws.warehouse) == projected(ws.store)
            ws.store.append(Event(run_id="branch", type="note.taken", payload={"on": 1}))
        assert_whole(at_rest(cut.path))


def put_back(study: Study, before: Path) -> None:
    """Give a workspace the log that it had before, as a power cut or a restored copy does."""
    for end in ("-wal", "-shm"):
        beside(study.log, end).unlink(missing_ok=True)
    shutil.copy(before, study.log)


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("written", ["nothing", "less", "as much", "more", "the same of others"])
def test_a_log_behind_the_watermark_is_believed_and_the_warehouse_is_not(
    template: Study, tmp_path: Path, written: str, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        before = tmp_path / "before.sqlite"
        shutil.copy(study.log, before)
        first = random.randint(1, 9)
        with sag.open(study.path) as ws:
            for number in range(first):
                ws.store.create_run(Run(run_id=f"lost-{number}", task_id="t"))
            ws.sync()
        put_back(study, before)
        more = {"nothing": 0, "less": first - 1, "more": first + 5}.get(written, first)
        with SQLiteEventStore(study.log) as store:
            for number in range(more):
                task = "t" if written == "the same of others" else "u"
                store.create_run(Run(run_id=f"new-{number}", task_id=task))
            kept = projected(store)
        assert asked(study.path) == kept  # without a sync, so without a warning
        with sag.open(study.path) as ws:
            with pytest.warns(UserWarning, match="no longer holds what the warehouse was made of"):
                report = ws.sync()
            assert (report.fell_behind, report.rebuilt) == (True, True)
            assert everything(ws.warehouse) == kept
        assert_whole(at_rest(study.path))


# ---- pages


def root_pages(log: Path) -> dict[str, int]:
    with closing(sqlite3.connect(log)) as db:
        found = db.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0")
        return dict(found.fetchall())


def leaves(data: bytes, page: int) -> list[int]:
    """The pages without children of a tree, by its root: what SQLite's file format says."""
    start = (page - 1) * PAGE
    kind = data[start]
    if kind in (10, 13):
        return [page]
    cells = int.from_bytes(data[start + 3 : start + 5], "big")
    children = [int.from_bytes(data[start + 8 : start + 12], "big")]
    for cell in range(cells):
        at = start + 12 + 2 * cell
        place = start + int.from_bytes(data[at : at + 2], "big")
        children.append(int.from_bytes(data[place : place + 4], "big"))
    return [leaf for child in children for leaf in leaves(data, child)]


def spoil(log: Path, pages: list[int], random: Random) -> None:
    """Damage one of the pages: flipped bits, random bytes, or zeros."""
    data = bytearray(log.read_bytes())
    start = (random.choice(pages) - 1) * PAGE
    how = random.randrange(4)
    if how == 0:
        for _ in range(8):
            data[start + random.randrange(PAGE)] ^= 1 << random.randrange(8)
    elif how == 1:
        data[start : start + PAGE] = random.randbytes(PAGE)
    elif how == 2:
        data[start : start + PAGE] = bytes(PAGE)
    else:
        at = start + random.randrange(PAGE - 64)
        data[at : at + 64] = random.randbytes(64)
    log.write_bytes(data)


def spoil_tree(*names: str) -> Harm:
    def harm(study: Study, random: Random) -> None:
        roots = root_pages(study.log)
        data = study.log.read_bytes()
        spoil(study.log, leaves(data, roots[random.choice(names)]), random)

    return harm


def spoil_free_list(study: Study, random: Random) -> None:
    with closing(sqlite3.connect(study.log)) as db:
        assert db.execute("PRAGMA freelist_count").fetchone()[0] > 0
    data = bytearray(study.log.read_bytes())
    first = int.from_bytes(data[32:36], "big")
    start = (first - 1) * PAGE
    data[start : start + 64] = random.randbytes(64)
    study.log.write_bytes(data)


def with_free_pages(study: Study) -> Study:
    with closing(sqlite3.connect(study.log)) as db:
        db.execute("CREATE TABLE passing (x)")
        db.execute("INSERT INTO passing VALUES (zeroblob(50000))")
        db.execute("DROP TABLE passing")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return study


MENDED: dict[str, Harm] = {
    "index of events": spoil_tree("sqlite_autoindex_events_1"),
    "index of runs": spoil_tree("sqlite_autoindex_runs_1", "runs_parent"),
    "index of texts": spoil_tree("sqlite_autoindex_blobs_1"),
    "index of names": spoil_tree("sqlite_autoindex_names_1"),
    "recorded calls": spoil_tree("calls"),
    "index of calls": spoil_tree("sqlite_autoindex_calls_1"),
    "free list": spoil_free_list,
}


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("harm", MENDED.values(), ids=MENDED.keys())
def test_a_damaged_index_of_the_log_is_made_anew(
    template: Study, tmp_path: Path, harm: Harm, times: int
) -> None:
    for random in seeds(times):
        study = with_free_pages(template.copy(tmp_path / f"{random.random()}"))
        calls = calls_of(study)
        harm(study, random)
        if said := complaint(study.path):
            assert "sag rebuild" in said
            rebuilt(study)
        assert_whole(study)
        assert calls_of(study) == calls


def calls_of(study: Study) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(study.log)) as db:
        return db.execute("SELECT * FROM calls ORDER BY key, occ, run, pos").fetchall()


@pytest.mark.slow
def test_those_faults_are_found(template: Study, tmp_path: Path) -> None:
    """Else the test before this one could pass without a fault."""
    found = dict.fromkeys(MENDED, 0)
    for name, harm in MENDED.items():
        for seed in range(4):
            study = with_free_pages(template.copy(tmp_path / f"{name}-{seed}"))
            harm(study, Random(seed))
            found[name] += bool(complaint(study.path))
    assert min(found.values()) > 0, found


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("tree", ["events", "blobs"])
def test_damaged_events_are_named_and_all_other_runs_can_be_taken_over(
    template: Study, tmp_path: Path, tree: str, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        spoil_tree(tree)(study, random)
        if not (said := complaint(study.path)):
            assert_whole(study)  # it hit what nobody reads
            continue
        if workspace_run_is_hit(study):  # nothing says then what was redacted: only a copy helps
            assert "restore the file from a copy" in said
            shutil.copy(template.log, study.log)
            rebuilt(study)
            assert_whole(study)
            continue
        with SQLiteEventStore(study.log, read_only=True) as store:
            named = {problem.run for problem in store.verify().problems}
            runs = {run.run_id for run in store.runs()}
        assert named
        assert re.search("damaged|missing|edited|clock", said), said
        with pytest.raises(StoreError, match="sag verify") if broken(study) else told_later():
            rebuilt(study)
        taken = saved(study, tmp_path / f"new-{random.random()}")
        assert {run for run, _ in taken} - {"@workspace"} >= runs - with_forks(study, named)
        assert all(study.said[key] == digest for key, digest in taken.items() if key[0] in runs)
        shutil.copy(template.log, study.log)  # the copy that the message speaks of
        rebuilt(study)  # the warehouse may hold what could not be read
        assert_whole(study)


def workspace_run_is_hit(study: Study) -> bool:
    with SQLiteEventStore(study.log, read_only=True) as store:
        return bool(words_of(store.verify) or words_of(lambda: list(store.read("@workspace"))))


def broken(study: Study) -> bool:
    """Whether SQLite itself finds fault, and not digests alone."""
    with closing(sqlite3.connect(study.log)) as db:
        return file_fault(db) != ""


class told_later:
    """Nothing to raise: texts were changed, and `sag verify` says in which runs."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def with_forks(study: Study, named: set[str]) -> set[str]:
    forks = {row[0]: row[1] for row in lineage_of(study)}
    return named | {run for run, parent in forks.items() if parent in named}


def lineage_of(study: Study) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(study.log)) as db:
        query = "SELECT r.uid, p.uid FROM runs r JOIN runs p ON p.run = r.parent"
        return db.execute(query).fetchall()


def saved(study: Study, new: Path) -> dict[tuple[str, int], str]:
    """Merge a damaged workspace into a new one."""
    with sag.open(new) as ws:
        ws.merge(study.path)
        assert ws.verify().ok
        return in_order(ws)


# ---- the whole file


def no_header(study: Study, random: Random) -> None:
    data = study.log.read_bytes()
    study.log.write_bytes(random.randbytes(100) + data[100:])


def half(study: Study, random: Random) -> None:
    data = study.log.read_bytes()
    pages = len(data) // PAGE
    study.log.write_bytes(data[: random.randrange(1, pages // 2) * PAGE])


def other_program(study: Study, random: Random) -> None:
    study.log.unlink()
    with closing(sqlite3.connect(study.log)) as db:
        db.execute("CREATE TABLE moz_places (url)")


def zeros(study: Study, random: Random) -> None:
    study.log.write_bytes(bytes(study.log.stat().st_size))


LOST: dict[str, tuple[Harm, str]] = {
    "header": (no_header, "is not a log .*restored from a copy"),
    "cut in half": (half, "damaged"),
    "empty": (lambda study, random: study.log.write_bytes(b""), "is empty .*from a copy"),
    "gone": (lambda study, random: study.log.unlink(), "is gone .*from a copy|no workspace at"),
    "zeros": (zeros, "not a log|damaged"),
    "another program's": (other_program, "another program's database"),
}


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize(("harm", "words"), LOST.values(), ids=LOST.keys())
def test_a_log_that_is_no_longer_one_is_refused_and_the_warehouse_kept(
    template: Study, tmp_path: Path, harm: Harm, words: str, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        harm(study, random)
        before = study.log.read_bytes() if study.log.exists() else None
        files = sorted(path.name for path in study.warehouse.rglob("*.parquet"))
        for said in (complaint(study.path), words_of(lambda study=study: rebuilt_or_made(study))):
            assert re.search(words, said), said
        assert (study.log.read_bytes() if study.log.exists() else None) == before
        assert sorted(path.name for path in study.warehouse.rglob("*.parquet")) == files
        shutil.copy(template.log, study.log)
        assert_whole(study)


def rebuilt_or_made(study: Study) -> None:
    """As a notebook does, which would make a workspace where there is none."""
    with sag.open(study.path) as ws:
        ws.rebuild()


def test_another_workspaces_log_is_a_log_and_gets_a_warehouse_of_its_own(
    template: Study, tmp_path: Path
) -> None:
    study = template.copy(tmp_path / "study")
    other = build(tmp_path / "other")
    shutil.copy(other.log, study.log)
    assert_whole(at_rest_of(study.path, other))


def test_the_records_of_this_study_can_be_added_again(template: Study, tmp_path: Path) -> None:
    """After a loss that no copy mends: what was read from files is read from them again."""
    with sag.open(tmp_path / "new") as ws:
        ids = ws.add([record(number) for number in range(12)])
        here = in_order(ws)
    runs = {run for run, _ in template.said}
    assert set(ids) <= runs
    assert all(template.said[key] == digest for key, digest in here.items() if key[0] in runs)
