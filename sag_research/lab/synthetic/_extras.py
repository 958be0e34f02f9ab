"""Entities and texts of synthetic steps: made from the tokens and the task, never from the states.

They tell an estimator nothing about the outcome beyond the tokens, except which task it is: file
names are the task's own. Whoever learns them profits from a split that puts runs of one task on
both sides, and from no other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sag_research.lab.synthetic._world import Ints

__all__ = ["entities", "texts"]

TOOLS = {"search": "grep", "test": "pytest", "run": "python", "git": "git", "install": "pip"}
ERRORS = ("ValueError", "TypeError", "KeyError", "AttributeError", "ImportError", "OSError")
FILES = 6

THOUGHTS = {
    "look": "Let me read {file}.",
    "search": "Where is it used? I will search for it.",
    "edit": "I change {file} now.",
    "create": "A small script will show the problem.",
    "run": "Let me run it.",
    "install": "A package seems to be missing.",
    "test": "Let me run the tests.",
    "git": "What have I changed so far?",
    "think": "Let me think about {file} again.",
    "submit": "I am done.",
}
OBSERVATIONS = {
    "ok": "1 {file}",
    "long": "1 {file}\n" * 12,
    "error": "Traceback (most recent call last):\n  {file}\n{error}: unexpected",
    "empty": "",
    "same-as-before": "(no change)",
    "test-fail": "1 failed, 7 passed\n{error} in {file}",
    "test-pass": "8 passed",
    "not-found": "{file}: no such file",
    "timeout": "timed out after 60 s",
    "none": "",
}


def entities(
    rng: np.random.Generator, parts: Sequence[tuple[str, str, str]], tokens: Ints, task: Ints
) -> tuple[Ints, NDArray[np.int32], tuple[str, ...]]:
    """Return the steps' entities as rows of a sparse matrix: offsets, ids, names."""
    tools = sorted(set(TOOLS.values()))
    n_tasks = int(task.max(initial=-1)) + 1
    names = [
        *tools,
        *ERRORS,
        *(f"task-{k:04d}/file_{f}.py" for k in range(n_tasks) for f in range(FILES)),
    ]
    tool = np.array([tools.index(TOOLS[verb]) if verb in TOOLS else -1 for verb, _, _ in parts])
    fails = np.array([result in {"error", "test-fail"} for _, _, result in parts])
    has_file = np.array([thing not in {"none", "repro"} for _, thing, _ in parts])
    error, file = _choices(rng, task)
    columns = np.stack(
        [
            tool[tokens],
            np.where(fails[tokens], len(tools) + error, -1),
            np.where(has_file[tokens], len(tools) + len(ERRORS) + task * FILES + file, -1),
        ],
        axis=1,
    )
    there = columns >= 0
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
    return offsets, columns[there].astype(np.int32), tuple(names)


def texts(
    rng: np.random.Generator, parts: Sequence[tuple[str, str, str]], tokens: Ints, task: Ints
) -> dict[str, list[str]]:
    """Return columns ``thought``, ``action`` and ``observation``, one text a step."""
    error, file = _choices(rng, task)
    columns: dict[str, list[str]] = {"thought": [], "action": [], "observation": []}
    for token, k, e, f in zip(tokens, task, error, file, strict=True):
        verb, thing, result = parts[token]
        names = {"file": f"task-{k:04d}/file_{f}.py", "error": ERRORS[e]}
        columns["thought"].append(THOUGHTS[verb].format(**names))
        columns["action"].append(f"{verb} {names['file'] if thing != 'none' else ''}".strip())
        columns["observation"].append(OBSERVATIONS[result].format(**names))
    return columns


def _choices(rng: np.random.Generator, task: Ints) -> tuple[Ints, Ints]:
    """Which error and which file of its task each step names: often the task's usual ones."""
    usual = rng.random(len(task)) < 0.5
    error = np.where(usual, task % len(ERRORS), rng.integers(len(ERRORS), size=len(task)))
    file = np.where(usual, task % FILES, rng.integers(FILES, size=len(task)))
    return error, file
