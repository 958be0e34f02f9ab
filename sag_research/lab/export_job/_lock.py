"""One runner a directory: a lock of the operating system, which dies with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from sag_research.errors import BusyError, SagError

__all__ = ["RunnerLock"]


class RunnerLock:
    """Held while a task runs.

    Raises
    ------
    BusyError
        On entering, if another runner holds it, in this process or another.
    SagError
        On entering, if the file cannot be opened or locked here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def __enter__(self) -> RunnerLock:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _no_lock(self.path, error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if not isinstance(error, BlockingIOError):
                raise _no_lock(self.path, error) from None
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


def _no_lock(path: Path, error: OSError) -> SagError:
    why = error.strerror or str(error)
    return SagError(f"{path} cannot be locked", why=why, fix="a task needs a folder to write in")
