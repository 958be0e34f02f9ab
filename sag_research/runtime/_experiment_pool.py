"""Carrying out continuations in processes of their own, any of which may die."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

import msgspec

from sag_research.errors import SagError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.runtime._arms import Job, Setting, carry_out

__all__ = ["carry_out_all", "check_importable"]

_READY: Final = b"ready"
_PATIENCE: Final = 1.0  # seconds between two looks whether the parent process still lives


def carry_out_all(path: str, setting: Setting, jobs: Sequence[Job], workers: int) -> None:
    """Hand out jobs to processes until all were tried once.

    A process that dies takes its job with it, and another takes its place; what became of the
    job stands in the log.

    Raises
    ------
    SagError
        If a process could not start, or could not write to the log.
    """
    pool = _Pool(path, setting)
    waiting = list(reversed(jobs))
    try:
        for _ in range(min(workers, len(waiting))):
            pool.start()
        while pool.processes:
            heard = wait(list(pool.processes))
            for connection in [one for one in pool.processes if one in heard]:
                if pool.hear(connection):
                    pool.give(connection, waiting)
                elif waiting:
                    pool.start()
    finally:
        pool.stop()


class _Pool:
    """The processes at work, by the connection to each."""

    def __init__(self, path: str, setting: Setting) -> None:
        # spawned, not forked: an open SQLite file must not be carried into another process
        self._context = multiprocessing.get_context("spawn")
        self._arguments = (path, setting, os.getpid())
        self.processes: dict[Connection, BaseProcess] = {}
        self._ready: set[Connection] = set()

    def start(self) -> None:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_work, args=(there, *self._arguments), daemon=True)
        process.start()
        there.close()
        self.processes[here] = process

    def hear(self, connection: Connection) -> bool:
        """Take a message; tell whether the process lives and wants another job."""
        try:
            message = connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            self._bury(connection)
            return False
        if message != _READY:
            raise SagError("a continuation could not be written", why=message.decode("utf-8"))
        self._ready.add(connection)
        return True

    def _bury(self, connection: Connection) -> None:
        process = self.processes.pop(connection)
        connection.close()
        process.join()
        if connection not in self._ready:
            raise SagError(
                "a process of the experiment could not start",
                why=f"it ended with exit code {process.exitcode}",
                fix="see its message above; a script needs `if __name__ == '__main__':`",
            )

    def give(self, connection: Connection, waiting: list[Job]) -> None:
        if not waiting:
            process = self.processes.pop(connection)
            connection.close()  # by which it knows that it may go
            process.join()
            return
        try:
            connection.send_bytes(msgspec.json.encode(waiting[-1]))
        except (BrokenPipeError, ConnectionResetError):
            return  # it has just died, which the next wait will show
        waiting.pop()

    def stop(self) -> None:
        for connection, process in self.processes.items():
            process.terminate()
            process.join()
            connection.close()
        self.processes.clear()


def _work(connection: Connection, path: str, setting: Setting, parent: int) -> None:
    """Carry out what is handed over the connection until nothing more is."""
    try:
        with SQLiteEventStore(path) as store:
            while (job := _next(connection, parent)) is not None:
                carry_out(store, job, setting)
    except BaseException as error:
        with suppress(OSError):  # nobody may be left to hear it
            connection.send_bytes(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        raise


def _next(connection: Connection, parent: int) -> Job | None:
    try:
        connection.send_bytes(_READY)
        while not connection.poll(_PATIENCE):
            if os.getppid() != parent:
                return None
        return msgspec.json.decode(connection.recv_bytes(), type=Job)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # nobody is left to work for
        return None


def check_importable(things: dict[str, Any]) -> None:
    """Refuse what a spawned process could not import.

    Raises
    ------
    UsageError
    """
    for name, thing in things.items():
        while isinstance(thing, partial):
            thing = thing.func
        if not _importable(thing):
            raise UsageError(
                f"{name} cannot be taken to another process",
                why="it is defined inside a notebook or a function",
                fix="define it at the top of a module that can be imported, or use jobs=1",
            )


def _importable(thing: Any) -> bool:
    owner = thing if hasattr(thing, "__qualname__") else type(thing)
    module = sys.modules.get(owner.__module__)
    if module is None or (owner.__module__ == "__main__" and not hasattr(module, "__file__")):
        return False
    found: Any = module
    for part in owner.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is owner
