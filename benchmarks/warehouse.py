"""How fresh and how fast the warehouse is, against a plain DuckDB file with the same rows.

    python benchmarks/warehouse.py [--events 100000] [--rounds 15] [--quick]

A log of generated runs is written (30 steps a run, about 2 KB of output a step), synced and
queried. The plain file is ``Warehouse.export_duckdb``: the views as tables, computed once, so it
answers faster and is stale at once. Both answer in turns in one process and must agree. Peak
memory is that of a process that does nothing but one sync, of half the log and of all of it.
Written to ``benchmarks/results/warehouse.json``; times in ms, median with 10th and 90th
percentile. Absolute figures depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb

from sag_research.extract import EntityExtractor
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run
from sag_research.warehouse import Warehouse

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "warehouse.json"
STEPS = 30
EVENTS_A_RUN = STEPS + 3
OUTPUT_BYTES = 2_000
PLAIN = (
    "    {a} = {b}[{n}] + {c}",
    "    # the {a} of {b} is kept until {c} asks for it",
    "        if {a} and not {b}:",
    "            {c}.append({a})",
    "drwxr-xr-x {n} root root 4096 {a}-{b}",
    "{a} {b} {c} {n}",
)
NAMING = (
    '  File "src/{a}/{b}.py", line {n}, in {c}',
    "ValueError: {a} has no attribute '{c}'",
    "tests/test_{a}.py::test_{b} PASSED",
)
NAMING_SHARE = 0.03
"""Of the lines; gives about two named entities a step, as in real runs."""
QUERIES = {
    "outcomes by model": (
        "SELECT model, outcome, count(*), sum(n_steps) FROM runs GROUP BY ALL ORDER BY ALL",
        [],
    ),
    "steps that contain a text": (
        "SELECT count(*) FROM steps WHERE observation LIKE '%Error: rask%'",
        [],
    ),
    "one run": (
        "SELECT step, action, observation FROM steps WHERE run_id = ? ORDER BY step",
        ["run-00007"],
    ),
    "most named entities": (
        "SELECT entity_id, count(*) AS n FROM mentions GROUP BY 1 ORDER BY n DESC, 1 LIMIT 20",
        [],
    ),
}


def write_log(path: Path, events: int, seed: int = 7) -> None:
    """Write a log of about ``events`` events."""
    rng = random.Random(seed)
    syllables = ("ra", "sk", "to", "ven", "mi", "lo", "pra", "du", "gex", "ti")
    words = ["".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(1_500)]
    with SQLiteEventStore(path) as store:
        for number in range(max(1, events // EVENTS_A_RUN)):
            run_id = f"run-{number:05d}"
            with store.transaction():
                task, model = f"task-{number % 200}", f"model-{number % 3}"
                repo = f"acme/repo{number % 12}"
                store.create_run(
                    Run(run_id=run_id, task_id=task, model=model, repo=repo, source_id="s")
                )
                store.append_many(one_step(run_id, rng, words) for _ in range(STEPS))
                stop = {"exit_status": rng.choice(["submitted", "cost limit"])}
                store.append(Event(run_id=run_id, type="run.completed", payload=stop))
                label = {"run": run_id, "outcome": rng.choice(["success", "failure"])}
                store.append(Event(run_id=WORKSPACE_RUN, type="outcome.recorded", payload=label))


def one_step(run_id: str, rng: random.Random, words: list[str]) -> Event:
    """One turn: a thought, a command and its output."""
    lines: list[str] = []
    size = 0
    while size < OUTPUT_BYTES:
        a, b, c = rng.choices(words, k=3)
        kinds = NAMING if rng.random() < NAMING_SHARE else PLAIN
        lines.append(rng.choice(kinds).format(a=a, b=b, c=c, n=rng.randint(1, 900)))
        size += len(lines[-1]) + 1
    output = "\n".join(lines)
    action = f"cat src/{rng.choice(words)}/{rng.choice(words)}.py"
    call = {"id": "c", "name": "bash", "arguments": {"command": action}, "text": action}
    call |= {"observation": output, "status": "ok", "exit_code": 0}
    payload = {
        "thought": " ".join(rng.choices(words, k=30)),
        "action": action,
        "observation": output,
        "calls": [call],
        "usage": {"tokens_in": rng.randint(500, 9_000), "tokens_out": 200, "cost_usd": 0.01},
    }
    return Event(run_id=run_id, type="agent.step", payload=payload)


def milliseconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def spread(values: list[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "median": statistics.median(ordered),
        "p10": ordered[round(0.1 * last)],
        "p90": ordered[round(0.9 * last)],
        "n": len(ordered),
    }


def freshness(store: SQLiteEventStore, warehouse: Warehouse, rounds: int) -> dict[str, Any]:
    """From an event to its answer, one event at a time; and a refresh that finds nothing."""
    rng = random.Random(3)
    words = ["alpha", "beta", "gamma", "delta"]
    store.create_run(Run(run_id="live", repo="acme/live"))
    query = "SELECT count(*) FROM steps WHERE run_id = 'live'"
    warehouse.sql(query)
    times: dict[str, list[float]] = {"append": [], "refresh": [], "query": [], "visible": []}
    for number in range(rounds):
        event = one_step("live", rng, words)
        answer: list[Any] = []
        parts = [
            milliseconds(lambda event=event: store.append(event)),
            milliseconds(warehouse.refresh),
            milliseconds(lambda answer=answer: answer.extend(warehouse.sql(query).rows())),
        ]
        if answer != [(number + 1,)]:
            raise SystemExit(f"{answer} after {number + 1} events: no figures")
        for name, value in zip(times, [*parts, sum(parts)], strict=True):
            times[name].append(value)
    nothing = [milliseconds(warehouse.refresh) for _ in range(10 * rounds)]
    return {name: spread(values) for name, values in times.items()} | {
        "empty_refresh": spread(nothing)
    }


def queries(warehouse: Warehouse, plain: Path, rounds: int) -> dict[str, Any]:
    """Each query by us and by the plain file, in turns."""
    table = {}
    with duckdb.connect(str(plain), read_only=True) as peer:
        for name, (query, parameters) in QUERIES.items():
            ours = warehouse.sql(query, parameters).rows()
            if ours != peer.execute(query, parameters).fetchall():
                raise SystemExit(f"the answers to {name!r} differ: no figures")
            pairs = [
                (
                    milliseconds(lambda q=query, p=parameters: warehouse.sql(q, p).rows()),
                    milliseconds(lambda q=query, p=parameters: peer.execute(q, p).fetchall()),
                )
                for _ in range(rounds)
            ]
            mine, theirs = (list(column) for column in zip(*pairs, strict=True))
            table[name] = {
                "ours": spread(mine),
                "plain_duckdb": spread(theirs),
                "ratio": statistics.median(a / b for a, b in pairs),
            }
    return table


def syncs(log: Path, folder: Path, rounds: int) -> tuple[dict[str, Any], Path]:
    """Full syncs into new folders; the same bytes each time, or no figures."""
    times, contents = [], []
    with SQLiteEventStore(log) as store:
        n = store.last_seq()
        for number in range(rounds):
            place = folder / f"warehouse{number}"
            warehouse = Warehouse(place, store, extractor=EntityExtractor())
            times.append(milliseconds(warehouse.sync))
            warehouse.close()
            contents.append({p.name: p.stat().st_size for p in place.rglob("*.parquet")})
    if any(content != contents[0] for content in contents):
        raise SystemExit("two syncs wrote different files: no figures")
    size = sum(contents[0].values())
    rates = spread([n / value * 1e3 for value in times])
    return {"events_per_s": rates, "log_bytes": log.stat().st_size, "bytes": size}, place


def cold_open(log: Path, place: Path, rounds: int) -> dict[str, float]:
    """A new connection on a synced folder, up to the first answer."""

    def once() -> None:
        with SQLiteEventStore(log) as store:
            warehouse = Warehouse(place, store, extractor=extractor)
            warehouse.sql("SELECT count(*) FROM runs")
            warehouse.close()

    extractor = EntityExtractor()
    once()
    return spread([milliseconds(once) for _ in range(rounds)])


def peak_memory(log: Path, folder: Path) -> float:
    """Peak resident memory in MiB of a process that syncs a log."""
    code = """
import re, sys
from pathlib import Path
from sag_research.extract import EntityExtractor
from sag_research.log import SQLiteEventStore
from sag_research.warehouse import Warehouse
Warehouse(sys.argv[2], SQLiteEventStore(sys.argv[1]), extractor=EntityExtractor()).sync()
status = Path("/proc/self/status").read_text(encoding="utf-8")
print(re.search("VmHWM:\\s*([0-9]+) kB", status)[1])
"""  # not ru_maxrss: a child's counts what its parent held when it was forked
    command = [sys.executable, "-c", code, str(log), str(folder)]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(out.stdout) / 1024


def measure(folder: Path, events: int, rounds: int) -> dict[str, Any]:
    """Everything, on one log and on one of half its size."""
    whole, half = folder / "whole.sqlite", folder / "half.sqlite"
    write_log(whole, events)
    write_log(half, events // 2)
    report, place = syncs(whole, folder, 3)
    memory = {str(n): peak_memory(log, folder / log.stem) for n, log in
              ((events // 2, half), (events, whole))}  # fmt: skip
    with SQLiteEventStore(whole) as store:
        warehouse = Warehouse(place, store, extractor=EntityExtractor())
        plain = warehouse.export_duckdb(folder / "plain.duckdb")
        answers = queries(warehouse, plain, rounds)
        fresh = freshness(store, warehouse, 4 * rounds)
        warehouse.close()
    return {
        "events": events,
        "steps": events // EVENTS_A_RUN * STEPS,
        "sync": report,
        "plain_duckdb_bytes": plain.stat().st_size,
        "peak_memory_mib": memory,
        "cold_open_ms": cold_open(whole, place, rounds),
        "freshness_ms": fresh,
        "queries_ms": answers,
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "duckdb": version("duckdb"),
            "pyarrow": version("pyarrow"),
        },
    }


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="10,000 events, 5 rounds")
    options = parser.parse_args()
    events, rounds = (10_000, 5) if options.quick else (options.events, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), events, rounds)
    path = RESULT.with_stem("warehouse-quick") if options.quick else RESULT
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
