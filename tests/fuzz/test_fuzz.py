"""Nothing but this package's own errors comes out of a reader, whatever it is given."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import FORMATS
from tests.fuzz.cases import Case, lay_out, pack, unpack
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import all_seeds
from tests.fuzz.targets import TARGETS, run

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = sorted(Path(__file__).parent.joinpath("corpus").glob("*.case"))
TEN_MINUTES: Final = 600
SHARE: Final = int(os.environ.get("SAG_FUZZ_SECONDS", -(-TEN_MINUTES // len(TARGETS))))
"""Seconds of each target in the long run, one after the other: ten minutes in all, or what
``SAG_FUZZ_SECONDS`` says for each (600 takes a night)."""
needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this machine"
)


@pytest.fixture(scope="module")
def seeds() -> list[Case]:
    return all_seeds()


def fuzz(findings: Path, seconds: int, *names: str) -> str:
    """Fuzz in a child process; return what it said and found, which should be nothing."""
    named = [word for name in names for word in ("--target", name)]
    command = [sys.executable, "-m", "tests.fuzz.fuzz", str(findings), "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, *named], cwd=ROOT, check=False, capture_output=True, text=True,
        encoding="utf-8", errors="replace", timeout=seconds + 110, stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(findings.parent)},
    )  # fmt: skip
    said = done.stderr[-3_000:] if done.returncode else ""
    assert "number_of_executed_units" in done.stderr, said or done.stderr[-3_000:]
    told = [path.read_text(encoding="utf-8") for path in sorted(findings.glob("*.txt"))]
    return "\n".join([*told, said]).strip()


@needs_atheris
def test_one_minute_of_fuzzing(tmp_path: Path) -> None:
    """All targets in one process: the fuzzer chooses what is worth its time."""
    assert fuzz(tmp_path / "findings", 60) == ""


@pytest.mark.slow
@needs_atheris
@pytest.mark.timeout(SHARE + 120)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_ten_minutes_of_fuzzing(tmp_path: Path, name: str) -> None:
    """Each target for itself, each for the same part of ten minutes."""
    assert fuzz(tmp_path / "findings", SHARE, name) == ""


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_found_once_stays_mended(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()
    assert unpack(data).target in TARGETS
    run(data, tmp_path)


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS) < 300_000


# ---- the fuzzing itself


def test_every_target_has_seeds_that_it_reads(tmp_path: Path, seeds: list[Case]) -> None:
    assert {seed.target for seed in seeds} == set(TARGETS)
    assert {one.name for one in FORMATS} < set(TARGETS)
    for number, seed in enumerate(seeds):
        folder = tmp_path / str(number) / "in"
        folder.mkdir(parents=True)
        run(pack(seed), folder)


def test_of_every_format_an_example_is_claimed(tmp_path: Path, seeds: list[Case]) -> None:
    claimed = set()
    for number, seed in enumerate(seeds):
        (folder := tmp_path / str(number)).mkdir()
        for path in lay_out(seed, folder):
            for one in FORMATS:
                if one.name == seed.target and one.sniff(path.read_bytes(), path) > 0.5:
                    claimed.add(one.name)
    folders = {"openhands-sdk"}  # of it a folder is the example, and a single event is not sure
    assert {one.name for one in FORMATS} - claimed <= folders


def test_cases_come_back(seeds: list[Case]) -> None:
    apart = [seed for seed in seeds if not any(b"\n\x1c" in data for _, data in seed.files)]
    assert len(apart) > len(seeds) * 0.8
    assert all(unpack(pack(seed)) == seed for seed in apart)


@pytest.mark.parametrize("name", [b"../../x", b"/etc/x", b"a/../../x", b"..", b"a\x00b", b"\xff"])
def test_a_case_is_laid_out_in_its_folder(tmp_path: Path, name: bytes) -> None:
    (place := tmp_path / "in").mkdir()
    lay_out(unpack(b"json\n\x1c" + name + b"\ndata\n\x1c" + name + b"/y\nmore"), place)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [*place.rglob("*")]


def test_a_mutation_is_fixed_by_its_seed_and_keeps_the_target(seeds: list[Case]) -> None:
    changed = 0
    for number, seed in enumerate(seeds):
        data = pack(seed)
        one, two = (mutated(data, 2**18, number, lambda part: part[::-1]) for _ in range(2))
        assert one == two
        assert unpack(one).target == seed.target
        changed += one != data
    assert changed > len(seeds) * 0.8


def test_most_mutations_are_still_claimed(tmp_path: Path, seeds: list[Case]) -> None:
    """They change what stands in a file and not what it is; else only the parser is fuzzed."""
    swe = next(seed for seed in seeds if seed.target == "swe-agent")
    one = next(one for one in FORMATS if one.name == "swe-agent")
    claims = 0
    for number in range(100):
        case = unpack(mutated(pack(swe), 2**18, number, lambda part: part[::-1]))
        claims += one.sniff(case.files[0][1], Path("x.json")) > 0
    assert claims > 60


def raises_key_error(folder: Path, paths: list[Path]) -> None:
    {}["a"]


def waits(folder: Path, paths: list[Path]) -> None:
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass


def grows(folder: Path, paths: list[Path]) -> None:
    bytearray(2**29)[:: 2**12] = b"x" * 2**17


def refuses(folder: Path, paths: list[Path]) -> None:
    raise FormatError("no trajectory")


def is_dumb(folder: Path, paths: list[Path]) -> None:
    raise FormatError("")


def test_what_escapes_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.targets.SECONDS", 0.1)
    targets = {"key": raises_key_error, "slow": waits, "large": grows, "no": refuses, "": is_dumb}
    run(b"no\n\x1ca\n", tmp_path, targets)
    with pytest.raises(KeyError):
        run(b"key\n\x1cb\n", tmp_path, targets)
    with pytest.raises(AssertionError, match="s for 8 bytes"):
        run(b"slow\n\x1cc\n", tmp_path, targets)
    with pytest.raises(AssertionError, match="says nothing"):
        run(b"\n\x1cd\n", tmp_path, targets)
    monkeypatch.setattr("tests.fuzz.targets.SECONDS", 60)
    with pytest.raises(AssertionError, match="MiB more"):
        run(b"large\n\x1ce\n", tmp_path, targets)


@needs_atheris
def test_a_fault_is_found_and_fails(tmp_path: Path) -> None:
    """A reader that is broken on purpose is noticed by the process that fuzzes."""
    (hook := tmp_path / "hook").mkdir()
    (hook / "sitecustomize.py").write_text(
        "import json\nold = json.loads\n"
        "def loads(text, **more):\n"
        "    value = old(text, **more)\n"
        "    return {}['gone'] if more.get('parse_int') and isinstance(value, list) else value\n"
        "json.loads = loads\n",
        encoding="utf-8",
    )
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(hook), before]))
    try:
        found = fuzz(tmp_path / "findings", 2, "json")
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    assert "json KeyError _json.py" in found
    assert [*tmp_path.glob("findings/*.case")]
