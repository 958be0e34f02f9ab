"""What recall costs over many runs: built from the views, kept up to date, and asked.

    python benchmarks/memory.py [--quick] [--rounds 200]

300,000 runs with 10 M mentions of 50,000 entities, drawn by Zipf's law, lie in DuckDB under the
names of the warehouse's views. Built once, then: recall by eight names that a run met (table and
shared names, not the graph), and after each tenth the same question as SQL over the mentions,
counted per run (what SAG's rule asks), as DuckDB answers it. Then 1,000 runs more are taken in, and
the answers compared with those of an index that is built anew. Times are wall clock; of recall,
which uses one thread, also processor time, which says what it costs on a busy machine. Memory is
that of the postings and the process's peak, DuckDB's tables included.

``--quick``: a tenth of everything. Results: ``benchmarks/results/memory.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sqlite3
import statistics
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from sag_research.bloom import RecallIndex, recall

RESULTS = Path(__file__).resolve().parent / "results"
RUNS, MENTIONS, ENTITIES, REPOS = 300_000, 10_000_000, 50_000, 400
ASKED, K, ADDED, CHECKED, SQL_EVERY = 8, 5, 1_000, 25, 10
TARGET_MS = 5.0

VIEWS = """
CREATE TABLE runs AS
SELECT 'task-' || (i // 4) || '~' || i AS run_id, i + 1 AS seq, 'task-' || (i // 4) AS task_id,
       CASE WHEN hash(i, 7) % 5 < 2 THEN 'success' WHEN hash(i, 7) % 5 < 4 THEN 'failure'
            ELSE 'unknown' END AS outcome,
       30::BIGINT AS n_steps, NULL::VARCHAR AS parent_id, NULL::VARCHAR AS copy_of,
       lpad(to_hex(hash(i)), 16, '0') AS digest, false AS hidden, 'agent' AS kind
FROM range($n) t(i);
CREATE TABLE steps (run_id VARCHAR, position BIGINT, step BIGINT, inherited BOOLEAN);
CREATE TABLE events AS SELECT run_id, seq, 'run.created' AS type, '{}'::JSON AS body FROM runs;
CREATE TABLE mentions (run_id VARCHAR, position BIGINT, step BIGINT, kind VARCHAR, scope VARCHAR,
                       name VARCHAR);
"""
FILL = """
INSERT INTO mentions
SELECT 'task-' || (run // 4) || '~' || run, step + 2, step, 'File',
       CASE WHEN entity % 10 < 3 THEN '' ELSE 'repo-' || (entity % $repos) END, 'file-' || entity
FROM sag_mentions
"""
BY_SQL = """
SELECT m.run_id, count(DISTINCT m.name) AS shared
FROM mentions m JOIN runs r ON r.run_id = m.run_id
WHERE m.name IN (SELECT unnest($names)) AND r.outcome = 'success'
GROUP BY m.run_id HAVING shared >= 2 ORDER BY shared DESC, m.run_id LIMIT 5
"""


class Answer:
    """A DuckDB answer in the shape that recall reads."""

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        self._relation = relation

    def arrow(self) -> Any:
        """Give it as a table."""
        return self._relation.to_arrow_table()


class Log:
    """Says how long the log is, by the queries that the event store asks."""

    def __init__(self, n: int) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, digest BLOB)")
        self.grow(1, n)

    def grow(self, first: int, last: int) -> None:
        """Add events of these numbers."""
        rows = ((seq, seq.to_bytes(32)) for seq in range(first, last + 1))
        self._db.executemany("INSERT INTO events VALUES (?, ?)", rows)

    def last_seq(self) -> int:
        """Give the number of the last event."""
        return int(self._db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def digest_at(self, seq: int) -> Any:
        """Give the digest of the event of a number."""
        return self._db.execute("SELECT digest FROM events WHERE seq = ?", (seq,)).fetchone()


def database(runs: int, mentions: int, seed: int) -> duckdb.DuckDBPyConnection:
    """Fill tables of the views' names."""
    connection = duckdb.connect()
    connection.execute(VIEWS.replace("$n", str(runs)))
    rng = np.random.default_rng(seed)
    for first in range(0, mentions, 1_000_000):
        insert(connection, rng, 0, runs, min(1_000_000, mentions - first))
    return connection


def insert(connection: Any, rng: Any, low: int, high: int, n: int) -> None:
    """Add mentions to the runs of these numbers; an entity's popularity follows Zipf's law."""
    import pyarrow as pa

    entity = (rng.zipf(1.2, n) * 7_919 + rng.integers(0, 30, n)) % ENTITIES
    columns = {"run": rng.integers(low, high, n), "step": rng.integers(0, 30, n), "entity": entity}
    sag_mentions = pa.table(columns)  # noqa: F841  # DuckDB finds it by its name
    connection.execute(FILL.replace("$repos", str(REPOS)))


def add_runs(connection: Any, runs: int, seed: int) -> None:
    """Add runs at the end of the log."""
    connection.execute(
        f"""INSERT INTO runs SELECT 'task-' || (i // 4) || '~' || i, i + 1, 'task-' || (i // 4),
            'success', 30, NULL, NULL, lpad(to_hex(hash(i)), 16, '0'), false, 'agent'
            FROM range({runs}, {runs + ADDED}) t(i)"""  # noqa: S608  # numbers of our own
    )
    connection.execute(
        f"INSERT INTO events SELECT run_id, seq, 'run.created', '{{}}' FROM runs WHERE seq > {runs}"  # noqa: S608
    )
    insert(connection, np.random.default_rng(seed), runs, runs + ADDED, 33 * ADDED)


def questions(connection: Any, n: int) -> list[list[str]]:
    """Names that real runs met, eight of each."""
    rows = connection.execute(
        """SELECT run_id, list(DISTINCT name)[:$asked] FROM mentions
           WHERE run_id IN (SELECT run_id FROM runs USING SAMPLE reservoir($n ROWS) REPEATABLE (3))
           GROUP BY run_id ORDER BY run_id""".replace("$asked", str(ASKED)).replace("$n", str(n))
    ).fetchall()
    return [names for _, names in rows if len(names) == ASKED]


def spread(times: list[float]) -> dict[str, float]:
    """Median and tail, in milliseconds."""
    p50, p95, p99 = np.percentile(times, (50, 95, 99)) * 1e3
    return {
        "p50_ms": round(float(p50), 3),
        "p95_ms": round(float(p95), 3),
        "p99_ms": round(float(p99), 3),
    }


def answers(index: RecallIndex, asked: list[list[str]]) -> list[Any]:
    """What recall says to some questions."""
    return [recall(index, names, k=K).found for names in asked]


def measure(runs: int, mentions: int, rounds: int) -> dict[str, Any]:
    """Build, ask in turns, keep up, compare."""
    connection = database(runs, mentions, seed=1)

    def query(sql: str, parameters: Any) -> Answer:
        return Answer(connection.sql(sql, params=parameters or None))

    asked = questions(connection, rounds)
    begun = time.perf_counter()
    log = Log(runs)
    index = RecallIndex(query, log)
    recall(index, asked[0], k=K)
    built = time.perf_counter() - begun
    ours, theirs, busy = [], [], []
    for number, names in enumerate(asked):
        begun, used = time.perf_counter(), time.thread_time()
        recall(index, names, k=K)
        ours.append(time.perf_counter() - begun)
        busy.append(time.thread_time() - used)
        if number % SQL_EVERY == 0:
            begun = time.perf_counter()
            connection.execute(BY_SQL, {"names": names}).fetchall()
            theirs.append((time.perf_counter() - begun, ours[-1]))
    postings = index.channel("entities")
    add_runs(connection, runs, seed=2)
    log.grow(runs + 1, runs + ADDED)
    begun = time.perf_counter()
    recall(index, asked[0], k=K)
    kept_up = time.perf_counter() - begun
    anew = RecallIndex(query, log)
    equal = answers(index, asked[:CHECKED]) == answers(anew, asked[:CHECKED])
    ratio = statistics.median(sql / own for sql, own in theirs)
    found = spread(ours)
    return {
        "runs": runs, "mentions": mentions, "pairs": len(postings), "entities": len(postings.keys),
        "questions": len(asked), "names_each": ASKED,
        "build_s": round(built, 2), "recall": found,
        "recall_processor": spread(busy), "sql": spread([sql for sql, _ in theirs]),
        "sql_over_recall": round(ratio, 1),
        "target_ms": TARGET_MS, "met": bool(spread(busy)["p50_ms"] <= TARGET_MS),
        "met_by_wall_clock": bool(found["p50_ms"] <= TARGET_MS), "load": os.getloadavg()[0],
        "keep_up_with_1000_runs_s": round(kept_up, 2), "same_as_built_anew": equal,
        "postings_mb": round(index.nbytes / 1e6, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
    }  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--rounds", type=int, default=200, help="questions")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    part = 10 if options.quick else 1
    result: dict[str, Any] = {
        "python": platform.python_version(), "duckdb": duckdb.__version__, "quick": options.quick,
        **measure(RUNS // part, MENTIONS // part, options.rounds),
    }  # fmt: skip
    assert result["same_as_built_anew"], "kept up and built anew differ"
    print(json.dumps(result, indent=1))
    name = "memory-quick.json" if options.quick else "memory.json"
    path = options.output or RESULTS / name
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
