"""What the prefix tables cost: built, asked step by step, and against SQL, dictionaries and scans.

    python benchmarks/prefix.py [--rounds 5] [--quick]

300,000 runs of 10 to 56 steps, about 10 M, with Zipf-distributed tokens, of which hardly two runs
share more than a few steps: the worst case. In turns, in one process: our index built; the same
counts by our SQL in DuckDB, and their totals compared at every depth. A dictionary as a trie takes
gigabytes at that size, so it is built over a tenth of the runs, beside our index of these. Then,
step by step over the same runs: the index narrowed, the streams of ``trie``, ``backoff`` and
``markov``, the dictionary, and one prepared SQL query a step; and the whole monitor. Last, which
runs share two of eight entities, over 10 M distinct pairs of a run and an entity: our bitmaps, a
scan over a set for each run, and SQL; the answers are compared. Times are medians, ratios medians
of the rounds' ratios, means of steps processor time with the start of each run in it. Written to
``benchmarks/results/prefix.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from sag_research.deadend._alarm import Alarm
from sag_research.deadend._backoff import BackoffRisk
from sag_research.deadend._entity_index import EntityIndex
from sag_research.deadend._index import PrefixIndex
from sag_research.deadend._markov import MarkovRisk
from sag_research.deadend._monitor import DeadEndMonitor
from sag_research.deadend._prefixes import Prefixes, StepTable
from sag_research.deadend._sql import load_tokens, query
from sag_research.deadend._stack import PrefixRisk
from sag_research.deadend._step import SeenStep
from sag_research.deadend._trie import TrieRisk
from sag_research.extract import Vocabulary

RESULT = Path(__file__).resolve().parent / "results" / "prefix.json"
RUNS, QUICK_RUNS = 300_000, 30_000
PEER_SHARE = 10
SYMBOLS = 200
FOLLOWED = 300
MONITORED = 400
ENTITIES, PER_RUN, ASKED, QUERIES = 50_000, 50, 8, 200
MICRO, MILLI, MB = 1e6, 1e3, 1e6
TOTALS = """
SELECT depth, count(*) AS prefixes, sum(n)::BIGINT AS runs, sum(failed)::BIGINT AS failed,
       sum(n * n)::BIGINT AS squares, sum(n * failed)::BIGINT AS products
FROM ({counts}) GROUP BY depth ORDER BY depth
"""
SHARED = """
SELECT count(*), coalesce(sum(failed), 0)::BIGINT FROM (
    SELECT run FROM mentions WHERE entity IN (SELECT unnest($asked::INTEGER[]))
    GROUP BY run HAVING count(*) >= 2
) JOIN outcomes USING (run)
"""


def made(n_runs: int, seed: int = 0) -> Prefixes:
    """Runs of Zipf-distributed tokens, half of which failed."""
    random = np.random.default_rng(seed)
    length = random.integers(10, 57, n_runs)
    stop = np.cumsum(length)
    tokens = (random.zipf(1.3, int(stop[-1])) % SYMBOLS).astype(np.int32)
    names = [f"verb{n % 20}|object{n // 20}|ok" for n in range(SYMBOLS)]
    runs = pd.DataFrame({"run_id": np.arange(n_runs).astype(str), "task_id": "t"})
    runs["task_id"] = (np.arange(n_runs) // 4).astype(str)
    runs["outcome"] = np.where(random.random(n_runs) < 0.5, "failure", "success")
    return Prefixes.of(runs, stop - length, stop, StepTable(tokens, names))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that it takes, and what it returns."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def ratio(one: list[float], other: list[float]) -> float:
    """Median of the rounds' ratios."""
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 3)


def peak_mb() -> float:
    """Most memory that the process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


def dictionary(runs: Iterable[list[int]], failed: Iterable[float]) -> dict[Any, Any]:
    """A trie as people write it: node and token → [next node, runs, failed]."""
    trie: dict[tuple[int, int], list[int]] = {}
    for run, bad in zip(runs, failed, strict=True):
        node = 0
        for token in run:
            entry = trie.get((node, token))
            if entry is None:
                entry = trie[node, token] = [len(trie) + 1, 0, 0]
            entry[1] += 1
            entry[2] += int(bad)
            node = entry[0]
    return trie


def totals(index: PrefixIndex) -> pd.DataFrame:
    """Of the index, what TOTALS says of the SQL."""
    table = index.prefixes()
    n, failed = table["n"].astype(np.int64), table["failed"].astype(np.int64)
    sums = {"runs": n, "failed": failed, "squares": n * n, "products": n * failed}
    by_depth = table.assign(prefixes=1, **sums).groupby("depth")
    return by_depth[["prefixes", *sums]].sum().reset_index()


def build(prefixes: Prefixes, rounds: int) -> dict[str, Any]:
    """Our index and our SQL, over all runs; a dictionary and our index, over a tenth."""
    part = prefixes.take(np.arange(len(prefixes) // PEER_SHARE))
    runs = [codes.tolist() for codes in part.sequences()]
    seconds: dict[str, list[float]] = {"ours": [], "sql": [], "ours_part": [], "dictionary": []}
    before = peak_mb()
    index = PrefixIndex.of(prefixes, prefixes.table.tokens)
    peak = peak_mb() - before
    with duckdb.connect() as connection:
        load_tokens(connection, prefixes)
        text = TOTALS.format(counts=query("prefix_counts"))
        for _ in range(rounds):
            seconds["ours"].append(
                timed(lambda: PrefixIndex.of(prefixes, prefixes.table.tokens))[0]
            )
            took, found = timed(lambda: connection.execute(text).df())
            seconds["sql"].append(took)
            seconds["ours_part"].append(timed(lambda: PrefixIndex.of(part, part.table.tokens))[0])
            seconds["dictionary"].append(timed(lambda: dictionary(runs, part.failed))[0])
    ours = totals(index)
    if not (found[ours.columns].to_numpy() == ours.to_numpy()).all():
        raise RuntimeError("SQL and index count differently")
    return {
        "runs": len(prefixes),
        "steps": len(prefixes.table),
        "distinct_prefixes": int(ours["prefixes"].sum()),
        "sql_agrees_at_depths": len(ours),
        "seconds": {who: round(statistics.median(s), 3) for who, s in seconds.items()},
        "index_mb": round(index.nbytes / MB, 1),
        "peak_mb_while_building": round(peak, 1),
        "times_faster": {
            "sql": ratio(seconds["sql"], seconds["ours"]),
            "dictionary": ratio(seconds["dictionary"], seconds["ours_part"]),
        },
        "dictionary_runs": len(part),
    }


def each_step(
    runs: list[list[Any]], begin: Callable[[], Callable[[Any], Any]]
) -> tuple[list[float], float]:
    """Microseconds of every step of these runs, and of processor time of their mean."""
    clock, took = time.perf_counter_ns, []
    for run in runs:
        observe = begin()
        for step in run:
            started = clock()
            observe(step)
            took.append((clock() - started) / 1e3)
    started = time.process_time_ns()
    for run in runs:
        observe = begin()
        for step in run:
            observe(step)
    return took, (time.process_time_ns() - started) / 1e3 / len(took)


def streams(prefixes: Prefixes) -> dict[str, tuple[Callable[[], Callable[[Any], Any]], bool]]:
    """What is asked step by step, and whether it takes codes rather than steps."""
    part = prefixes.take(np.arange(len(prefixes) // PEER_SHARE))
    index = PrefixIndex.of(prefixes, prefixes.table.tokens)
    trie = dictionary((codes.tolist() for codes in part.sequences()), part.failed)
    models = [TrieRisk().fit(prefixes), BackoffRisk().fit(part), MarkovRisk(folds=0).fit(part)]

    def dictionary_begin() -> Callable[[int], Any]:
        node = 0

        def observe(token: int) -> list[int]:
            nonlocal node
            entry = trie.get((node, token), [-1, 0, 0])
            node = entry[0]
            return entry

        return observe

    observed = {m.name: ((lambda m=m: m.begin().observe), False) for m in models}
    return {
        "index": (lambda: index.begin().narrow, True),
        "dictionary": (dictionary_begin, True),
    } | observed


def observe(prefixes: Prefixes, rounds: int) -> dict[str, Any]:
    """Every look-up of every step of some runs, in turns."""
    chosen = np.linspace(0, len(prefixes) // PEER_SHARE - 1, FOLLOWED).astype(int)
    codes = [codes.tolist() for codes in prefixes.take(chosen).sequences()]
    names = prefixes.table.names
    steps = [[SeenStep(names[code]) for code in run] for run in codes]
    kinds = streams(prefixes)
    each: dict[str, list[float]] = {name: [] for name in kinds}
    mean: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (begin, takes_codes) in kinds.items():
            took, average = each_step(codes if takes_codes else steps, begin)
            each[name] += took
            mean[name].append(average)
    return {
        "steps": sum(map(len, codes)),
        "us_per_step": {
            name: {
                "mean": round(statistics.median(mean[name]), 2),
                "p50": round(float(np.percentile(took, 50)), 2),
                "p99": round(float(np.percentile(took, 99)), 2),
            }
            for name, took in each.items()
        },
        "sql_us": sql_lookups(prefixes, codes[:5]),
    }


def sql_lookups(prefixes: Prefixes, runs: list[list[int]]) -> float:
    """Microseconds of one prepared query for one prefix's counts."""
    with duckdb.connect() as connection:
        load_tokens(connection, prefixes)
        connection.execute(
            f"CREATE TABLE counts AS {query('prefix_counts')} ORDER BY depth, prefix"
        )
        hashes = connection.execute(
            "SELECT depth, prefix FROM counts USING SAMPLE 200 ROWS (reservoir, 1)"
        ).fetchall()
        sought = "SELECT n, failed FROM counts WHERE depth = $1 AND prefix = $2::BIGINT"
        took = [timed(lambda key=key: connection.execute(sought, key).fetchone())[0]
                for key in hashes]  # fmt: skip
    return round(statistics.median(took) * MICRO, 1)


def told(prefixes: Prefixes, seed: int = 2) -> Prefixes:
    """The same runs with texts: 10 words of thought, 6 of action, 120 of observation a step."""
    random = np.random.default_rng(seed)
    words = np.array([f"word{n}" for n in range(500)] + ["src/a.py", "tests/test_a.py", "error"])

    def column(count: int) -> list[str]:
        drawn = words[random.integers(0, len(words), (len(prefixes.table), count))]
        return [" ".join(row) for row in drawn.tolist()]

    table = prefixes.table
    columns = {"thought": column(10), "action": column(6), "observation": column(120)}
    code = np.where(random.random(len(table)) < 0.1, 1.0, 0.0)
    texts = pa.table(columns | {"exit_code": code})
    table = StepTable(table.tokens, table.names, texts, vocabulary=Vocabulary())
    return Prefixes.of(prefixes.runs, prefixes.start, prefixes.stop, table)


def monitor(rounds: int) -> dict[str, Any]:
    """The whole stack without text behind an alarm: every step of some runs."""
    prefixes = told(made(MONITORED, seed=3))
    fitting, risk = timed(lambda: PrefixRisk(text=False).fit(prefixes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few tasks: the threshold is of no interest
        alarm = Alarm(alpha=0.1, rule="split").calibrate(risk, prefixes)
    table = prefixes.table
    columns = zip(
        [table.names[code] for code in table.tokens.tolist()],
        *(table.text(name) for name in ("thought", "action", "observation")),
        table.number("exit_code").tolist(),
        strict=True,
    )
    steps = [SeenStep(*row) for row in columns]
    spans = zip(prefixes.start[:FOLLOWED].tolist(), prefixes.stop[:FOLLOWED].tolist(), strict=True)
    runs = [steps[a:b] for a, b in spans]
    whole: list[float] = []
    means = []
    for _ in range(rounds):
        took, mean = each_step(runs, lambda: DeadEndMonitor(alarm).observe)
        whole += took
        means.append(mean)
    stages = {
        part.name: round(
            statistics.median(each_step(runs[:50], lambda p=part: p.begin().observe)[0]), 2
        )
        for part in risk.parts_.values()
    }
    return {
        "runs": MONITORED,
        "fit_seconds": round(fitting, 1),
        "steps": sum(map(len, runs)),
        "us_per_step": {
            "mean": round(statistics.median(means), 1),
            "p50": round(float(np.percentile(whole, 50)), 1),
            "p99": round(float(np.percentile(whole, 99)), 1),
        },
        "us_per_step_of_each_part": stages,
    }


def mentions(n_runs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run and entity of each mention, Zipf-distributed, and which runs failed."""
    random = np.random.default_rng(1)
    run = np.repeat(np.arange(n_runs, dtype=np.int32), PER_RUN)
    entity = (random.zipf(1.2, len(run)) % ENTITIES).astype(np.int32)
    return run, entity, random.random(n_runs) < 0.5


def entity_sets(n_runs: int, rounds: int) -> dict[str, Any]:
    """Which runs share two of eight entities with a run."""
    run, entity, failed = mentions(n_runs)
    names = [f"File:{n}" for n in range(ENTITIES)]
    built, index = timed(lambda: EntityIndex.build(names, run, entity, failed))
    asked = [entity[run == n][:ASKED].tolist() for n in range(0, n_runs, n_runs // QUERIES)]
    sets = [set(row) for row in entity.reshape(n_runs, PER_RUN).tolist()]
    outcome = failed.tolist()

    def scan(wanted: list[int]) -> tuple[int, int]:
        whole = set(wanted)
        shared = [bad for names, bad in zip(sets, outcome, strict=True) if len(names & whole) >= 2]
        return len(shared), sum(shared)

    took: dict[str, list[float]] = {"ours": [], "sql": [], "scan": []}
    with duckdb.connect() as connection:
        given = pd.DataFrame({"run": run, "entity": entity})
        connection.register("given", given)
        connection.execute(
            "CREATE TABLE mentions AS SELECT DISTINCT entity, run FROM given ORDER BY ALL"
        )
        labels = pd.DataFrame({"run": np.arange(n_runs), "failed": failed.astype(np.int64)})
        connection.register("labels", labels)
        connection.execute("CREATE TABLE outcomes AS FROM labels")
        for number, codes in enumerate(asked):
            words = [names[code] for code in codes]
            again = [timed(lambda words=words: index.count(words)) for _ in range(5)]
            ours = again[0][1]
            took["ours"].append(statistics.median(seconds for seconds, _ in again))
            if number >= 3 * rounds:
                continue
            seconds, theirs = timed(
                lambda codes=codes: connection.execute(SHARED, {"asked": codes}).fetchone()
            )
            took["sql"].append(seconds)
            seconds, scanned = timed(lambda codes=codes: scan(codes))
            took["scan"].append(seconds)
            if not tuple(ours) == tuple(theirs) == scanned:
                raise RuntimeError(f"{ours}, {theirs}, {scanned} for {codes}")
    both = len(took["scan"])
    return {
        "rows": len(run),
        "distinct_rows": len(index.run),
        "queries": len(asked),
        "checked": both,
        "build_seconds": round(built, 2),
        "index_mb": round(index.nbytes / MB, 1),
        "ms": {
            who: {
                "p50": round(float(np.percentile(s, 50)) * MILLI, 3),
                "p99": round(float(np.percentile(s, 99)) * MILLI, 3),
            }
            for who, s in took.items()
        },
        "times_faster": {who: ratio(took[who], took["ours"][:both]) for who in ("sql", "scan")},
    }


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="30,000 runs, 2 rounds")
    options = parser.parse_args()
    n_runs, rounds = (QUICK_RUNS, 2) if options.quick else (RUNS, options.rounds)
    prefixes = made(n_runs)
    result = {
        "build": build(prefixes, rounds),
        "observe": observe(prefixes, rounds),
        "monitor": monitor(rounds),
        "entities": entity_sets(n_runs, rounds),
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "numpy": np.__version__,
            "duckdb": duckdb.__version__,
        },
    }
    path = RESULT.with_stem("prefix-quick") if options.quick else RESULT
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
