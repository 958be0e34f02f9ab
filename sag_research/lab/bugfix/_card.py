"""The data card: ``card.md`` beside this module, filled with counts of the rows."""

from __future__ import annotations

import platform
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from sag_research.lab.bugfix._tasks import load_task

if TYPE_CHECKING:
    from sag_research.lab.bugfix.generate import Row

__all__ = ["write"]

TEMPLATE = Path(__file__).parent / "card.md"


def write(rows: list[Row], seed: int, attempts: Mapping[str, int]) -> str:
    """Fill in the template.

    Parameters
    ----------
    rows : list of Row
        All files, copies included.
    seed : int
    attempts : mapping
        Runs per task of each model.
    """
    runs = list({row.content_digest: row for row in reversed(rows)}.values())
    steps = sorted(row.steps for row in runs)
    fields = {
        "files": len(rows),
        "runs": len(runs),
        "tasks": len({row.task_id for row in runs}),
        "repos": len({load_task(row.task_id).repo for row in runs}),
        "copies": len(rows) - len(runs),
        "unlabelled": sum(not row.labelled for row in runs),
        "failures": sum(not row.success for row in runs if row.labelled),
        "labelled": sum(row.labelled for row in runs),
        "bytes": f"{sum(row.size for row in rows):,}",
        "steps_total": sum(steps),
        "steps_min": steps[0],
        "steps_median": f"{statistics.median(steps):g}",
        "steps_max": steps[-1],
        "steps_long": sum(count >= 25 for count in steps),
        "attempts": ", ".join(f"{count} of `{model}`" for model, count in attempts.items()),
        "seed": seed,
        "python": platform.python_version(),
        "pytest": version("pytest"),
        "zstandard": version("zstandard"),
        "by_model": _rates(runs, "model", lambda row: f"`{row.model}`"),
        "by_difficulty": _rates(runs, "difficulty", lambda row: load_task(row.task_id).difficulty),
        "by_exit": _rates(runs, "exit_status", lambda row: f"`{row.exit_status}`"),
        "by_detail": _counts(runs),
        "task_list": _tasks(runs),
    }
    return TEMPLATE.read_text(encoding="utf-8").format_map(fields)


def _rates(runs: list[Row], title: str, key: Callable[[Row], str]) -> str:
    """A table of failures among labelled runs, by some key."""
    lines = [f"| {title} | runs | labelled | failures | failure rate |", "|---|---|---|---|---|"]
    for name in sorted({key(row) for row in runs}):
        mine = [row for row in runs if key(row) == name]
        labelled = [row for row in mine if row.labelled]
        failed = sum(not row.success for row in labelled)
        rate = f"{failed / len(labelled):.2f}" if labelled else "unknown"
        lines.append(f"| {name} | {len(mine)} | {len(labelled)} | {failed} | {rate} |")
    return "\n".join(lines)


def _counts(runs: list[Row]) -> str:
    counts = Counter(row.detail for row in runs if row.labelled)
    return ", ".join(f"`{name}` {count}" for name, count in sorted(counts.items()))


def _tasks(runs: list[Row]) -> str:
    lines = ["| task | difficulty | error | traceback misleads | failures / labelled |",
             "|---|---|---|---|---|"]  # fmt: skip
    for task_id in sorted({row.task_id for row in runs}):
        task = load_task(task_id)
        mine = [row for row in runs if row.task_id == task_id and row.labelled]
        failed = sum(not row.success for row in mine)
        misleads = "yes" if task.misleading else "no"
        lines.append(
            f"| `{task_id}` | {task.difficulty} | {task.error} | {misleads} "
            f"| {failed} / {len(mine)} |"
        )
    return "\n".join(lines)
