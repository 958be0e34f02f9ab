"""Fail where README, RESEARCH.md or docs quote a measured number that no result file holds.

    python scripts/check_numbers.py

A measured number is one with a decimal point, outside code, links and versions. It must stand in a
result file that its section names (``benchmarks/NAME.py`` means ``benchmarks/results/NAME.json``),
rounded as it is quoted; per cent, thousands, thousandths and millionths of it will do. What comes
from elsewhere (a setting, a definition, a test) is listed with its source in
``benchmarks/quoted.toml``, by file and section.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
QUOTED = ROOT / "benchmarks" / "quoted.toml"
NUMBER = re.compile(r"(?<![\w.,/§-])(\d{0,3}(?:,\d{3})*\.\d+)(?![\w/]|\.\d)")
NAMED = re.compile(r"benchmarks/(?:results/)?(\w+)\.(?:py|json)")
UNQUOTED = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)
HEADING = re.compile(r"(?m)^(?=#{1,6} )")
SCALES = (1, 100, 1e3, 1e-3, 1e6, 1e-6)


class Quote(NamedTuple):
    """A number in a text, and the result files that may hold it."""

    where: str
    section: str
    number: str
    files: tuple[str, ...]


def main() -> int:
    """Print what no result file holds."""
    allowed = tomllib.loads(QUOTED.read_text(encoding="utf-8")) if QUOTED.is_file() else {}
    held: dict[str, list[float]] = {}
    problems = 0
    for quote in (one for path in texts() for one in quotes(path)):
        known = allowed.get(quote.where, {}).get(quote.section, {})
        if quote.number in known.get("numbers", ()):
            continue
        if not any(holds(_values(held, name), quote.number) for name in quote.files):
            named = ", ".join(quote.files) or "no benchmark"
            print(f"{quote.where}: {quote.section}: {quote.number} ({named})")
            problems += 1
    return min(problems, 1)


def texts() -> list[Path]:
    """Return the Markdown files that are checked."""
    return [ROOT / "README.md", ROOT / "RESEARCH.md", *sorted((ROOT / "docs").rglob("*.md"))]


def quotes(path: Path) -> Iterator[Quote]:
    """Yield the measured numbers of a text; sections below a heading may use what it names."""
    where = path.relative_to(ROOT).as_posix()
    above: dict[int, tuple[str, ...]] = {}
    for part in HEADING.split(path.read_text(encoding="utf-8")):
        title = part.partition("\n")[0]
        level = len(title) - len(title.lstrip("#"))
        above = {one: files for one, files in above.items() if one < level}
        above[level] = tuple(dict.fromkeys(NAMED.findall(part)))
        files = tuple(name for names in above.values() for name in names)
        for match in NUMBER.finditer(UNQUOTED.sub(" ", part)):
            yield Quote(where, title.lstrip("# "), match[1], files)


def holds(values: list[float], quoted: str) -> bool:
    """Say whether one of the sorted values is the number, as it is rounded.

    Examples
    --------
    >>> holds([0.1234, 5.0], ".12"), holds([0.1234], "12.3"), holds([0.1234], ".13")
    (True, True, False)
    """
    number = float(quoted.replace(",", ""))
    half = 0.5 * 10.0 ** -len(quoted.partition(".")[2])
    for scale in SCALES:
        at = bisect_left(values, (number - half) / scale - 1e-12)
        if at < len(values) and values[at] * scale <= number + half + 1e-9:
            return True
    return False


def _values(held: dict[str, list[float]], name: str) -> list[float]:
    if name not in held:
        file = RESULTS / f"{name}.json"
        told = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        held[name] = sorted(set(map(abs, _numbers(told))))
    return held[name]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


if __name__ == "__main__":
    sys.exit(main())
