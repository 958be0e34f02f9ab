"""Evidence: what a tool said, in a file named by its digest."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sag_research.errors import SagError
from sag_research.log import canonical_digest

__all__ = ["Evidence", "EvidenceError", "EvidenceStore", "create_once"]


class EvidenceError(SagError):
    """A piece of evidence is not there, or is not what it was."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool said to which arguments."""

    tool: str
    arguments: dict[str, Any]
    data: Any

    @property
    def id(self) -> str:
        """Digest of tool, arguments and data, 64 hex digits."""
        return canonical_digest(msgspec.to_builtins(self))


class EvidenceStore:
    """A folder of evidence, one file a piece.

    Parameters
    ----------
    folder : pathlib.Path
        Made where it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
            raise EvidenceError(f"{folder} cannot hold evidence", why=why) from None

    def record(self, tool: str, arguments: Mapping[str, Any], data: Any) -> Evidence:
        """Keep a piece; the same content is kept once.

        Raises
        ------
        EvidenceError
            If a file of this name holds something else.
        """
        evidence = Evidence(tool=tool, arguments=dict(arguments), data=data)
        path = self._path(evidence.id)
        if not path.exists():
            create_once(path, msgspec.json.encode(evidence, order="deterministic"))
        return self.load(evidence.id)

    def load(self, evidence_id: str) -> Evidence:
        """Return a piece whose content still has its digest.

        Raises
        ------
        EvidenceError
            If there is none of this id, or its file was changed.
        """
        path = self._path(evidence_id)
        try:
            read = path.read_bytes()
        except OSError as error:
            why = error.strerror or str(error)
            raise EvidenceError(f"there is no evidence {evidence_id[:12]}…", why=why) from None
        try:
            evidence = msgspec.json.decode(read, type=Evidence)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EvidenceError(f"{path.name} is no evidence", why=str(error)) from None
        if evidence.id != evidence_id:
            raise EvidenceError(
                f"evidence {evidence_id[:12]}… was changed", why="its digest is another one"
            )
        return evidence

    def _path(self, evidence_id: str) -> Path:
        if re.fullmatch(r"[0-9a-f]{64}", evidence_id) is None:
            raise EvidenceError(f"{evidence_id[:80]!r} is no id of evidence")
        return self.folder / f"{evidence_id}.json"


def create_once(path: Path, content: bytes) -> None:
    """Write a file that must not exist, whole or not at all; the same content is no error.

    Raises
    ------
    SagError
        If there is another file, a folder or a link of this name; it is left as it is. Also if
        it cannot be written, e.g. because the disk is full.
    """
    try:
        if not os.path.lexists(path):
            _linked(path, content)
        same = path.is_file() and not path.is_symlink() and path.read_bytes() == content
    except OSError as error:
        why = error.strerror or str(error)
        raise SagError(f"{path} cannot be written", why=why) from None
    if not same:
        raise SagError(f"{path} is there already", why="with other content")


def _linked(path: Path, content: bytes) -> None:
    """Give whole content a name, unless the name is taken in this moment."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return
    finally:
        Path(temporary).unlink(missing_ok=True)
