"""Ingest: ours against the straightforward way, on real files and on generated ones.

The straightforward way: ``json.load`` (or ``to_pylist`` for Parquet), ``re.finditer`` with the
same rules (spans kept), one INSERT and COMMIT per event in SQLite with ``synchronous=OFF``. It
comes in two kinds: ``rows`` writes what a step mentions together with the step in one commit;
``events`` writes each mention as an event of its own, as logs do that feed a graph. Ours:
everything a user gets from ``ws.ingest``: digests, compressed texts, mentions, Parquet segments,
``synchronous=NORMAL``. Both work on the same files in one process, chunk by chunk, taking turns
to begin.

    python benchmarks/ingest.py [--files 20000] [--rounds 5] [--chunk 4000] [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _corpus
from _containers import CONTAINERS, plain_runs, write_rows
from _peer import find_all, peer_rules

import sag_research as sag
from sag_research.extract import EntityExtractor, StepTexts
from sag_research.ingest import ingest
from sag_research.log import SQLiteEventStore

RESULTS = Path(__file__).parent / "results"


def ours(paths: Sequence[Path], folder: Path) -> int:
    """Ingest with the package; returns the number of steps."""
    with sag.open(folder) as ws:
        return ws.ingest(*paths, progress=False).steps


def theirs(paths: Sequence[Path], folder: Path, rules: list[Any], kind: str) -> int:
    """Ingest the straightforward way; returns the number of steps."""
    folder.mkdir()
    db = sqlite3.connect(folder / "log.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=OFF")
    db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, run TEXT, pos INTEGER, body TEXT)")
    db.execute("CREATE TABLE mentions (event INTEGER, field TEXT, s INTEGER, e INTEGER, n TEXT)")
    steps = 0
    for path in paths:
        for name, trajectory in plain_runs(path):
            for position, step in enumerate(trajectory):
                insert(db, rules, kind, (name, position), step)
                steps += 1
    db.close()
    return steps


def insert(
    db: sqlite3.Connection, rules: list[Any], kind: str, key: tuple[str, int], step: dict[str, Any]
) -> None:
    """Write one step and what it mentions the straightforward way."""
    texts = {"action": step.get("action") or "", "observation": step.get("observation") or ""}
    body = json.dumps({"thought": step.get("thought"), **texts})
    found = [(f, *span) for f, text in texts.items() for span in find_all(rules, f, text)]
    db.execute("BEGIN")
    event = db.execute("INSERT INTO events (run, pos, body) VALUES (?, ?, ?)", (*key, body))
    rows = [(event.lastrowid, *row) for row in found]
    if kind == "rows":
        db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?)", rows)
    db.execute("COMMIT")
    for row in rows if kind == "events" else ():
        db.execute("INSERT INTO mentions VALUES (?, ?, ?, ?, ?)", row)  # commits itself


def race(chunks: Sequence[Sequence[Path]], scratch: Path, kinds: list[str]) -> dict[str, Any]:
    """Run both on each chunk of files, taking turns to begin."""
    rules = peer_rules()
    rates: dict[str, list[float]] = {name: [] for name in ("ours", *kinds)}
    cpu: dict[str, list[float]] = {name: [] for name in rates}
    for number, paths in enumerate(chunks):
        seconds: dict[str, float] = {}
        steps: dict[str, int] = {}
        turn = number % len(rates)
        for name in [*rates][turn:] + [*rates][:turn]:
            place = scratch / f"{name}-{number}"
            start, used = time.perf_counter(), time.process_time()
            steps[name] = (
                ours(paths, place) if name == "ours" else theirs(paths, place, rules, name)
            )
            seconds[name] = time.perf_counter() - start
            cpu[name].append(time.process_time() - used)
            shutil.rmtree(place)
        if steps["ours"] < steps[kinds[0]]:
            raise SystemExit(f"ours lost steps: {steps}")
        for name, taken in seconds.items():
            rates[name].append(steps[kinds[0]] / taken)
    result: dict[str, Any] = {"rounds": len(rates["ours"]), "files": sum(map(len, chunks))}
    for name, values in rates.items():
        result[f"{name}_steps_per_s"] = statistics.median(values)
        ratios = [mine / value for mine, value in zip(rates["ours"], values, strict=True)]
        if name != "ours":
            result[f"ratio_to_{name}"] = statistics.median(ratios)
            result[f"ratio_to_{name}_range"] = [min(ratios), max(ratios)]
            shares = [one / two for one, two in zip(cpu[name], cpu["ours"], strict=True)]
            result[f"cpu_ratio_to_{name}"] = statistics.median(shares)
    return result


def stages(paths: list[Path], scratch: Path) -> dict[str, float]:
    """Seconds of each stage of ours, on one chunk."""
    place, result = scratch / "stages", {}
    place.mkdir()

    def timed(name: str, work: Any) -> Any:
        start = time.perf_counter()
        value = work()
        result[name] = time.perf_counter() - start
        return value

    with SQLiteEventStore(":memory:") as memory:
        timed(
            "read, parse, digest, compress (log in memory)",
            lambda: ingest(memory, paths, progress=False),
        )
    with sag.open(place / "ws") as ws:
        timed("the same into a log on disk", lambda: ingest(ws.store, paths, progress=False))
        timed("sync: project, extract, Parquet", ws.sync)
        rows = ws.sql("SELECT action, observation FROM steps").rows()
    actions, observations = map(list, zip(*rows, strict=True))
    texts = StepTexts(actions, observations, [""] * len(rows), [None] * len(rows))
    extractor = EntityExtractor()
    timed("extraction alone (part of sync)", lambda: extractor.extract_steps(texts))
    shutil.rmtree(place)
    return result


# ---- two processes


def spin(n: int) -> int:
    """Count, which takes a core and nothing else."""
    total = 0
    for i in range(n):
        total += i & 3
    return total


def two_cores(n: int = 6_000_000) -> float:
    """How much faster two processes count than one: 2 where two cores are free."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(spin, [1_000, 1_000], chunksize=1)
        start = time.perf_counter()
        pool.map(spin, [n], chunksize=1)
        alone = time.perf_counter() - start
        start = time.perf_counter()
        pool.map(spin, [n, n], chunksize=1)
        return 2 * alone / (time.perf_counter() - start)


def cpu_seconds() -> tuple[float, float]:
    """CPU time of this process, and of all that it started and that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    own, others = map(resource.getrusage, who)
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def processes(inputs: Sequence[Path], rounds: int, scratch: Path) -> dict[str, Any]:
    """Into the log with one process and with two that read, taking turns, and a control.

    Where the cores are shared with others, the CPU time tells more than the clock: the busiest
    of the writer and the readers sets the pace that free cores would allow.
    """
    seconds: dict[int, list[float]] = {1: [], 2: []}
    one: list[float] = []
    writer: list[float] = []
    reader: list[float] = []
    control = []
    for number in range(rounds):
        control.append(two_cores())
        for jobs in (1, 2) if number % 2 else (2, 1):
            place = scratch / f"jobs-{jobs}-{number}"
            place.mkdir()
            with SQLiteEventStore(place / "log.sqlite") as store:
                start, (own, others) = time.perf_counter(), cpu_seconds()
                ingest(store, inputs, jobs=jobs, progress=False)
                seconds[jobs].append(time.perf_counter() - start)
                now = cpu_seconds()
                (one if jobs == 1 else writer).append(now[0] - own)
                reader += [(now[1] - others) / 2] if jobs == 2 else []
            shutil.rmtree(place)
    ratios = [alone / two for alone, two in zip(seconds[1], seconds[2], strict=True)]
    return {
        "rounds": rounds,
        "files": len(inputs),
        "one_s": statistics.median(seconds[1]),
        "two_s": statistics.median(seconds[2]),
        "speed_up": statistics.median(ratios),
        "speed_up_range": [min(ratios), max(ratios)],
        "one_cpu_s": statistics.median(one),
        "writer_cpu_s": statistics.median(writer),
        "each_reader_cpu_s": statistics.median(reader),
        "speed_up_of_counting": control,
    }


# ---- again, and memory

AGAIN = """
import json, pathlib, re, sys, time, sag_research as sag
sag.Workspace  # loads the modules
def once(folder, **options):
    start = time.perf_counter()
    with sag.open(sys.argv[2]) as ws:
        report = ws.ingest(folder, progress=False, **options)
    return time.perf_counter() - start, report.files, report.ingested
status = lambda: pathlib.Path('/proc/self/status').read_text(encoding='ascii')
print(json.dumps([*once(sys.argv[1]), int(re.search(r'VmHWM:\\s+(\\d+)', status())[1]) // 1024]))
"""

MEMORY = """
import json, pathlib, re, resource, sag_research as sag, sys
from sag_research.ingest import ingest
with sag.open(sys.argv[2]) as ws:
    report = ingest(ws.store, [sys.argv[1]], jobs=int(sys.argv[3]), progress=False)
    ws.sync()
status = pathlib.Path('/proc/self/status').read_text(encoding='ascii')
print(json.dumps({
    "runs": report.runs,
    "mib": int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) // 1024,
    "mib_of_largest_reader": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
}))
"""


def in_fresh_process(code: str, *arguments: object) -> Any:
    """Run code by itself: memory would start at the parent's peak."""
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(run.stdout)


def peak_memory(path: Path, scratch: Path, jobs: int = 1) -> dict[str, int]:
    """Peak memory, in MiB, of fresh processes that ingest a file or folder."""
    place = scratch / f"memory-{path.name}-{jobs}"
    found: dict[str, int] = in_fresh_process(MEMORY, path, place, jobs)
    shutil.rmtree(place)
    if jobs == 1:
        del found["mib_of_largest_reader"]
    return found


def again(folder: Path, scratch: Path, rounds: int = 3) -> dict[str, Any]:
    """Ingest a folder, and again: all of it unchanged."""
    place = scratch / "again"
    first, files, _, mib = in_fresh_process(AGAIN, folder, place)
    later = [in_fresh_process(AGAIN, folder, place) for _ in range(rounds)]
    if any(ingested for _, _, ingested, _ in later):
        raise SystemExit("an unchanged file was taken for new")
    shutil.rmtree(place)
    second = statistics.median(seconds for seconds, *_ in later)
    return {
        "files": files,
        "first_s": first,
        "again_s": second,
        "ratio": first / second,
        "peak_memory_mib": mib,
    }


def main() -> None:
    """Run the benchmark and write ``results/ingest.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunk", type=int, help="files in a round; default: all, shared out")
    parser.add_argument("--peers", default="rows", help="kinds of the straightforward way")
    parser.add_argument("--quick", action="store_true", help="600 files, 3 rounds")
    options = parser.parse_args()
    if options.quick:
        options.files, options.rounds, options.chunk = 600, 3, None
    options.chunk = options.chunk or -(-options.files // options.rounds)
    real = Path(os.environ["SAG_REAL_DATA"]) if "SAG_REAL_DATA" in os.environ else None
    scratch = Path(tempfile.mkdtemp(prefix="sag-bench-"))
    result: dict[str, Any] = {}
    name = "ingest-quick.json" if options.quick else "ingest.json"
    try:
        for part, work in parts(options, real, scratch):
            start = time.perf_counter()
            result[part] = work()
            print(f"{part}: {json.dumps(result[part])}  ({time.perf_counter() - start:.0f} s)",
                  flush=True)  # fmt: skip
    finally:
        shutil.rmtree(scratch)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def parts(
    options: argparse.Namespace, real: Path | None, scratch: Path
) -> list[tuple[str, Callable[[], Any]]]:
    """What is measured, in order."""
    n, rounds, kinds = options.files, options.rounds, options.peers.split(",")
    many, rows = scratch / "many", scratch / "rows"
    rows.mkdir()

    def make() -> dict[str, Any]:
        templates = _corpus.originals(real)
        size = _corpus.write_copies(many, n, templates)
        made = write_rows(sorted(many.rglob("*.traj")), rows / "all")
        for number, paths in enumerate(chunked()):
            write_rows(paths, rows / f"part-{number}")
        ours(chunked()[0][:5], scratch / "warm")  # modules are loaded when first used
        sizes = {suffix: path.stat().st_size for suffix, path in made.items()}
        where = "bundled set" if real is None else "real SWE-agent files"
        return {"files": n, "templates": len(templates), "source": where, ".traj": size} | sizes

    def chunked() -> list[list[Path]]:
        paths = sorted(many.rglob("*.traj"))
        return [paths[k * options.chunk : (k + 1) * options.chunk] for k in range(rounds)]

    def containers(suffix: str) -> dict[str, Any]:
        return race([[rows / f"part-{k}{suffix}"] for k in range(rounds)], scratch, kinds)

    found: list[tuple[str, Callable[[], Any]]] = [
        ("made", make),
        ("race .traj", lambda: race(chunked(), scratch, kinds)),
        *((f"race {suffix}", lambda s=suffix: containers(s)) for suffix in CONTAINERS),
        ("stages_s", lambda: stages(chunked()[0][:1_000], scratch)),
        ("two processes, .traj",
         lambda: processes(sorted(many.rglob("*.traj"))[:5_000], rounds, scratch)),
        ("two processes, .jsonl",
         lambda: processes([rows / "all.jsonl"], rounds, scratch)),
        ("two processes, .parquet",
         lambda: processes([rows / "all.parquet"], rounds, scratch)),
        ("again", lambda: again(many, scratch)),
        ("peak memory .traj, two processes", lambda: peak_memory(many, scratch, 2)),
        ("peak memory .jsonl, two processes",
         lambda: peak_memory(rows / "all.jsonl", scratch, 2)),
        *((f"peak memory {s}", lambda s=s: peak_memory(rows / f"all{s}", scratch))
          for s in CONTAINERS),
    ]  # fmt: skip
    if real is not None:
        mini = real / "mini_swe_agent_v1_gemini3pro_verified" / "trajs"
        chunks = list(_corpus.chunks(mini, 3, "*.traj.json*"))
        found.append(("race real mini-swe-agent", lambda: race(chunks, scratch, kinds)))
    return found


if __name__ == "__main__":
    main()
