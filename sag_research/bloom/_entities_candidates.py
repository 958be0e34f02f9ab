"""Pairs of names that may mean the same, for somebody to look at."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Candidate", "find_candidates"]

_SEPARATORS: Final = re.compile(r"[-_. ]+")
_QUALIFIED: Final = re.compile(r"(?:::|[./$ ])")
_CROWD: Final = 50
"""More names than this under one key (``__init__.py``) say nothing about each other."""


class _Row(NamedTuple):
    entity_id: str
    kind: str
    scope: str
    name: str
    runs: int


class Candidate(NamedTuple):
    """A proposal: `source` may mean the same as `target`."""

    source: str
    target: str
    kind: str
    why: str
    runs_source: int
    runs_target: int

    @property
    def key(self) -> frozenset[str]:
        """The pair without its order."""
        return frozenset((self.source, self.target))


def find_candidates(table: pd.DataFrame) -> list[Candidate]:
    """Find pairs in a table with the columns ``entity_id kind scope name runs``."""
    columns = [table[name].tolist() for name in _Row._fields]
    rows = [_Row(*values) for values in zip(*columns, strict=True)]
    found: dict[frozenset[str], Candidate] = {}
    for pair in (*_spelling(rows), *_last_part(rows), *_base_name(rows)):
        found.setdefault(pair.key, pair)
    return list(found.values())


def _groups(rows: list[_Row], key: Callable[[_Row], str]) -> Iterator[list[_Row]]:
    groups: dict[tuple[str, str, str], list[_Row]] = defaultdict(list)
    for row in rows:
        groups[row.kind, row.scope, key(row)].append(row)
    yield from (group for group in groups.values() if 1 < len(group) <= _CROWD)


def _pair(source: _Row, target: _Row, why: str) -> Candidate:
    ends = source.entity_id, target.entity_id
    return Candidate(*ends, source.kind, why, source.runs, target.runs)


def _spelling(rows: list[_Row]) -> Iterator[Candidate]:
    """The same letters; the spelling that more runs have is the target."""
    loose = [row for row in rows if row.kind not in ("File", "Commit", "Symbol")]
    for group in _groups(loose, lambda row: _SEPARATORS.sub("", row.name).casefold()):
        best, *others = sorted(group, key=lambda row: (-row.runs, row.entity_id))
        yield from (_pair(other, best, "spelling") for other in others)


def _last_part(rows: list[_Row]) -> Iterator[Candidate]:
    """A name alone, and the only qualified one that ends with it."""
    named = [row for row in rows if row.kind in ("Error", "Test")]
    for group in _groups(named, lambda row: _QUALIFIED.split(row.name)[-1]):
        bare = [row for row in group if not _QUALIFIED.search(row.name)]
        qualified = [row for row in group if _QUALIFIED.search(row.name)]
        if len(bare) == 1 and len(qualified) == 1:
            yield _pair(bare[0], qualified[0], "last part")
        for row in qualified if len(qualified) > 1 else ():
            longer = [other for other in qualified if _ends_with(other.name, row.name)]
            if len(longer) == 1:
                yield _pair(row, longer[0], "last part")


def _ends_with(name: str, part: str) -> bool:
    before = name[: -len(part)]
    return name.endswith(part) and bool(_QUALIFIED.search(before[-1:]))


def _base_name(rows: list[_Row]) -> Iterator[Candidate]:
    """A file's bare name, and the only path that ends with it."""
    files = [row for row in rows if row.kind == "File"]
    for group in _groups(files, lambda row: row.name.rpartition("/")[2]):
        bare = [row for row in group if "/" not in row.name]
        paths = [row for row in group if "/" in row.name]
        if len(bare) == 1 and len(paths) == 1:
            yield _pair(bare[0], paths[0], "base name")
