"""Reading in further processes: files go out, what was read comes back in the same order.

The processes are fresh interpreters that talk over their standard streams, so nothing of the
caller is started again in them: they work in notebooks, in scripts without a main guard, and on
every system. What they send are plain structures, not objects that could run code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import IO, Final, cast

import msgspec
from msgspec.structs import replace

from sag_research.errors import SagError
from sag_research.ingest._reading import Look, Read, Rules, Shared, source_of
from sag_research.ingest._share import can_be_shared
from sag_research.ingest._together import put_together
from sag_research.ingest._walk import Found

__all__ = ["Order", "Task", "found_of", "framed", "read_frame", "read_in_processes"]

_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from sag_research.ingest._worker import serve; serve()"
)
_WINDOW: Final = 24
"""Files that a process is given ahead."""
_WAITING_BYTES: Final = 32 * 2**20
"""What a process has sent and nobody took yet; then it waits."""
_LARGE: Final = 2 * 2**20
"""Bytes on disk from which on all processes read a file, if it can be shared."""
_HEAD: Final = 8
"""Bytes of the length before each message."""
_SHORT: Final = 16
"""Hex digits of the digests that a process is told; what they match is looked up by the caller."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_read: Final = msgspec.msgpack.Decoder(Read).decode


class Order(msgspec.Struct, array_like=True, frozen=True):
    """What a process is told at its start."""

    rules: Rules
    known: bytes
    """Beginnings of the digests of what need not be read, eight bytes each."""


class Task(msgspec.Struct, array_like=True, frozen=True):
    """A file to read; paths as the system has them."""

    path: bytes
    name: str
    root: bytes
    named: bool
    problem: str
    members: list[bytes]
    size: int = 0
    shared: Shared | None = None
    """Which of how many processes reads it, where several do."""


def found_of(task: Task) -> Found:
    """Make of a task what it was made of."""
    members = tuple(Path(os.fsdecode(path)) for path in task.members)
    path, root = Path(os.fsdecode(task.path)), Path(os.fsdecode(task.root))
    return Found(path, task.name, root, task.named, task.problem, members)


def _task_of(found: Found, size: int) -> Task:
    return Task(
        path=os.fsencode(found.path),
        name=found.name.encode("utf-8", "replace").decode(),
        root=os.fsencode(found.root),
        named=found.named,
        problem=found.problem,
        members=[os.fsencode(path) for path in found.members],
        size=size,
    )


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read one message; None where the stream ends, also in the middle of one."""
    head = stream.read(_HEAD)
    if len(head) < _HEAD:
        return None
    size = int.from_bytes(head, "big")
    data = stream.read(size)
    return data if len(data) == size else None


def framed(data: bytes) -> bytes:
    """Put the length before a message."""
    return len(data).to_bytes(_HEAD, "big") + data


def read_in_processes(
    found: Iterable[tuple[Found, int]], rules: Rules, jobs: int, known: Iterable[str]
) -> Generator[Look]:
    """Read files in other processes; yields one look a file, in the order given.

    Parameters
    ----------
    found : iterable of (Found, int)
        Files, with their sizes on disk.
    rules : Rules
    jobs : int
        Number of processes.
    known : iterable of str
        Digests of contents that need not be read.

    Raises
    ------
    SagError
        If a process cannot be started.

    Notes
    -----
    All parts of a look must be taken before the next look. A process that ends costs the file
    that it held, which is refused; another process goes on with the rest. A large file of rows
    is read by all of them, each every n-th block of it.
    """
    digests = b"".join(bytes.fromhex(digest[:_SHORT]) for digest in known)
    order = framed(_encode(Order(rules._replace(packed=True), digests)))
    readers: list[_Reader] = []
    waiting: deque[tuple[Found, list[_Reader]]] = deque()
    try:
        for one, size in found:
            task = _task_of(one, size)
            if is_shared := size >= _LARGE and not one.problem and can_be_shared(source_of(one)):
                readers += [_Reader(order) for _ in range(jobs - len(readers))]
            elif len(readers) < jobs:
                readers.append(_Reader(order))
            chosen = readers if is_shared else [min(readers, key=lambda reader: reader.load)]
            for number, reader in enumerate(chosen):
                shared = (number, jobs) if is_shared else None
                reader.send(replace(task, size=size // len(chosen), shared=shared))
            waiting.append((one, [*chosen]))
            if len(waiting) >= _WINDOW * jobs:
                yield _look(*waiting.popleft())
        while waiting:
            yield _look(*waiting.popleft())
    finally:
        for reader in readers:
            reader.stop()


def _look(found: Found, readers: Sequence[_Reader]) -> Look:
    takes = [reader.take for reader in readers]
    parts = put_together(takes) if len(takes) > 1 else _parts(takes[0])
    first = next(parts)
    return Look(found, first, parts)


def _parts(take: Callable[[], Read]) -> Iterator[Read]:
    more = True
    while more:
        part = take()
        more = part.more
        yield part


class _Reader:
    """A process that reads files, one after the other."""

    def __init__(self, order: bytes) -> None:
        self.load = 0
        """Bytes on disk of what it was given and has not sent back."""
        self._order = order
        self._tasks: deque[Task] = deque()
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-c", _CODE, json.dumps(sys.path)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise _not_started(error.strerror or str(error)) from None
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._inbox = _Inbox(cast("IO[bytes]", self._process.stdout))
        self._is_up = False
        self._write(self._order)
        for task in self._tasks:
            self._write(framed(_encode(task)))

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # the process has ended: seen where its answer is missing
            self._requests.write(data)
            self._requests.flush()

    def send(self, task: Task) -> None:
        """Give it a file."""
        self._tasks.append(task)
        self.load += task.size + 1
        self._write(framed(_encode(task)))

    def take(self) -> Read:
        """Return the next part of what it has read; of a process that ended, the reason."""
        if not self._is_up:
            if self._inbox.take() is None:
                raise _not_started(f"it {self._ending()}")
            self._is_up = True
        data = self._inbox.take()
        read = None if data is None else _decode_read(data)
        if read is not None and read.more:
            return read
        self.load -= self._tasks.popleft().size + 1
        if read is None:
            read = Read(reason=f"the process that read it {self._ending()}", claimed=True)
            self.stop()
            self._start()
        return read

    def _ending(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"was ended by signal {-code}, perhaps for want of memory"
        return f"ended with exit code {code}"

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._inbox.close()
        with suppress(OSError):
            self._requests.close()


def _not_started(why: str) -> SagError:
    return SagError("a process that reads files cannot be started", why=why, fix="use one job")


class _Inbox:
    """What a process has sent, read by a thread up to a number of bytes ahead."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._messages: deque[bytes | None] = deque()
        self._size = 0
        self._closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._fill, name="sag-receive", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        data: bytes | None = b""
        while data is not None:
            data = read_frame(self._stream)
            with self._changed:
                self._messages.append(data)
                self._size += len(data or b"")
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or self._size < _WAITING_BYTES)

    def take(self) -> bytes | None:
        """Wait for the next message; None where the process has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages)
            data = self._messages.popleft()
            self._size -= len(data or b"")
            self._changed.notify_all()
            return data

    def close(self) -> None:
        """Stop reading, once the process has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._stream.close()
