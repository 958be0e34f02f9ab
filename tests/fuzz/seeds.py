"""Where fuzzing begins: the examples that the formats' own tests write, and small other files."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import pkgutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import zstandard

import tests.ingest.formats as format_tests
from sag_research.deadend import Alarm, model_of, save
from sag_research.ingest.conformance import FormatConformance
from sag_research.ingest.formats import FORMATS
from sag_research.log import SQLiteEventStore
from sag_research.log._canonical import encode
from sag_research.model import Event, Run
from sag_research.runtime import bundled_document, document_text
from tests.conformance.test_formats import EXAMPLES
from tests.deadend.features import cohort
from tests.fuzz.cases import Case
from tests.ingest import make
from tests.ingest.test_archives import FILES, write_tar, write_zip

__all__ = ["all_seeds"]

_MOST: Final = 200_000
"""Bytes of a seed; what is larger is read too rarely to teach anything."""


def all_seeds(wanted: Collection[str] | None = None) -> list[Case]:
    """Return seeds of every target, or of those that are wanted; of the same content one."""
    kinds = {
        "labels": _labels, "archives": _archives, "log": _logs, "merge": _logs, "model": _models,
        "json": _others, "canonical": _others, "document": _others,
    }  # fmt: skip
    makers = {maker for name, maker in kinds.items() if wanted is None or name in wanted}
    if wanted is None or not {*wanted} <= {*kinds}:
        makers.add(_formats)
    order = (_formats, _labels, _archives, _logs, _models, _others)
    found = dict.fromkeys(case for maker in order if maker in makers for case in maker())
    small = [case for case in found if sum(len(data) for _, data in case.files) <= _MOST]
    return [case for case in small if wanted is None or case.target in wanted]


# ---- formats


def _formats() -> Iterator[Case]:
    for name, writers in EXAMPLES.items():
        for writer in writers:
            yield from _written(name, writer)
    for suite in _suites():
        yield from _written(suite.format().name, suite.examples)
    known = {one.name for one in FORMATS}
    for one in sorted(known):
        yield Case(one, (("x.json", b'[{"a": 1}]'),))


def _suites() -> Iterator[FormatConformance]:
    """Yield what the test modules of single formats say about their examples."""
    for module in pkgutil.iter_modules(format_tests.__path__, f"{format_tests.__name__}."):
        for found in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(found, type)
                and issubclass(found, FormatConformance)
                and found.__module__ == module.name
            ):
                yield found()


def _written(target: str, writer: Any) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in writer(folder):
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            found = [
                (file.relative_to(folder).as_posix(), file) for file in files if file.is_file()
            ]
            yield Case(target, tuple((name, file.read_bytes()) for name, file in found))
            if path.is_file():
                yield Case("ingest", ((path.name, path.read_bytes()),))


# ---- labels


_ROWS: Final = [
    {"task_id": "t", "outcome": "success", "score": "1.0", "model": "m", "known_at_step": "3"},
    {"task_id": "u", "outcome": "failure", "score": "", "model": "m", "known_at_step": ""},
]
_REPORTS: Final[tuple[Any, ...]] = (
    {"resolved_ids": ["t"], "unresolved_ids": ["u"], "error_ids": [], "total_instances": 2},
    {"resolved": ["t"], "applied": ["t", "u"], "no_generation": ["v"], "generated": ["t", "u"]},
    {"t": {"patch_exists": True, "resolved": True, "tests_status": {"FAIL_TO_PASS": {}}}},
    [{"instance_id": "t", "test_result": {"report": {"resolved": True}}}],
    {"results": [{"task_id": "t", "trial": 0, "reward": 1.0}]},
)


def _labels() -> Iterator[Case]:
    text = io.StringIO()
    writer = csv.DictWriter(text, _ROWS[0])
    writer.writeheader()
    writer.writerows(_ROWS)
    yield Case("labels", (("labels.csv", text.getvalue().encode()),))
    for value in _REPORTS:
        yield Case("labels", (("report.json", json.dumps(value).encode()),))
    lines = b"\n".join(json.dumps(row).encode() for row in _ROWS)
    yield Case("labels", (("labels.jsonl", lines),))
    yield Case(
        "labels", (("a.json", json.dumps(_REPORTS[0]).encode()), ("b.csv", b"task_id,outcome\n"))
    )


# ---- archives


def _archives() -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = write_tar(folder / "set.tar", FILES).read_bytes()
        for name, data in (
            ("set.zip", write_zip(folder / "set.zip", FILES).read_bytes()),
            ("set.tar", plain),
            ("set.tar.gz", gzip.compress(plain, mtime=0)),
            ("set.tar.zst", zstandard.compress(plain)),
            ("set.tar.xz", write_tar(folder / "set.tar.xz", FILES, "w:xz").read_bytes()),
        ):
            yield Case("archives", ((name, data),))


# ---- the log


def _logs() -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "log.sqlite")
        with SQLiteEventStore(path) as store:
            _fill(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("PRAGMA journal_mode=DELETE")
            file.execute("VACUUM")
        data = path.read_bytes()
    yield Case("log", (("log.sqlite", data),))
    yield Case("merge", (("log.sqlite", data),))


def _fill(store: SQLiteEventStore) -> None:
    long = "a text that is kept beside the events " * 30
    store.create_run(Run(run_id="a", goal="Mend it."))
    for step in range(3):
        store.append(Event(run_id="a", type="agent.step", payload={"action": "ls", "seen": long}))
        store.append(Event(run_id="a", type="note.taken", payload={"n": step, "of": [long, step]}))
    store.fork("a", at=4, run_id="b", intervention={"said": "look first"})
    store.append(Event(run_id="b", type="agent.step", payload={"action": "cat"}))
    store.append(
        Event(
            run_id="@workspace",
            type="outcome.recorded",
            payload={"run": "a", "outcome": "failure", "source": "me"},
        )
    )
    for kind in ("annotation.added", "run.hidden"):
        store.append(Event(run_id="@workspace", type=kind, payload={"run": "b", "by": "me"}))


# ---- fitted models


def _models() -> Iterator[Case]:
    prefixes = cohort(tasks=12, seed=1)
    with tempfile.TemporaryDirectory() as name:
        for model in ("majority", "prior", "hazard", "backoff", "markov", "trie", "stack"):
            risk = model_of(model)
            if "trees" in risk.get_params():
                risk.set_params(trees=4, min_leaf=5)
            save(risk.fit(prefixes), Path(name, model))
            yield _saved(Path(name, model))
        save(Alarm(alpha=0.2).calibrate(risk, prefixes), Path(name, "alarm"))
        yield _saved(Path(name, "alarm"))


def _saved(path: Path) -> Case:
    files = (("m.json", path.with_suffix(".json")), ("m.npz", path.with_suffix(".npz")))
    return Case("model", tuple((name, file.read_bytes()) for name, file in files))


# ---- JSON, canonical bodies and documents


def _others() -> Iterator[Case]:
    for value in (make.swe_file(), [1.5, None, "x", {"a": [{}]}], make.native()):
        yield Case("json", (("x.json", json.dumps(value).encode()),))
    yield Case("json", (("x.jsonl", b'{"a": "half \\ud835"}\n\n{"b": 1e400}\nNaN\n'),))
    for payload in ({"a": 1, "b": ["x" * 600, {"c": "y" * 700}]}, make.native()):
        yield Case("canonical", (("body.json", encode(payload)[0]),))
    for name in ("react-agent", "react-agent-memory-trace"):
        yield Case("document", (("d.json", document_text(bundled_document(name)).encode()),))
    yield Case("document", (("d.json", json.dumps(_SMALL).encode()),))


_SMALL: Final = {
    "@id": "urn:x:stop", "@type": "DAG", "name": "stop", "version": "1",
    "entrypoints": {"main": "urn:x:stop:end"},
    "nodes": [{"@id": "urn:x:stop:end", "@type": "TerminalNode", "name": "end",
               "outcome": "completed"}],
}  # fmt: skip
