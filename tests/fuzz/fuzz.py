"""Fuzz, guided by coverage: ``python -m tests.fuzz.fuzz FINDINGS --seconds 60 [--target NAME …]``.

One process fuzzes all targets that are named; which part of the time each gets is then up to
the fuzzer, which prefers inputs that are new. What is found is written into the folder, once for
each place and kind of error, and the fuzzing goes on.
"""

from __future__ import annotations

import argparse
import faulthandler
import shutil
import sys
import tempfile
import traceback
from collections.abc import Collection
from hashlib import blake2b
from pathlib import Path

import atheris

# imported first, so that what they need is not instrumented, which would only take time
import duckdb  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import rdflib  # noqa: F401
import sklearn.ensemble  # noqa: F401

with atheris.instrument_imports(include=["sag_research"]):
    from sag_research.errors import Caught
    from tests.fuzz.targets import TARGETS, run

from tests.fuzz.cases import pack
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import all_seeds

CORPUS = Path(__file__).parent / "corpus"
_LONGEST = 2**18
_HANGS = 30
"""Seconds after which an input that has not ended is a finding, and the process ends."""


class Finder:
    """Runs inputs and keeps those that raise."""

    def __init__(self, findings: Path) -> None:
        self.findings, self.folder = findings, Path(tempfile.mkdtemp(prefix="sag-fuzz-"))
        self.known: set[str] = set()

    def __call__(self, data: bytes) -> None:
        """Run one input."""
        place = self.folder / "in"
        place.mkdir()
        with Caught() as caught:
            run(data, place)
        shutil.rmtree(place, ignore_errors=True)
        if caught.error is not None:
            self._keep(data, caught.error)

    def _keep(self, data: bytes, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [one for one in frames if "sag_research" in one.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        target = data.partition(b"\n")[0].decode("ascii", "replace")[:40]
        key = f"{target} {type(error).__name__} {where}"
        if key not in self.known:
            self.known.add(key)
            name = blake2b(key.encode(), digest_size=5).hexdigest()
            (self.findings / f"{name}.case").write_bytes(data)
            told = "".join(traceback.format_exception(error))
            about = f"{key}\n{told}".encode("utf-8", "backslashreplace")
            (self.findings / f"{name}.txt").write_bytes(about)
            print(f"FOUND {key}: {str(error)[:200]!r}", file=sys.stderr, flush=True)


def write_corpus(folder: Path, names: Collection[str]) -> int:
    """Write the seeds and the kept corpus of some targets; return how many there are."""
    wanted = set(names)
    cases = [pack(case) for case in all_seeds(wanted)]
    kept = [path.read_bytes() for path in sorted(CORPUS.glob("*.case"))]
    cases += [data for data in kept if data.partition(b"\n")[0].decode() in wanted]
    for number, data in enumerate(cases):
        (folder / f"{number:04}").write_bytes(data)
    return len(cases)


def main() -> None:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("findings", type=Path)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    chosen = parser.parse_args()
    chosen.findings.mkdir(parents=True, exist_ok=True)
    faulthandler.enable()
    finder = Finder(chosen.findings)
    corpus = finder.folder / "corpus"
    corpus.mkdir()
    count = write_corpus(corpus, chosen.target or TARGETS)
    print(f"{count} seeds", file=sys.stderr, flush=True)
    options = [
        f"-max_total_time={chosen.seconds}", f"-seed={chosen.seed}", f"-max_len={_LONGEST}",
        f"-timeout={_HANGS}", "-rss_limit_mb=4096", "-print_final_stats=1", "-len_control=0",
        f"-artifact_prefix={chosen.findings}/", "-verbosity=1", str(corpus),
    ]  # fmt: skip

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        return mutated(data, most, seed, lambda part: atheris.Mutate(part, len(part) + 64))

    atheris.Setup([sys.argv[0], *options], finder, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
