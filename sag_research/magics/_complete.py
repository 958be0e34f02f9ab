"""What may stand where the cursor is: commands, views and columns after ``%sag``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from sag_research.magics._magic import COMMANDS

if TYPE_CHECKING:
    from sag_research.magics._magic import SagMagics

__all__ = ["IDENTIFIER", "candidates", "matcher"]

Schema = Mapping[str, tuple[str, ...]]
Matcher = Callable[[CompletionContext], SimpleMatcherResult]
IDENTIFIER: Final = "sag"
_WORD: Final = re.compile(r"[$:]?\w*$")
_QUALIFIED: Final = re.compile(r"(\w+)\.(\w*)$")
_SOURCES: Final = re.compile(r"\b(?:from|join)\s+(\w+)(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE)
_OPTIONS: Final = ("--params", "--rows")


def matcher(magics: SagMagics) -> Matcher:
    """Make IPython's completer know the magics."""

    def sag(context: CompletionContext) -> SimpleMatcherResult:
        lines = context.full_text.split("\n")
        at = min(context.cursor_line, len(lines) - 1)
        line = lines[at][: context.cursor_position]
        if lines[0].startswith("%%sag") and at > 0:
            found = candidates(line, "\n".join(lines[1:]), magics.schema(), magics.variables())
        elif lines[0].startswith("%%sag") and at == 0:
            found = _only(line, _OPTIONS, "option")
        elif (command := re.match(r"\s*(?:\w+\s*=\s*)?%sag\s+(.*)$", line)) is not None:
            found = _of_line(command[1], magics)
        else:
            return {"completions": [], "suppress": False}
        fragment, names = found
        completions = [SimpleCompletion(text=text, type=kind) for text, kind in names]
        return {
            "completions": completions,
            "matched_fragment": fragment,
            "suppress": bool(completions),  # names of Python are no SQL
            "ordered": True,
        }

    made: Matcher = context_matcher(priority=100, identifier=IDENTIFIER)(sag)
    return made


def candidates(
    line: str, query: str, schema: Schema, variables: Iterable[str] = ()
) -> tuple[str, list[tuple[str, str]]]:
    """List what may follow in a query.

    Parameters
    ----------
    line : str
        The query's line up to the cursor.
    query : str
        All of it: the views that it names come first with their columns, by any alias.
    schema : mapping of str to tuple of str
        View to columns.
    variables : iterable of str
        What a parameter may name.

    Returns
    -------
    fragment : str
        What is replaced.
    names : list of (str, str)
        Text and kind: view, column or parameter.

    Examples
    --------
    >>> schema = {"runs": ("run_id", "model"), "steps": ("run_id", "step")}
    >>> candidates("SELECT s.", "SELECT s. FROM steps AS s", schema)
    ('', [('run_id', 'column'), ('step', 'column')])
    >>> candidates("SELECT ru", "SELECT ru", schema)
    ('ru', [('runs', 'view'), ('run_id', 'column')])
    """
    sources = _sources(query, schema)
    qualified = _QUALIFIED.search(line)
    if qualified is not None:
        view = sources.get(qualified[1].lower(), qualified[1].lower())
        return qualified[2], _kept(qualified[2], _kind(schema.get(view, ()), "column"))
    found = _WORD.search(line)
    word = found.group() if found else ""
    if word.startswith(("$", ":")):
        return word, _kept(word, _kind((word[0] + name for name in variables), "parameter"))
    named = list(dict.fromkeys(sources.values())) or list(schema)
    columns = dict.fromkeys(column for view in named for column in schema[view])
    return word, _kept(word, [*_kind(schema, "view"), *_kind(columns, "column")])


def _sources(query: str, schema: Schema) -> dict[str, str]:
    """Name to view of all that a query reads, by its own name and by its alias."""
    found: dict[str, str] = {}
    for view, alias in _SOURCES.findall(query):
        if view.lower() in schema:
            found |= {view.lower(): view.lower()}
            found |= {alias.lower(): view.lower()} if alias else {}
    return found


def _kind(names: Iterable[str], kind: str) -> list[tuple[str, str]]:
    return [(name, kind) for name in names]


def _kept(word: str, names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in names if name.lower().startswith(word.lower())]


def _only(line: str, names: Iterable[str], kind: str) -> tuple[str, list[tuple[str, str]]]:
    word = re.split(r"\s", line)[-1]
    return word, _kept(word, _kind(names, kind))


def _of_line(text: str, magics: SagMagics) -> tuple[str, list[tuple[str, str]]]:
    command, *rest = text.split(None, 1) or [""]
    if not rest and not text.endswith(" "):
        return _only(text, COMMANDS, "command")
    typed = rest[0] if rest else ""
    if command == "runs":
        return candidates(typed, "FROM runs", magics.schema(), magics.variables())
    if command == "views":
        return _only(typed, magics.schema(), "view")
    if command == "workspace":
        return typed, [*_kind(_folders(typed), "path"), *_kept(typed, _workspaces(magics))]
    return typed, []


def _workspaces(magics: SagMagics) -> list[tuple[str, str]]:
    return _kind(magics.open_workspaces(), "instance")


def _folders(typed: str) -> Iterator[str]:
    """Folders that begin so; a workspace as it is, another with a slash to go on behind."""
    base = Path(typed if typed.endswith("/") else Path(typed).parent)
    begun = "" if typed.endswith("/") else Path(typed).name
    if not base.is_dir():
        return
    for folder in sorted(base.iterdir()):
        if folder.is_dir() and folder.name.startswith(begun) and not folder.name.startswith("."):
            name = folder.as_posix()
            yield name if (folder / "log.sqlite").exists() else f"{name}/"
