"""Write the data set: runs of scripted agents and local models, labelled by the world."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sag_research import __version__
from sag_research.errors import SagError
from sag_research.lab._batch import play_batch
from sag_research.lab._native import empty_folder, played_records, rates, write_set
from sag_research.lab.export_job.play import ExportJobPlay
from sag_research.lab.export_job.stochastic import vice_names
from sag_research.llm import Local

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
    empty_folder(out)
    models = ExportJobPlay().more_policies if local else ()
    with tempfile.TemporaryDirectory() as home:
        log = Path(home, "log.sqlite")
        _play(log, scripted, vice_names(), seed, jobs)
        for model in models:
            _play(log, local, [model], seed, 1)
        records = _records(log)
    write_set(out, records, lambda size: _card(records, size, seed, models))
    return len(records)


def _play(log: Path, n: int, policies: Sequence[str], seed: int, jobs: int) -> None:
    report = play_batch(
        log, "export-job", n, seed=seed, policies=policies, jobs=jobs, timeout=_TIMEOUT
    )
    if failed := [row for row in report.rows if row.error]:
        raise SagError(f"{len(failed)} runs could not be played", why=failed[0].error)


def _records(log: Path) -> list[dict[str, Any]]:
    records = played_records(log)
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
        "by_model": rates(records, lambda record: record["model"]),
        "by_scenario": rates(records, lambda record: record["config"]["scenario"]),
        "by_exit": rates(records, lambda record: record["exit_status"]),
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
