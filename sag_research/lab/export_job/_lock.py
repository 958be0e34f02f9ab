"""One runner a directory: a lock of the operating system, which dies with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from sag_research.errors import BusyError

__all__ = ["RunnerLock"]


class RunnerLock:
    """Held while a task runs.

    Raises
    ------
    BusyError
        On entering, if another runner holds it, in this process or another.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def __enter__(self) -> RunnerLock:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise BusyError(
                f"{self.path.parent} has a runner already", fix="wait for it, or stop it"
            ) from None
        self._handle = handle
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
