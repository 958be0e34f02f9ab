"""Real servers and browsers for the tests of the export-job agent."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import support


@pytest.fixture
def portal_browser() -> None:
    """A Chromium that the agent itself will start."""
    support.require_module("browser", "playwright.sync_api")
    if support.find_chromium() is None:
        support.skip_or_fail("browser", "no Chromium was found; name one in SAG_CHROMIUM")


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Redis server that was started for the tests."""
    support.require_module("redis", "redis")
    server = shutil.which("redis-server")
    if server is None:
        support.skip_or_fail("redis", "redis-server is not installed")
    folder: Path = tmp_path_factory.mktemp("redis")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        server,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        try:
            _wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            running.terminate()


def _wait_for(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > until:
            raise AssertionError("redis-server did not start")
        time.sleep(0.05)
