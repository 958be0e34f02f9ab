"""Who holds a lock: told where the system tells, so that a message can name the other program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sag_research._text import clip, visible

__all__ = ["holder_of"]

_LOCKS: Final = Path("/proc/locks")
_SHOWN: Final = 80


def holder_of(path: str | os.PathLike[str]) -> str:
    """Name the process that keeps others from writing a file.

    Parameters
    ----------
    path : path-like
        A file that SQLite locks; of a log in write-ahead mode, the one beside it, ``-shm``.

    Returns
    -------
    str
        As ``process 4711 (python -m ipykernel_launcher)``; empty where that is not known: on
        another system than Linux, or if the holder runs on another computer.
    """
    try:
        about = Path(path).stat()
        rows = _LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    for row in rows:
        fields = row.split()
        if fields[1:2] == ["->"]:  # one that waits
            continue
        if "WRITE" in fields and device in fields:
            pid = fields[fields.index(device) - 1]
            if pid.isdecimal() and int(pid) > 0 and int(pid) != os.getpid():
                return f"process {pid}{_command(int(pid))}"
    return ""


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return f" ({visible(clip(words, _SHOWN))})" if words else ""
