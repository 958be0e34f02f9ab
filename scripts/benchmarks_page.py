"""Write BENCHMARKS.md from benchmarks/results/*.json, as benchmarks/figures.toml says.

    python scripts/benchmarks_page.py [--check]

With ``--check`` nothing is written, and the exit code is 1 if the page is not what it would be.
"""

from __future__ import annotations

import json
import sys
import tomllib
from functools import reduce
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "benchmarks" / "figures.toml"
PAGE = ROOT / "BENCHMARKS.md"
HEAD = """# Benchmarks

Written by `python scripts/benchmarks_page.py` from `benchmarks/results/*.json`; do not edit. Ours
and the peer run in turns in one process. The figures are medians, and the ratio is ours to the
peer's: above 1 is better where something is counted a second, below 1 where time is taken. Most
were taken on two shared cores, often beside other work: read ratios rather than figures. `make
bench` runs all of them with quick settings; each script says how it is run in full.
"""


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("BENCHMARKS.md is not what the results say: run python scripts/benchmarks_page.py")
    return 1


def page() -> str:
    """Return the page."""
    told = tomllib.loads(FIGURES.read_text(encoding="utf-8"))
    return "\n".join([HEAD, *(section(one) for one in told["benchmark"])])


def section(benchmark: dict[str, Any]) -> str:
    """Return the section of one benchmark."""
    name = benchmark["file"]
    results = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    lines = [f"## {name}", "", benchmark["about"], ""]
    lines += ["| what | ours | peer | ratio |", "|---|---:|---|---:|"]
    for row in benchmark["rows"]:
        lines += rows_of(row, results)
    lines += ["", f"`python benchmarks/{name}.py`{_machine(results)}", ""]
    return "\n".join(lines)


def rows_of(row: dict[str, Any], results: dict[str, Any]) -> list[str]:
    """Return a line for each peer, or one without."""
    ours = found(results, row["ours"])
    shown = f"{shorter(ours)} {row['unit']}".strip()
    peers = row.get("peers", {})
    if not peers:
        return [f"| {row['what']} | {shown} | | |"]
    lines = []
    for at, (peer, path) in enumerate(peers.items()):
        theirs = found(results, path)
        ratio = "" if isinstance(theirs, str) or not theirs else f"{shorter(ours / theirs)} ×"
        first = f"{row['what']} | {shown}" if at == 0 else " | "
        lines.append(f"| {first} | {peer}: {shorter(theirs)} | {ratio} |")
    return lines


def found(results: dict[str, Any], path: str) -> Any:
    """Return what stands at a path; a wrong one is an error."""
    return reduce(lambda inner, key: inner[key], path.split("#"), results)


def shorter(value: float | str) -> str:
    """Return a number with three digits that tell.

    Examples
    --------
    >>> [shorter(n) for n in (6132, 0.7954, 28.04, 1234567.0, "> 20", 4.1, 0.0118)]
    ['6,132', '0.795', '28.0', '1,234,567', '> 20', '4.10', '0.0118']
    """
    if isinstance(value, str):
        return value
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = f"{value:.3g}"
    if "e" in digits:
        return digits
    whole, _, part = digits.partition(".")
    wanted = max(0, 3 - len(whole.lstrip("-0")))
    return f"{whole}.{part:0<{wanted}}" if wanted and len(part) < wanted else digits


def _machine(results: dict[str, Any]) -> str:
    machine = results.get("machine", results)
    told = []
    for name, key in (("Python", "python"), ("cores", "cores"), ("load", "load")):
        value = machine.get(key)
        if isinstance(value, dict):
            value = value.get("before")
        if value is not None:
            told.append(f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}")
    return f": {', '.join(told)}" if told else ""


if __name__ == "__main__":
    raise SystemExit(main())
