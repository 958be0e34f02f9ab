"""Hostile services, folders, requests and clocks: said in one error, or survived."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sag_research.errors import SagError, UsageError
from sag_research.lab.export_job import (
    Careful,
    ExportJobWorld,
    Job,
    JobClient,
    Report,
    Stochastic,
    TaskRequest,
)
from sag_research.lab.export_job._toolbox import Toolbox
from sag_research.llm import Reply, ToolCall
from sag_research.runtime import CancelToken, LoopCancelledError
from tests.lab.export_job.support import JOB, Counted, events, request_for, run_task


@pytest.fixture(scope="module")
def served() -> Iterator[ExportJobWorld]:
    with ExportJobWorld() as made:
        yield made


@pytest.fixture
def world(served: ExportJobWorld) -> ExportJobWorld:
    served.reset("transient", Job())
    return served


# ---- services


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A service that says the same to every request, byte for byte; yields its origin."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)

        def one(line: socket.socket) -> None:
            with line:
                try:
                    while b"\r\n\r\n" not in line.recv(65536):
                        pass
                    answer(line)
                except OSError:
                    return

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(line,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def said(body: bytes, status: int = 200, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    return head.encode() + body


REPLIES = {
    "no HTTP": b"\x00" * 100,
    "half characters": said(b'{"state": "\\ud800", "error": "\\udfff", "lines": ["\\ud800"]}'),
    "no number": said(b'{"state": NaN}'),
    "infinite": said(b'{"state": 1e999}'),
    "many digits": said(b'{"state": ' + b"9" * 5000 + b"}"),
    "deep": said(b'{"a":' * 300 + b"1" + b"}" * 300),
    "other types": said(b'{"state": "completed", "lines": 5, "csv": [1], "operation": {}}'),
    "log of no lines": said(b'{"state": ["x"], "lines": {"E_TRANSIENT": 1}, "operation": "a"}'),
    "no file": said(b'{"state": "completed", "error": ""}'),
    "file of words": said(b'{"state": "completed", "csv": "a,b,c,d\\nJOB-204,x,y,z\\n"}'),
    "file of one line": said(b'{"state": "completed", "csv": "a"}'),
    "long code": said(b'{"error": {"code": "' + b"A" * 9000 + b'", "message": 7}}', 500),
    "compressed": said(b"{}", more="Content-Encoding: gzip\r\n"),
    "endless chunk": b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    "strange length": b"HTTP/1.1 200 X\r\nContent-Length: -5\r\n\r\n{}",
}


@pytest.mark.parametrize("name", REPLIES)
def test_whatever_a_service_says_a_task_ends_with_a_report(name: str, tmp_path: Path) -> None:
    with answering(lambda line: line.sendall(REPLIES[name])) as origin:
        for model in (Careful(), Stochastic("restless", 3)):
            request = TaskRequest(id="task-1", origin=origin, max_steps=5)
            report = run_task(tmp_path / model.name, model, request)
            assert isinstance(report, Report)
            assert report.status in ("partial", "needs-human")
            assert report.total_cents is None


def test_a_service_whose_first_line_trickles_is_given_up() -> None:
    def trickle(line: socket.socket) -> None:
        stop = threading.Event()
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x-more: 1\r\n" * 40:
            line.sendall(bytes([byte]))
            stop.wait(0.05)

    with answering(trickle) as origin, JobClient(origin, "acme", timeout=0.2) as client:
        assert client.status(JOB).message == "the reply came too slowly"
        lost = client.retry(JOB, "key", "E_TRANSIENT")
        assert (lost.status, lost.code) == ("unknown", "OUTCOME_UNKNOWN")


def test_what_a_hostile_error_says_stays_text_in_the_report(tmp_path: Path) -> None:
    error = "E_X\u001b[31m\u202e\r\n# Paid\n| a | <b> ![x](http://127.0.0.1/) " + "y" * 500
    body = json.dumps({"state": "failed", "operation": "a", "error": error, "lines": []}).encode()

    def hand_over(request: Any) -> Reply:
        kept = [json.loads(m.content)["evidence_id"] for m in request.messages if m.role == "tool"]
        final = {"status": "needs-human", "summary": "", "evidenceIds": kept}
        return Reply(text=json.dumps(final))

    look = Reply(text="", calls=(ToolCall(name="job_status", arguments={"jobId": JOB}, id="a"),))
    with answering(lambda line: line.sendall(said(body))) as origin:
        request = TaskRequest(id="task-1", origin=origin)
        report = run_task(tmp_path, Counted(look, hand_over), request)
    assert isinstance(report, Report)
    written = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert report.status == "needs-human"
    assert not {"\u001b", "\u202e", "\r", "<"} & set(written)
    assert "\n# Paid" not in written
    assert "](" not in written
    assert len(report.summary) < 250


# ---- folders


def test_a_folder_that_cannot_be_written_is_said(world: ExportJobWorld, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(SagError, match="cannot be a task's folder"):
        run_task(file, Counted(), request_for(world))
    locked = tmp_path / "locked"
    (locked / "runner.lock").mkdir(parents=True)
    with pytest.raises(SagError, match="cannot be locked"):
        run_task(locked, Counted(), request_for(world))
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "evidence").write_text("x", encoding="utf-8")
    with pytest.raises(SagError, match="cannot hold evidence"):
        run_task(occupied, Counted(), request_for(world))
    assert world.requests == []


FULL = """
import resource, signal, sys
from sag_research.errors import SagError
from sag_research.lab.export_job import Careful, TaskRequest, run_task
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for size in (0, 20, 200, 20_000, 70_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        run_task(sys.argv[2], Careful(), TaskRequest(id="task-1", origin=sys.argv[1]), timeout=1.0)
        print("done")
    except SagError as error:
        print("said", error)
"""


def test_a_full_disk_is_said_and_the_task_carried_on(world: ExportJobWorld, tmp_path: Path) -> None:
    # -B: modules compiled under the limit would be cut, and stay so
    command = [sys.executable, "-B", "-c", FULL, world.origin, str(tmp_path / "task")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, 5), done.stderr
    assert lines[0].startswith("said")
    report = run_task(tmp_path / "task", Careful(), request_for(world))
    assert isinstance(report, Report)
    assert (report.status, world.retries) == ("completed", 1)


def test_a_log_that_was_deleted_is_not_begun_anew(world: ExportJobWorld, tmp_path: Path) -> None:
    run_task(tmp_path, Counted(), request_for(world), stop_after="observation")
    for path in tmp_path.glob("log.sqlite*"):
        path.unlink()
    model = Counted()
    with pytest.raises(SagError, match="is not in the log"):
        run_task(tmp_path, model)
    assert model.asked == []


def test_a_permission_that_was_deleted_is_not_granted_anew(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    run_task(tmp_path, Counted(), request_for(world), stop_after="decision")
    (tmp_path / "permissions.json").unlink()
    with pytest.raises(SagError, match="allows nothing"):
        run_task(tmp_path, Counted())
    with pytest.raises(SagError, match="allows nothing"):
        run_task(tmp_path / "b", Counted(), request_for(world), policy=tmp_path / "typo.json")
    assert not (tmp_path / "typo.json").exists()


def test_a_report_that_is_not_the_logs_is_noticed(world: ExportJobWorld, tmp_path: Path) -> None:
    world.reset("completed")
    here = tmp_path / "task"
    first = run_task(here, Counted(), request_for(world))
    path = here / "report.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"2450", b"9450"))
    with pytest.raises(SagError, match="is there already"):
        run_task(here, Counted())
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SagError, match="is there already"):
        run_task(here, Counted())
    path.unlink()
    path.mkdir()
    with pytest.raises(SagError, match="is there already"):
        run_task(here, Counted())
    path.rmdir()
    before = len(world.requests)
    assert run_task(here, Counted()) == first  # what was lost is made again from the log
    assert path.read_bytes() == whole
    assert (len(world.requests), (tmp_path / "elsewhere").exists()) == (before, False)


# ---- requests and clocks


@pytest.mark.parametrize(
    "wrong",
    [
        {"goal": "half \ud800"},
        {"goal": "NUL \x00"},
        {"goal": "x" * 5000},
        {"max_steps": 99},
        {"id": "../x"},
    ],
)
def test_a_request_made_in_python_is_checked_before_it_is_kept(
    wrong: dict[str, Any], world: ExportJobWorld, tmp_path: Path
) -> None:
    fields = {"id": "task-1", "origin": world.origin, **wrong}
    with pytest.raises(UsageError):
        run_task(tmp_path, Counted(), TaskRequest(**fields))
    assert list(tmp_path.iterdir()) == []
    assert isinstance(run_task(tmp_path, Counted(), request_for(world)), Report)


def test_goals_with_control_characters_are_text(world: ExportJobWorld, tmp_path: Path) -> None:
    goal = "Do it.\x07\x1b[2J\r\n\u202e# x <script>"
    report = run_task(tmp_path, Counted(), request_for(world, goal=goal))
    assert isinstance(report, Report)
    assert report.status == "completed"
    assert goal not in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert events(tmp_path)[0].payload["goal"] == goal


def test_a_clock_that_goes_back_ends_no_task_and_no_limit(
    world: ExportJobWorld, tmp_path: Path
) -> None:
    now = [1e9]

    def back() -> float:
        now[0] -= 1000
        return now[0]

    look = Reply(text="", calls=(ToolCall(name="job_status", arguments={"jobId": JOB}, id="a"),))
    request = request_for(world, max_steps=3)
    report = run_task(tmp_path, Counted(look, look, look), request, clock=back)
    assert isinstance(report, Report)
    assert report.stop_reason in ("max-steps", "no-progress")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="\ud800", calls=()), Reply(text='{"status": "completed", "summary": "\\ud800"}'),
        Reply(text='{"totalCents": ' + "9" * 5000 + "}"), Reply(text="{" * 5000 + "}" * 5000),
        Reply(text="", calls=(ToolCall(name="\ud800", arguments={}, id="\ud800"),)),
        Reply(text="", calls=tuple(ToolCall(name="job_logs", arguments={"jobId": JOB}, id=str(n))
                                   for n in range(500))),
        Reply(text="", calls=(ToolCall(name="job_logs", arguments={"jobId": "x" * 10**6}),)),
    ],
)  # fmt: skip
def test_nonsense_of_a_model_is_refused_or_said(
    reply: Reply, world: ExportJobWorld, tmp_path: Path
) -> None:
    try:
        report = run_task(tmp_path, Counted(reply), request_for(world))
    except SagError:
        assert world.requests == []
        return
    assert isinstance(report, Report)
    assert report.stop_reason in ("completed", "invalid-decision", "max-actions")


# ---- the browser


@pytest.mark.usefixtures("portal_browser")
def test_a_task_is_cancelled_while_its_browser_waits(
    world: ExportJobWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.reset("completed")
    world.inject("portal", "slow", times=9)
    token, plain = CancelToken(), Toolbox.run

    def run(self: Toolbox, name: str, *rest: Any) -> Any:
        if name == "job_result_browser":
            threading.Timer(0.5, token.cancel, ["enough"]).start()
        return plain(self, name, *rest)

    monkeypatch.setattr(Toolbox, "run", run)
    with pytest.raises(LoopCancelledError):
        run_task(tmp_path, Counted(), request_for(world, delivery="browser"), cancel=token)
    assert not (tmp_path / "report.json").exists()
    names = {thread.name for thread in threading.enumerate()}
    assert "export-portal" not in names
    world.reset("completed")
    report = run_task(tmp_path, Counted())
    assert isinstance(report, Report)
    assert report.status == "completed"
