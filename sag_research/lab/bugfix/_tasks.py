"""The tasks: small broken packages, kept as data files beside this module.

``repos/<repo>/`` holds each package in working order (Python files carry the extra suffix
``.in``, so that no tool takes them for modules of ours), ``tasks/<task_id>/task.toml`` says how
a task breaks it, and ``tasks/<task_id>/official.py.in`` is the held-out test.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from sag_research.errors import MissingDataError, SagError

__all__ = ["Edit", "Task", "apply", "load_task", "task_ids"]

HERE = Path(__file__).parent


class Edit(msgspec.Struct, frozen=True):
    """Replace ``old``, which stands exactly once in ``file``, by ``new``."""

    file: str
    old: str
    new: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One bug in one repository.

    Attributes
    ----------
    task_id : str
        ``<org>__<repo>-<number>``.
    repo : str
        ``<org>__<repo>``; several tasks may share one.
    problem : str
        The issue text the agent is given.
    difficulty : {'easy', 'medium', 'hard'}
    error : str
        Type of the error that the visible test ends in.
    misleading : bool
        Whether the traceback names another file than the one to repair.
    fix : tuple of Edit
        The true repair.
    decoy : tuple of Edit
        Plausible edits that fail the held-out test; some pass the visible ones.
    """

    task_id: str
    repo: str
    problem: str
    difficulty: Literal["easy", "medium", "hard"]
    error: str
    misleading: bool
    fix: tuple[Edit, ...]
    decoy: tuple[Edit, ...]

    def files(self) -> dict[str, str]:
        """The broken package: path relative to the repository -> text."""
        broken = dict(_repo_files(self.repo))
        for edit in self.fix:
            broken = apply(broken, Edit(edit.file, edit.new, edit.old))
        return broken

    def official(self) -> str:
        """Text of the held-out test."""
        return _text(HERE / "tasks" / self.task_id / "official.py.in")


def apply(files: dict[str, str], edit: Edit) -> dict[str, str]:
    """Return ``files`` with one edit made.

    Raises
    ------
    SagError
        If ``edit.old`` does not stand exactly once in ``edit.file``.

    Examples
    --------
    >>> apply({"a.py": "x = 1"}, Edit("a.py", "1", "2"))
    {'a.py': 'x = 2'}
    """
    count = files.get(edit.file, "").count(edit.old)
    if count != 1:
        raise SagError(
            f"edit of {edit.file} does not apply",
            why=f"the old text stands there {count} times",
            fix="correct the task's data file",
        )
    return {**files, edit.file: files[edit.file].replace(edit.old, edit.new)}


def task_ids() -> tuple[str, ...]:
    """Ids of all tasks, sorted.

    Examples
    --------
    >>> len(task_ids()) >= 24
    True
    """
    return tuple(sorted(path.parent.name for path in HERE.glob("tasks/*/task.toml")))


@cache
def load_task(task_id: str) -> Task:
    """Read one task.

    Examples
    --------
    >>> load_task("lumen__confkit-9").error
    'JSONDecodeError'
    """
    if task_id not in task_ids():
        raise MissingDataError(f"no task {task_id!r}", fix="see task_ids() for those there are")
    data = tomllib.loads(_text(HERE / "tasks" / task_id / "task.toml"))
    data["problem"] = data["problem"].strip()
    return msgspec.convert({"task_id": task_id, **data}, Task)


@cache
def _repo_files(repo: str) -> dict[str, str]:
    root = HERE / "repos" / repo
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix().removesuffix(".in"): _text(path) for path in paths}


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8")
