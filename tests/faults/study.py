"""A small workspace with something of everything, and what must hold of it after a bad day."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, TypeAlias

import pytest

import sag_research as sag
from sag_research.errors import SagError
from sag_research.extract import EntityExtractor
from sag_research.llm import Context
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.warehouse import VIEWS, Warehouse
from sag_research.workspace import Workspace
from tests.log import writer

Answers: TypeAlias = dict[str, list[tuple[Any, ...]]]

ONCE_AND_OFTEN = [1, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
"""How often a fault is tried: once from a fixed seed, and by `make slow` from 20 new ones."""
SEGMENT_EVENTS = 100
LONG = "the build goes on and on, and nothing that is said of it has a name; " * 12


@dataclass(frozen=True)
class Study:
    """A workspace at rest: where it is, every event that was acknowledged, and its answers."""

    path: Path
    said: dict[tuple[str, int], str]
    answers: Answers

    @property
    def log(self) -> Path:
        return self.path / "log.sqlite"

    @property
    def warehouse(self) -> Path:
        return self.path / "warehouse"

    def copy(self, path: Path) -> Study:
        shutil.copytree(self.path, path)
        return replace(self, path=path)


def seeds(times: int) -> Iterator[Random]:
    """Random numbers for each attempt; an attempt that fails tells its seed."""
    for number in range(times):
        seed = 1 if times == 1 else SystemRandom().randrange(2**32)
        with told(f"attempt {number}, seed {seed}"):
            yield Random(seed)


@contextmanager
def told(words: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(words)
        raise


def record(number: int, steps: int = 5) -> dict[str, Any]:
    actions = [f"sed -n {n}p src/app{number}.py && pytest tests/test_{n}.py" for n in range(steps)]
    return {
        "task_id": f"task-{number % 4}", "repo": "a/b", "model": f"model-{number % 2}",
        "outcome": ("success", "failure")[number % 2],
        "steps": [{"thought": f"look {number}", "action": action, "observation": LONG + action}
                  for action in actions],
    }  # fmt: skip


def build(path: Path) -> Study:
    """Write runs, forks, answers of a model, labels and a redaction; the last runs are a tail."""
    with sag.open(path) as ws:
        runs = ws.add([record(number) for number in range(12)])
        ws.store.create_run(Run(run_id="asker"))
        with redirect_stdout(io.StringIO()):
            writer.agent(Context(ws.store, "asker", model=writer.model()))
        ws.store.fork(runs[0], step=2, run_id="branch")
        ws.store.append(writer.note("branch", "branch", 1))
        ws.redact(runs[3], 3, "a name")
        ws.sync()
        ws.add([record(number) for number in range(20, 23)])
    return at_rest(path)


def at_rest(path: Path) -> Study:
    """Describe a workspace that nobody uses, from its log alone."""
    with SQLiteEventStore(path / "log.sqlite") as store:
        assert store.verify().ok
        said = {(e.run_id, e.position or 0): e.digest or "" for e in store.tail()}
        return Study(path, said, projected(store))


def projected(store: SQLiteEventStore) -> Answers:
    """What a warehouse must answer that is made from nothing."""
    warehouse = Warehouse(None, store, extractor=EntityExtractor())
    try:
        return everything(warehouse)
    finally:
        warehouse.close()


def everything(warehouse: Warehouse) -> Answers:
    return {view: sorted(warehouse.sql(f"FROM {view}").rows(), key=repr) for view in VIEWS}


def asked(path: Path) -> Answers:
    with sag.open(path, create=False) as ws:
        return everything(ws.warehouse)


def one_line(error: SagError) -> str:
    """The words of an error, which must be such that a user can go on from there."""
    text = str(error)
    assert "\n" not in text
    assert error.fix, text
    return text


def words_of(act: Callable[[], object]) -> str:
    """The words of the error that a call ends in, or nothing."""
    try:
        act()
    except SagError as error:
        return one_line(error)
    return ""


def complaint(path: Path) -> str:
    """What a user is told who opens a workspace, asks it everything and verifies it; or nothing."""
    try:
        asked(path)
        with sag.open(path, create=False) as ws:
            report = ws.verify()
    except SagError as error:
        return one_line(error)
    return "; ".join(problem.problem for problem in report.problems)


def in_order(ws: Workspace) -> dict[tuple[str, int], str]:
    return {(e.run_id, e.position or 0): e.digest or "" for e in ws.store.tail()}


def assert_whole(study: Study) -> None:
    """Everything that was acknowledged is there, and every answer is the right one."""
    with sag.open(study.path, create=False) as ws:
        assert everything(ws.warehouse) == study.answers
        assert in_order(ws) == study.said
        assert ws.verify().to_dict()["problems"] == []
        assert ws.sync().done
        assert everything(ws.warehouse) == study.answers


def rebuilt(study: Study) -> None:
    """Do what `sag rebuild` does."""
    with sag.open(study.path, create=False) as ws:
        ws.rebuild()
