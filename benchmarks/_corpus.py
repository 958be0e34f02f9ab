"""Many trajectory files made from few: each a copy with other names and numbers in its texts.

Copies compress and deduplicate better than real runs, so sizes on disk are not reported from
them; parsing, matching and writing cost what they cost on the originals.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path

from sag_research.lab import bundled

WORD = re.compile(rb"\b[a-z]{5,12}\b")
RESERVED = {
    b"action", b"observation", b"response", b"thought", b"state", b"trajectory", b"history",
    b"messages", b"content", b"environment", b"query", b"submission", b"exit_status", b"stats",
    b"model", b"agent", b"function", b"arguments", b"false", b"config", b"command",
}  # fmt: skip


def originals(real: Path | None) -> list[bytes]:
    """Return the templates: real SWE-agent files where given, else the bundled set."""
    if real is not None:
        folders = ("sweagent_demos", "swesmith_sweagent_v1")
        paths = sorted(p for name in folders for p in (real / name).rglob("*.traj"))
        data = [path.read_bytes() for path in paths]
        return sorted({d for d in data if len(d) < 150_000 and b'"trajectory"' in d})
    return [gzip.decompress(p.read_bytes()) for p in sorted(bundled("bugfix").rglob("*.traj.gz"))]


def write_copies(folder: Path, n: int, templates: list[bytes], seed: int = 7) -> int:
    """Write ``n`` files; returns their size in bytes."""
    total = 0
    rng = random.Random(seed)
    words = [_frequent(template) for template in templates]
    for number in range(n):
        which = number % len(templates)
        data = templates[which]
        for word in rng.sample(words[which], min(8, len(words[which]))):
            data = data.replace(word, b"%s%d" % (word[:-1], number))
        path = folder / f"{number // 1000:03d}" / f"acme__copy-{number}.traj"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        total += len(data)
    return total


def _frequent(data: bytes) -> list[bytes]:
    counts: dict[bytes, int] = {}
    for word in WORD.findall(data):
        counts[word] = counts.get(word, 0) + 1
    often = sorted(counts, key=lambda word: (-counts[word], word))
    return [word for word in often if word not in RESERVED][:40]


def chunks(folder: Path, rounds: int, pattern: str = "*.traj") -> Iterator[list[Path]]:
    """Part the files into rounds of equal size."""
    paths = sorted(folder.rglob(pattern))
    size = -(-len(paths) // rounds)
    for start in range(0, len(paths), size):
        yield paths[start : start + size]
