"""Write the data set: runs of scripted agents and local models, labelled by the world."""

from __future__ import annotations

import hashlib
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from sag_research import __version__
from sag_research.errors import SagError, UsageError
from sag_research.lab._batch import play_batch
from sag_research.lab._native import native_record
from sag_research.lab.export_job.play import ExportJobPlay
from sag_research.lab.export_job.stochastic import vice_names
from sag_research.llm import Local
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN

__all__ = ["generate"]

_SCRIPTED: Final = 168  # two of each agent and task
_LOCAL: Final = 28  # one of each task
_TIMEOUT: Final = 1.0  # kept on a busy machine, and shorter than a late reply


def generate(
    out: Path, *, seed: int = 7, scripted: int = _SCRIPTED, local: int = _LOCAL, jobs: int = 2
) -> int:
    """Play the runs and write ``runs.jsonl.zst``, ``README.md`` and ``SHA256SUMS``.

    Parameters
    ----------
    out : Path
        Folder to write; it must be empty or absent.
    seed : int
        The same seed gives the same scripted runs.
    scripted : int
        Runs of the scripted agents.
    local : int
        Runs of each local model whose weights are installed.
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
    models = ExportJobPlay().more_policies if local else ()
    with tempfile.TemporaryDirectory() as home:
        log = Path(home, "log.sqlite")
        _play(log, scripted, vice_names(), seed, jobs)
        for model in models:
            _play(log, local, [model], seed, 1)
        records = _records(log)
    lines = b"".join(msgspec.json.encode(record, order="sorted") + b"\n" for record in records)
    packed = zstandard.ZstdCompressor(level=19).compress(lines)
    (out / "runs.jsonl.zst").write_bytes(packed)
    (out / "README.md").write_text(_card(records, len(packed), seed, models), encoding="utf-8")
    names = ("README.md", "runs.jsonl.zst")
    sums = [f"{hashlib.sha256((out / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return len(records)


def _play(log: Path, n: int, policies: Sequence[str], seed: int, jobs: int) -> None:
    report = play_batch(
        log, "export-job", n, seed=seed, policies=policies, jobs=jobs, timeout=_TIMEOUT
    )
    if failed := [row for row in report.rows if row.error]:
        raise SagError(f"{len(failed)} runs could not be played", why=failed[0].error)


def _records(log: Path) -> list[dict[str, Any]]:
    with SQLiteEventStore(str(log)) as store:
        outcomes = {
            str(event.payload["run"]): {k: v for k, v in event.payload.items() if k != "run"}
            for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",))
        }
        records = [native_record(store, run, outcomes[run]) for run in sorted(outcomes)]
    for record in records:
        del record["config"]["request"]  # it holds the service's port, which is another each time
    return records


def _card(records: list[dict[str, Any]], size: int, seed: int, models: Sequence[str]) -> str:
    outcomes = Counter(record["outcome"]["outcome"] for record in records)
    steps = [len(record["steps"]) for record in records]
    fields: dict[str, object] = {
        "runs": len(records), "tasks": len({record["task_id"] for record in records}),
        "success": outcomes["success"], "failure": outcomes["failure"], "steps": sum(steps),
        "least": min(steps), "most": max(steps), "median": f"{statistics.median(steps):g}",
        "size": f"{size:,}", "seed": seed, "version": __version__, "local": _local_text(models),
        "by_model": _rates(records, lambda record: record["model"]),
        "by_scenario": _rates(records, lambda record: record["config"]["scenario"]),
        "by_exit": _rates(records, lambda record: record["exit_status"]),
    }  # fmt: skip
    text = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    return text.format_map(fields)


def _local_text(models: Sequence[str]) -> str:
    if not models:
        return "No local model took part."
    named = ", ".join(f"`{Local(name.removeprefix('local-')).identity().model}`" for name in models)
    return (
        f"Small local models (135 and 270 million parameters; the beginning of the weights'\n"
        f"SHA-256 after the @) took part, too: {named}. They choose among the tools by the\n"
        "probabilities that they give to them, at temperature 1; ids and totals are filled in by\n"
        "the harness, and their steps have no thoughts. Their runs cannot be made again bit for\n"
        "bit on another machine, and are not like those of large agents. SmolLM2's weights are\n"
        "under Apache-2.0, Gemma's under the Gemma terms of use; neither is part of this set."
    )


def _rates(records: list[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> str:
    runs = Counter(key(record) for record in records)
    failed = Counter(key(record) for record in records if record["outcome"]["outcome"] == "failure")
    return "\n".join(
        f"| `{name}` | {n} | {failed[name]} | {failed[name] / n:.2f} |"
        for name, n in sorted(runs.items())
    )
