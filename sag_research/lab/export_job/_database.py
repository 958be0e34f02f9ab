"""The export service's own database: jobs, receipts, and every request it was sent."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sag_research.errors import StoreError
from sag_research.lab.export_job._scenario import Job, Scenario

__all__ = ["Database", "operation_key"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs(
    job_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, scenario TEXT NOT NULL, state TEXT NOT NULL,
    error TEXT NOT NULL, quantity INTEGER NOT NULL, unit_cents INTEGER NOT NULL,
    retries INTEGER NOT NULL, log TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS receipts(
    key TEXT PRIMARY KEY, job_id TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS requests(
    n INTEGER PRIMARY KEY, method TEXT NOT NULL, path TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS faults(
    n INTEGER PRIMARY KEY, route TEXT NOT NULL, kind TEXT NOT NULL, times INTEGER NOT NULL) STRICT;
"""
_TABLES = ("jobs", "receipts", "requests", "faults")


def operation_key(job_id: str, tenant: str) -> str:
    """Return the one key under which this tenant's retry of this job may be asked for.

    Examples
    --------
    >>> operation_key("JOB-204", "acme") == operation_key("JOB-204", "rival")
    False
    """
    return hashlib.sha256(f"retry\n{tenant}\n{job_id}".encode()).hexdigest()[:24]


class Database:
    """The tables, in one SQLite file that several processes may read.

    Parameters
    ----------
    path : pathlib.Path
    kept : bool
        Whether it must outlive a crash of the machine; a crash of its process it outlives anyway.

    Notes
    -----
    Every statement opens and closes its own connection: the service, the laboratory and a test
    that counts requests are different threads or processes.
    """

    def __init__(self, path: Path, *, kept: bool = True) -> None:
        self.path, self._kept = path, kept
        try:
            with closing(self._connect()) as db:
                db.execute("PRAGMA journal_mode=WAL")
                db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be a service's database", why=str(error)) from None

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        db.row_factory = sqlite3.Row
        if not self._kept:
            db.execute("PRAGMA synchronous=OFF")
        return db

    def reset(self, scenario: Scenario, job: Job) -> None:
        """Forget everything and begin a scenario."""
        with closing(self._connect()) as db, db:
            db.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - names from a constant
            db.execute(
                "INSERT INTO jobs VALUES(?,?,?,?,?,?,?,0,?)",
                (job.job_id, job.tenant, scenario.name, scenario.state, scenario.error,
                 job.quantity, job.unit_cents, json.dumps(scenario.lines(job))),
            )  # fmt: skip

    def note_request(self, method: str, path: str) -> None:
        """Write down that a request came in."""
        with closing(self._connect()) as db:
            db.execute("INSERT INTO requests(method, path) VALUES(?,?)", (method, path))

    def requests(self) -> list[tuple[str, str]]:
        """Return every request's method and path, in order."""
        with closing(self._connect()) as db:
            rows = db.execute("SELECT method, path FROM requests ORDER BY n").fetchall()
        return [(row["method"], row["path"]) for row in rows]

    def job(self, job_id: str, tenant: str) -> dict[str, Any] | None:
        """Return a tenant's job, or ``None``."""
        with closing(self._connect()) as db:
            row = db.execute(
                "SELECT * FROM jobs WHERE job_id = ? AND tenant = ?", (job_id, tenant)
            ).fetchone()
        return None if row is None else {**dict(row), "log": json.loads(row["log"])}

    def receipt(self, key: str) -> dict[str, Any] | None:
        """Return what was done under a key, or ``None``."""
        with closing(self._connect()) as db:
            row = db.execute("SELECT body FROM receipts WHERE key = ?", (key,)).fetchone()
        return None if row is None else dict(json.loads(row["body"]))

    def retry(self, job_id: str, key: str) -> dict[str, Any]:
        """Carry out a retry and write its receipt in one transaction, at most once a key."""
        with closing(self._connect()) as db, db:
            db.execute("BEGIN IMMEDIATE")
            kept = db.execute("SELECT body FROM receipts WHERE key = ?", (key,)).fetchone()
            if kept is not None:
                return dict(json.loads(kept["body"]))
            job = db.execute("SELECT * FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
            lines = [
                *json.loads(job["log"]),
                f"export {job_id} retried",
                f"export {job_id} written",
            ]
            db.execute(
                "UPDATE jobs SET state='completed', error='', retries=retries+1, log=? "
                "WHERE job_id=?",
                (json.dumps(lines), job_id),
            )
            receipt = {"jobId": job_id, "key": key, "state": "completed", "effect": True}
            db.execute("INSERT INTO receipts VALUES(?,?,?)", (key, job_id, json.dumps(receipt)))
        return receipt

    def add_fault(self, route: str, kind: str, times: int) -> None:
        """Let a route misbehave so many times."""
        with closing(self._connect()) as db:
            db.execute("INSERT INTO faults(route, kind, times) VALUES(?,?,?)", (route, kind, times))

    def take_fault(self, route: str) -> str:
        """Return how a route is to misbehave now, ``""`` for not at all, and count it down."""
        with closing(self._connect()) as db, db:
            db.execute("BEGIN IMMEDIATE")
            row = db.execute(
                "SELECT n, kind FROM faults WHERE route = ? AND times > 0 ORDER BY n LIMIT 1",
                (route,),
            ).fetchone()
            if row is None:
                return ""
            db.execute("UPDATE faults SET times = times - 1 WHERE n = ?", (row["n"],))
        return str(row["kind"])

    def dump(self) -> dict[str, list[list[Any]]]:
        """Return all rows of all tables as plain JSON data."""
        with closing(self._connect()) as db, db:
            db.execute("BEGIN")
            return {
                table: [list(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY 1")]  # noqa: S608
                for table in _TABLES
            }

    def load(self, tables: dict[str, list[list[Any]]]) -> None:
        """Make all tables what :meth:`dump` returned."""
        with closing(self._connect()) as db, db:
            db.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                db.execute(f"DELETE FROM {table}")  # noqa: S608
                for row in tables[table]:
                    marks = ",".join("?" * len(row))
                    db.execute(f"INSERT INTO {table} VALUES({marks})", row)
