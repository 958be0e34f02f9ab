"""What a request came to (R3, R10), against the real service and real silence."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from sag_research.errors import UsageError
from sag_research.lab.export_job import ExportJobWorld, JobClient, check_origin


@pytest.fixture(scope="module")
def served() -> Iterator[ExportJobWorld]:
    with ExportJobWorld("transient") as made:
        yield made


@pytest.fixture
def world(served: ExportJobWorld) -> ExportJobWorld:
    served.reset("transient")
    return served


@pytest.mark.parametrize("kind", ["garbage", "huge", "unavailable", "slow", "redirect", "drop"])
def test_r10_a_read_that_fails_is_failed(world: ExportJobWorld, kind: str) -> None:
    world.inject("status", kind)
    with JobClient(world.origin, "acme", timeout=1.0) as client:
        reply = client.status("JOB-204")
        assert reply.status == "failed"
        assert reply.retryable
        assert len(reply.message) <= 220
        assert client.status("JOB-204").status == "success"  # a fault is counted down


@pytest.mark.parametrize("kind", ["garbage", "huge", "slow", "redirect", "drop"])
def test_r10_a_write_whose_reply_is_lost_is_unknown(world: ExportJobWorld, kind: str) -> None:
    with JobClient(world.origin, "acme", timeout=1.0) as client:
        key = client.status("JOB-204").data["operation"]
        world.inject("retry", kind)
        reply = client.retry("JOB-204", key, "E_TRANSIENT")
    assert (reply.status, reply.code) == ("unknown", "OUTCOME_UNKNOWN")
    assert "query the status" in reply.message
    assert world.retries == (1 if kind == "drop" else 0)


def test_r10_a_write_that_was_refused_is_failed(world: ExportJobWorld) -> None:
    world.inject("retry", "unavailable")
    with JobClient(world.origin, "acme", timeout=1.0) as client:
        key = client.status("JOB-204").data["operation"]
        assert client.retry("JOB-204", key, "E_TRANSIENT").status == "failed"


def test_r10_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with JobClient(origin, "acme", timeout=1.0) as client:
            reply = client.retry("JOB-204", "key", "E_TRANSIENT")
    assert (reply.status, reply.code) == ("failed", "UNREACHABLE")


def test_r10_a_reply_that_trickles_is_given_up() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def trickle() -> None:
            line, _ = listening.accept()
            with line:
                line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")
                stop = threading.Event()
                for _ in range(60):
                    stop.wait(0.05)
                    try:
                        line.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with JobClient(origin, "acme", timeout=0.2) as client:
            assert client.status("JOB-204").message.startswith("the reply came too slowly")
        thread.join()


@pytest.mark.parametrize(
    "origin",
    [
        "http://example.org", "http://127.0.0.1/", "http://127.0.0.1:80/path", "ftp://127.0.0.1",
        "http://127.0.0.1.evil.org", "http://user@127.0.0.1", "https://a.org?x=1", "https://a.org#x",
        "https://", "", "https://a org", "http://localhost:80", "https://A.org", "http://127.0.0.1:0",
        "http://127.0.0.1:99999", "https://[::1", "https://a.org\n", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_r3_no_origin(origin: str) -> None:
    with pytest.raises(UsageError):
        check_origin(origin)


@pytest.mark.parametrize("origin", ["https://jobs.example.org", "https://a.org:8443"])
def test_r3_origins(origin: str) -> None:
    assert check_origin(origin) == origin
