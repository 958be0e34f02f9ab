"""Speed of the extraction engine against Python's ``re`` with the same rules.

    SAG_REAL_DATA=... python benchmarks/extract.py [--megabytes 3] [--rounds 5]

Both engines get the same texts in the same process, in turns, and must find the same (text, rule,
start, end). Without ``SAG_REAL_DATA`` the texts are those of ``datasets/bugfix``. Written to
``benchmarks/results/extract.json``. Ratios are medians of each round's ratio; absolute figures
depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from sag_research.extract import EntityExtractor, StepTexts
from sag_research.extract._engine import find, find_with_re
from sag_research.extract._rules import Compiled, load_rulebook

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "extract.json"
TEXT_KEYS = {"action", "observation", "content"}
HOSTILE = [
    "a",
    "a/a/",
    "a.a.",
    "a-a-",
    "deadbeef01",
    'File "',
    "'\"",
    "$(((",
    "\n",
    "fail ",
    "://a",
    "a.c b.c ",
    "error: 'a",
    "[ERROR] a.b:1 ",
    "  1: a\n  at ",
    "  1) a\n       ",
]
MEGABYTE = 1_000_000

Matches = list[tuple[int, int, int]]


def strings(value: Any, key: str = "") -> Iterator[str]:
    """Yield the texts of steps anywhere in parsed JSON."""
    if isinstance(value, str):
        if key in TEXT_KEYS and value:
            yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from strings(member, name)
    elif isinstance(value, list):
        for member in value:
            yield from strings(member, key)


def read_texts(megabytes: float) -> tuple[str, list[str]]:
    """Name of the corpus, and different texts of it up to a size, from all its files alike."""
    real = os.environ.get("SAG_REAL_DATA")
    folder = Path(real) if real else HERE.parent / "datasets" / "bugfix"
    patterns = ["**/*.traj.gz"]
    if real:
        patterns = ["mini_swe_agent_v1*/trajs/*.traj.json.gz", "swe*/**/*.traj*"]
    found: dict[str, None] = {}
    for path in sorted(p for pattern in patterns for p in folder.glob(pattern)):
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        found.update(dict.fromkeys(strings(json.loads(text))))
    every = [text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?") for text in found]
    step = max(1, round(sum(map(len, every)) / MEGABYTE / megabytes))
    name = "real trajectories" if real else "datasets/bugfix"
    return name, every[::step]


def ours(texts: list[str], rules: list[Compiled]) -> list[Matches]:
    """Matches of each rule by the engine, as Python objects like those of the peer."""
    return [
        list(zip(f.text.tolist(), f.start.tolist(), f.end.tolist(), strict=True))
        for f in find(texts, rules)
    ]


def peer(texts: list[str], rules: list[Compiled]) -> list[Matches]:
    """Matches of each rule by ``re.finditer``."""
    return [[found[:3] for found in find_with_re(texts, rule)] for rule in rules]


def peer_with_literals(texts: list[str], rules: list[Compiled]) -> list[Matches]:
    """As `peer`, but texts without a rule's literals are passed over (what one would write)."""
    out = []
    for rule in rules:
        words = [word for word in rule.rule.literals if "%{" not in word]
        rows = []
        for index, text in enumerate(texts):
            if not words or any(word in text for word in words):
                rows += [
                    (index, found.start("name"), found.end("name"))
                    for found in rule.python.finditer(text)
                ]
        out.append(rows)
    return out


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call over all threads: what other processes do does not enter."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(texts: list[str], rules: list[Compiled], rounds: int) -> dict[str, Any]:
    """All rules at once, engines in turns; refuses to report engines that disagree."""
    size = sum(map(len, texts)) / MEGABYTE
    found = ours(texts, rules)
    if found != peer(texts, rules) or found != peer_with_literals(texts, rules):
        raise SystemExit("the engines disagree: no figures")
    extractor = EntityExtractor()
    steps = StepTexts([""] * len(texts), texts, [""] * len(texts), [None] * len(texts))
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: ours(texts, rules),
        "re": lambda: peer(texts, rules),
        "re with literals": lambda: peer_with_literals(texts, rules),
        "extract_steps": lambda: extractor.extract_steps(steps),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds(work))
    table = {}
    for name, values in times.items():
        ratios = [base / value for base, value in zip(times["re"], values, strict=True)]
        table[name] = {
            "mb_per_s": size / statistics.median(values),
            "ratio_to_re": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
        }
    return {
        "megabytes": size,
        "texts": len(texts),
        "matches": sum(map(len, found)),
        "engines": table,
    }


def per_rule(texts: list[str], rules: list[Compiled]) -> list[dict[str, Any]]:
    """Each rule alone; conversion to polars is part of every figure of ours."""
    size = sum(map(len, texts)) / MEGABYTE
    rows = []
    for rule in rules:
        n = len(ours(texts, [rule])[0])
        pairs = [
            (seconds(lambda r=rule: ours(texts, [r])), seconds(lambda r=rule: peer(texts, [r])))
            for _ in range(3)
        ]
        ours_s, peer_s = (statistics.median(column) for column in zip(*pairs, strict=True))
        rows.append(
            {
                "rule": rule.rule.name, "matches": n, "ours_mb_per_s": size / ours_s,
                "re_mb_per_s": size / peer_s, "ratio": statistics.median(p / o for o, p in pairs),
            }
        )  # fmt: skip
    return rows


def hostile(rules: list[Compiled]) -> list[dict[str, Any]]:
    """One line of 1 MB of each kind for us; ``re`` gets 2 and 4 KB, from which it is quadratic."""
    extractor = EntityExtractor()
    rows = []
    for unit in HOSTILE:
        line = (unit * (MEGABYTE // len(unit) + 1))[:MEGABYTE]
        rows.append(
            {
                "line": unit,
                "engine_1mb_cpu_s": cpu_seconds(lambda t=line: find([t], rules)),
                "observation_1mb_cpu_s": cpu_seconds(lambda t=line: extractor.extract(t)),
                "action_1mb_cpu_s": cpu_seconds(
                    lambda t=line: extractor.mentions(t, field="action")
                ),
                "re_2kb_cpu_s": cpu_seconds(lambda t=line[:2048]: peer([t], rules)),
                "re_4kb_cpu_s": cpu_seconds(lambda t=line[:4096]: peer([t], rules)),
            }
        )
    return rows


def one_step(texts: list[str]) -> dict[str, Any]:
    """Time of one call with one step, as a live tail makes it."""
    extractor = EntityExtractor()
    sample = texts[:: max(1, len(texts) // 400)]
    extractor.extract(sample[0])
    times = sorted(
        seconds(lambda t=text: extractor.extract_steps(StepTexts(["ls"], [t], [""], [None])))
        for text in sample
    )
    return {
        "n": len(times),
        "median_ms": 1000 * statistics.median(times),
        "p90_ms": 1000 * times[int(0.9 * len(times))],
        "median_characters": statistics.median(map(len, sample)),
    }


def one_thread(arguments: argparse.Namespace) -> dict[str, Any]:
    """The comparison again in a process whose polars has one thread."""
    command = [sys.executable, str(Path(__file__).resolve()), "--only-compare"]
    command += ["--megabytes", str(arguments.megabytes), "--rounds", str(arguments.rounds)]
    done = subprocess.run(
        command, env={**os.environ, "POLARS_MAX_THREADS": "1"}, capture_output=True, check=True,
        encoding="utf-8",
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def print_tables(result: dict[str, Any]) -> None:
    """Print what the JSON file holds."""
    for title in ("all_threads", "one_thread"):
        part = result[title]
        size = f"{part['megabytes']:.1f} MB, {part['texts']} texts, {part['matches']} matches"
        print(f"\n{title}: {size}")
        for name, row in part["engines"].items():
            spread = f"({row['ratio_min']:.1f} to {row['ratio_max']:.1f})"
            print(f"  {name:<18}{row['mb_per_s']:9.2f} MB/s{row['ratio_to_re']:8.1f} x re {spread}")
    print(f"\n{'rule':<20}{'matches':>8}{'ours MB/s':>11}{'re MB/s':>9}{'ratio':>7}")
    for row in result["rules"]:
        print(
            f"{row['rule']:<20}{row['matches']:>8}{row['ours_mb_per_s']:>11.1f}"
            f"{row['re_mb_per_s']:>9.1f}{row['ratio']:>7.1f}"
        )
    print("\nCPU seconds: engine 1 MB, observation 1 MB, action 1 MB | re 2 KB, re 4 KB")
    for row in result["hostile"]:
        values = [row[name] for name in row if name != "line"]
        print(f"{row['line']!r:<14}" + "".join(f"{value:10.4f}" for value in values))
    print("\none step:", {k: round(v, 2) for k, v in result["one_step"].items()})


def main() -> int:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="Extraction speed against Python's re.")
    parser.add_argument("--megabytes", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only-compare", action="store_true")
    arguments = parser.parse_args()
    name, texts = read_texts(arguments.megabytes)
    book = load_rulebook()
    rules = list(book.rules)
    compared = compare(texts, rules, arguments.rounds)
    if arguments.only_compare:
        print(json.dumps(compared))
        return 0
    result = {
        "corpus": name,
        "rules": per_rule(texts, rules),
        "version": book.version,
        "machine": {"python": platform.python_version(), "cores": os.cpu_count()},
        "polars": {"version": pl.__version__, "threads": pl.thread_pool_size()},
        "all_threads": compared,
        "one_thread": one_thread(arguments),
        "hostile": hostile(rules),
        "one_step": one_step(texts),
    }
    print_tables(result)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
