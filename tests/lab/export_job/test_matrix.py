"""Twenty-nine ways in which a task can go, each carried out over real HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import SagError, StoreError, UsageError
from sag_research.lab.export_job import (
    ContextUnavailableError,
    EvidenceError,
    ExportJobWorld,
    PermissionRevokedError,
    Report,
    SQLiteContext,
    judge,
    spent,
)
from sag_research.lab.export_job._progress import Observation
from sag_research.lab.export_job._toolbox import Toolbox
from sag_research.llm import Request
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from sag_research.runtime import CancelToken, LoopCancelledError
from tests.lab.export_job.support import (
    JOB,
    Counted,
    answer,
    calling,
    events,
    posts,
    request_for,
    run_task,
    steps,
)

Case = Callable[[ExportJobWorld, Path], None]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def kept(function: Case) -> Case:
        CASES[name] = function
        return function

    return kept


@pytest.fixture(scope="module")
def served() -> Iterator[ExportJobWorld]:
    with ExportJobWorld() as made:
        yield made


def ended(world: ExportJobWorld, directory: Path, model: Counted | None = None, **f: Any) -> Report:
    report = run_task(directory, model or Counted(), request_for(world, **f))
    assert isinstance(report, Report)
    return report


@case("recover")
def recover(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    report = ended(world, directory)
    assert (report.status, report.stop_reason, report.total_cents) == ("completed",) * 2 + (2450,)
    assert (world.retries, posts(world)) == (1, 1)
    assert judge(world, report).outcome == "success"


@case("already-completed")
def already_completed(world: ExportJobWorld, directory: Path) -> None:
    world.reset("completed")
    assert ended(world, directory).status == "completed"
    assert (world.retries, posts(world)) == (0, 0)


@case("permanent")
def permanent(world: ExportJobWorld, directory: Path) -> None:
    world.reset("permanent")
    report = ended(world, directory)
    assert (report.status, report.total_cents) == ("needs-human", None)
    assert (world.retries, posts(world)) == (0, 0)
    assert report.verification is not None


@case("persistent")
def persistent(world: ExportJobWorld, directory: Path) -> None:
    world.reset("persistent")
    assert ended(world, directory).status == "needs-human"
    assert world.retries == 0


@case("inspect")
def inspect(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    assert ended(world, directory, mode="inspect").status == "needs-human"
    assert (world.retries, posts(world)) == (0, 0)


@case("disconnect")
def disconnect(world: ExportJobWorld, directory: Path) -> None:
    world.reset("disconnect")
    assert ended(world, directory).status == "completed"
    assert (world.retries, posts(world)) == (1, 1)
    assert "unknown" in [call["status"] for step in steps(directory) for call in step["calls"]]


@case("timeout")
def timeout(world: ExportJobWorld, directory: Path) -> None:
    world.reset("timeout")
    assert ended(world, directory).status == "completed"
    assert (world.retries, posts(world)) == (1, 1)
    assert "unknown" in [call["status"] for step in steps(directory) for call in step["calls"]]


@case("browser")
def browser(world: ExportJobWorld, directory: Path) -> None:
    world.reset("completed")
    assert ended(world, directory, delivery="browser").status == "completed"
    assert (directory / "download.csv").read_text(encoding="utf-8") == world.job.csv
    assert (directory / "browser.png").read_bytes().startswith(b"\x89PNG")


@case("chinese")
def chinese(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    report = ended(world, directory, goal="请完成导出任务并报告总额")
    assert report.summary == "导出任务 JOB-204 已完成：7 × 350 分 = 2450 分。"
    assert report.summary in (directory / "report.md").read_text(encoding="utf-8")


@case("hostile")
def hostile(world: ExportJobWorld, directory: Path) -> None:
    world.reset("hostile")
    report = ended(world, directory)
    assert (report.status, report.job_id, report.total_cents) == ("completed", JOB, 2450)
    assert world.retries == 1
    written = (directory / "report.md").read_text(encoding="utf-8")
    assert "999" not in written
    assert "<script" not in written


@case("max-steps")
def max_steps(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    report = ended(world, directory, max_steps=1)
    assert (report.status, report.stop_reason) == ("partial", "max-steps")
    assert (report.total_cents, report.verification) == (None, None)
    assert world.requests == []
    assert len(steps(directory)) == 1


@case("max-actions")
def max_actions(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    report = ended(world, directory, max_actions=0)
    assert (report.status, report.stop_reason) == ("partial", "max-actions")
    assert world.requests == []


@case("no-progress")
def no_progress(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    look = calling(("job_status", {"jobId": JOB}))
    model = Counted(*[look] * 9)
    report = ended(world, directory, model, max_repeated_actions=3)
    assert (report.status, report.stop_reason) == ("partial", "no-progress")
    assert len(model.asked) == 3


@case("deadline")
def deadline(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    now = [1000.0]

    def slow(request: Request) -> Any:
        now[0] += 11
        return calling(("job_status", {"jobId": JOB}))

    request = request_for(world, deadline_seconds=10)
    report = run_task(directory, Counted(slow), request, clock=lambda: now[0])
    assert isinstance(report, Report)
    assert (report.status, report.stop_reason) == ("partial", "deadline")
    assert world.requests == []


@case("invalid-tool")
def invalid_tool(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    model = Counted(calling(("job_status", {"jobId": JOB}), ("job_delete", {"jobId": JOB})))
    report = ended(world, directory, model)
    assert (report.status, report.stop_reason) == ("partial", "invalid-decision")
    assert world.requests == []
    assert steps(directory)[0]["flags"] == ["rejected"]


@case("invalid-arguments")
def invalid_arguments(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    batches = [
        calling(("job_status", {"jobId": "JOB-999"})),
        calling(("job_status", {"jobId": JOB, "url": "http://127.0.0.1"})),
        calling(("runbook_search", {"code": "e_low"})),
        calling(("runbook_search", {"code": "E_TRANSIENT\n"})),
        calling(("job_status", "JOB-204")),
        calling(("job_status", {"jobId": JOB}), ("job_logs", {"jobId": JOB}), ids=("a", "a")),
    ]
    for place, batch in enumerate(batches):
        report = ended(world, directory / str(place), Counted(batch))
        assert report.stop_reason == "invalid-decision", batch
    assert world.requests == []


@case("wrong-total")
def wrong_total(world: ExportJobWorld, directory: Path) -> None:
    world.reset("completed")

    def cheat(request: Request) -> Any:
        kept = [json.loads(m.content) for m in request.messages if m.role == "tool"]
        cited = [one["evidence_id"] for one in kept if "csv" in str(one.get("data"))]
        return answer(totalCents=2451, evidenceIds=cited)

    model = Counted(None, None, cheat)
    report = ended(world, directory, model)
    assert (report.status, report.total_cents) == ("completed", 2450)
    last = model.asked[-1].messages[-1]
    assert (last.role, "totalCents" in last.content) == ("user", True)


@case("context-expiry")
def context_expiry(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    kept, forgotten = Counted(), Counted()
    ended(world, directory / "kept", kept)
    world.reset("transient")
    never = SQLiteContext(directory / "never.sqlite", ttl=-1)
    run_task(directory / "expired", forgotten, request_for(world), cache=never)
    assert kept.asked == forgotten.asked


@case("context-unavailable")
def context_unavailable(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    down = SQLiteContext(directory / "no" / "such" / "folder.sqlite")
    model = Counted()
    with pytest.raises(ContextUnavailableError):
        run_task(directory, model, request_for(world), cache=down)
    assert model.asked == []
    assert isinstance(run_task(directory, model), Report)


@case("memory-unavailable")
def memory_unavailable(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    directory.mkdir(exist_ok=True)
    (directory / "log.sqlite").write_bytes(b"this is no database, and never was one" * 40)
    model = Counted()
    with pytest.raises(StoreError):
        run_task(directory, model, request_for(world))
    assert model.asked == []
    assert world.requests == []


@case("request-changed")
def request_changed(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    run_task(directory, Counted(), request_for(world), stop_after="decision")
    with pytest.raises(UsageError, match="goal differ"):
        run_task(directory, Counted(), request_for(world, goal="Something else."))
    assert not (directory / "report.json").exists()
    assert isinstance(run_task(directory, Counted()), Report)


@case("permission-revoked")
def permission_revoked(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    run_task(directory, Counted(), request_for(world), stop_after="observation")
    (directory / "permissions.json").write_text('{"grants": []}', encoding="utf-8")
    before = list(world.requests)
    model = Counted()
    with pytest.raises(PermissionRevokedError):
        run_task(directory, model)
    assert (model.asked, world.requests) == ([], before)
    assert not (directory / "report.json").exists()


@case("evidence-tampered")
def evidence_tampered(world: ExportJobWorld, directory: Path) -> None:
    world.reset("completed")

    def tamper(request: Request) -> Any:
        for path in (directory / "evidence").glob("*.json"):
            text = path.read_text(encoding="utf-8").replace("2450", "9999")
            path.write_text(text, encoding="utf-8")
        return None

    class Tampering(Counted):
        def complete(self, request: Request) -> Any:
            if len(self.asked) == 2:
                tamper(request)
            return super().complete(request)

    with pytest.raises(EvidenceError, match="was changed"):
        run_task(directory, Tampering(), request_for(world))
    assert not (directory / "report.json").exists()


@case("cancelled")
def cancelled(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    token = CancelToken()
    token.cancel("no need any more")
    model = Counted()
    with pytest.raises(LoopCancelledError):
        run_task(directory, model, request_for(world), cancel=token)
    assert (model.asked, world.requests) == ([], [])
    assert not (directory / "report.json").exists()


@case("cancel-after-effect")
def cancel_after_effect(world: ExportJobWorld, directory: Path) -> None:
    world.reset("transient")
    token = CancelToken()
    plain = Toolbox.run

    def run(self: Toolbox, name: str, *rest: Any) -> Observation:
        observed = plain(self, name, *rest)
        if name == "job_retry":
            token.cancel("too late")
        return observed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Toolbox, "run", run)
        with pytest.raises(LoopCancelledError):
            run_task(directory, Counted(), request_for(world), cancel=token)
    assert world.retries == 1
    assert not (directory / "report.json").exists()
    report = run_task(directory, Counted())
    assert isinstance(report, Report)
    assert (report.status, world.retries, posts(world)) == ("completed", 1, 1)


CRASHING = """
import os, signal, sys
from pathlib import Path
from sag_research.lab.export_job import Careful, TaskRequest, run_task
from sag_research.lab.export_job import agent, client
from sag_research.log import SQLiteEventStore
origin, directory, where = sys.argv[1:]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if where == "effect":
    plain = client.JobClient.retry
    client.JobClient.retry = lambda *a: (plain(*a), die())
elif where == "observation":
    plain = SQLiteEventStore.append
    def append(self, event, **more):
        written = plain(self, event, **more)
        if event.type == "agent.step": die()
        return written
    SQLiteEventStore.append = append
else:
    plain = agent.publish
    agent.publish = lambda *a: (plain(*a), die())
run_task(Path(directory), Careful(), TaskRequest(id="task-1", origin=origin), timeout=1.0)
"""


def used(directory: Path) -> tuple[int, int]:
    with SQLiteEventStore(str(directory / "log.sqlite"), read_only=True) as store:
        counted = spent(store, "task-1")
    return counted.model_calls, counted.action_calls


def crash(world: ExportJobWorld, directory: Path, where: str) -> None:
    """A real SIGKILL; a second process then finishes."""
    world.reset("transient")
    ended(world, directory / "whole")
    world.reset("transient")
    here = directory / "killed"
    command = [sys.executable, "-c", CRASHING, world.origin, str(here), where]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    report = run_task(here, Counted())
    assert isinstance(report, Report)
    assert (report.status, world.retries, posts(world)) == ("completed", 1, 1)
    whole = (directory / "whole" / "report.json").read_bytes()
    assert (here / "report.json").read_bytes() == whole
    assert used(here) == (7, 7 if where == "effect" else 6)  # what was cut off is counted
    assert used(directory / "whole") == (7, 6)
    assert len(steps(here)) == len(steps(directory / "whole"))


@case("effect-crash")
def effect_crash(world: ExportJobWorld, directory: Path) -> None:
    crash(world, directory, "effect")


@case("observation-crash")
def observation_crash(world: ExportJobWorld, directory: Path) -> None:
    crash(world, directory, "observation")


@case("report-crash")
def report_crash(world: ExportJobWorld, directory: Path) -> None:
    crash(world, directory, "report")


@case("publication-retry")
def publication_retry(world: ExportJobWorld, directory: Path) -> None:
    world.reset("completed")
    run_task(directory, Counted(), request_for(world), stop_after="decision")
    (directory / "report.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SagError, match="is there already"):
        run_task(directory, Counted())
    assert (directory / "report.json").read_text(encoding="utf-8") == "{}"
    (directory / "report.json").unlink()
    model = Counted()
    before = len(world.requests)
    report = run_task(directory, model)
    assert isinstance(report, Report)
    assert (model.asked, len(world.requests)) == ([], before)
    assert [event.type for event in events(directory)][-1] == "run.completed"


@pytest.mark.parametrize("name", sorted(CASES))
def test_matrix(
    name: str, served: ExportJobWorld, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name == "browser":
        request.getfixturevalue("portal_browser")
    CASES[name](served, tmp_path)


def test_the_matrix_is_whole() -> None:
    assert len(CASES) == 29


def test_every_turn_is_one_step_and_every_event_valid(
    served: ExportJobWorld, tmp_path: Path
) -> None:
    served.reset("transient")
    ended(served, tmp_path)
    kinds = [event.type for event in events(tmp_path)]
    assert kinds.count("agent.step") == kinds.count("llm.responded")
    assert kinds[0] == "run.created"
    flagged = [step["flags"] for step in steps(tmp_path)]
    assert flagged == [[]] * (len(flagged) - 1) + [["final"]]
    assert all(isinstance(event, Event) for event in events(tmp_path))
