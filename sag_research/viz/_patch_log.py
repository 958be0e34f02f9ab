"""What the pages that show a drawing have to be told: numbered changes, and the whole."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sag_research.viz._js_lib import packed
from sag_research.viz._patch import scene_patch

__all__ = ["Message", "PatchLog"]

_LEAST: Final = 200_000
"""Characters of patches that are kept at least, whatever the drawing's size."""


class Message(NamedTuple):
    """What is sent to a page: a small JSON object, and gzipped JSON beside it."""

    content: dict[str, Any]
    body: bytes


class PatchLog:
    """A drawing's versions: the newest as a whole, and the patches that led to it.

    Parameters
    ----------
    data : mapping
        What :func:`~sag_research.viz._page.scene_data` gave: version 0.

    Notes
    -----
    Patches are only ever appended; the oldest are given up once patches weigh more than the
    drawing itself, because a page so far behind is sent the whole.

    Attributes
    ----------
    version : int
        Number of the newest version, and of the patches so far.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.version = 0
        self._data = data
        self._whole: bytes | None = None
        self._weight = 0
        self._patches: deque[str] = deque()

    def __repr__(self) -> str:
        return f"PatchLog(version {self.version}, {len(self._patches)} patches kept)"

    @property
    def oldest(self) -> int:
        """The oldest version from which patches still lead to the newest."""
        return self.version - len(self._patches)

    def update(self, data: Mapping[str, Any]) -> bool:
        """Make a new version; returns whether it differs from the last."""
        if data == self._data:
            return False
        patch = _json(scene_patch(self._data, data))
        self._data, self._whole = data, None
        self._patches.append(patch)
        self._weight += len(patch)
        self.version += 1
        if self._weight > _LEAST:
            self._forget(max(_LEAST, len(_json(data))))
        return True

    def since(self, cursor: int) -> Message | None:
        """Return what leads from a version to the newest; the whole, if that is shorter.

        Parameters
        ----------
        cursor : int
            A page's version. One that was never given out counts as none at all.

        Returns
        -------
        Message or None
            ``{"type": "patches", "start": cursor, "end": version}`` with a list of patches, or
            ``{"type": "snapshot", "at": version}`` with a drawing; ``None`` if nothing is new.
        """
        if cursor == self.version:
            return None
        if not self.oldest <= cursor < self.version:
            return Message({"type": "snapshot", "at": self.version}, self.snapshot())
        patches = list(self._patches)[cursor - self.oldest :]
        content = {"type": "patches", "start": cursor, "end": self.version}
        return Message(content, packed(f"[{','.join(patches)}]"))

    def snapshot(self) -> bytes:
        """Return the newest version as a whole, gzipped JSON."""
        if self._whole is None:
            self._whole = packed(_json(self._data))
        return self._whole

    def _forget(self, most: int) -> None:
        while self._weight > most:
            self._weight -= len(self._patches.popleft())


def _json(value: Any) -> str:
    # ASCII: half of a surrogate pair can be in a text, and is no UTF-8
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
