"""``str_replace_editor``: view, create, str_replace and insert."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sag_research.lab.bugfix._process import Finished
from sag_research.lab.bugfix._sandbox import Refused, Sandbox

__all__ = ["edit"]

_AROUND = 3


def edit(box: Sandbox, cwd: str, arguments: Mapping[str, Any]) -> Finished:
    """Carry out one editor command; whatever is wrong with it is told in the text.

    Parameters
    ----------
    box : Sandbox
    cwd : str
        Folder that relative paths start from.
    arguments : mapping
        ``command``, ``path``, and what the command needs: ``view_range``, ``file_text``,
        ``old_str``, ``new_str``, ``insert_line``.
    """
    verb = str(arguments.get("command", ""))
    function = {
        "view": _view,
        "create": _create,
        "str_replace": _replace,
        "insert": _insert,
    }.get(verb)
    if function is None:
        return Finished(f"no editor command {verb!r}; use view, create, str_replace, insert\n", 2)
    try:
        path = box.resolve(str(arguments.get("path", "")), cwd)
        return function(path, box.spoken(path), arguments)
    except Refused as error:
        return Finished(f"{error}\n", 126)
    except OSError as error:
        return Finished(f"{arguments.get('path')}: {error.strerror}\n", 1)


def _view(path: Path, name: str, arguments: Mapping[str, Any]) -> Finished:
    if path.is_dir():
        inner = sorted(p for p in path.rglob("*") if "__pycache__" not in p.parts)
        listed = "".join(f"{name}/{p.relative_to(path).as_posix()}\n" for p in inner)
        return Finished(listed, 0)
    lines = _lines(path)
    first, last = arguments.get("view_range") or (1, len(lines))
    if not isinstance(first, int) or not isinstance(last, int) or first < 1:
        raise Refused("view_range must be two line numbers, the first at least 1")
    return Finished(f"{name}:\n{_numbered(lines, first, len(lines) if last < 0 else last)}", 0)


def _create(path: Path, name: str, arguments: Mapping[str, Any]) -> Finished:
    if path.exists():
        return Finished(f"{name} exists already; change it with str_replace\n", 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(str(arguments.get("file_text", "")).encode("utf-8"))
    return Finished(f"Created {name}\n", 0)


def _replace(path: Path, name: str, arguments: Mapping[str, Any]) -> Finished:
    old, new = str(arguments.get("old_str", "")), str(arguments.get("new_str", ""))
    text = "".join(_lines(path))
    count = text.count(old) if old else 0
    if count != 1:
        found = "does not occur" if count == 0 else f"occurs {count} times"
        return Finished(f"Nothing changed: old_str {found} in {name}\n", 1)
    first = text[: text.index(old)].count("\n") + 1
    return _save(path, name, text.replace(old, new), first, first + new.count("\n"))


def _insert(path: Path, name: str, arguments: Mapping[str, Any]) -> Finished:
    lines, at = _lines(path), arguments.get("insert_line")
    if not isinstance(at, int) or not 0 <= at <= len(lines):
        return Finished(f"insert_line must be 0 to {len(lines)}\n", 1)
    new = str(arguments.get("new_str", "")).rstrip("\n") + "\n"
    text = "".join([*lines[:at], new, *lines[at:]])
    return _save(path, name, text, at + 1, at + new.count("\n"))


def _save(path: Path, name: str, text: str, first: int, last: int) -> Finished:
    path.write_bytes(text.encode("utf-8"))
    lines = text.splitlines(keepends=True)
    shown = _numbered(lines, max(1, first - _AROUND), last + _AROUND)
    return Finished(f"Edited {name}, which now reads:\n{shown}", 0)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise Refused("there is no such file")
    return path.read_bytes().decode("utf-8", errors="replace").splitlines(keepends=True)


def _numbered(lines: list[str], first: int, last: int) -> str:
    chosen = enumerate(lines[first - 1 : last], first)
    return "".join(f"{number:6}\t{line.rstrip()}\n" for number, line in chosen)
