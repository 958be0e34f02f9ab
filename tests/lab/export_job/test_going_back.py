"""A world that is restored is the world: random interleavings, asked over real HTTP."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import httpx
import pytest

from sag_research.lab.export_job import ExportJobWorld, job_variant, scenario_names
from sag_research.lab.export_job._database import operation_key

ROUTES: Final = ("status", "logs", "operation", "retry", "result", "download", "portal")
QUICK: Final = ("garbage", "huge", "unavailable", "redirect", "drop")
Act = Callable[[ExportJobWorld, httpx.Client], Any]


def asking(method: str, path: str, body: Any = None, seconds: float = 20.0) -> Act:
    """Ask, and return all that came back: the status, the headers and every byte."""

    def act(world: ExportJobWorld, client: httpx.Client) -> Any:
        try:
            got = client.request(method, world.origin + path, json=body, timeout=seconds)
        except (httpx.RemoteProtocolError, httpx.ReadTimeout) as error:
            return type(error).__name__
        headers = [(name, value) for name, value in got.headers.raw if name.lower() != b"date"]
        return got.status_code, headers, got.content

    return act


def injecting(route: str, kind: str, times: int) -> Act:
    return lambda world, client: world.inject(route, kind, times)


def drawn(random: Random, job_id: str) -> Act:
    """Draw something to do: a request that is right or wrong, or a fault to be queued."""
    key = operation_key(job_id, "acme")
    body = {"key": random.choice((key, key, "wrong")), "mode": "recover", "error": "E_TRANSIENT"}
    job = f"/jobs/{random.choice((job_id, job_id, job_id, 'JOB-9'))}"
    acts = [
        asking("GET", job), asking("GET", f"{job}/logs"), asking("GET", f"{job}/operations/{key}"),
        asking("POST", f"{job}/retry", body), asking("GET", f"{job}/result"),
        asking("GET", f"{job}/download"), asking("GET", f"/portal?tenant=acme&jobId={job_id}"),
        injecting(random.choice(ROUTES), random.choice(QUICK), random.randrange(1, 4)),
    ]  # fmt: skip
    return random.choice(acts)


def done(acts: list[Act], world: ExportJobWorld, client: httpx.Client) -> list[Any]:
    return [act(world, client) for act in acts]


@pytest.mark.parametrize("scenario", [name for name in scenario_names() if name != "timeout"])
def test_what_is_done_again_after_a_restore_is_answered_byte_for_byte(scenario: str) -> None:
    random = Random(f"going back {scenario}")
    job = job_variant(2)
    seen = set[Any]()
    with (
        ExportJobWorld(scenario, job) as world,
        ExportJobWorld("completed") as elsewhere,
        httpx.Client(headers={"x-tenant": "acme"}) as client,
    ):
        for _ in range(4):
            before = [drawn(random, job.job_id) for _ in range(random.randrange(8))]
            after = [drawn(random, job.job_id) for _ in range(random.randrange(4, 10))]
            world.reset(scenario, job)
            done(before, world, client)
            kept = world.snapshot()
            said = done(after, world, client)
            then, requests, retries = world.snapshot(), world.requests, world.retries
            for other in (world, elsewhere):  # the same service, and another on another port
                other.restore(kept)
                assert other.snapshot() == kept
                assert done(after, other, client) == said
                assert (other.snapshot(), other.requests, other.retries) == (
                    then, requests, retries,
                )  # fmt: skip
            seen.update(answer[0] for answer in said if isinstance(answer, tuple))
    assert {200, 404} <= seen  # and not one answer to everything


@pytest.mark.parametrize("scenario", ["timeout", "transient"])
def test_a_reply_that_comes_after_the_restore_changes_nothing(scenario: str) -> None:
    body = {"key": operation_key("JOB-204", "acme"), "mode": "recover", "error": "E_TRANSIENT"}
    late = asking("POST", "/jobs/JOB-204/retry", body, seconds=0.3)
    with ExportJobWorld(scenario) as world, httpx.Client(headers={"x-tenant": "acme"}) as client:
        if scenario == "transient":
            world.inject("retry", "slow")
        kept = world.snapshot()
        assert late(world, client) == "ReadTimeout"
        effects = world.retries
        world.restore(kept)  # while the service is still at it
        asking("GET", "/jobs/JOB-204", seconds=20)(world, client)
        assert late(world, client) == "ReadTimeout"
        asking("GET", "/jobs/JOB-204", seconds=20)(world, client)
        done([asking("GET", "/jobs/JOB-204")] * 3, world, client)
        assert world.retries == effects == (scenario == "timeout")
        assert len(world.requests) == 6


def test_a_snapshot_is_plain_and_stays_as_it_is() -> None:
    with ExportJobWorld("transient") as world, httpx.Client() as client:
        world.inject("logs", "garbage", 2)
        kept = world.snapshot()
        copy = repr(kept)
        asking("GET", "/jobs/JOB-204/logs")(world, client)
        assert repr(kept) == copy
        assert world.snapshot() != kept
        assert kept["tables"]["faults"] == [[1, "logs", "garbage", 2]]
