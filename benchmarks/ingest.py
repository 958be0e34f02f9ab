"""Ingest: ours against the straightforward way, on real files and on generated ones.

The straightforward way: ``json.load``, ``re.finditer`` with the same rules (spans kept), one
INSERT and COMMIT per event in SQLite with ``synchronous=OFF``. It comes in two kinds: ``rows``
writes what a step mentions together with the step in one commit; ``events`` writes each mention
as an event of its own, as logs do that feed a graph. Ours: everything a user gets from
``ws.ingest``: digests, compressed texts, mentions, Parquet segments, ``synchronous=NORMAL``.
Both work on the same files in one process, chunk by chunk, taking turns to begin.

    python benchmarks/ingest.py [--files 20000] [--rounds 5] [--quick]
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _corpus
from _peer import find_all, peer_rules

import sag_research as sag
from sag_research.extract import EntityExtractor, StepTexts
from sag_research.ingest import ingest
from sag_research.log import SQLiteEventStore

RESULTS = Path(__file__).parent / "results"


def ours(paths: list[Path], folder: Path) -> int:
    """Ingest with the package; returns the number of steps."""
    with sag.open(folder) as ws:
        return ws.ingest(*paths, progress=False).steps


def theirs(paths: list[Path], folder: Path, rules: list[Any], kind: str) -> int:
    """Ingest the straightforward way; returns the number of steps."""
    folder.mkdir()
    db = sqlite3.connect(folder / "log.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=OFF")
    db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, run TEXT, pos INTEGER, body TEXT)")
    db.execute("CREATE TABLE mentions (event INTEGER, field TEXT, s INTEGER, e INTEGER, n TEXT)")
    steps = 0
    for path in paths:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            trajectory = plain_steps(json.load(file))
        for position, step in enumerate(trajectory):
            texts = {
                "action": step.get("action") or "",
                "observation": step.get("observation") or "",
            }
            body = json.dumps({"thought": step.get("thought"), **texts})
            found = [(f, *span) for f, text in texts.items() for span in find_all(rules, f, text)]
            db.execute("BEGIN")
            event = db.execute(
                "INSERT INTO events (run, pos, body) VALUES (?, ?, ?)", (path.stem, position, body)
            )
            rows = [(event.lastrowid, *row) for row in found]
            if kind == "rows":
                db.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?)", rows)
            db.execute("COMMIT")
            for row in rows if kind == "events" else ():
                db.execute("INSERT INTO mentions VALUES (?, ?, ?, ?, ?)", row)  # commits itself
            steps += 1
    db.close()
    return steps


def plain_steps(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Find the steps of a SWE-agent or mini-swe-agent file the short way."""
    if "messages" not in data:
        return data.get("trajectory") or []
    messages = [m for m in data["messages"] if m["role"] != "system"][1:]
    return [
        {"action": message["content"], "observation": after["content"]}
        for message, after in itertools.pairwise(messages)
        if message["role"] == "assistant"
    ]


def race(
    folder: Path, rounds: int, scratch: Path, kinds: list[str], pattern: str = "*.traj"
) -> dict[str, Any]:
    """Run both on each chunk of files, taking turns to begin."""
    rules = peer_rules()
    rates: dict[str, list[float]] = {name: [] for name in ("ours", *kinds)}
    for number, paths in enumerate(_corpus.chunks(folder, rounds, pattern)):
        steps: dict[str, int] = {}
        turn = number % len(rates)
        order = [*rates][turn:] + [*rates][:turn]
        for name in order:
            place = scratch / f"{name}-{number}"
            start = time.perf_counter()
            work = ours(paths, place) if name == "ours" else theirs(paths, place, rules, name)
            rates[name].append(1 / (time.perf_counter() - start))
            steps[name] = work
            shutil.rmtree(place)
        if steps["ours"] < steps[kinds[0]]:
            raise SystemExit(f"ours lost steps: {steps}")
        for name in rates:
            rates[name][-1] *= steps[kinds[0]]
    result: dict[str, Any] = {"rounds": len(rates["ours"])}
    for name, values in rates.items():
        result[f"{name}_steps_per_s"] = statistics.median(values)
        ratios = [mine / value for mine, value in zip(rates["ours"], values, strict=True)]
        if name != "ours":
            result[f"ratio_to_{name}"] = statistics.median(ratios)
            result[f"ratio_to_{name}_range"] = [min(ratios), max(ratios)]
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


def peak_memory(folder: Path, scratch: Path) -> int:
    """Peak memory, in MiB, of a fresh process that ingests a folder."""
    # ru_maxrss would start at the parent's peak
    code = (
        "import pathlib, re, sag_research as sag, sys; ws = sag.open(sys.argv[2]);"
        "ws.ingest(sys.argv[1], progress=False);"
        "status = pathlib.Path('/proc/self/status').read_text(encoding='ascii');"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) // 1024)"
    )
    place = scratch / f"memory-{folder.name}"
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(place)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    shutil.rmtree(place)
    return int(run.stdout)


def main() -> None:
    """Run the benchmark and write ``results/ingest.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="rows,events", help="kinds of the straightforward way")
    parser.add_argument("--quick", action="store_true", help="600 files, 3 rounds")
    options = parser.parse_args()
    n, rounds = (600, 3) if options.quick else (options.files, options.rounds)
    real = Path(os.environ["SAG_REAL_DATA"]) if "SAG_REAL_DATA" in os.environ else None
    scratch = Path(tempfile.mkdtemp(prefix="sag-bench-"))
    try:
        result = measure(n, rounds, real, scratch, options.peers.split(","))
    finally:
        shutil.rmtree(scratch)
    RESULTS.mkdir(exist_ok=True)
    name = "ingest-quick.json" if options.quick else "ingest.json"
    (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print_result(result)


def measure(
    n: int, rounds: int, real: Path | None, scratch: Path, kinds: list[str]
) -> dict[str, Any]:
    """Make the files and measure everything."""
    templates = _corpus.originals(real)
    few, many = scratch / "few", scratch / "many"
    _corpus.write_copies(few, n // 10, templates)
    size = _corpus.write_copies(many, n, templates)
    result: dict[str, Any] = {
        "files": n,
        "bytes": size,
        "templates": len(templates),
        "source": "bundled set" if real is None else "real SWE-agent files",
        "generated": race(many, rounds, scratch, kinds),
        "stages_s": stages(next(_corpus.chunks(many, max(1, n // 1000))), scratch),
        "peak_memory_mib": {
            str(n // 10): peak_memory(few, scratch),
            str(n): peak_memory(many, scratch),
        },
    }
    if real is not None:
        mini = real / "mini_swe_agent_v1_gemini3pro_verified" / "trajs"
        result["real"] = race(mini, 3, scratch, kinds, "*.traj.json*")
    return result


def print_result(result: dict[str, Any]) -> None:
    """Print the table that the documentation quotes."""
    print(f"{result['files']:,} files, {result['bytes'] / 1e6:,.0f} MB, from {result['source']}")
    for name in ("generated", "real"):
        if name in result:
            r = result[name]
            print(f"{name:>10}: ours {r['ours_steps_per_s']:,.0f} steps/s ({r['rounds']} rounds)")
            for kind in [k for k in ("rows", "events") if f"ratio_to_{k}" in r]:
                low, high = r[f"ratio_to_{kind}_range"]
                print(
                    f"{'':>12}straightforward, mentions as {kind}: "
                    f"{r[f'{kind}_steps_per_s']:,.0f} steps/s, "
                    f"ratio {r[f'ratio_to_{kind}']:.1f} ({low:.1f}-{high:.1f})"
                )
    for name, seconds in result["stages_s"].items():
        print(f"{seconds:10.2f} s  {name}")
    for files, mib in result["peak_memory_mib"].items():
        print(f"{mib:>8} MiB  peak memory at {files} files")


if __name__ == "__main__":
    main()
