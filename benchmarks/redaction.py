"""How many secrets are found and how much else is touched, against detect-secrets alone.

    SAG_REAL_DATA=... python benchmarks/redaction.py [--rounds 2] [--real FOLDER ...]

The set is made when the program runs: secrets of 81 kinds, each plain, split over terminal codes,
over line breaks, in base64, in a traceback's locals, in JSON within JSON and in a URL; and texts of
46 kinds that hold none, such as digests, uuids, images and names of tests. A secret counts as found
where nothing of it can be read off the cleaned text (eight characters in a row), by a check that
shares no code with the detection. The peer, which does not replace, is given more: a secret counts
as found where anything in its text is flagged. With real trajectories, in which no secret is known,
what is flagged is counted by kind. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from sag_research.ingest.secrets import find_secrets, kinds, redact_text, scan  # noqa: E402
from sag_research.ingest.secrets._second import _DETECTORS, second_version  # noqa: E402
from tests.ingest.secrets.seeds import SHAPES, harmless, remains, seeds  # noqa: E402

RESULT = HERE / "results" / "redaction.json"
MEGABYTE = 1_000_000


def wilson(hits: int, n: int) -> dict[str, Any]:
    """A share with its interval."""
    if n == 0:
        return {"hits": 0, "n": 0}
    z, p = 1.959964, hits / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    share = {"share": p, "low": max(0.0, middle - half), "high": min(1.0, middle + half)}
    return {"hits": hits, "n": n} | {name: round(value, 4) for name, value in share.items()}


def peer(plugins: str, folder: Path) -> Callable[[str], bool]:
    """detect-secrets by itself, on a file, as it is meant: with all or some of its plug-ins."""
    from detect_secrets import SecretsCollection
    from detect_secrets.settings import default_settings, get_settings

    some = {*_DETECTORS.values(), "PrivateKeyDetector"}
    path = folder / "step.txt"

    def flags(text: str) -> bool:
        path.write_text(text, encoding="utf-8")
        with default_settings():
            if plugins != "default":
                others = set(get_settings().plugins) - some
                get_settings().disable_plugins(*others)
            found = SecretsCollection()
            found.scan_file(str(path))
        return len(list(found)) > 0

    return flags


def ours(second: bool) -> Callable[[str], str]:
    def clean(text: str) -> str:
        for one in reversed(find_secrets(text, second=second)):
            text = text[: one.start] + one.token + text[one.end :]
        return text

    return clean


def measure(rounds: int, folder: Path) -> dict[str, Any]:
    """Precision and recall of ours and of the peer on the same texts."""
    seeded = list(seeds(seed=2024, rounds=rounds))
    clean = list(harmless(seed=2024, each=10 * rounds))
    found: dict[str, list[bool]] = {}
    flagged: dict[str, list[bool]] = {}
    for name, second in (("sag_research", False), ("sag_research with detect-secrets", True)):
        run = ours(second)
        found[name] = [not remains(run(one.text), one.secret) for one in seeded]
        flagged[name] = [run(text) != text for _, text in clean]
    if second_version():
        for plugins in ("default", "without entropy and keywords"):
            flags = peer(plugins, folder)
            name = f"detect-secrets, {plugins}"
            found[name] = [flags(one.text) for one in seeded]
            flagged[name] = [flags(text) for _, text in clean]
    return {name: _figures(seeded, found[name], clean, flagged[name]) for name in found}


def _figures(
    seeded: list[Any], found: list[bool], clean: list[Any], flagged: list[bool]
) -> dict[str, Any]:
    by_variant: defaultdict[str, list[bool]] = defaultdict(list)
    missed: Counter[str] = Counter()
    for one, hit in zip(seeded, found, strict=True):
        by_variant[one.variant].append(hit)
        missed[f"{one.kind}, {one.variant}"] += not hit
    touched = Counter(kind for (kind, _), flag in zip(clean, flagged, strict=True) if flag)
    return {
        "recall": wilson(sum(found), len(found)),
        "recall_by_variant": {n: wilson(sum(v), len(v)) for n, v in by_variant.items()},
        "precision": wilson(sum(found), sum(found) + sum(flagged)),
        "false_alarms": wilson(sum(flagged), len(flagged)),
        "touched": dict(touched.most_common(12)),
        "missed": sorted(name for name, n in missed.items() if n)[:40],
    }


def speed(folder: Path, rounds: int) -> dict[str, Any]:
    """Megabytes a second, ours and the peer in turns on one text."""
    rng = random.Random(5)
    lines = [text for _, text in harmless(seed=5, each=3)]
    rng.shuffle(lines)
    text = ("\n".join(lines) * 20)[:MEGABYTE]
    runs: dict[str, Callable[[], Any]] = {
        "sag_research": lambda: find_secrets(text, second=False),
        "sag_research with detect-secrets": lambda: find_secrets(text),
        "one line of letters": lambda: find_secrets("a" * MEGABYTE, second=False),
    }
    if second_version():
        flags = peer("default", folder)
        runs["detect-secrets, default"] = lambda: flags(text)
    took: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            took[name].append(time.perf_counter() - start)
    return {
        name: {"seconds_per_megabyte": round(statistics.median(all_), 3)}
        for name, all_ in took.items()
    }


def real(folders: Iterable[Path]) -> dict[str, Any]:
    """What is flagged in real trajectories, by folder and kind."""
    result = {}
    for folder in folders:
        start = time.perf_counter()
        report = scan([folder])
        result[folder.name] = {
            "files": report.files,
            "flagged": len(report.found),
            "by_kind": report.counts,
            "not_read": len(report.unread),
            "seconds": round(time.perf_counter() - start, 1),
        }
        print(f"  {folder.name}: {result[folder.name]}", flush=True)
    return result


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--speed-rounds", type=int, default=3)
    parser.add_argument("--real", nargs="*", help="Folders of SAG_REAL_DATA; default: all.")
    options = parser.parse_args()
    assert redact_text("PGPASSWORD=hunter2") != "PGPASSWORD=hunter2"
    result: dict[str, Any] = {
        "kinds": {"known": len(kinds()), "seeded": len(SHAPES)},
        "detect_secrets": second_version(),
        "python": platform.python_version(),
    }
    with TemporaryDirectory() as folder:
        result["seeded"] = measure(options.rounds, Path(folder))
        result["speed"] = speed(Path(folder), options.speed_rounds)
    for name, figures in result["seeded"].items():
        for what in ("recall", "precision", "false_alarms"):
            one = figures[what]
            print(f"{name:40} {what:13} {one['share']:.4f} [{one['low']:.4f}, {one['high']:.4f}]"
                  f" n={one['n']}")  # fmt: skip
    print(json.dumps(result["speed"]))
    if data := os.environ.get("SAG_REAL_DATA"):
        names = options.real or sorted(path.name for path in Path(data).iterdir() if path.is_dir())
        result["real"] = real(Path(data) / name for name in names)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {RESULT.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
