"""The service on a real socket of this machine: on a thread, or in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import uvicorn

from sag_research.errors import SagError
from sag_research.lab.export_job._database import Database
from sag_research.lab.export_job._service import application

__all__ = ["ProcessHost", "ThreadHost", "serve"]

_START_SECONDS = 20.0
_STOP_SECONDS = 5.0


class ThreadHost:
    """The service on a thread of this process.

    Attributes
    ----------
    origin : str
        ``http://127.0.0.1:PORT``.
    """

    def __init__(self, database: Database, port: int = 0) -> None:
        self._socket = _listen(port)
        self.origin = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(_config(database))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True,
            name="export-service",
        )  # fmt: skip
        self._thread.start()  # the socket listens already: early requests wait in its queue

    def close(self) -> None:
        """Stop serving; closing twice does nothing."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(_STOP_SECONDS)
        self._socket.close()


class ProcessHost:
    """The service in a process of its own, which outlives an agent that is killed."""

    def __init__(self, database: Database, port: int = 0) -> None:
        command = [sys.executable, "-m", "sag_research.lab.export_job", "serve"]
        self._process = subprocess.Popen(
            [*command, str(database.path), str(port)],
            stdout=subprocess.PIPE, stdin=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        self.origin = self._process.stdout.readline().strip()
        if not self.origin:
            self.close()
            raise SagError(
                "the export service did not start", fix="pip install 'sag-research[worlds]'"
            )

    def close(self) -> None:
        """Stop the process; closing twice does nothing."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve(path: Path, port: int = 0) -> None:
    """Serve a database until standard input ends; prints the origin first.

    The process that started it holds the other end of standard input: however that process
    dies, the service ends with it.
    """
    host = ThreadHost(Database(path), port)
    print(host.origin, flush=True)
    sys.stdin.read()
    host.close()


def _config(database: Database) -> uvicorn.Config:
    return uvicorn.Config(
        application(database), log_config=None, log_level="critical", access_log=False,
        lifespan="off", timeout_graceful_shutdown=1, ws="none",
    )  # fmt: skip


def _listen(port: int) -> socket.socket:
    # without the protocol's name asyncio leaves Nagle's algorithm on: 40 ms a request
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise SagError(
            f"the service cannot listen on port {port}", why=error.strerror or str(error),
            fix="end the program that uses the port, and try again",
        ) from None  # fmt: skip
    return listening
