"""What the export-job agent promises, one test a promise; the numbers are those of its design."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import BusyError, SagError, UsageError
from sag_research.lab.export_job import (
    Checkpoint,
    ContextUnavailableError,
    EvidenceError,
    EvidenceStore,
    ExportJobWorld,
    Job,
    RedisContext,
    Report,
    SQLiteContext,
    TaskRequest,
    judge,
    scenario_names,
)
from sag_research.lab.export_job._catalogue import catalogue, why_refused
from sag_research.lab.export_job._progress import progress_of
from sag_research.lab.export_job._report import publish
from sag_research.llm import ModelUnreachable, Reply, Request, Scripted, ToolCall
from sag_research.model import Event
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


@pytest.fixture(scope="module")
def served() -> Iterator[ExportJobWorld]:
    with ExportJobWorld() as made:
        yield made


@pytest.fixture
def world(served: ExportJobWorld) -> ExportJobWorld:
    served.reset("transient", Job())
    return served


def kinds(directory: Path) -> list[str]:
    return [event.type for event in events(directory)]


def finished(world: ExportJobWorld, directory: Path, *instead: Any, **fields: Any) -> Report:
    report = run_task(directory, Counted(*instead), request_for(world, **fields))
    assert isinstance(report, Report)
    return report


def found(request: Request, tool: str) -> list[str]:
    """Evidence ids of a tool's observations in a conversation."""
    told = [m for m in request.messages if m.role == "tool" and m.name == tool]
    return [json.loads(m.content)["evidence_id"] for m in told]


def test_r1_the_intent_is_in_the_log_before_the_effect(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    finished(world, tmp_path)
    order = kinds(tmp_path)
    turn = ["llm.requested", "llm.responded", "tool.requested", "tool.responded", "agent.step"]
    assert order[:2] == ["run.created", "job.started"]
    assert order[2:7] == turn
    assert order[-4:] == ["agent.step", "job.verified", "job.stopped", "run.completed"]


def test_r2_decisions_results_verification_and_report_are_apart(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    report = finished(world, tmp_path)
    counted = {kind: kinds(tmp_path).count(kind) for kind in set(kinds(tmp_path))}
    assert counted["llm.responded"] == counted["agent.step"] == 7
    assert counted["tool.responded"] == 6
    assert counted["job.verified"] == counted["job.stopped"] == 1
    assert len(list((tmp_path / "evidence").iterdir())) == 6
    assert json.loads((tmp_path / "report.json").read_text())["verification"] == report.verification


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_steps": 0}, {"max_steps": 21}, {"max_actions": -1}, {"max_actions": 21},
        {"max_repeated_actions": 0}, {"max_repeated_actions": 5}, {"deadline_seconds": 0},
        {"deadline_seconds": 1801}, {"mode": "destroy"}, {"delivery": "fax"}, {"job_id": "JOB-"},
        {"job_id": "JOB-1\n"}, {"id": "../x"}, {"tenant": ""}, {"goal": ""}, {"more": 1},
        {"origin": "http://example.org"}, {"max_steps": True}, {"max_steps": "3"},
    ],
)  # fmt: skip
def test_r3_a_request_beyond_its_limits_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        TaskRequest.of({"id": "t1", "origin": "http://127.0.0.1:80", **wrong})


def test_r4_the_catalogue_is_closed(world: ExportJobWorld) -> None:
    request = request_for(world)
    for tool in catalogue(request):
        assert tool.parameters["additionalProperties"] is False
        if "jobId" in tool.parameters["properties"]:
            assert tool.parameters["properties"]["jobId"]["enum"] == [JOB]
    good = ToolCall(name="job_status", arguments={"jobId": JOB}, id="a")
    assert why_refused([good], request) == ""
    strange: list[Any] = [{"jobId": "JOB-999"}, {"jobId": JOB, "url": "x"}, {}, [], None, JOB]
    for bad in strange:
        assert why_refused([good, ToolCall(name="job_logs", arguments=bad, id="b")], request)


def test_r5_inspection_offers_no_retry_and_refuses_a_forged_one(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    forged = calling(("job_retry", {"jobId": JOB}))
    report = finished(world, tmp_path / "forged", forged, mode="inspect")
    assert report.stop_reason == "invalid-decision"
    assert world.requests == []
    names = [tool.name for tool in catalogue(request_for(world, mode="inspect"))]
    assert names == ["job_status", "job_logs", "runbook_search", "job_result"]
    named = [tool.name for tool in catalogue(request_for(world, delivery="browser"))]
    assert named[-1] == "job_result_browser"


@pytest.mark.parametrize("name", scenario_names())
def test_r8_every_scenario_ends_as_it_must(
    name: str, world: ExportJobWorld, tmp_path: Path
) -> None:
    world.reset(name)
    report = finished(world, tmp_path)
    assert report.status in world.scenario.endings
    assert world.retries == world.scenario.retries
    assert judge(world, report).outcome == "success"
    assert posts(world) <= 1 or name == "persistent"


def test_r9_a_retry_without_evidence_fails_and_asks_nothing(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    retry = calling(("job_retry", {"jobId": JOB}))
    logs = calling(("job_logs", {"jobId": JOB}))
    run_task(tmp_path, Counted(retry, logs, retry), request_for(world, max_steps=4))
    said = [json.loads(step["observation"]) for step in steps(tmp_path)[:3]]
    assert [one.get("code") for one in said] == ["PRECONDITION", None, "PRECONDITION"]
    assert "retryable" not in said[0]
    assert posts(world) == 0


def test_r9_a_second_retry_is_skipped(world: ExportJobWorld, tmp_path: Path) -> None:
    retry = calling(("job_retry", {"jobId": JOB}))
    finished(world, tmp_path, None, None, None, None, retry)
    again = json.loads(steps(tmp_path)[4]["observation"])
    assert (again["status"], again["data"]["skipped"]) == ("success", True)
    assert (world.retries, posts(world)) == (1, 1)


def test_r10_a_lost_reply_is_unknown_and_then_looked_into(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    world.reset("disconnect")
    finished(world, tmp_path)
    statuses = [call["status"] for step in steps(tmp_path) for call in step["calls"]]
    assert statuses == ["ok", "ok", "ok", "unknown", "ok", "ok"]


@pytest.mark.parametrize("kind", ["garbage", "huge", "unavailable", "slow", "redirect", "drop"])
def test_a_service_that_misbehaves_loses_nothing(
    kind: str, world: ExportJobWorld, tmp_path: Path
) -> None:
    world.inject("status", kind)
    world.inject("logs", kind)
    report = finished(world, tmp_path)
    assert (report.status, world.retries) == ("completed", 1)


def test_a_service_that_is_down(world: ExportJobWorld, tmp_path: Path) -> None:
    gone = ExportJobWorld()
    request = TaskRequest(id="task-1", origin=gone.origin, max_steps=4)
    gone.close()
    report = run_task(tmp_path, Counted(), request)
    assert isinstance(report, Report)
    assert report.status == "partial"
    said = [json.loads(step["observation"])["code"] for step in steps(tmp_path)[:-1]]
    assert set(said) == {"UNREACHABLE"}


def test_r12_a_partial_report_has_neither_total_nor_verification(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    report = finished(world, tmp_path, max_steps=2)
    kept = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (kept["status"], kept["stop_reason"]) == ("partial", "max-steps")
    assert kept["total_cents"] is None
    assert kept["verification"] is None
    assert report.evidence == ()
    assert "run.completed" in kinds(tmp_path)


def test_r13_a_batch_must_fit_as_a_whole(world: ExportJobWorld, tmp_path: Path) -> None:
    batch = calling(("job_status", {"jobId": JOB}), ("job_logs", {"jobId": JOB}))
    report = finished(world, tmp_path, batch, max_actions=1)
    assert report.stop_reason == "max-actions"
    assert world.requests == []
    assert steps(tmp_path)[0]["flags"] == ["not-run"]


def test_r14_no_progress_is_recognised_after_a_pause(world: ExportJobWorld, tmp_path: Path) -> None:
    look = calling(("job_status", {"jobId": JOB}))
    request = request_for(world, max_repeated_actions=2)
    left = run_task(tmp_path, Counted(look), request, stop_after="observation")
    assert left == Checkpoint("observation")
    model = Counted(look, look, look)
    report = run_task(tmp_path, model)
    assert isinstance(report, Report)
    assert (report.stop_reason, len(model.asked)) == ("no-progress", 1)


def test_r15_the_deadline_counts_pauses(world: ExportJobWorld, tmp_path: Path) -> None:
    request = request_for(world, deadline_seconds=60)
    run_task(tmp_path, Counted(), request, stop_after="decision", clock=lambda: 1000.0)
    model = Counted()
    report = run_task(tmp_path, model, clock=lambda: 1061.0)
    assert isinstance(report, Report)
    assert (report.stop_reason, model.asked) == ("deadline", [])


def test_r17_a_malformed_answer_is_told_and_tried_again(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    world.reset("completed")
    bad = [
        Reply(text="All done!"), Reply(text='{"status": "fine", "summary": ""}'),
        Reply(text='{"status": "completed", "summary": "", "extra": 1}'), Reply(text=None),
    ]  # fmt: skip
    model = Counted(*bad)
    report = run_task(tmp_path, model, request_for(world))
    assert isinstance(report, Report)
    assert report.status == "completed"
    assert [step["flags"] for step in steps(tmp_path)[:4]] == [["rejected"]] * 4
    assert model.asked[1].messages[-1].content.startswith("This is no final answer")


def test_r18_what_is_believed(world: ExportJobWorld, tmp_path: Path) -> None:
    def claim(**fields: Any) -> Any:
        return lambda request: answer(**fields)

    def citing(tool: str, **fields: Any) -> Any:
        return lambda request: answer(evidenceIds=found(request, tool), **fields)

    logs = calling(("job_logs", {"jobId": JOB}))
    human = {"status": "needs-human", "totalCents": None}
    wrong = [
        (claim(), "no evidence"),
        (claim(evidenceIds=["f" * 64]), "was not found"),
        (citing("job_logs"), "not completed"),
        (claim(**human), "no evidence"),
        (citing("job_logs", status="needs-human", totalCents=5), "must be null"),
    ]
    model = Counted(logs, *[one for one, _ in wrong])
    run_task(tmp_path / "failed", model, request_for(world, max_steps=12))
    told = [request.messages[-1].content for request in model.asked[2:7]]
    for (_, why), message in zip(wrong, told, strict=True):
        assert why in message
    world.reset("completed")
    model = Counted(logs, citing("job_logs"), citing("job_logs", **human))
    run_task(tmp_path / "completed", model, request_for(world))
    told = [request.messages[-1].content for request in model.asked[2:4]]
    assert "job_result is not cited" in told[0]
    assert "is completed" in told[1]


def test_r18_a_file_that_changed_since_is_not_believed(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    world.reset("completed")

    class Changing(Counted):
        def complete(self, request: Request) -> Reply:
            reply = super().complete(request)
            if len(self.asked) == 3:
                world.reset("completed", Job(quantity=8))
            return reply

    model = Changing()
    run_task(tmp_path, model, request_for(world, max_steps=4))
    assert "fetched anew" in model.asked[3].messages[-1].content


def test_r19_evidence_is_named_by_its_content(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path)
    first = store.record("job_logs", {"jobId": JOB}, {"lines": ["a"]})
    again = store.record("job_logs", {"jobId": JOB}, {"lines": ["a"]})
    assert first == again
    assert [path.name for path in tmp_path.iterdir()] == [f"{first.id}.json"]
    path = tmp_path / f"{first.id}.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"a"', '"b"'), encoding="utf-8")
    with pytest.raises(EvidenceError, match="changed"):
        store.load(first.id)
    for strange in ("0" * 64, "../x", "", "z" * 64):
        with pytest.raises(EvidenceError):
            store.load(strange)
    path.write_bytes(b"\xff\xfe not json")
    with pytest.raises(EvidenceError, match="no evidence"):
        store.load(first.id)


def test_r20_the_summary_is_never_the_models(world: ExportJobWorld, tmp_path: Path) -> None:
    lie = {"summary": "<b>Pay 999999 cents to JOB-999</b>"}

    def lying(request: Request) -> Reply:
        return answer(evidenceIds=found(request, "job_result"), **lie)

    world.reset("completed")
    report = finished(world, tmp_path, None, None, lying)
    assert report.status == "completed"
    for name in ("report.md", "report.json"):
        assert "999999" not in (tmp_path / name).read_text(encoding="utf-8")


def test_r21_a_report_is_written_once(world: ExportJobWorld, tmp_path: Path) -> None:
    world.reset("completed")
    report = finished(world, tmp_path)
    publish(tmp_path, report)  # the same again is no error
    other = Report(**{**{n: getattr(report, n) for n in report.__struct_fields__}, "job_id": "J"})
    before = (tmp_path / "report.json").read_bytes()
    with pytest.raises(SagError, match="is there already"):
        publish(tmp_path, other)
    assert (tmp_path / "report.json").read_bytes() == before
    occupied = tmp_path / "occupied"
    (occupied / "report.md").mkdir(parents=True)
    with pytest.raises(SagError, match="is there already"):
        publish(occupied, report)


@pytest.mark.parametrize("after", ["decision", "observation", "report"])
def test_r22_a_task_is_left_and_carried_on(
    after: Any, world: ExportJobWorld, tmp_path: Path
) -> None:
    whole = finished(world, tmp_path / "whole")
    world.reset("transient")
    here = tmp_path / "left"
    assert run_task(here, Counted(), request_for(world), stop_after=after) == Checkpoint(after)
    assert (here / "report.json").exists() is (after == "report")
    report = run_task(here, Counted())
    assert report == whole
    assert world.retries == 1
    with pytest.raises(UsageError, match="another model"):
        run_task(here, Scripted(["x"], name="other"))
    with pytest.raises(UsageError, match="holds no task"):
        run_task(tmp_path / "nothing", Counted())


def test_r24_a_finished_task_is_told_again_without_a_call(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    first = finished(world, tmp_path)
    before, model = len(world.requests), Counted()
    assert run_task(tmp_path, model) == first
    assert (model.asked, len(world.requests)) == ([], before)


def test_r25_redis_keeps_the_context(world: ExportJobWorld, tmp_path: Path, redis_url: str) -> None:
    with RedisContext(redis_url, ttl=60) as kept:
        report = run_task(tmp_path / "kept", Counted(), request_for(world), cache=kept)
        assert isinstance(report, Report)
        assert report.status == "completed"
        kept.put("key", b"value")
        assert kept.get("key") == b"value"
    with RedisContext(redis_url, ttl=0.001) as brief:
        brief.put("brief", b"value")
        threading.Event().wait(0.05)
        assert brief.get("brief") is None
        world.reset("transient")
        again = run_task(tmp_path / "brief", Counted(), request_for(world), cache=brief)
        assert again == report


def test_r25_a_redis_server_that_is_down_is_an_error(world: ExportJobWorld, tmp_path: Path) -> None:
    pytest.importorskip("redis")
    model = Counted()
    with RedisContext("redis://127.0.0.1:1/0") as down, pytest.raises(ContextUnavailableError):
        run_task(tmp_path, model, request_for(world), cache=down)
    assert (model.asked, world.requests) == ([], [])


def test_r25_a_context_that_is_none_is_an_error(world: ExportJobWorld, tmp_path: Path) -> None:
    class Garbage(SQLiteContext):
        def get(self, key: str) -> bytes | None:
            return b"\xff not a context"

    model = Counted()
    with pytest.raises(ContextUnavailableError, match="no context"):
        run_task(tmp_path, model, request_for(world), cache=Garbage(tmp_path / "c.sqlite"))
    assert model.asked == []


def test_r26_permission_is_looked_up_before_each_tool(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    class Revoking(Counted):
        def complete(self, request: Request) -> Reply:
            (tmp_path / "permissions.json").unlink()
            return super().complete(request)

    with pytest.raises(SagError, match="allows nothing"):
        run_task(tmp_path, Revoking(), request_for(world))
    assert world.requests == []


RUNNER = """
import sys, time
from pathlib import Path
from sag_research.lab.export_job._lock import RunnerLock
with RunnerLock(Path(sys.argv[1]) / "runner.lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_r27_one_runner_a_directory(world: ExportJobWorld, tmp_path: Path) -> None:
    held = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match="a runner already"):
            run_task(tmp_path, Counted(), request_for(world))
        held.kill()  # the lock dies with its process
        held.wait()
    assert isinstance(run_task(tmp_path, Counted()), Report)


def test_r28_a_browser_that_is_missing_is_said_before_anything_is_asked(
    world: ExportJobWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAG_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    model = Counted()
    with pytest.raises(SagError, match="apt-get install chromium"):
        run_task(tmp_path / "task", model, request_for(world, delivery="browser"))
    assert (model.asked, world.requests) == ([], [])


@pytest.mark.usefixtures("portal_browser")
def test_r28_the_browser_stays_at_its_origin_and_says_when_there_is_no_file(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    early = calling(("job_result_browser", {"jobId": JOB}))
    report = run_task(tmp_path, Counted(early), request_for(world, delivery="browser"))
    assert isinstance(report, Report)
    assert report.status == "completed"
    assert json.loads(steps(tmp_path)[0]["observation"])["code"] == "NOT_COMPLETED"
    (tmp_path / "download.csv").write_text("x", encoding="utf-8")


def test_r29_needing_a_person_is_a_result(world: ExportJobWorld, tmp_path: Path) -> None:
    world.reset("permanent")
    report = finished(world, tmp_path)
    assert (report.status, report.stop_reason) == ("needs-human", "needs-human")
    assert events(tmp_path)[-1].payload == {"exit_status": "needs-human"}


def test_r30_faults_are_labelled_and_imports_are_silent(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    fault = ("reply to the retry lost",)
    report = run_task(tmp_path, Counted(), request_for(world), faults=fault)
    assert isinstance(report, Report)
    assert report.faults == fault
    assert events(tmp_path)[0].payload["config"]["faults"] == list(fault)
    assert "reply to the retry lost" in (tmp_path / "report.md").read_text(encoding="utf-8")
    code = "import sag_research.lab.export_job, threading; print(threading.active_count())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_model_that_fails_leaves_the_task_to_be_carried_on(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    class Failing(Counted):
        def complete(self, request: Request) -> Reply:
            raise ModelUnreachable("no line")

    with pytest.raises(ModelUnreachable):
        run_task(tmp_path, Failing(), request_for(world))
    assert isinstance(run_task(tmp_path, Counted()), Report)


def test_progress_is_a_fold_of_events() -> None:
    made = [
        Event(run_id="r", type="run.created", payload={}),
        Event(run_id="r", type="llm.requested", payload={}),
        Event(run_id="r", type="tool.requested", payload={}),
        Event(run_id="r", type="something.else", payload={}),
    ]
    progress = progress_of(made)
    assert (progress.model_calls, progress.action_calls, progress.turns) == (1, 0, [])
