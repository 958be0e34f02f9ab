"""What ``git`` would say about the checkout, without a git repository in it."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping

__all__ = ["diff", "status"]

_NULL = "0" * 10


def diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    r"""Unified diff of two trees in git's spelling; empty when they are equal.

    Examples
    --------
    >>> diff({"a.py": "x = 1\n"}, {"a.py": "x = 2\n"}).splitlines()[-3:]
    ['@@ -1 +1 @@', '-x = 1', '+x = 2']
    """
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return "".join(_one(name, before.get(name), after.get(name)) for name in changed)


def status(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """One line for each changed file, as ``git status --short`` prints it."""
    lines = []
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            mark = "??" if name not in before else " D" if name not in after else " M"
            lines.append(f"{mark} {name}\n")
    return "".join(lines)


def _one(name: str, old: str | None, new: str | None) -> str:
    head = [f"diff --git a/{name} b/{name}"]
    if old is None:
        head.append("new file mode 100644")
    if new is None:
        head.append("deleted file mode 100644")
    mode = " 100644" if old is not None and new is not None else ""
    head.append(f"index {_blob(old)}..{_blob(new)}{mode}")
    body = difflib.unified_diff(
        (old or "").splitlines(keepends=True),
        (new or "").splitlines(keepends=True),
        "/dev/null" if old is None else f"a/{name}",
        "/dev/null" if new is None else f"b/{name}",
    )
    lines = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
             for line in body]  # fmt: skip
    return "\n".join(head) + "\n" + "".join(lines)


def _blob(text: str | None) -> str:
    if text is None:
        return _NULL
    data = text.encode("utf-8", errors="surrogateescape")
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:10]
