"""A part of a prefix tree as plain data: what a page gets, at most 2,000 nodes at a time."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from sag_research._text import clip, visible
from sag_research.viz._prefix_explorer_tree import Branch, Counts, PrefixTree, Spot, Stop

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "MOST",
    "branch_table",
    "explorer_data",
    "frame_of",
    "plain",
    "token_text",
    "token_words",
]

MOST: Final = 2_000
"""Nodes that are sent at most, those of both pictures together."""
STEPS: Final = 10
"""Steps of the flows."""
STOPS: Final = 12
"""Tokens of a step of the flows that have a node of their own."""
_LONGEST: Final = 120


def plain(text: object, limit: int = _LONGEST) -> str:
    r"""Make any text one short line in which nothing is hidden or reordered.

    Examples
    --------
    >>> plain("a\n\u202eb" + "c" * 200, 12)
    'a ⟨U+202E⟩b…'
    """
    return clip(visible(clip(text, limit)), limit)


def token_text(name: str) -> str:
    """Write a token for people: its parts without the empty ones.

    Examples
    --------
    >>> token_text("edit|src|ok"), token_text("test|none|test-fail"), token_text("think|none|none")
    ('edit src ok', 'test test-fail', 'think')
    """
    parts = [part for part in plain(name).split("|") if part != "none"]
    return " ".join(parts) or plain(name) or "empty"


@cache
def _words() -> dict[str, dict[str, str]]:
    text = files(__package__).joinpath("words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def token_words(name: str) -> str:
    """Say in words what a token means; what no list knows stands as it is.

    Examples
    --------
    >>> token_words("edit|src|ok")
    "changed something: the project's source code; it worked"
    >>> token_words("mine")
    'mine'
    """
    verb, *more = plain(name).split("|", 2)
    words = _words()
    said = words["verb"].get(verb, verb)
    if more and more[0] != "none":
        said += f": {words['object'].get(more[0], more[0])}"
    if len(more) > 1 and more[1] != "none":
        said += f"; {words['result'].get(more[1], more[1])}"
    return said


def explorer_data(tree: PrefixTree, spot: Spot, most: int = MOST) -> dict[str, Any]:
    """Collect the tree below a prefix, and the flows behind it.

    Returns
    -------
    dict
        ``path`` (codes of the prefix, with ``above``: counts of each node on the way to it),
        ``nodes`` and ``stops`` as columns, ``flows``, ``tokens`` by code (label, words) and
        ``runs`` by index (id, outcome, steps). A node's ``n`` is the sum of its children's, of
        those that ended there, and of those cut away.
    """
    stops, flows = tree.flows(spot, STEPS, STOPS)
    path = tree.path(spot)
    branches = tree.branches(spot, max(most - len(stops) - len(path), 1))
    above = [tree.find(path[:depth]) for depth in range(len(path))]
    used = {b.token for b in branches} | {s.token for s in stops} | set(path)
    named = {run for b in branches for run in b.examples} | {
        run for s in stops for run in s.examples
    }
    names = tree.cohort.table.names
    columns = ("run_id", "outcome", "n_steps")
    ids, outcomes, lengths = (tree.cohort.runs[name].tolist() for name in columns)
    return {
        "path": path,
        "above": [list(tree.counts(one.low, one.high)) for one in above if one is not None],
        "nodes": _columns(branches, _NODE),
        "stops": _columns(stops, _STOP),
        "flows": [[one.source, one.target, *one.counts] for one in flows],
        "tokens": {
            str(code): [token_text(names[code]), token_words(names[code])]
            for code in sorted(used - {-1})
        },
        "runs": {
            str(run): [plain(ids[run], 80), outcomes[run], int(lengths[run])]
            for run in sorted(named)
        },
    }


_NODE: Final[dict[str, Callable[[Branch], Any]]] = {
    "parent": lambda one: one.parent,
    "token": lambda one: one.token,
    "counts": lambda one: list(one.counts),
    "ended": lambda one: list(one.ended),
    "cut": lambda one: list(one.cut),
    "cut_tokens": lambda one: one.cut_tokens,
    "parted": lambda one: one.parted,
    "examples": lambda one: list(one.examples),
}
_STOP: Final[dict[str, Callable[[Stop], Any]]] = {
    "step": lambda one: one.step,
    "token": lambda one: one.token,
    "tokens": lambda one: one.tokens,
    "counts": lambda one: list(one.counts),
    "ended": lambda one: list(one.ended),
    "examples": lambda one: list(one.examples),
}


def _columns(rows: Iterable[Any], shape: dict[str, Callable[[Any], Any]]) -> dict[str, list[Any]]:
    held = list(rows)
    return {name: [take(row) for row in held] for name, take in shape.items()}


def branch_table(tree: PrefixTree, branches: list[Branch], min_runs: int) -> pd.DataFrame:
    """Make a table of the branches of enough runs, parents before their children.

    Returns
    -------
    DataFrame
        ``depth prefix token n failed succeeded unknown rate low high ended others others_n
        parted``: ``rate`` is failed / (failed + succeeded) with Wilson's interval;
        ``others_n`` runs go on with ``others`` tokens that have no row. For each row, ``n`` is
        the sum of ``n`` of its children's rows, ``ended`` and ``others_n``.
    """
    from sag_research.deadend import wilson

    names = tree.cohort.table.names
    tokens: list[tuple[str, ...]] = []
    rows: list[dict[str, Any]] = []
    place: dict[int, int] = {}
    for number, one in enumerate(branches):
        begin = () if one.parent < 0 else tokens[one.parent]
        last = () if one.token < 0 else (names[one.token],)
        if number == 0:
            begin, last = tuple(names[code] for code in tree.path(one.spot)), ()
        tokens.append(begin + last)
        if number and one.counts.n < min_runs:
            parent = rows[place[one.parent]] if one.parent in place else None
            if parent is not None:
                parent["others"] += 1
                parent["others_n"] += one.counts.n
            continue
        place[number] = len(rows)
        rows.append(_row(one, tokens[-1], wilson(one.counts.failed, _known(one.counts))))
    rows.sort(key=lambda row: row["prefix"])
    return frame_of([tuple(row.values()) for row in rows], list(rows[0]))


def frame_of(rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    """Make a DataFrame with tokens as objects: their texts may hold what Arrow cannot."""
    import pandas as pd

    return pd.DataFrame(
        {
            name: pd.Series([row[i] for row in rows], dtype=object if name in _TEXTS else None)
            for i, name in enumerate(columns)
        }
    )


_TEXTS: Final = frozenset({"token", "next", "prefix", "run_id", "task_id"})


def _known(counts: Counts) -> int:
    return counts.failed + counts.succeeded


def _row(one: Branch, tokens: tuple[str, ...], interval: tuple[float, float]) -> dict[str, Any]:
    known = _known(one.counts)
    return {
        "depth": one.spot.depth,
        "prefix": tokens,
        "token": tokens[-1] if tokens else "",
        **one.counts._asdict(),
        "rate": one.counts.failed / known if known else float("nan"),
        "low": interval[0],
        "high": interval[1],
        "ended": one.ended.n,
        "others": one.cut_tokens,
        "others_n": one.cut.n,
        "parted": one.parted,
    }
