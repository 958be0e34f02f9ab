"""Write the data set: runs of scripted workers, each with the step at which it was lost."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from sag_research import __version__
from sag_research.errors import SagError
from sag_research.lab._batch import play_batch
from sag_research.lab._native import empty_folder, played_records, rates, write_set
from sag_research.lab.crates.policy import habit_names
from sag_research.lab.crates.world import lost_at

__all__ = ["generate"]


def generate(out: Path, *, seed: int = 7, runs: int = 360, jobs: int = 2) -> int:
    """Play the runs and write ``runs.jsonl.zst``, ``README.md`` and ``SHA256SUMS``.

    Parameters
    ----------
    out : Path
        Folder to write; it must be empty or absent.
    seed : int
        The same seed gives the same bytes.
    runs : int
    jobs : int
        Processes.

    Returns
    -------
    int
        Runs written.
    """
    empty_folder(out)
    with tempfile.TemporaryDirectory() as home:
        log = Path(home, "log.sqlite")
        report = play_batch(log, "crates", runs, seed=seed, policies=habit_names()[1:], jobs=jobs)
        if failed := [row for row in report.rows if row.error]:
            raise SagError(f"{len(failed)} runs could not be played", why=failed[0].error)
        records = _records(log)
    write_set(out, records, lambda size: _card(records, size, seed))
    return len(records)


def _records(log: Path) -> list[dict[str, Any]]:
    records = played_records(log)
    for record in records:
        seen = (step["calls"][0]["observation"] for step in record["steps"])
        record["config"]["lost_at"] = lost_at(seen)
    return records


def _card(records: list[dict[str, Any]], size: int, seed: int) -> str:
    outcomes = Counter(record["outcome"]["outcome"] for record in records)
    steps = [len(record["steps"]) for record in records]
    after = [
        len(record["steps"]) - 1 - record["config"]["lost_at"]
        for record in records
        if record["config"]["lost_at"] is not None
    ]
    fields: dict[str, object] = {
        "runs": len(records), "tasks": len({record["task_id"] for record in records}),
        "success": outcomes["success"], "failure": outcomes["failure"], "steps": sum(steps),
        "least": min(steps), "most": max(steps), "median": f"{statistics.median(steps):g}",
        "size": f"{size:,}", "seed": seed, "version": __version__, "lost": len(after),
        "after": f"{statistics.median(after):g}" if after else "no",
        "by_model": rates(records, lambda record: record["model"]),
        "by_difficulty": rates(records, lambda record: record["config"]["level"].split("-")[0]),
    }  # fmt: skip
    text = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    return text.format_map(fields)
