"""What replay costs: hits, dispatch, decoding, real answers against recorded ones, transcripts.

    python benchmarks/replay.py [--events 100000] [--rounds 7] [--quick] [--no-model]

Each figure that could grow with the log is taken at a short and at a long one, in turns, and the
ratio is the median of the rounds' ratios. Decoding is held against a plain loop over the same
rows with the same JSON decoder. The model is a real one on this machine, where its package is
installed. Written to ``benchmarks/results/replay.json``; absolute figures depend on what else the
machine does.
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
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sag_research.errors import MissingDataError
from sag_research.llm import Context, Local, Message, Request, Scripted, installed_weights
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import Budget, ReactiveRuntime, replay

RESULT = Path(__file__).resolve().parent / "results" / "replay.json"
SHORT = 1_000
ASKS = 200
TURNS = 200
MICRO, MILLI = 1e6, 1e3


def write_log(path: Path, events: int, size: int = 60) -> None:
    """A run whose recorded answers stand first, and then others with a text of so many words."""
    text = random.Random(1)
    words = [f"word{n}" for n in range(500)]
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r1"))
        model = Scripted(lambda request: "yes")
        with store.transaction(), Context(store, "r1", model=model) as ctx:
            for n in range(ASKS):
                ctx.llm(None, question(n))
        payloads = ({"n": n, "text": " ".join(text.choices(words, k=size))} for n in range(events))
        for start in range(0, events, 5_000):
            part = [Event(run_id="r1", type="note.taken", payload=next(payloads)) for _ in
                    range(min(5_000, events - start))]  # fmt: skip
            store.append_many(part)


def question(n: int) -> Request:
    """A prompt of about 3 kB."""
    return Request(messages=(Message(role="user", content=f"{n} " + "some context " * 240),))


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def spread(values: list[float], unit: float) -> dict[str, float]:
    """Median and 90th percentile."""
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered) * unit, 3),
        "p90": round(ordered[int(0.9 * (len(ordered) - 1))] * unit, 3),
        "n": len(ordered),
    }


# ---- a hit, and opening


def hits(path: Path) -> list[float]:
    """Seconds of each hit, the first after opening among them; nothing is written."""
    with SQLiteEventStore(path, read_only=True) as store:
        ctx = Context(store, None, source="r1", mode="replay", model=Scripted([]).identity())
        return [timed(partial(ctx.llm, None, question(n))) for n in range(ASKS)]


def open_and_hit(path: Path) -> float:
    """Seconds from nothing open to the first recorded answer."""

    def work() -> None:
        with SQLiteEventStore(path, read_only=True) as store:
            ctx = Context(store, None, source="r1", mode="replay", model=Scripted([]).identity())
            ctx.llm(None, question(7))

    return timed(work)


# ---- an empty behaviour


def dispatches(path: Path, times: int) -> list[float]:
    """Seconds to dispatch one event to one behaviour that does nothing."""
    with SQLiteEventStore(path) as store:
        runtime = ReactiveRuntime(store, budget=Budget(events=10**9))
        runtime.behavior(on_events=["tick"], name="empty")(lambda rt, event: None)
        found = []
        for _ in range(times):
            runtime.emit("tick", run_id="r1")
            found.append(timed(runtime.dispatch_loop))
        return found[1:]  # the first writes down which behaviours there are


# ---- decoding


def decode(path: Path) -> float:
    """Events a second that ``store.read`` yields."""
    with SQLiteEventStore(path, read_only=True) as store:
        count = store.head("r1").position
        return count / timed(lambda: sum(1 for _ in store.read("r1")))


def decode_plainly(path: Path) -> float:
    """Rows a second of a loop that selects the same columns and parses the body."""
    db = sqlite3.connect(path)
    count = db.execute("SELECT count(*) FROM events WHERE run = 1").fetchone()[0]
    query = """SELECT seq, pos, type, actor, cause, frame, ts_ns, started, seconds, body, digest
               FROM events WHERE run = 1 ORDER BY pos"""
    parse = msgspec.json.decode
    seconds = timed(lambda: sum(1 for row in db.execute(query) if parse(row[9]) is not None))
    db.close()
    return float(count / seconds)


# ---- strict replay


def strict_replay(events: int) -> dict[str, Any]:
    """A chain of behaviours, lived and carried out again."""
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r1"))
        runtime = ReactiveRuntime(store, budget=Budget(events=10**9, depth=10**9))

        @runtime.behavior(on_events=["ping"])
        def ping(rt: ReactiveRuntime, event: Event) -> None:
            if event.payload["n"]:
                rt.emit("ping", {"n": event.payload["n"] - 1, "at": rt.ctx.now()})

        runtime.emit("ping", {"n": events // 2}, run_id="r1")
        lived = timed(runtime.dispatch_loop)
        again = timed(lambda: replay(store, "r1", runtime))
        count = store.head("r1").position
    return {
        "events": count,
        "lived_events_per_second": round(count / lived),
        "replayed_events_per_second": round(count / again),
    }


# ---- a real model


def short_request(text: str, tokens: int) -> Request:
    """A question with a short answer."""
    message = Message(role="user", content=text)
    return Request(messages=(message,), parameters={"max_tokens": tokens, "temperature": 0.0})


def real_model(asks: int) -> dict[str, Any]:
    """An agent that asks a model on this machine, lived and replayed."""
    if not installed_weights():
        return {"skipped": "no local model is installed"}

    def agent(ctx: Context) -> None:
        for n in range(asks):
            said = ctx.llm(None, short_request(f"Say {n}.", 16)).text
            event = Event(run_id=ctx.run or "", type="agent.step", payload={"thought": said})
            ctx.store.append(event)

    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r1"))
        try:
            with Local() as model:
                model.complete(short_request("Hi.", 1))  # loads the weights
                name = model.identity().model
                lived = timed(lambda: agent(Context(store, "r1", model=model)))
        except MissingDataError as error:
            return {"skipped": str(error)}
        report: list[Any] = []
        again = timed(lambda: report.append(replay(store, "r1", agent)))
    return {
        "model": name,
        "asks": asks,
        "equal": report[0].ok,
        "live_ms": round(lived * MILLI, 1),
        "replay_ms": round(again * MILLI, 2),
        "times_faster": round(lived / again),
    }


# ---- storage


def transcript(folder: Path) -> dict[str, Any]:
    """A conversation in which each request repeats all messages before it."""
    words = random.Random(2)
    vocabulary = [f"{words.getrandbits(32):x}" for _ in range(4_000)]
    path = folder / "transcript.sqlite"
    raw = 0
    with SQLiteEventStore(path) as store:
        store.create_run(Run(run_id="r1"))
        empty = store_bytes(store)
        ctx = Context(store, "r1", model=Scripted(lambda request: "done"))
        messages: list[Message] = []
        for _ in range(TURNS):
            observation = " ".join(words.choices(vocabulary, k=110))
            messages.append(Message(role="user", content=observation))
            request = Request(messages=tuple(messages))
            raw += len(msgspec.json.encode(request))
            reply = ctx.llm(None, request)
            messages.append(Message(role="assistant", content=reply.text or ""))
        used = store_bytes(store)
    return {
        "turns": TURNS,
        "raw_request_bytes": raw,
        "file_bytes": used - empty,
        "percent_of_raw": round(100 * (used - empty) / raw, 3),
    }


def store_bytes(store: SQLiteEventStore) -> int:
    """Size of the file, its write-ahead log folded in."""
    db = sqlite3.connect(store.path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return Path(store.path).stat().st_size


# ---- all of it


def grown(work: Callable[[Path], list[float]], short: Path, long: Path, rounds: int) -> Any:
    """One figure at both lengths, in turns."""
    ratios, at_short, at_long = [], [], []
    for _ in range(rounds):
        one, other = work(short), work(long)
        ratios.append(statistics.median(other) / statistics.median(one))
        at_short += one
        at_long += other
    return {
        "short_us": spread(at_short, MICRO),
        "long_us": spread(at_long, MICRO),
        "long_to_short": round(statistics.median(ratios), 3),
    }


def measure(folder: Path, events: int, rounds: int, asks: int) -> dict[str, Any]:
    """Everything."""
    short, long = folder / "short.sqlite", folder / "long.sqlite"
    write_log(short, SHORT)
    write_log(long, events)
    reads = [(decode(long), decode_plainly(long)) for _ in range(rounds)]
    texts = folder / "texts.sqlite"
    write_log(texts, events, size=140)
    apart = [decode(texts) for _ in range(rounds)]
    return {
        "events": events,
        "short_events": SHORT,
        "hit": grown(hits, short, long, rounds),
        "open_and_first_hit": grown(lambda path: [open_and_hit(path)], short, long, 3 * rounds),
        "decode": {
            "events_per_second": round(statistics.median(ours for ours, _ in reads)),
            "with_texts_of_1_kB_per_second": round(statistics.median(apart)),
            "plain_loop_per_second": round(statistics.median(plain for _, plain in reads)),
            "to_plain_loop": round(statistics.median(ours / plain for ours, plain in reads), 3),
        },
        "empty_behavior": grown(lambda path: dispatches(path, 101), short, long, rounds),
        "strict_replay": strict_replay(min(events, 10_000)),
        "real_model": real_model(asks) if asks else {"skipped": "on request"},
        "transcript": transcript(folder),
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
    }


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="10,000 events, 3 rounds")
    parser.add_argument("--no-model", action="store_true", help="leave the real model out")
    options = parser.parse_args()
    events, rounds = (10_000, 3) if options.quick else (options.events, options.rounds)
    asks = 0 if options.no_model else (2 if options.quick else 8)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), events, rounds, asks)
    path = RESULT.with_stem("replay-quick") if options.quick else RESULT
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
