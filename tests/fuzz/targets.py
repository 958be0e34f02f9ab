"""What is fuzzed: each target takes files and raises nothing but this package's own errors."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.deadend import load
from sag_research.errors import SagError
from sag_research.exchange import merge
from sag_research.ingest import FORMATS, Format, Source, ingest, read_labels, step_payload
from sag_research.ingest._archives import Bounds, opened
from sag_research.ingest._json import decode, first_fault, first_lines, loads, outline
from sag_research.ingest._walk import find
from sag_research.ingest.conformance import _faults
from sag_research.log import SQLiteEventStore
from sag_research.log import _canonical as canonical
from sag_research.runtime import document_text, load_document, validate_document
from tests.fuzz.cases import lay_out, unpack
from tests.ingest.make import swe_file, write

__all__ = ["SECONDS", "TARGETS", "run"]

SECONDS: Final = 5.0
"""Time of the processor that one input may take."""
_GROWTH: Final = 400 * 2**10
"""KiB by which one input may raise the memory that the process ever had."""

Target = Callable[[Path, list[Path]], object]


def run(data: bytes, folder: Path, targets: Mapping[str, Target] | None = None) -> None:
    """Run one case in an empty folder.

    Raises
    ------
    AssertionError
        If what was read is unsound, or took too long, or too much memory.
    Exception
        Whatever escapes that is no :class:`SagError`: a finding.
    """
    case = unpack(data)
    target = (targets or TARGETS).get(case.target)
    if target is None:
        return
    paths = lay_out(case, folder)
    peak, start = _peak(), time.process_time()
    try:
        target(folder, paths)
    except SagError as error:
        said = str(error)
    else:
        said = "nothing is wrong"
    assert said.strip(), "an error that says nothing"
    seconds, grown = time.process_time() - start, _peak() - peak
    assert seconds < SECONDS, f"{seconds:.1f} s for {len(data)} bytes"
    assert grown < _GROWTH, f"{grown >> 10} MiB more for {len(data)} bytes"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---- reading


def _sources(folder: Path) -> Iterator[Source]:
    for one in find([folder]):
        if not one.problem:
            yield Source(one.path, one.name, one.root, one.members)


def _reader(one: Format) -> Target:
    def read(folder: Path, _: list[Path]) -> None:
        for source in _sources(folder):
            claim = one.sniff(source.head, source.path)
            assert 0 <= claim <= 1, f"claims {claim}"
            reading = one.read(source)
            for run in reading:
                for fault in _faults(run):
                    raise AssertionError(f"{run.task_id[:40]!r}: {fault}")
                for step in run.steps:
                    msgspec.json.encode(step_payload(step))
            assert all(where and why for where, why in reading.refused), "refused without a reason"

    return read


def _ingest(folder: Path, _: list[Path]) -> None:
    """What users do: all formats look at the file, one takes it, and the log holds what it said."""
    write(folder / "good.traj", swe_file())
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder])
        refused = [*report.ignored, *report.rejected]
        assert report.ingested + report.duplicates + len(refused) == report.files
        assert all(reason for _, reason in refused)
        assert report.runs == len(store.runs()) >= 1
        assert store.verify().ok


def _labels(folder: Path, paths: list[Path]) -> None:
    for path in (*paths, folder):
        read_labels(path)


_BOUNDS: Final = Bounds(members=50, size=2**20, ratio=50, free=2**16)


def _archives(folder: Path, paths: list[Path]) -> None:
    before = {*folder.parent.iterdir()}, {*folder.rglob("*")}
    with ExitStack() as held:
        for one in opened(find(paths), held, _BOUNDS):
            assert one.problem or one.path.is_file()
            assert not one.path.is_symlink()
    assert ({*folder.parent.iterdir()}, {*folder.rglob("*")}) == before, "wrote elsewhere"


_ANY: Final = msgspec.json.Decoder(Any)


def _json(_: Path, paths: list[Path]) -> None:
    data = paths[0].read_bytes()
    outline(data)
    for line in first_lines(data):
        outline(line)
    first_fault(data.split(b"\n"))
    try:
        loads(data)
    finally:
        decode(data, _ANY)


# ---- the log


def _canonical(_: Path, paths: list[Path]) -> None:
    try:
        payload = canonical.decode(paths[0].read_bytes(), lambda digest: b"x" * 600)
    except (ValueError, RecursionError):  # what the log translates; msgspec's own are ValueErrors
        return
    body, blobs = canonical.encode(payload)
    assert canonical.decode(body, blobs.__getitem__) == payload, "not as it was"


def _log(_: Path, paths: list[Path]) -> None:
    with SQLiteEventStore(paths[0], read_only=True) as store:
        problems = store.verify().problems
        bad = {one.run for one in problems}
        for one in store.runs():
            try:
                events = [*store.read(one.run_id)]
            except SagError:
                assert bad, "it verifies, and cannot be read"
                continue
            assert all(type(event.payload) is dict for event in events)
        [*store.tail()]


def _merge(_: Path, paths: list[Path]) -> None:
    with SQLiteEventStore(":memory:") as store:
        try:
            merge(store, paths[:1])
        finally:
            assert store.verify().ok, "a merge left a log that does not verify"


# ---- models and documents


def _model(folder: Path, paths: list[Path]) -> None:
    text, numbers = folder / "m.json", folder / "m.npz"
    if text in paths and numbers in paths:  # past the check that the two belong together
        written = _read(text)
        if isinstance(written, dict):
            written["arrays"] = blake2b(numbers.read_bytes(), digest_size=16).hexdigest()
            text.write_text(json.dumps(written), encoding="utf-8")
    load(folder / "m")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None


def _document(_: Path, paths: list[Path]) -> None:
    document = load_document(paths[0])
    if not validate_document(document):
        assert load_document(document_text(document)) == document, "not as it was written"


TARGETS: Final[dict[str, Target]] = {
    **{one.name: _reader(one) for one in FORMATS},
    "ingest": _ingest,
    "labels": _labels,
    "archives": _archives,
    "json": _json,
    "canonical": _canonical,
    "log": _log,
    "merge": _merge,
    "model": _model,
    "document": _document,
}
"""By name: every format there is, and what else reads files of others."""
