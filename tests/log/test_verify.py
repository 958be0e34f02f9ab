"""Verification names the first bad position and what kind of harm was done there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from sag_research.log import Problem, SQLiteEventStore, VerifyReport
from sag_research.log import _canonical as canonical
from sag_research.model import Event, Run

LONG = "a long text of a step, kept beside the event " * 30
OTHER = "another long text, of which the log knows nothing " * 30

# A log with `parent` at positions 1..6, `child` forked from it at 4, `grandchild` from the child
# at 3 (inside what the child inherited), and `apart`.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.sqlite"
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="parent", goal="g"))
        for number in range(2, 7):
            store.append(
                Event(
                    run_id="parent", type="agent.step", actor=f"agent-{number}", cause=number - 1,
                    frame="main", ts=1_700_000_000.0 + number,
                    payload={"n": number, "text": f"{number} {LONG}", "seconds": 0.5, "started": 1},
                )
            )  # fmt: skip
        store.fork("parent", at=4, run_id="child", intervention={"hint": LONG})
        store.append(Event(run_id="child", type="note.taken", payload={"n": 6}))
        store.fork("child", at=3, run_id="grandchild")
        store.create_run(Run(run_id="apart"))
        store.append(Event(run_id="apart", type="note.taken", payload={"text": LONG}))
        assert store.verify().to_dict() == {"ok": True, "runs": 4, "problems": []}
    return path


def tamper(path: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """Change the file as someone without this package would."""
    with closing(sqlite3.connect(path)) as db:
        for statement, parameters in statements:
            assert db.execute(statement, parameters).rowcount > 0, f"no row: {statement}"
        db.commit()


def verify(path: Path, run_id: str | None = None) -> VerifyReport:
    with SQLiteEventStore(path, read_only=True) as store:
        return store.verify(run_id)


AT_3 = "WHERE pos = 3 AND run = (SELECT run FROM runs WHERE uid = 'parent')"
BLOB_3 = canonical.blob_digest(f"3 {LONG}".encode())


@pytest.mark.parametrize(
    ("statement", "parameters", "problem"),
    [
        (f"UPDATE events SET body = cast(body || ' ' AS BLOB) {AT_3}", (), "edited: the body"),
        (f"UPDATE events SET body = x'7b' {AT_3}", (), "edited: the body"),
        (f"UPDATE events SET body_digest = zeroblob(32) {AT_3}", (), "edited: the body"),
        (f"UPDATE events SET type = type + 1 {AT_3}", (), "edited or reordered"),
        (f"UPDATE events SET type = 999 {AT_3}", (), "edited or reordered"),
        (f"UPDATE events SET actor = actor + 1 {AT_3}", (), "edited or reordered"),
        (f"UPDATE events SET cause = 1 {AT_3}", (), "edited or reordered"),
        (f"UPDATE events SET cause = NULL {AT_3}", (), "edited or reordered"),
        (f"UPDATE events SET digest = zeroblob(32) {AT_3}", (), "edited or reordered"),
        (f"UPDATE events SET ts_ns = ts_ns + 1 {AT_3}", (), "clock"),
        (f"UPDATE events SET started = 1.5 {AT_3}", (), "clock"),
        (f"UPDATE events SET seconds = NULL {AT_3}", (), "clock"),
        (f"UPDATE events SET frame = type {AT_3}", (), "clock"),
        (f"UPDATE events SET frame = NULL {AT_3}", (), "clock"),
        (f"UPDATE events SET seal = zeroblob(32) {AT_3}", (), "clock"),
        (f"DELETE FROM events {AT_3}", (), "missing: the next event stands at position 4"),
        (f"UPDATE events SET pos = 99 {AT_3}", (), "missing: the next event stands at position 4"),
        (
            "UPDATE blobs SET data = ? WHERE digest = ?",
            (zstandard.compress(OTHER.encode()), BLOB_3),
            "edited: a text does not fit",
        ),
        (
            "UPDATE blobs SET data = ?, enc = 0 WHERE digest = ?",
            (OTHER.encode(), BLOB_3),
            "edited: a text does not fit",
        ),
        (
            "UPDATE blobs SET data = x'00' WHERE digest = ?",
            (BLOB_3,),
            "edited: a text of the event is damaged",
        ),
        ("DELETE FROM blobs WHERE digest = ?", (BLOB_3,), "missing: a text"),
        ("UPDATE blobs SET data = NULL WHERE digest = ?", (BLOB_3,), "missing: a text"),
    ],
)
def test_the_first_bad_position_is_named(
    path: Path, statement: str, parameters: tuple[Any, ...], problem: str
) -> None:
    tamper(path, (statement, parameters))
    report = verify(path)
    assert not report.ok
    assert report.runs == 4
    first = report.problems[0]
    assert (first.run, first.position) == ("parent", 3)
    assert first.problem.startswith(problem)
    assert {p.run for p in report.problems} <= {"parent", "grandchild"}  # it forks at 3
    assert verify(path, "apart").ok


def test_swapped_events_are_found_at_the_first(path: Path) -> None:
    where = "AND run = (SELECT run FROM runs WHERE uid = 'parent')"
    tamper(
        path,
        (f"UPDATE events SET pos = 100 WHERE pos = 3 {where}", ()),
        (f"UPDATE events SET pos = 3, cause = 2 WHERE pos = 5 {where}", ()),
        (f"UPDATE events SET pos = 5, cause = 4 WHERE pos = 100 {where}", ()),
    )
    first = verify(path).problems[0]
    assert (first.run, first.position) == ("parent", 3)
    assert first.problem.startswith("edited or reordered")


def test_every_column_of_every_event_is_guarded(path: Path) -> None:
    """One change at a time, undone afterwards: nothing passes."""
    changes = {
        "pos": "pos + 100", "type": "type + 1", "actor": "actor + 1",
        "cause": "1 - coalesce(cause, 0)", "frame": "coalesce(frame, 0) + 1",
        "ts_ns": "ts_ns + 1", "started": "coalesce(started, 0) + 1",
        "seconds": "coalesce(seconds, 0) + 1", "body": "cast(body || ' ' AS BLOB)",
        "body_digest": "zeroblob(32)", "digest": "zeroblob(32)", "seal": "zeroblob(32)",
    }  # fmt: skip
    with SQLiteEventStore(path) as store, closing(sqlite3.connect(path)) as db:
        columns = {row[1] for row in db.execute("PRAGMA table_info(events)")}
        assert columns == {"seq", "run"} | set(changes)
        db.execute("PRAGMA ignore_check_constraints = ON")
        for seq, run_id in db.execute(
            "SELECT seq, uid FROM events JOIN runs USING (run)"
        ).fetchall():
            for column, change in changes.items():
                old = db.execute(f"SELECT {column} FROM events WHERE seq = ?", (seq,)).fetchone()[0]
                db.execute(f"UPDATE events SET {column} = {change} WHERE seq = ?", (seq,))
                db.commit()
                report = store.verify()
                assert run_id in {p.run for p in report.problems}, (seq, column)
                assert not store.verify(run_id).ok, (seq, column)
                db.execute(f"UPDATE events SET {column} = ? WHERE seq = ?", (old, seq))
                db.commit()
        assert store.verify().ok


def rewritten(path: Path, run_id: str, change: Callable[[int, bytes], bytes]) -> None:
    """Rewrite a root run with every digest and seal made to fit, as a careful forger would."""
    with closing(sqlite3.connect(path)) as db:
        digest = seal = canonical.GENESIS
        rows = db.execute(
            """SELECT e.seq, e.pos, e.body, t.name, a.name, e.cause, e.ts_ns, e.started, e.seconds,
                      f.name
               FROM events e JOIN names t ON t.id = e.type JOIN names a ON a.id = e.actor
                    LEFT JOIN names f ON f.id = e.frame JOIN runs USING (run)
               WHERE uid = ? ORDER BY pos""",
            (run_id,),
        ).fetchall()
        for seq, pos, body, type_, actor, cause, ts_ns, started, seconds, frame in rows:
            new = change(pos, body)
            body_digest = canonical.body_digest(new)
            digest = canonical.chain(digest, type_, actor, cause, body_digest)
            seal = canonical.seal(seal, digest, (ts_ns, started, seconds, frame))
            db.execute(
                "UPDATE events SET body = ?, body_digest = ?, digest = ?, seal = ? WHERE seq = ?",
                (new, body_digest, digest, seal, seq),
            )
        db.commit()


def test_a_rewritten_prefix_is_found_by_its_forks(path: Path) -> None:
    rewritten(path, "parent", lambda pos, body: body)
    assert verify(path).ok  # the forger of this test knows the chain
    rewritten(
        path, "parent", lambda pos, body: body.replace(b'"n":2', b'"n":9') if pos == 2 else body
    )
    report = verify(path)
    assert report.problems == (
        Problem("child", 4, "edited: the parent's prefix has changed"),
        Problem("grandchild", 3, "edited: the parent's prefix has changed"),
    )
    assert not verify(path, "child").ok
    assert verify(path, "parent").ok


def test_what_a_parent_did_after_the_fork_is_not_the_childs_history(path: Path) -> None:
    tamper(path, ("UPDATE events SET body = x'7b7d' WHERE pos = 5 AND run = 1", ()))
    assert [(p.run, p.position) for p in verify(path).problems] == [("parent", 5)]
    assert not verify(path, "parent").ok
    assert verify(path, "child").ok
    assert verify(path, "grandchild").ok


def test_a_fork_point_that_is_gone_is_missing(path: Path) -> None:
    tamper(path, ("DELETE FROM events WHERE pos >= 4 AND run = 1", ()))
    report = verify(path, "child")
    assert [(p.run, p.position, p.problem) for p in report.problems] == [
        ("child", 4, "missing: the parent's event at the fork position is gone")
    ]
    assert verify(path, "grandchild").ok


def test_a_fork_without_its_first_event_is_half_a_fork(path: Path) -> None:
    tamper(path, ("DELETE FROM events WHERE run = (SELECT run FROM runs WHERE uid = 'child')", ()))
    assert verify(path).problems == (
        Problem("child", 5, "missing: the run has no event of its own"),
    )


def test_events_without_a_run_are_found(path: Path) -> None:
    tamper(path, ("DELETE FROM runs WHERE uid = 'apart'", ()))
    report = verify(path)
    assert [(p.position, p.problem) for p in report.problems] == [
        (1, "missing: the events' run is gone")
    ]


def test_a_renamed_type_is_found_wherever_it_stands(path: Path) -> None:
    tamper(path, ("UPDATE names SET name = 'agent.stop' WHERE name = 'agent.step'", ()))
    assert [(p.run, p.position) for p in verify(path).problems] == [("parent", 2)]
    tamper(path, ("DELETE FROM names WHERE name = 'run.created'", ()))
    assert ("apart", 1) in [(p.run, p.position) for p in verify(path).problems]


def test_a_text_of_several_runs_is_missed_in_each(path: Path) -> None:
    digest = canonical.blob_digest(LONG.encode())
    tamper(path, ("DELETE FROM blobs WHERE digest = ?", (digest,)))
    found = [(p.run, p.position, p.problem[:7]) for p in verify(path).problems]
    assert found == [("child", 5, "missing"), ("apart", 2, "missing")]


@pytest.mark.parametrize("position", [1, 99])
def test_a_run_that_names_itself_as_parent_does_not_hang(path: Path, position: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("UPDATE runs SET parent = run, fork_pos = ? WHERE uid = 'apart'", (position,))
        db.commit()
    assert not verify(path).ok
    assert not verify(path, "apart").ok


def test_a_body_that_nobody_redacted_is_missing(path: Path) -> None:
    tamper(path, (f"UPDATE events SET body = NULL {AT_3}", ()))
    found = [(p.run, p.position, p.problem) for p in verify(path).problems]
    assert found == [("parent", 3, "missing: the body is gone")]
    with SQLiteEventStore(path) as store:
        payload = next(store.read("parent", lo=3)).payload
    assert payload == {
        "unreadable": "missing: the body is gone", "started": 1.0, "seconds": 0.5,
    }  # fmt: skip


def test_a_cut_tail_shows_in_the_head_alone(path: Path) -> None:
    """A chain cannot know what came after its last link; hence the head is printed and cited."""
    with SQLiteEventStore(path) as store:
        before = store.head("parent")
    tamper(path, ("DELETE FROM events WHERE pos = 6 AND run = 1", ()))
    with SQLiteEventStore(path) as store:
        assert store.verify().ok
        assert store.head("parent") != before


def test_a_report_is_plain_data(path: Path) -> None:
    tamper(path, (f"UPDATE events SET ts_ns = 0 {AT_3}", ()))
    report = verify(path, "parent")
    assert report.to_dict() == {
        "ok": False,
        "runs": 1,
        "problems": [
            {
                "run": "parent",
                "position": 3,
                "problem": "clock: a time or frame was changed after the event was written",
            }
        ],
    }
    assert repr(report) == "VerifyReport(NOT ok, 1 runs, 1 problems)"
    assert repr(verify(path, "apart")) == "VerifyReport(ok, 1 runs, 0 problems)"
