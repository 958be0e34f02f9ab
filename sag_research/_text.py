"""The one place that escapes, builds IRIs, opens files, repairs and shortens text.

Text from a trajectory is hostile: it may hold markup, terminal codes, half characters or
instructions. Nothing else in the package escapes, and nothing else opens a file.
"""

from __future__ import annotations

import errno
import html
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

from sag_research.errors import Caught, WriteError

__all__ = [
    "REPLACEMENT",
    "atomic_write",
    "clip",
    "escape",
    "escape_xml",
    "explained",
    "html_table",
    "iri",
    "made_folder",
    "open_text",
    "repair",
    "safe_file_name",
    "said",
    "script_json",
    "strip_terminal",
    "visible",
]

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
IRI_BASE: Final = "urn:sag:"
_LONGEST_PART: Final = 400
_KEPT_OF_PART: Final = 40

_BAD: Final = re.compile("[\ud800-\udfff\x00]")
_TERMINAL: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI sequences: colours, cursor movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC sequences: titles, hyperlinks
    r"|\x1b[@-Z\\^_]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]"
)
_WRITING: Final = re.compile(
    rf"\r|\x08|\x1b\[(?P<erase>[012]?)K|(?:{_TERMINAL.pattern})"
    r"|(?P<text>[^\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f]+)"
)
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_XML: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
    # a parser turns these into spaces where they stand in an attribute as they are
    | {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
)
_INVISIBLE: Final = re.compile("[\u061c\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff]")


def escape(text: object) -> str:
    """Make text safe inside HTML, between tags and inside quoted attributes.

    Terminal codes and characters that reorder or hide text are removed as well.

    Examples
    --------
    >>> escape('<img src=x onerror="alert(1)">')
    '&lt;img src=x onerror=&quot;alert(1)&quot;&gt;'
    """
    return html.escape(_INVISIBLE.sub("", strip_terminal(repair(str(text)))), quote=True)


def escape_xml(text: str) -> tuple[str, int]:
    r"""Make text safe inside a quoted XML attribute, so that a parser gives it back as it was.

    Returns
    -------
    escaped : str
    replaced : int
        Characters that XML 1.0 cannot hold (control characters, half characters), each
        replaced by U+FFFD.

    Examples
    --------
    >>> escape_xml('a < "b"\n'), escape_xml("\x1b[31m")[1]
    (('a &lt; &quot;b&quot;&#10;', 0), 1)
    """
    clean, replaced = _NO_XML.subn(REPLACEMENT, text)
    return clean.translate(_XML), replaced


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], total: int = 0) -> str:
    """Return an escaped HTML table, with a line on how many of ``total`` rows are shown.

    Examples
    --------
    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape('' if v is None else clip(v, 120))}</td>" for v in row)
        + "</tr>"
        for row in rows
    )
    more = f"<p>{len(rows)} of {total} rows shown</p>" if total > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def script_json(value: Any) -> str:
    r"""Write a value as JSON that is safe inside an HTML ``script`` element.

    Examples
    --------
    >>> script_json({"text": "</script>"})
    '{"text":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def iri(*parts: str) -> str:
    """Build an IRI in the project's own space; every part is percent-encoded.

    Of a part of more than 400 characters the beginning is kept, and a digest of the whole.

    Examples
    --------
    >>> iri("run", "a b/c")
    'urn:sag:run:a%20b%2Fc'
    >>> iri("run", "x" * 401).rpartition("x")[2]
    '~4c2182ca002da97768da31284673faf0'
    """
    return IRI_BASE + ":".join(map(_encoded, parts))


def _encoded(part: str) -> str:
    if len(part) <= _LONGEST_PART:
        return _quoted(part)
    digest = blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return _quoted(f"{part[:_KEPT_OF_PART]}~{digest}")


@lru_cache(maxsize=8_192)
def _quoted(part: str) -> str:
    # half characters are encoded, not replaced: names that differ must not become one
    return quote(part, safe="", errors="surrogatepass")


def repair(text: str) -> str:
    r"""Replace lone surrogates and NUL by U+FFFD; valid text is returned as it is.

    Texts of a subclass become plain ones.

    Examples
    --------
    >>> repair("half \ud835 char") == f"half {REPLACEMENT} char"
    True
    """
    if text.isascii() and "\x00" not in text:
        return str(text)
    return _BAD.sub(REPLACEMENT, str(text))


def strip_terminal(text: str) -> str:
    r"""Return a text as a terminal would show it: without codes, and with lines written over.

    Backspaces and carriage returns do what they do there; other control characters than tab and
    LF are removed.

    Examples
    --------
    >>> strip_terminal("\x1b[31mred\x1b[0m, \x9b38:5:1mred")
    'red, red'
    >>> strip_terminal("10%\r100%, dome\x08\x08ne\r\nend")
    '100%, done\nend'
    """
    if "\r" not in text and "\x08" not in text:
        return _TERMINAL.sub("", text)
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(
        _written(line) if "\r" in line or "\x08" in line else _TERMINAL.sub("", line)
        for line in lines
    )


def _written(line: str) -> str:
    """Write a line cell by cell, as its returns, backspaces and erasures say."""
    cells: list[str] = []
    at = 0
    for part in _WRITING.finditer(line):
        if part[0] == "\r":
            at = 0
        elif part[0] == "\x08":
            at = max(0, at - 1)
        elif part["erase"] is not None:
            if part["erase"] in ("", "0", "2"):
                del cells[at:]
            if part["erase"] in ("1", "2"):
                cells[:at] = " " * at
        elif part["text"] is not None:
            cells[at : at + len(part["text"])] = part["text"]
            at += len(part["text"])
    return "".join(cells)


def clip(text: object, limit: int = 80) -> str:
    r"""Shorten text to one line of at most ``limit`` characters.

    Examples
    --------
    >>> clip("one two\nthree four", 12)
    'one two thr…'
    """
    line = " ".join(strip_terminal(repair(str(text))).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def visible(text: str) -> str:
    r"""Show characters that reorder or hide text as what they are.

    Examples
    --------
    >>> visible("gnp\u202eexe")
    'gnp⟨U+202E⟩exe'
    """
    return _INVISIBLE.sub(lambda match: f"⟨U+{ord(match.group()):04X}⟩", text)


def safe_file_name(text: str, suffix: str = "") -> str:
    """Turn any text into a file name: letters, digits, ``._-`` only, never hidden, never empty.

    Examples
    --------
    >>> safe_file_name("../../etc/passwd", ".html")
    'etc_passwd.html'
    """
    name = re.sub(r"[^A-Za-z0-9._~-]+", "_", text).strip("._") or "unnamed"
    return name[:120] + suffix


def open_text(path: str | os.PathLike[str], mode: str = "r") -> IO[str]:
    r"""Open a UTF-8 text file; lines end in ``\n`` on every system when written.

    Invalid bytes are kept as lone surrogates when read (see :func:`repair`).
    """
    newline = "" if mode.startswith("r") else "\n"
    errors = "surrogateescape" if mode.startswith("r") else "strict"
    return Path(path).open(mode, encoding="utf-8", errors=errors, newline=newline)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file whole or not at all: temporary file beside it, fsync, rename.

    Yields
    ------
    binary file
        Written bytes appear under ``path`` when the block ends without an error.

    Raises
    ------
    WriteError
        If the disk is full, broken, or may only be read; nothing is left behind.
    """
    target = Path(path).resolve()  # a link is followed, not replaced
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "is no ordinary file", str(target))
    if not _is_folder(target.parent):
        why, fix = _no_folder(target.parent)
        raise WriteError(f"{target} cannot be written", why=why, fix=fix)
    temporary = target.with_name(f".sag-{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            if target.exists():  # who may read it stays as it is
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _DISK:
            why, fix = error.strerror or "", _DISK[error.errno]
            raise WriteError(f"{target} cannot be written", why=why, fix=fix) from error
        raise


def made_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder to write into, with those above it; one that is there is taken as it is.

    Raises
    ------
    WriteError
        If a file stands in its place or above it, or nothing may be written there.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        fix = "name a folder that is new or to be written into"
        why = "it is a file" if folder.is_file() else "a file stands above it"
        raise WriteError(f"{folder} cannot be a folder", why=why, fix=fix) from error
    except OSError as error:
        fix = _DISK.get(error.errno or 0, "choose another place")
        why = error.strerror or str(error)
        raise WriteError(f"{folder} cannot be made", why=why, fix=fix) from error
    return folder


def explained(error: OSError) -> str:
    """Say what an error of the system is about, why, and what helps, in one sentence.

    Examples
    --------
    >>> explained(FileNotFoundError(2, "No such file or directory", "a.json"))
    'a.json is not there (No such file or directory); check the path'
    """
    path = error.filename
    if path is None or not isinstance(path, (str, bytes, os.PathLike)):
        return str(error)
    what, fix = _MEANT.get(error.errno or 0, ("cannot be used", "check the path and the disk"))
    return f"{os.fsdecode(path)} {what} ({error.strerror}); {fix}"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:
        return True  # the attempt to write there says why not


def _no_folder(path: Path) -> tuple[str, str]:
    if any(above.is_file() for above in (path, *path.parents)):
        return "a file stands where its folder should be", "name a file in a folder"
    return "its folder is not there", "make the folder first, or check the path"


_ROOM: Final = "free some space and try again; nothing was half-written"
_RIGHTS: Final = "choose a place that may be written"
_DISK: Final = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM, errno.EIO: "check the disk",
    errno.EROFS: _RIGHTS, errno.EACCES: _RIGHTS, errno.EPERM: _RIGHTS,
}  # fmt: skip
_MAY: Final = (
    "may not be used",
    "look who may with `ls -ld`, and give the right with `chmod u+rwX`, or choose another place",
)
_MEANT: Final = {
    errno.ENOENT: ("is not there", "check the path"),
    errno.ENOTDIR: ("has a file where a folder is needed", "check the path"),
    errno.EEXIST: ("is there already", "choose another name"),
    errno.EISDIR: ("is a folder", "name a file"),
    errno.EACCES: _MAY, errno.EPERM: _MAY,
    errno.EROFS: ("cannot be written", _RIGHTS),
    errno.ENOSPC: ("cannot be written", _ROOM), errno.EDQUOT: ("cannot be written", _ROOM),
    errno.EIO: ("cannot be read or written", "check the disk"),
}  # fmt: skip
_MESSAGE: Final = 300


def said(error: BaseException | None) -> str:
    """Return an error's class and message in short, whatever its ``__str__`` does.

    Examples
    --------
    >>> said(KeyError("a"))
    "KeyError: 'a'"
    """
    text = ""
    with Caught():
        text = str(error)
    return clip(repair(f"{type(error).__qualname__}: {text}"), _MESSAGE)
