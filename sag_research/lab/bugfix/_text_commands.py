"""``ls cat head tail wc grep find sed`` over the sandbox, with sorted and repeatable output.

Every function takes the sandbox, a function that resolves paths, and the arguments; it returns
the text printed and the exit code.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from sag_research.lab.bugfix._sandbox import Refused, Sandbox

__all__ = ["cat", "find", "grep", "head", "ls", "sed", "tail", "wc"]

Resolve = Callable[[str], Path]
Printed = tuple[str, int]

_HIDDEN = {"__pycache__", ".pytest_cache"}


def ls(box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """List folders: ``-a``, ``-R``, ``-l`` (type and name only: sizes and dates would differ)."""
    flags, words = _flags(arguments)
    out = []
    for word in words or ["."]:
        path = resolve(word)
        if not path.exists():
            return f"ls: cannot access '{word}': No such file or directory\n", 2
        folders = [path, *sorted(_walk(path))] if "R" in flags else [path]
        for folder in (one for one in folders if one.is_dir()):
            if len(folders) > 1 or len(words) > 1:
                out.append(f"{box.spoken(folder)}:\n")
            out += [_entry(one, "l" in flags) for one in _children(folder, "a" in flags)]
        if path.is_file():
            out.append(f"{word}\n")
    return "".join(out), 0


def cat(_box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """Print files, with ``-n`` numbered."""
    flags, words = _flags(arguments)
    text = ""
    for word in words:
        body, problem = _read("cat", word, resolve)
        if problem:
            return text + problem, 1
        text += body
    if "n" in flags:
        lines = text.splitlines(keepends=True)
        text = "".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))
    return text, 0


def head(_box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """First lines of a file: ``-n 20`` or ``-20``, else ten."""
    return _part("head", resolve, arguments)


def tail(_box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """Last lines of a file, like :func:`head`."""
    return _part("tail", resolve, arguments)


def wc(_box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """Count lines, words and bytes; ``-l`` counts lines only."""
    flags, words = _flags(arguments)
    out = ""
    for word in words:
        body, problem = _read("wc", word, resolve)
        if problem:
            return out + problem, 1
        counts = [body.count("\n"), len(body.split()), len(body.encode())]
        out += " ".join(str(count) for count in counts[: 1 if "l" in flags else 3])
        out += f" {word}\n"
    return out, 0


def grep(box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """Search lines: ``-r -n -i -l -w -v -E -F --include=GLOB``."""
    include = next((w[10:] for w in arguments if w.startswith("--include=")), "*")
    flags, words = _flags([word for word in arguments if not word.startswith("--include=")])
    if not words:
        raise Refused("a pattern is missing")
    pattern = _pattern(words[0], flags)
    out: list[str] = []
    for word in words[1:] or ["."]:
        path = resolve(word)
        if not path.exists():
            return f"grep: {word}: No such file or directory\n", 2
        if path.is_dir() and not flags & {"r", "R"}:
            return f"grep: {word}: Is a directory\n", 2
        many = path.is_dir() or len(words) > 2
        for file in _files(path):
            if fnmatch.fnmatch(file.name, include):
                name = _said(file, path, word)
                out += _hits(file, pattern, flags, name, many)
    return "".join(out), 0 if out else 1


def find(_box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """List a tree: ``find [PATH] [-name GLOB] [-type f|d]``."""
    words = arguments if arguments and not arguments[0].startswith("-") else [".", *arguments]
    tests = dict(zip(words[1::2], words[2::2], strict=False))
    if set(tests) - {"-name", "-type"} or len(words) % 2 == 0:
        raise Refused("expected PATH [-name GLOB] [-type f|d]")
    root = resolve(words[0])
    if not root.exists():
        return f"find: '{words[0]}': No such file or directory\n", 1
    found = [root, *_walk(root)]
    kind, name = tests.get("-type"), tests.get("-name", "*")
    keep = [
        path
        for path in found
        if fnmatch.fnmatch(path.name, name)
        and (kind is None or (path.is_dir() if kind == "d" else path.is_file()))
    ]
    return "".join(f"{_said(path, root, words[0])}\n" for path in sorted(keep)), 0


def sed(_box: Sandbox, resolve: Resolve, arguments: list[str]) -> Printed:
    """``sed -n 'A,Bp' FILE`` and ``sed -i 's/old/new/[g]' FILE`` (basic expressions)."""
    flags, words = _flags(arguments)
    if len(words) != 2:
        raise Refused("expected one script and one file")
    script, word = words
    body, problem = _read("sed", word, resolve)
    if problem:
        return problem, 1
    lines = body.splitlines(keepends=True)
    printed = re.fullmatch(r"(\d+)(?:,(\d+|\$))?p", script)
    if "n" in flags and printed:
        first, last = int(printed[1]), printed[2] or printed[1]
        return "".join(lines[first - 1 : len(lines) if last == "$" else int(last)]), 0
    pattern, new, count = _substitution(script)
    changed = "".join(pattern.sub(new, line, count=count) for line in lines)
    if "i" not in flags:
        return changed, 0
    resolve(word).write_bytes(changed.encode("utf-8"))
    return "", 0


def _substitution(script: str) -> tuple[re.Pattern[str], str, int]:
    mark = script[1:2]
    parts = re.split(rf"(?<!\\){re.escape(mark)}", script[2:]) if script[:1] == "s" else []
    if len(parts) != 3 or parts[2] not in {"", "g"}:
        raise Refused("only `A,Bp` and `s/old/new/` are supported")
    old, new = (part.replace("\\" + mark, mark) for part in parts[:2])
    new = re.sub(r"\\(?=[&/.*\[\]])", "", new).replace("\\", r"\\")
    return _compile(_basic(old), 0), new, 0 if parts[2] == "g" else 1


def _pattern(text: str, flags: set[str]) -> re.Pattern[str]:
    source = re.escape(text) if "F" in flags else text if "E" in flags else _basic(text)
    if "w" in flags:
        source = rf"\b(?:{source})\b"
    return _compile(source, re.IGNORECASE if "i" in flags else 0)


def _basic(text: str) -> str:
    r"""Translate a POSIX basic regular expression into Python's.

    Examples
    --------
    >>> _basic(r"f(x) = a\(b\)*")
    'f\\(x\\) = a(b)*'
    """
    out = ""
    for part in re.findall(r"\\.|.", text):
        if len(part) == 2 and part[1] in "(){}+?|":
            out += part[1]
        else:
            out += "\\" + part if part in {*"(){}+?|"} else part
    return out


def _compile(source: str, flags: int) -> re.Pattern[str]:
    try:
        return re.compile(source, flags)
    except re.error as error:
        raise Refused("invalid regular expression", why=str(error)) from error


def _hits(
    file: Path, pattern: re.Pattern[str], flags: set[str], name: str, many: bool
) -> Iterator[str]:
    text = file.read_bytes().decode("utf-8", errors="replace")
    found = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if bool(pattern.search(line)) != ("v" in flags)
    ]
    if found and "l" in flags:
        yield f"{name}\n"
        return
    for number, line in found:
        yield (f"{name}:" if many else "") + (f"{number}:" if "n" in flags else "") + line + "\n"


def _flags(arguments: list[str]) -> tuple[set[str], list[str]]:
    flags: set[str] = set()
    words = []
    for word in arguments:
        if len(word) > 1 and word.startswith("-") and not word.startswith("--"):
            flags.update(word[1:])
        else:
            words.append(word)
    return flags, words


def _part(name: str, resolve: Resolve, arguments: list[str]) -> Printed:
    joined = " ".join(arguments)
    found = re.fullmatch(r"(?:-n ?|-)?(?:(\d+) )?(\S+)", joined)
    if found is None:
        raise Refused(f"expected {name} [-n COUNT] FILE")
    body, problem = _read(name, found[2], resolve)
    lines, count = body.splitlines(keepends=True), int(found[1] or 10)
    kept = lines[:count] if name == "head" else lines[-count:] if count else []
    return (problem, 1) if problem else ("".join(kept), 0)


def _read(name: str, word: str, resolve: Resolve) -> tuple[str, str]:
    path = resolve(word)
    if path.is_dir():
        return "", f"{name}: {word}: Is a directory\n"
    if not path.exists():
        return "", f"{name}: {word}: No such file or directory\n"
    return path.read_bytes().decode("utf-8", errors="replace"), ""


def _children(folder: Path, hidden: bool) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.name not in _HIDDEN and (hidden or not path.name.startswith("."))
    )


def _walk(root: Path) -> Iterator[Path]:
    if not root.is_dir() or root.is_symlink():
        return
    for path in _children(root, hidden=True):
        if path.is_symlink():  # may lead outside
            continue
        yield path
        yield from _walk(path)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [one for one in _walk(path) if one.is_file()]


def _entry(path: Path, long: bool) -> str:
    kind = ("d" if path.is_dir() else "-") + " "
    return (kind if long else "") + path.name + "\n"


def _said(path: Path, root: Path, word: str) -> str:
    inner = path.relative_to(root).as_posix()
    return word if inner == "." else f"{word.rstrip('/')}/{inner}"
