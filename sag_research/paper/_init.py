"""Making a study folder: an example that builds at once, or a frame around one's own runs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from sag_research import __version__
from sag_research._text import open_text, safe_file_name
from sag_research.errors import UsageError
from sag_research.ingest.registry import bibtex, cite
from sag_research.paper._data import find
from sag_research.paper._spec import FILE, StudyError, read_spec

__all__ = ["EXAMPLES", "init"]

_TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
_BLANK: Final = "blank"
_SHARED: Final = "shared"
_SUFFIX: Final = ".in"
_HIDDEN: Final = "dot-"
"""Begins the names of templates for hidden files, which packaging tools may leave out."""
"""Of template files, so that nothing takes them for files of this package."""
EXAMPLES: Final = ("failure-prefixes", "prefixguard")


def init(
    folder: str | PathLike[str],
    example: str | None = None,
    *,
    data: Sequence[str | PathLike[str]] = (),
    labels: str | PathLike[str] | None = None,
) -> Path:
    """Make a study folder.

    Parameters
    ----------
    folder : path-like
        New, or empty.
    example : {"failure-prefixes", "prefixguard"}, optional
        A worked example on the bundled sets.
    data : sequence of path-like
        Files or folders of trajectories for a study of one's own; without any, the study is about
        a bundled set, to be changed later.
    labels : path-like, optional
        Their label file.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    UsageError
        If there is no such example, or an example is given data.
    StudyError
        If the folder is not empty.
    """
    if example is not None and example not in EXAMPLES:
        raise UsageError(f"no example {example!r}", fix=f"one of {', '.join(EXAMPLES)}")
    if example is not None and (data or labels):
        raise UsageError("an example brings its own data", fix="leave data and labels away")
    if labels is not None and not data:
        raise UsageError("labels without data", fix="give the data that they are of")
    for one in (*data, *(() if labels is None else (labels,))):
        if not Path(one).exists():
            raise StudyError(f"there is no {one}", fix="name files or folders that are there")
    place = Path(folder)
    if place.is_dir() and any(place.iterdir()):
        raise StudyError(f"{place} is not empty", fix="name a new folder")
    if place.exists() and not place.is_dir():
        raise StudyError(f"{place} is a file", fix="name a new folder")
    place.mkdir(parents=True, exist_ok=True)
    for template in (_SHARED, example or _BLANK):
        _copy(_TEMPLATES / template, place)
    if example is None:
        _declare(place, [Path(one) for one in data], None if labels is None else Path(labels))
    _write_digests(place)
    _write_bibliography(place)
    return place


def _copy(template: Path, place: Path) -> None:
    for path in sorted(template.rglob(f"*{_SUFFIX}")):
        name = path.name.removesuffix(_SUFFIX)
        if name.startswith(_HIDDEN):
            name = f".{name.removeprefix(_HIDDEN)}"
        target = place / path.relative_to(template).with_name(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_text(path) as read, open_text(target, "w") as write:
            write.write(read.read())


def _declare(place: Path, data: Sequence[Path], labels: Path | None) -> None:
    """Write the data of a study of one's own into its declaration."""
    lines: list[str] = []
    for number, path in enumerate(data):
        own = re.sub(r"[^A-Za-z0-9_-]", "-", safe_file_name(path.stem))[:40].lstrip("-_") or "runs"
        while f"[data.{own}]" in lines:
            own += f"-{number + 1}"
        lines += [f"[data.{own}]", f"path = {_quoted(_relative(path, place))}"]
        lines += [f"labels = {_quoted(_relative(labels, place))}"] if labels and not number else []
        lines += ['digest = "@@"', ""]
    lines = lines or ["[data.crates]", 'bundled = "crates"', 'digest = "@@"', ""]
    path = place / FILE
    with open_text(path) as file:
        text = file.read()
    with open_text(path, "w") as file:
        file.write(text.replace("# @data@", "\n".join(lines).rstrip()))


def _relative(path: Path, place: Path) -> str:
    return Path(os.path.relpath(path.resolve(), place.resolve())).as_posix()


def _quoted(text: str) -> str:
    """Write text as a string of TOML."""
    signs = {"\\": "\\\\", '"': '\\"'}
    plain = (signs.get(s, s if s.isprintable() else f"\\U{ord(s):08X}") for s in text)
    return f'"{"".join(plain)}"'


def _write_digests(place: Path) -> None:
    """Fill in the digest of each data source, in the order of the file."""
    spec, path = read_spec(place), place / FILE
    with open_text(path) as file:
        text = file.read()
    for name, source in spec.data.items():
        text = text.replace('"@@"', f'"{find(name, source, place).digest}"', 1)
    with open_text(path, "w") as file:
        file.write(text)


def _write_bibliography(place: Path) -> None:
    """Add to the works that the template names those that every study with this package uses."""
    path = place / "references.bib"
    text = ""
    if path.is_file():
        with open_text(path) as file:
            text = file.read().rstrip() + "\n\n"
    with open_text(path, "w") as file:
        file.write(f"{text}{bibtex(cite((), version=__version__))}\n")
