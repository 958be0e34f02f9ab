"""Memory, disk and time by the number of runs, from a thousand to a million.

    python benchmarks/growth.py [--runs 1000 10000 100000 1000000] [--quick]

For each size, in a process of its own that limits DuckDB to 3 GB and one thread a core: runs of
two synthetic worlds are generated a stretch at a time and written as a corpus; every query but the
two over entities (these runs name none) is answered; the cohort is read, its prefixes are indexed,
and the failure of unseen tasks is predicted and judged (`--models`, 5 folds by task). Peaks are the
process's resident set, as the kernel counts it. The growth law is the slope of log time and log
memory over log runs between the two largest sizes. Written to ``benchmarks/results/growth.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sag_research.deadend import Prefixes, backtest
from sag_research.deadend._index import PrefixIndex
from sag_research.lab.synthetic import SyntheticSet, generate
from sag_research.warehouse.corpus import Codes, Corpus, CorpusWriter, engine, queries

RESULT = Path(__file__).resolve().parent / "results" / "growth.json"
SIZES, QUICK = (1_000, 10_000, 100_000, 1_000_000), (500, 2_000)
WORLDS = ("memory", "traps")
STRETCH, ATTEMPTS = 20_000, 4
WITHOUT_ENTITIES = tuple(name for name in queries() if not name.startswith("entit"))
MEMORY = "3GB"
MIB, MB = 2**20, 1e6


def main() -> None:
    """Run each size in its own process, and write the table."""
    options = _options()
    if options.one:
        print(json.dumps(measure(options.one, Path(options.folder), options.models)))
        return
    sizes = QUICK if options.quick else options.runs
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="sag-growth-") as folder:
            rows.append(_in_child(size, folder, options.models))
        print(json.dumps(rows[-1], indent=2), flush=True)
    told = {"machine": _machine(), "models": options.models, "rows": rows, "law": law(rows)}
    told["estimate"] = estimate(rows, told["law"])
    file = RESULT.with_stem("growth-quick") if options.quick else RESULT
    file.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(table(rows))


def measure(n_runs: int, folder: Path, models: list[str]) -> dict[str, Any]:
    """Do everything once with so many runs; seconds and peak of each part."""
    parts: dict[str, dict[str, float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        made = work()
        seconds = time.perf_counter() - started
        parts[name] = {"seconds": round(seconds, 3), "peak_mib": round(_peak_mib())}
        return made

    corpus: Corpus = timed("generate", lambda: write(folder / "corpus", n_runs))
    timed("queries", lambda: ask(corpus))
    cohort: Prefixes = timed("read", lambda: Prefixes.from_corpus(corpus))
    index: PrefixIndex = timed("index", lambda: PrefixIndex.of(cohort, cohort.table.tokens))
    del index
    judged = timed("backtest", lambda: backtest(cohort, models=models, baselines=False, draws=200))
    summary = judged.table_.set_index("model")["auroc"].round(4).to_dict()
    return {
        "runs": n_runs,
        "steps": int(corpus.about["rows"]["steps"]),
        "disk_mb": round(sum(f.stat().st_size for f in folder.rglob("*.parquet")) / MB, 2),
        "peak_mib": round(_peak_mib()),
        "parts": parts,
        "auroc": summary,
    }


def write(place: Path, n_runs: int) -> Corpus:
    """Write generated runs as a corpus, a stretch at a time."""
    names = {name for world in WORLDS for name in generate(world, 1, 1).prefixes.table.names}
    with CorpusWriter(place, Codes(more=sorted(names))) as writer:
        done = 0
        for number in range(math.ceil(n_runs / STRETCH)):
            size = min(STRETCH, n_runs - done)
            world = WORLDS[number % len(WORLDS)]
            made = generate(world, max(size // ATTEMPTS, 1), ATTEMPTS, seed=number)
            _add(writer, made, f"{number:04d}-")
            done += size
    return Corpus(place)


def _add(writer: CorpusWriter, made: SyntheticSet, mark: str) -> None:
    cohort = made.prefixes
    frame = cohort.runs[["run_id", "task_id", "dataset", "repo", "outcome", "n_steps"]].copy()
    frame["run_id"] = mark + frame["run_id"]
    frame["task_id"] = mark + frame["task_id"]
    frame["failed"] = (frame["outcome"] == "failure").astype(np.int64)
    frame["model"] = made.world
    n_steps = cohort.n_steps
    step = np.arange(len(cohort.table)) - np.repeat(cohort.start, n_steps)
    steps = pa.table(
        {
            "run_id": pa.array(np.repeat(frame["run_id"].to_numpy(dtype=object), n_steps)),
            "step": step,
            "token": writer.codes.of(cohort.table.names)[cohort.table.tokens],
        }
    )
    writer.add(pa.Table.from_pandas(frame, preserve_index=False), steps)


def ask(corpus: Corpus) -> None:
    """Answer every query that these runs can answer."""
    with engine("duckdb", memory=MEMORY, threads=os.cpu_count()) as duck:
        for name in WITHOUT_ENTITIES:
            duck.ask(name, corpus)


def law(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the slopes between the two largest sizes; 1 is linear growth."""
    if len(rows) < 2:
        return {}
    small, large = rows[-2:]
    span = math.log(large["runs"] / small["runs"])
    slopes = {"peak_mib": math.log(large["peak_mib"] / small["peak_mib"]) / span}
    slopes["disk_mb"] = math.log(large["disk_mb"] / small["disk_mb"]) / span
    for name in large["parts"]:
        seconds = [max(row["parts"][name]["seconds"], 1e-3) for row in (small, large)]
        slopes[f"{name}_seconds"] = math.log(seconds[1] / seconds[0]) / span
    return {name: round(slope, 2) for name, slope in slopes.items()}


def estimate(rows: list[dict[str, Any]], slopes: dict[str, float]) -> dict[str, Any]:
    """Go on ten times further along the last slopes: no measurement, and said so."""
    if not slopes:
        return {}
    last = rows[-1]
    grown = {name: round(last[name] * 10 ** slopes[name]) for name in ("peak_mib", "disk_mb")}
    for name, part in last["parts"].items():
        grown[f"{name}_seconds"] = round(part["seconds"] * 10 ** slopes[f"{name}_seconds"])
    about = "not measured: the last two sizes' slopes, on one machine, if memory were enough"
    return {"runs": last["runs"] * 10, "assumes": about, **grown}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of growth as Markdown."""
    names = list(rows[0]["parts"])
    head = ["runs", "steps", "disk MB", "peak MiB", *(f"{name} s" for name in names)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    for row in rows:
        cells = [f"{row['runs']:,}", f"{row['steps']:,}", f"{row['disk_mb']:,}"]
        cells.append(f"{row['peak_mib']:,}")
        cells += [f"{row['parts'][name]['seconds']:,.1f}" for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _in_child(size: int, folder: str, models: list[str]) -> dict[str, Any]:
    command = [
        sys.executable,
        __file__,
        "--one",
        str(size),
        "--folder",
        folder,
        "--models",
        *models,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def _machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 1),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--models", nargs="+", default=["stack", "hazard"])
    parser.add_argument("--quick", action="store_true", help=f"sizes {QUICK}")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
