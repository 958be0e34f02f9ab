"""A temporary folder that stands for the machine the agent works on."""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from pathlib import Path, PurePosixPath

from sag_research.errors import SagError

__all__ = ["REPO", "Refused", "Sandbox"]

REPO = "/repo"
"""Where the agent believes its checkout to be."""

_PREFIXES = ("base64:", "link:", "text:")
_SKIPPED = {"__pycache__", ".pytest_cache"}


class Refused(SagError):
    """A command or path that the sandbox does not allow; told to the agent, never fatal."""


class Sandbox:
    """A folder with the checkout (``repo``), and beside it a ``tmp`` and a ``home``.

    Paths inside are spoken of as the agent knows them: ``/repo/...``.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bugfix-")
        self.root = Path(self._folder.name).resolve()
        self.repo = self.root / "repo"
        for name in ("repo", "tmp", "home"):
            (self.root / name).mkdir()

    def close(self) -> None:
        """Remove the folder; may be called twice."""
        self._folder.cleanup()

    def resolve(self, text: str, cwd: str = REPO) -> Path:
        """Turn a path as the agent writes it into a real one inside the checkout.

        Raises
        ------
        Refused
            If it leads outside, also through a symbolic link.
        """
        if "\x00" in text:
            raise Refused("path refused", why="it holds a NUL character")
        spoken = os.path.normpath(PurePosixPath(cwd) / text)
        real = (self.root / spoken.lstrip("/")).resolve()
        if not spoken.startswith("/") or not real.is_relative_to(self.repo):
            raise Refused(f"{text}: permission denied", why=f"only {REPO} can be used")
        return real

    def spoken(self, path: Path) -> str:
        """Name of a real path as the agent knows it.

        Examples
        --------
        >>> box = Sandbox(); box.spoken(box.repo / "a" / "b.py")
        '/repo/a/b.py'
        >>> box.close()
        """
        inner = path.relative_to(self.repo).as_posix()
        return REPO if inner == "." else f"{REPO}/{inner}"

    def normalise(self, text: str) -> str:
        """Take out of a program's output what differs between two equal runs."""
        text = text.replace(str(self.repo), REPO)
        text = text.replace(str(self.root / "tmp"), "/tmp").replace(str(self.root), "")  # noqa: S108
        text = re.sub(r"[^\s\"'(]*/python3(?:\.\d+)?/", "/usr/lib/python3/", text)
        text = re.sub(r"\b(in|took) \d+\.\d+s", r"\1 0.01s", text)
        text = re.sub(r"\bat 0x[0-9a-fA-F]{6,}", "at 0x7f0000000000", text)
        return text.replace("\r\n", "\n")

    def files(self) -> dict[str, str]:
        """The checkout as text: relative path -> content, sorted; an empty folder ends in ``/``.

        Content that is not UTF-8 is written as ``base64:…``, a symbolic link as ``link:…``;
        text that happens to start with one of these words is marked by ``text:``.
        """
        found = {}
        for path in sorted(self.repo.rglob("*")):
            inner = path.relative_to(self.repo)
            if _SKIPPED.intersection(inner.parts):
                continue
            if path.is_symlink() or path.is_file():
                found[inner.as_posix()] = _encode(path)
            elif path.is_dir() and not any(path.iterdir()):
                found[inner.as_posix() + "/"] = ""
        return found

    def write(self, files: dict[str, str]) -> None:
        """Make the checkout exactly ``files`` (see :meth:`files`); anything else is removed."""
        shutil.rmtree(self.repo)
        self.repo.mkdir()
        for name, content in files.items():
            path = self.repo / name
            if not path.resolve().is_relative_to(self.repo) or ".." in PurePosixPath(name).parts:
                raise SagError(f"snapshot refused: {name!r}", why="the path leads outside")
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            _decode(path, content)


def _encode(path: Path) -> str:
    if path.is_symlink():
        return f"link:{path.readlink().as_posix()}"
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode("ascii")
    return f"text:{text}" if text.startswith(_PREFIXES) else text


def _decode(path: Path, content: str) -> None:
    kind, colon, rest = content.partition(":")
    if kind + colon == "link:":
        path.symlink_to(rest)
    elif kind + colon == "base64:":
        path.write_bytes(base64.b64decode(rest))
    else:
        text = rest if kind + colon == "text:" else content
        path.write_bytes(text.encode("utf-8"))
