"""The export job with a real small model on this machine, and a run that is called off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sag_research.lab.export_job import Chooser, ExportJobWorld, Report, judge
from sag_research.llm import Local, installed_weights
from sag_research.runtime import CancelToken, LoopCancelledError
from tests import support
from tests.lab.export_job.support import Counted, events, request_for, run_task, steps


@pytest.fixture(scope="module")
def small_model() -> Iterator[Local]:
    support.require_module("model", "xllamacpp")
    if not installed_weights():
        support.skip_or_fail("model", "no weights are installed")
    with Local(raw=True, cache_prompt=True) as local:
        yield local


@pytest.mark.parametrize("scenario", ["completed", "transient", "permanent", "hostile"])
def test_a_small_model_at_work(scenario: str, small_model: Local, tmp_path: Path) -> None:
    """It need not do well; whatever it does is held to the rules, and judged."""
    with ExportJobWorld(scenario) as world:
        request = request_for(world)
        report = run_task(tmp_path, Chooser(small_model, seed=1), request)
        assert isinstance(report, Report)
        said = judge(world, report).outcome
        assert said in ("success", "failure")
        assert (said == "success") <= (report.status in world.scenario.endings)
        assert world.retries <= 1
        assert report.job_id == world.job.job_id
        replies = [event for event in events(tmp_path) if event.type == "llm.responded"]
        assert len(replies) == len(steps(tmp_path)) <= request.max_steps
        for reply in replies:
            assert sum(reply.payload["scores"].values()) == pytest.approx(1, abs=0.01)


def test_r16_a_task_that_is_called_off_ends_with_an_error_and_no_report(tmp_path: Path) -> None:
    with ExportJobWorld() as world:
        token = CancelToken()
        token.cancel("called off")
        model = Counted()
        with pytest.raises(LoopCancelledError, match="called off"):
            run_task(tmp_path, model, request_for(world), cancel=token)
        assert (model.asked, world.requests) == ([], [])
        assert not (tmp_path / "report.json").exists()
        report = run_task(tmp_path, model)
        assert isinstance(report, Report)
        assert (report.status, world.retries) == ("completed", 1)
