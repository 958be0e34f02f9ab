"""Disks that can be filled and freed again: a small one of its own, or a limit for files."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BLOCK = 4096


class SmallDisk:
    """A file system in memory, filled by a file that takes all the room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    @contextmanager
    def full(self, room: int = 0, *, of_log: bool = False) -> Iterator[None]:
        """Leave so many bytes, rounded down to whole blocks."""
        try:
            with self._ballast.open("wb", buffering=0) as file:
                with suppress(OSError):
                    while file.write(bytes(16 * BLOCK)):
                        pass
                with suppress(OSError):
                    while file.write(bytes(BLOCK)):
                        pass
                size = file.tell() // BLOCK * BLOCK
                file.truncate(max(0, size - room // BLOCK * BLOCK))
            yield
        finally:
            self._ballast.unlink()


class LimitedFiles:
    """Files of this process that cannot grow beyond a size, as under a quota."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    @contextmanager
    def full(self, room: int = 0, *, of_log: bool = False) -> Iterator[None]:
        """Leave so many bytes to each file, or to the log behind what it has."""
        import resource

        sizes = [path.stat().st_size for path in self.folder.rglob("log.sqlite-wal")]
        limit = room + (max([0, *sizes]) if of_log else 0)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        compiles, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # or it would be cut, too
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            sys.dont_write_bytecode = compiles


Disk = SmallDisk | LimitedFiles


@contextmanager
def small_disk(folder: Path, megabytes: int = 16) -> Iterator[SmallDisk]:
    """Mount a file system in memory, where this process may; else skip the test."""
    with mounted(folder, megabytes):
        yield SmallDisk(folder)


@contextmanager
def mounted(folder: Path, megabytes: int = 16) -> Iterator[None]:
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("a disk of its own is made on Linux only")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        pytest.skip(f"no disk may be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def read_only(folder: Path) -> None:
    """Make a mounted disk one that can only be read."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the number is looked at
        (folder / "new").touch()
    assert refused.value.errno == errno.EROFS
