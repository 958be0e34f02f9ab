"""What appending and reading cost, beside bare loops over the same rows and other event stores.

    python benchmarks/append.py [--events 20000] [--rounds 7] [--quick]

The bare loop inserts rows that were made before, with the same columns and indexes, through one
prepared statement; it encodes and digests nothing, so it is the floor. ``digested`` is the same
loop with the rows' JSON and digests made on the way: the floor for a log that chains. Peers are
ActiveGraph's store and the recorder of ``eventsourcing`` (``pip install --no-deps activegraph
eventsourcing``), which chain no digests; one that is not installed is left out, and said to be. All
contenders take turns, in an order that changes; a ratio is the median of the rounds' ratios to the
bare loop.

Reading is held against a plain loop too: it selects the same columns, parses the JSON, and fetches
and unpacks the long texts of each page, but puts none where it belongs and makes no events. Written
to ``benchmarks/results/append.json``; absolute figures depend on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import zstandard

from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run

RESULT = Path(__file__).resolve().parent / "results" / "append.json"
BATCH = 1_000
PEERS = ("activegraph", "eventsourcing")

Payload: TypeAlias = dict[str, Any]
Row: TypeAlias = tuple[Any, ...]
Contender: TypeAlias = Callable[[Path, Sequence[Payload], str, int], float]
"""Writes payloads into a new file, so many a commit, and returns seconds."""


def payloads(count: int, seed: int) -> list[Payload]:
    """Steps of an agent of about 0.8 KB; texts are random words, each below a blob's size."""
    text = random.Random(seed)
    words = [f"word{n}" for n in range(500)]

    def said(n: int) -> str:
        return " ".join(text.choices(words, k=n))

    return [
        {
            "thought": said(35),
            "action": f"sed -n {n},{n + 9}p a.py",
            "observation": said(50),
            "n": n,
        }
        for n in range(count)
    ]


def ours(path: Path, given: Sequence[Payload], synchronous: str, batch: int) -> float:
    """Append through the store, digests and all."""
    with SQLiteEventStore(path, synchronous=synchronous) as store:
        store.create_run(Run(run_id="r"))
        started = time.perf_counter()
        if batch == 1:
            for payload in given:
                store.append(Event(run_id="r", type="agent.step", payload=payload))
        for start in range(0, len(given) if batch > 1 else 0, batch):
            store.append_many(
                [
                    Event(run_id="r", type="agent.step", payload=payload)
                    for payload in given[start : start + batch]
                ]
            )
        return time.perf_counter() - started


def insert_all(path: Path, rows: Iterable[Row], synchronous: str, batch: int) -> float:
    """Insert rows into a new log through one prepared statement."""
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r"))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA synchronous={synchronous}")
    insert = f"INSERT INTO events VALUES ({','.join('?' * 14)})"  # noqa: S608 - question marks
    started = time.perf_counter()
    given = iter(rows)
    if batch == 1:
        for row in given:
            db.execute(insert, row)
    while part := list(islice(given, batch)):
        db.execute("BEGIN IMMEDIATE")
        db.executemany(insert, part)
        db.execute("COMMIT")
    seconds = time.perf_counter() - started
    db.close()
    return seconds


def chained(given: Sequence[Payload]) -> Iterator[Row]:
    """Make the store's rows in the fewest operations: one JSON text and three digests each."""
    encoder = msgspec.json.Encoder(order="sorted")
    digest = seal = b""
    for n, payload in enumerate(given, 2):
        body, now = encoder.encode(payload), time.time_ns()
        about = blake2b(body, digest_size=32).digest()
        who = encoder.encode(("agent.step", "agent", None))
        digest = blake2b(digest + about + who, digest_size=32).digest()
        when = encoder.encode((now, None, None, None))
        seal = blake2b(seal + digest + when, digest_size=32).digest()
        yield n, 1, n, 3, 4, None, None, now, None, None, body, about, digest, seal


def bare(path: Path, given: Sequence[Payload], synchronous: str, batch: int) -> float:
    """Insert rows that were made before."""
    return insert_all(path, list(chained(given)), synchronous, batch)


def digested(path: Path, given: Sequence[Payload], synchronous: str, batch: int) -> float:
    """Insert rows that are encoded and chained on the way, and checked for nothing."""
    return insert_all(path, chained(given), synchronous, batch)


def activegraph(path: Path, given: Sequence[Payload], synchronous: str, batch: int) -> float:
    """Append through ActiveGraph's SQLite store; it has no batches."""
    from activegraph.core.event import Event as Theirs
    from activegraph.store.sqlite import SQLiteEventStore as Store

    store = Store(str(path), run_id="r")
    store._conn.execute(f"PRAGMA synchronous={synchronous}")
    started = time.perf_counter()
    for n, payload in enumerate(given):
        store.append(Theirs(id=f"evt_{n}", type="agent.step", payload=payload))
    seconds = time.perf_counter() - started
    store.close()
    return seconds


def eventsourcing(path: Path, given: Sequence[Payload], synchronous: str, batch: int) -> float:
    """Record through the SQLite recorder of ``eventsourcing``, JSON written by its user."""
    from eventsourcing.persistence import StoredEvent
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

    datastore = SQLiteDatastore(str(path))
    recorder = SQLiteApplicationRecorder(datastore)
    recorder.create_table()
    with datastore.get_connection(commit=True) as connection:
        connection._sqlite_conn.execute(f"PRAGMA synchronous={synchronous}")
    origin = uuid.uuid4()
    started = time.perf_counter()
    for start in range(0, len(given), batch):
        recorder.insert_events(
            [
                StoredEvent(origin, start + n, "agent.step", json.dumps(payload).encode())
                for n, payload in enumerate(given[start : start + batch])
            ]
        )
    seconds = time.perf_counter() - started
    datastore.close()
    return seconds


def steps(count: int, seed: int) -> list[Payload]:
    """Turns of an agent as they are ingested: one call each, observations short and long.

    Half of the observations are below 0.7 KB and one in ten is above 4 KB; thoughts have 0.2 KB.
    """
    text = random.Random(seed)
    words = [f"{text.getrandbits(36):x}" for _ in range(2_000)]
    made = []
    for n in range(count):
        thought = " ".join(text.choices(words, k=20))
        action = f"sed -n {n},{n + 9}p package/module_{n % 40}.py"
        observation = " ".join(text.choices(words, k=1 + int(text.lognormvariate(4.2, 1.4)) % 900))
        call = {"id": "", "name": "bash", "arguments": {"command": action}, "text": action}
        call |= {"observation": observation, "status": "ok", "exit_code": 0}
        made.append({"thought": thought, "action": action, "observation": observation})
        made[-1] |= {"calls": [call], "flags": []}
    return made


def own_texts(count: int, seed: int) -> list[Payload]:
    """Payloads with one text of about 1 KB each, which no other shares."""
    text = random.Random(seed)
    words = [f"word{n}" for n in range(500)]
    return [{"n": n, "text": " ".join(text.choices(words, k=140))} for n in range(count)]


def read_plainly(path: Path) -> float:
    """Rows a second of a loop that selects, parses and unpacks, and makes nothing of it."""
    db = sqlite3.connect(path)
    query = """
        SELECT seq, run, pos, type, actor, cause, frame, ts_ns, started, seconds, body, digest
        FROM events WHERE seq > ? ORDER BY seq LIMIT 1000"""
    unpack, mark = (
        zstandard.ZstdDecompressor().decompress,
        re.compile(rb'"\\u0000":"([0-9a-f]{64})"'),
    )
    count = last = 0
    started = time.process_time()
    while rows := db.execute(query, (last,)).fetchall():
        last, count = rows[-1][0], count + len(rows)
        parsed = [msgspec.json.decode(row[10]) for row in rows]
        wanted = list({digest for row in rows for digest in mark.findall(row[10])})
        for start in range(0, len(wanted), 500):
            part = [bytes.fromhex(digest.decode()) for digest in wanted[start : start + 500]]
            marks = ",".join("?" * len(part))
            texts = db.execute(
                f"SELECT enc, size, data FROM blobs WHERE digest IN ({marks})",  # noqa: S608
                part,
            )
            parsed += [(unpack(data, size) if enc else data).decode() for enc, size, data in texts]
    seconds = time.process_time() - started
    db.close()
    return count / seconds


def read_ours(path: Path) -> float:
    """Events a second that the store gives, all texts in their places."""
    with SQLiteEventStore(path, read_only=True) as store:
        started = time.process_time()
        count = sum(1 for _ in store.tail())
        return count / (time.process_time() - started)


def reading(events: int, rounds: int) -> dict[str, Any]:
    """Let both read logs of three kinds in turns, each time opened anew."""
    result: dict[str, Any] = {"events": events, "rounds": rounds, "clock": "processor time"}
    kinds = {"short": payloads, "own_text_of_1_kB": own_texts, "agent_steps": steps}
    for kind, make in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.sqlite"
            ours(path, make(events, 1), "NORMAL", BATCH)
            size = path.stat().st_size
            pairs = [(read_ours(path), read_plainly(path)) for _ in range(rounds)]
        result[kind] = {
            "events_per_second": round(statistics.median(mine for mine, _ in pairs)),
            "plain_loop_per_second": round(statistics.median(plain for _, plain in pairs)),
            "to_plain_loop": round(statistics.median(mine / plain for mine, plain in pairs), 3),
            "file_bytes_per_event": round(size / events),
        }
    return result


def installed() -> dict[str, str | None]:
    """Versions of the peers."""
    found: dict[str, str | None] = {}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def compare(
    contenders: dict[str, Contender], events: int, rounds: int, synchronous: str, batch: int
) -> dict[str, Any]:
    """Let all write the same payloads in turns."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for number in range(rounds):
        given = payloads(events, number)
        random.Random(number).shuffle(order)
        for name in order:
            with tempfile.TemporaryDirectory() as folder:
                seconds = contenders[name](Path(folder) / "log.sqlite", given, synchronous, batch)
            rates[name].append(events / seconds)
    return {
        "synchronous": synchronous,
        "events_a_commit": batch,
        "events": events,
        "rounds": rounds,
        "events_per_second": {name: round(statistics.median(r)) for name, r in rates.items()},
        "to_bare_loop": {
            name: round(statistics.median(a / b for a, b in zip(r, rates["bare"], strict=True)), 3)
            for name, r in rates.items()
        },
    }


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="3,000 events, 3 rounds")
    options = parser.parse_args()
    events, rounds = (3_000, 3) if options.quick else (options.events, options.rounds)
    peers = installed()
    single: dict[str, Contender] = {"ours": ours, "bare": bare, "digested": digested}
    batched = dict(single)
    if peers["activegraph"]:
        single["activegraph"] = activegraph
    if peers["eventsourcing"]:
        single["eventsourcing"] = batched["eventsourcing"] = eventsourcing
    result = {
        "single": compare(single, events, rounds, "NORMAL", 1),
        "batched": compare(batched, events, rounds, "FULL", BATCH),
        "reading": reading(events, rounds),
        "peers": {name: found or "skipped: not installed" for name, found in peers.items()},
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
    }
    path = RESULT.with_stem("append-quick") if options.quick else RESULT
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
