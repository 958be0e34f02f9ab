"""A process that reads files for another one, which writes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from queue import SimpleQueue
from threading import Thread
from typing import IO, Final

import msgspec

from sag_research.ingest._jobs import Order, Task, found_of, framed, read_frame
from sag_research.ingest._reading import read_source, source_of
from sag_research.ingest.plugins import available

__all__ = ["serve"]

_SHORT_BYTES: Final = 8
_COLLECT: Final = 20_000
"""Objects made between two collections."""


def serve() -> None:
    """Read the files that standard input names, and send what they hold to standard output.

    The process ends with its input: when whoever started it is done, or was killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides
    gc.set_threshold(_COLLECT)  # what is read holds no circles, and goes when it is sent
    answers = os.dup(1)
    os.dup2(2, 1)  # what anything prints is no answer
    requests = sys.stdin.buffer
    order = msgspec.msgpack.decode(read_frame(requests) or b"", type=Order)
    formats = available(order.rules.format)
    formats.tell()  # the caller finds the same plug-ins, and has told
    digests = order.known
    known = {digests[at : at + _SHORT_BYTES] for at in range(0, len(digests), _SHORT_BYTES)}
    tasks: SimpleQueue[Task] = SimpleQueue()
    Thread(target=_receive, args=(requests, tasks), daemon=True).start()
    _send(answers, b"up")
    encode = msgspec.msgpack.Encoder().encode
    while True:
        task = tasks.get()
        found = found_of(task)
        for part in read_source(
            found,
            source_of(found),
            order.rules,
            formats,
            lambda digest: bytes.fromhex(digest[: 2 * _SHORT_BYTES]) in known,
            task.shared,
        ):
            _send(answers, encode(part))


def _receive(requests: IO[bytes], tasks: SimpleQueue[Task]) -> None:
    """Take tasks at once, whatever the process does: whoever sends them must not have to wait."""
    decode = msgspec.msgpack.Decoder(Task).decode
    while (data := read_frame(requests)) is not None:
        tasks.put(decode(data))
    os._exit(0)


def _send(answers: int, data: bytes) -> None:
    rest = memoryview(framed(data))
    try:
        while rest:
            rest = rest[os.write(answers, rest) :]
    except BrokenPipeError:
        os._exit(0)  # nobody listens any more
