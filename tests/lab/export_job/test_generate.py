"""The data set of export-job runs: made anew, and as it is bundled."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

import sag_research as sag
from sag_research.errors import UsageError
from sag_research.lab import bundled
from sag_research.lab.export_job import Chooser, ExportJobWorld, Report
from sag_research.lab.export_job.generate import generate
from sag_research.llm import Identity, Reply, Request, Scripted
from tests.lab.export_job.support import request_for, run_task


def records(folder: Path) -> list[dict[str, Any]]:
    packed = (folder / "runs.jsonl.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().stream_reader(packed).read().splitlines()
    return [json.loads(line) for line in lines]


def test_the_same_seed_makes_the_same_bytes(tmp_path: Path) -> None:
    made = [tmp_path / name for name in ("one", "two")]
    assert [generate(folder, scripted=9, local=0, jobs=1) for folder in made] == [9, 9]
    one, two = (sorted(folder.iterdir()) for folder in made)
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    with pytest.raises(UsageError, match="not empty"):
        generate(made[0])


def test_the_bundled_set_is_whole() -> None:
    folder = bundled("export_job")
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size <= 2 * 1024 * 1024
    kept = records(folder)
    assert len(kept) >= 200
    assert {one["outcome"]["outcome"] for one in kept} == {"success", "failure"}
    with sag.open(":memory:") as ws:
        report = ws.ingest(folder)
        assert (report.ingested, len(report.rejected)) == (1, 0)
        assert ws.info()["counts"]["runs"] == len(kept)
        query = "SELECT outcome, count(*) FROM runs GROUP BY 1 ORDER BY 1"
        told = [one["outcome"]["outcome"] for one in kept]
        counts = [(name, told.count(name)) for name in sorted(set(told))]
        assert ws.sql(query).rows() == counts
        steps = ws.sql("SELECT count(*) FROM steps").rows()[0][0]
        assert steps == sum(len(one["steps"]) for one in kept)


class Scores(Scripted):
    """A model that scores options as a small one would."""

    def __init__(self, *best: str) -> None:
        super().__init__([], name="scores")
        self.best = list(best)

    def identity(self) -> Identity:
        return Identity(provider="test", model="scores")

    def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        best = self.best.pop(0) if self.best else "human"
        return Reply(text=best, scores={o: float(o == f" {best}") for o in request.choices})


def test_a_chooser_does_the_job_by_choosing(tmp_path: Path) -> None:
    words = ("status", "logs", "handbook", "retry", "status", "result", "completed")
    model = Scores(*words)
    with ExportJobWorld("hostile") as world:
        report = run_task(tmp_path, Chooser(model, seed=1), request_for(world))
        assert isinstance(report, Report)
        assert (report.status, report.total_cents, world.retries) == ("completed", 2450, 1)
    prompt = model.requests[-1].messages[0].content
    assert prompt.endswith("> result\ntotal 2450\n>")
    assert "JOB-999" in prompt  # a stranger's order is shown as what it is: a line of the log
    assert all(len(request.choices) == 7 for request in model.requests)


@pytest.mark.parametrize("early", ["completed", "human", "handbook", "result"])
def test_a_chooser_that_is_wrong_is_told(early: str, tmp_path: Path) -> None:
    model = Scores(early, "status", "human")
    with ExportJobWorld("permanent") as world:
        report = run_task(tmp_path, Chooser(model), request_for(world, max_steps=4))
        assert isinstance(report, Report)
        assert report.status == "needs-human"
    if early in ("completed", "human"):
        assert "that does not hold" in model.requests[1].messages[0].content
