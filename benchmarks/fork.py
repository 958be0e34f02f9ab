"""What a fork costs against the length of the run, and what reading through forks costs.

    python benchmarks/fork.py [--rounds 7] [--quick]

At each length, in turns: our fork; one commit of the same file (a fork is one, so this is the
floor); a fork that copies the rows in one SQL statement; and ActiveGraph's (``pip install
--no-deps activegraph``), left out where it is not installed and, as it takes minutes, for runs of
more than 10,000 events. All wait for the disk (``synchronous=FULL``). Bytes are the growth of the
file over 100 forks. Reading: a run against a chain of 64 forks that holds as many events. Ratios
are medians of the rounds' ratios. Written to ``benchmarks/results/fork.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run

RESULT = Path(__file__).resolve().parent / "results" / "fork.json"
LENGTHS = (100, 1_000, 10_000, 100_000)
PEER_LENGTH = 10_000
FORKS = 100
CHAIN = 64
MILLI = 1e3


def events(run_id: str, count: int, start: int = 0) -> list[Event]:
    """Steps of about 0.4 KB."""
    text = random.Random(start)
    words = [f"word{n}" for n in range(500)]
    return [
        Event(
            run_id=run_id,
            type="agent.step",
            payload={"n": start + n, "observation": " ".join(text.choices(words, k=45))},
        )
        for n in range(count)
    ]


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def copy_rows(db: sqlite3.Connection, run: int) -> None:
    """Fork as others do: a row for the child, and all events again."""
    db.execute("BEGIN IMMEDIATE")
    [new] = db.execute("SELECT max(run) + 1 FROM runs").fetchone()
    db.execute(
        "INSERT INTO runs (run, uid, root, created_ns) VALUES (?, ?, ?, 0)",
        (new, f"copy{new}", new),
    )
    db.execute(
        """INSERT INTO events (run, pos, type, actor, cause, frame, ts_ns, started, seconds,
                               body, body_digest, digest, seal)
           SELECT ?, pos, type, actor, cause, frame, ts_ns, started, seconds,
                  body, body_digest, digest, seal
           FROM events WHERE run = ? ORDER BY pos""",
        (new, run),
    )
    db.execute("COMMIT")


class Theirs:
    """A run of ActiveGraph's, to be forked at its last event."""

    def __init__(self, path: Path, count: int) -> None:
        from activegraph.core.event import Event as TheirEvent
        from activegraph.store.sqlite import SQLiteEventStore as Store

        self.path, self.last, self.made = str(path), f"evt_{count - 1}", 0
        self.store = Store(self.path, run_id="r")
        self.store.upsert_run(created_at="2026-01-01T00:00:00Z")
        self.store._conn.execute("PRAGMA synchronous=OFF")  # while it is filled
        for n, event in enumerate(events("r", count)):
            self.store.append(TheirEvent(id=f"evt_{n}", type=event.type, payload=event.payload))

    def fork(self) -> None:
        """Copy the run, as shipped (``synchronous=NORMAL``)."""
        self.made += 1
        self.store.fork_run(
            self.path, parent_run_id="r", new_run_id=f"f{self.made}", at_event_id=self.last,
            label=None, created_at="2026-01-01T00:00:00Z",
        )  # fmt: skip


def at_length(count: int, rounds: int, peer: bool) -> dict[str, Any]:
    """Forks of a run of so many events, at its last one."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "log.sqlite"
        with SQLiteEventStore(path, synchronous="FULL") as store:
            store.create_run(Run(run_id="r"))
            store.append_many(events("r", count - 1))
            store.create_run(Run(run_id="other"))
            store.fork("r")
            one = Event(run_id="other", type="note.taken", payload={"n": 1})
            copies = sqlite3.connect(path, isolation_level=None)
            copies.execute("PRAGMA synchronous=FULL")
            work: dict[str, Callable[[], object]] = {
                "ours": lambda: store.fork("r", at=count),
                "commit": lambda: store.append(one),
                "copy": lambda: copy_rows(copies, 1),
            }
            if peer and count <= PEER_LENGTH:
                work["activegraph"] = Theirs(Path(name) / "theirs.sqlite", count).fork
            repeats = {"ours": 9, "commit": 9}
            for _ in range(rounds):
                for who, step in work.items():
                    took = [timed(step) for _ in range(repeats.get(who, 1))]
                    seconds.setdefault(who, []).append(statistics.median(took))
            copies.close()
            size = grown(store, count)
    return {
        "events": count,
        "ms": {who: round(statistics.median(s) * MILLI, 3) for who, s in seconds.items()},
        "ours_to_commit": ratio(seconds["ours"], seconds["commit"]),
        "times_faster": {
            who: ratio(s, seconds["ours"]) for who, s in seconds.items() if who in work_peers(work)
        },
        "bytes_per_fork": size,
    }


def work_peers(work: dict[str, Any]) -> set[str]:
    """Those who copy."""
    return set(work) - {"ours", "commit"}


def ratio(one: list[float], other: list[float]) -> float:
    """Median of the rounds' ratios."""
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 3)


def grown(store: SQLiteEventStore, at: int) -> int:
    """Bytes that a fork adds to the file."""

    def used() -> int:
        pages, free, size = (
            int(store._db.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    before = used()
    for _ in range(FORKS):
        store.fork("r", at=at)
    return round((used() - before) / FORKS)


def chain(count: int, rounds: int) -> dict[str, Any]:
    """Read a run, and a chain of forks with as many events."""
    with (
        tempfile.TemporaryDirectory() as name,
        SQLiteEventStore(Path(name) / "log.sqlite") as store,
    ):
        store.create_run(Run(run_id="plain"))
        store.append_many(events("plain", count - 1))
        store.create_run(Run(run_id="0"))
        part = count // (CHAIN + 1)
        for n in range(CHAIN + 1):
            if n:
                store.fork(str(n - 1), run_id=str(n))
            left = count - store.head(str(n)).position
            store.append_many(events(str(n), part - 1 if n < CHAIN else left, n))
        rates: dict[str, list[float]] = {"plain": [], str(CHAIN): []}
        for number in range(rounds):
            for run_id in sorted(rates, reverse=number % 2 == 0):
                rates[run_id].append(count / timed(lambda run=run_id: read(store, run, count)))  # type: ignore[misc]
    return {
        "events": count,
        "forks": CHAIN,
        "plain_per_second": round(statistics.median(rates["plain"])),
        "chain_per_second": round(statistics.median(rates[str(CHAIN)])),
        "chain_to_plain": ratio(rates[str(CHAIN)], rates["plain"]),
    }


def read(store: SQLiteEventStore, run_id: str, count: int) -> None:
    """Read a run to its end."""
    found = sum(1 for _ in store.read(run_id))
    if found != count:
        raise RuntimeError(f"{run_id} holds {found} events, not {count}")


def peer_version() -> str | None:
    """Version of ActiveGraph, if it is here."""
    try:
        return version("activegraph")
    except PackageNotFoundError:
        return None


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 events, 3 rounds")
    options = parser.parse_args()
    lengths, rounds = (LENGTHS[:3], 3) if options.quick else (LENGTHS, options.rounds)
    peer = peer_version()
    forks = [at_length(count, rounds, peer is not None) for count in lengths]
    result = {
        "forks": forks,
        "longest_to_shortest": round(forks[-1]["ours_to_commit"] / forks[0]["ours_to_commit"], 3),
        "chain": chain(lengths[-1], rounds),
        "activegraph": peer or "skipped: not installed",
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
    }
    path = RESULT.with_stem("fork-quick") if options.quick else RESULT
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
