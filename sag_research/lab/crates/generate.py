"""Write the data set: runs of scripted workers, each with the step at which it was lost."""

from __future__ import annotations

import hashlib
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from sag_research import __version__
from sag_research.errors import SagError, UsageError
from sag_research.lab._batch import play_batch
from sag_research.lab._native import native_record
from sag_research.lab.crates.policy import habit_names
from sag_research.lab.crates.world import lost_at
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN

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
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty", fix="name a new folder")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        log = Path(home, "log.sqlite")
        report = play_batch(log, "crates", runs, seed=seed, policies=habit_names()[1:], jobs=jobs)
        if failed := [row for row in report.rows if row.error]:
            raise SagError(f"{len(failed)} runs could not be played", why=failed[0].error)
        records = _records(log)
    lines = b"".join(msgspec.json.encode(record, order="sorted") + b"\n" for record in records)
    packed = zstandard.ZstdCompressor(level=19).compress(lines)
    (out / "runs.jsonl.zst").write_bytes(packed)
    (out / "README.md").write_text(_card(records, len(packed), seed), encoding="utf-8")
    names = ("README.md", "runs.jsonl.zst")
    sums = [f"{hashlib.sha256((out / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return len(records)


def _records(log: Path) -> list[dict[str, Any]]:
    with SQLiteEventStore(str(log)) as store:
        outcomes = {
            str(event.payload["run"]): {k: v for k, v in event.payload.items() if k != "run"}
            for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",))
        }
        records = [native_record(store, run, outcomes[run]) for run in sorted(outcomes)]
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
        "by_model": _rates(records, lambda record: record["model"]),
        "by_difficulty": _rates(records, lambda record: record["config"]["level"].split("-")[0]),
    }  # fmt: skip
    text = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    return text.format_map(fields)


def _rates(records: list[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> str:
    runs = Counter(key(record) for record in records)
    failed = Counter(key(record) for record in records if record["outcome"]["outcome"] == "failure")
    return "\n".join(
        f"| `{name}` | {n} | {failed[name]} | {failed[name] / n:.2f} |"
        for name, n in sorted(runs.items())
    )
