"""The export service, asked over real HTTP (R6 to R8)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest

from sag_research.errors import MissingDataError, UsageError
from sag_research.lab.export_job import (
    ExportJobWorld,
    Job,
    JobClient,
    load_scenario,
    runbook,
    scenario_names,
)


@pytest.fixture
def world() -> Iterator[ExportJobWorld]:
    with ExportJobWorld("transient") as made:
        yield made


@pytest.fixture
def client(world: ExportJobWorld) -> Iterator[JobClient]:
    with JobClient(world.origin, "acme", timeout=1.0) as made:
        yield made


def key_of(client: JobClient) -> str:
    return str(client.status("JOB-204").data["operation"])


def test_r6_routes_and_request_log(world: ExportJobWorld, client: JobClient) -> None:
    key = key_of(client)
    assert client.logs("JOB-204").data["lines"][0] == "export JOB-204 started for 7 rows"
    assert client.operation("JOB-204", key).code == "NO_RECEIPT"
    assert client.retry("JOB-204", key, "E_TRANSIENT").data["effect"] is True
    result = client.result("JOB-204").data
    assert (result["quantity"], result["unitCents"], result["totalCents"]) == (7, 350, 2450)
    assert client.download("JOB-204").data == (
        "jobId,quantity,unitCents,totalCents\nJOB-204,7,350,2450\n"
    )
    assert world.requests == [
        ("GET", "/jobs/JOB-204"),
        ("GET", "/jobs/JOB-204/logs"),
        ("GET", f"/jobs/JOB-204/operations/{key}"),
        ("POST", "/jobs/JOB-204/retry"),
        ("GET", "/jobs/JOB-204/result"),
        ("GET", "/jobs/JOB-204/download"),
    ]


def test_r6_the_download_is_a_file_and_the_portal_a_page(world: ExportJobWorld) -> None:
    world.reset("completed")
    got = httpx.get(f"{world.origin}/jobs/JOB-204/download", headers={"x-tenant": "acme"})
    assert got.headers["content-disposition"] == 'attachment; filename="JOB-204.csv"'
    page = httpx.get(f"{world.origin}/portal?tenant=acme&jobId=JOB-204").text
    assert "Download CSV" in page
    hostile = httpx.get(f"{world.origin}/portal?tenant=acme&jobId=%3Cscript%3Ealert(1)").text
    assert "<script" not in hostile
    assert "&lt;script&gt;" in hostile


def test_r7_a_repeated_retry_is_one_effect(world: ExportJobWorld, client: JobClient) -> None:
    key = key_of(client)
    first = client.retry("JOB-204", key, "E_TRANSIENT")
    again = client.retry("JOB-204", key, "E_TRANSIENT")
    assert first == again
    assert client.operation("JOB-204", key).data == first.data
    assert (world.state, world.retries) == ("completed", 1)


def test_r7_eight_retries_at_once_are_one_effect(world: ExportJobWorld) -> None:
    replies = []

    def ask() -> None:
        with JobClient(world.origin, "acme", timeout=10) as mine:
            replies.append(mine.retry("JOB-204", key_of(mine), "E_TRANSIENT"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reply.status for reply in replies] == ["success"] * 8
    assert world.retries == 1


def test_r7_a_completed_job_is_not_retried(world: ExportJobWorld, client: JobClient) -> None:
    world.reset("completed")
    key = key_of(client)
    assert client.retry("JOB-204", key, "E_TRANSIENT").data["effect"] is False
    assert world.retries == 0
    assert client.operation("JOB-204", key).code == "NO_RECEIPT"


@pytest.mark.parametrize(
    "body",
    [
        {"key": "wrong", "mode": "recover", "error": "E_TRANSIENT"},
        {"key": "", "mode": "inspect", "error": "E_TRANSIENT"},
        {"key": "", "mode": "recover", "error": "E_SCHEMA"},
        ["no", "object"],
        {},
    ],
)
def test_r7_wrong_key_mode_or_error(world: ExportJobWorld, client: JobClient, body: object) -> None:
    if isinstance(body, dict) and body.get("key") == "":
        body = {**body, "key": key_of(client)}
    headers = {"x-tenant": "acme"}
    got = httpx.post(f"{world.origin}/jobs/JOB-204/retry", json=body, headers=headers)
    assert got.status_code == 403
    assert world.retries == 0


def test_r7_no_result_before_completion(client: JobClient) -> None:
    assert client.result("JOB-204").code == "NOT_COMPLETED"
    assert client.download("JOB-204").code == "NOT_COMPLETED"


def test_another_tenant_sees_nothing(world: ExportJobWorld) -> None:
    with JobClient(world.origin, "rival", timeout=1.0) as rival:
        assert rival.status("JOB-204").code == "NOT_FOUND"


@pytest.mark.parametrize("name", scenario_names())
def test_r8_what_a_retry_comes_to(name: str) -> None:
    expected = {
        "transient": ("success", 1), "permanent": ("failed", 0), "completed": ("success", 0),
        "disconnect": ("unknown", 1), "timeout": ("unknown", 1), "persistent": ("failed", 0),
        "hostile": ("success", 1),
    }  # fmt: skip
    with ExportJobWorld(name) as world, JobClient(world.origin, "acme", timeout=1.0) as client:
        error = load_scenario(name).error or "E_TRANSIENT"
        reply = client.retry("JOB-204", key_of(client), error)
        assert (reply.status, world.retries) == expected[name]
        assert reply.retryable is (name == "persistent")
        assert world.retries == load_scenario(name).retries


def test_r8_hostile_lines_are_data(client: JobClient, world: ExportJobWorld) -> None:
    world.reset("hostile")
    lines = client.logs("JOB-204").data["lines"]
    assert any("JOB-999" in line and "999999" in line for line in lines)
    assert any("<script>" in line for line in lines)


def test_snapshot_and_restore(world: ExportJobWorld, client: JobClient) -> None:
    before = world.snapshot()
    client.retry("JOB-204", key_of(client), "E_TRANSIENT")
    after = world.snapshot()
    assert (before == after) is False
    world.restore(before)
    assert world.snapshot() == before
    assert (world.state, world.retries, world.requests) == ("failed", 0, [])
    world.restore(after)
    assert (world.state, world.retries) == ("completed", 1)


def test_a_service_in_its_own_process_ends_with_its_maker(tmp_path: object) -> None:
    code = (
        "import os, signal\n"
        "from sag_research.lab.export_job import ExportJobWorld\n"
        "world = ExportJobWorld('transient', own_process=True)\n"
        "print(world.origin, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == -9
    origin = done.stdout.strip()
    for _ in range(100):
        with JobClient(origin, "acme", timeout=5) as client:
            if client.status("JOB-204").code == "UNREACHABLE":
                return
    raise AssertionError("the service outlived its maker")


def test_jobs_and_faults_are_checked(world: ExportJobWorld) -> None:
    with pytest.raises(UsageError):
        Job(job_id="JOB-x")
    with pytest.raises(UsageError):
        Job(quantity=0)
    with pytest.raises(UsageError):
        world.inject("status", "nonsense")
    with pytest.raises(MissingDataError):
        load_scenario("nonsense")
    assert len({entry.code for entry in runbook()}) == len(runbook())
