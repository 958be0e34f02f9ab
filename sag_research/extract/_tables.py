"""The tables that extraction gives, and how they are written from codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from .._text import repair
from ..model import SCOPED_KINDS
from ._actions import Action
from ._engine import to_arrow
from ._names import Namer
from ._relations import Edge, Mentions
from ._rules import Compiled
from ._terminal import has_codes, uncolour

__all__ = ["Batch", "Extraction", "StepTexts", "Tables", "Vocabulary", "columns_of", "make_batch"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Columns = list[NDArray[Any]]

_FEW_ROWS: Final = 500
"""Below this many rows Python's lists are quicker than a call of polars."""
_OPEN_FILE: Final = "action-open-file"

_MENTIONS: Final = pa.schema(
    [("row", pa.int32()), ("field", pa.string()), ("start", pa.int32()), ("end", pa.int32())]
    + [(name, pa.string()) for name in ("kind", "scope", "name", "role", "rule")]
)
_RELATION_TEXTS: Final = (
    "source_kind", "source_scope", "source_name", "type",
    "target_kind", "target_scope", "target_name", "rule",
)  # fmt: skip
_RELATIONS: Final = pa.schema(
    [("row", pa.int32()), *((name, pa.string()) for name in _RELATION_TEXTS)]
)


class StepTexts(NamedTuple):
    """Texts of many steps, as columns of equal length.

    Attributes
    ----------
    action, observation : sequence of str
    scope : sequence of str
        The repository of each step's run; part of the identity of its files and tests.
    open_file : sequence of (str or None)
        The file that was open in the agent's editor when the step's action ran, if known.
    """

    action: Sequence[str]
    observation: Sequence[str]
    scope: Sequence[str]
    open_file: Sequence[str | None]


class Extraction(NamedTuple):
    """Tables of mentions and relations; ``row`` is the index of the step that was given.

    Attributes
    ----------
    mentions : pyarrow.Table
        row, field, start, end, kind, scope, name, role, rule; spans count code points of the
        field's text; sorted by row, field, start, end, rule.
    relations : pyarrow.Table
        row, source_kind, source_scope, source_name, type, target_kind, target_scope,
        target_name, rule; each once a row, sorted.
    """

    mentions: pa.Table
    relations: pa.Table


class Vocabulary:
    """The different (rule, kind, name) of a batch; a code is a place in its lists."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.kinds: list[str] = []
        self.names: list[str] = []
        self._codes: dict[tuple[str, str, str], int] = {}

    def code(self, rule: str, kind: str, name: str) -> int:
        """Code of an entry, added if it is new."""
        key = (rule, kind, name)
        known = self._codes.get(key)
        if known is None:
            known = self._codes[key] = len(self.names)
            self.rules.append(rule)
            self.kinds.append(kind)
            self.names.append(name)
        return known


class Batch(NamedTuple):
    """Different texts of a batch, actions first, and which of them each slot holds.

    Slot 2i is the action of step i, slot 2i + 1 its observation.
    """

    texts: list[str]
    n_actions: int
    slots: Ints
    places: dict[int, Ints]
    """For texts that held terminal codes: where each code point stood."""


def make_batch(steps: StepTexts) -> Batch:
    """Collect the different texts, repaired and without terminal codes."""
    n = len(steps.action)
    slots = np.empty(2 * n, np.int64)
    texts: list[str] = []
    places: dict[int, Ints] = {}
    n_actions = 0
    for offset, column in enumerate((steps.action, steps.observation)):
        index: dict[str, int] = {}
        for row, raw in enumerate(column):
            at = index.get(raw)
            if at is None:
                at = index[raw] = len(texts)
                text = repair(raw)
                if has_codes(text):
                    text, places[at] = uncolour(text)
                texts.append(text)
            slots[2 * row + offset] = at
        if not offset:
            n_actions = len(texts)
    return Batch(texts, n_actions, slots, places)


def columns_of(rows: list[tuple[int, int, int, int]]) -> tuple[Ints, Ints, Ints, Ints]:
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


class Tables(NamedTuple):
    """From codes by text to tables by step."""

    steps: StepTexts
    batch: Batch
    words: Vocabulary
    actions: list[Action]
    namer: Namer
    rules: Sequence[Compiled]

    def build(self, found: Mentions, mutated: Bools, related: list[Edge]) -> Extraction:
        """Write both tables."""
        start, end = found.start.copy(), found.end.copy()
        for text, places in self.batch.places.items():
            low, high = np.searchsorted(found.text, (text, text + 1))
            start[low:high] = places[start[low:high]]
            end[low:high] = places[end[low:high] - 1] + 1
        index, slot = self._expand(found.text)
        columns: Columns = [slot, start[index], end[index], found.code[index], mutated[index]]
        columns, opened = self._open_files(columns)
        return Extraction(self._mention_table(columns), self._relation_table(related, opened))

    def _expand(self, text: Ints) -> tuple[Ints, Ints]:
        """Repeat what stands in a text for each slot that holds the text."""
        slots = self.batch.slots
        order = np.argsort(slots, kind="stable")
        first = np.searchsorted(slots[order], np.arange(len(self.batch.texts) + 1))
        counts = np.diff(first)[text]
        index = np.repeat(np.arange(len(text)), counts)
        within = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        return index, order[first[text[index]] + within]

    def _open_files(self, columns: Columns) -> tuple[Columns, list[tuple[int, int, int]]]:
        """Add the open file for actions that edit it."""
        rows, opened = [], []
        for row, path in enumerate(self.steps.open_file):
            name = self.namer.file(repair(path)) if path else None
            if not name:
                continue
            for start, end in self.actions[int(self.batch.slots[2 * row])].edits:
                code = self.words.code(_OPEN_FILE, "File", name)
                rows.append((2 * row, start, end, code))
                opened.append((row, code))
        if not rows:
            return columns, []
        added = [*columns_of(rows), np.ones(len(rows), bool)]
        joined = [np.concatenate(pair) for pair in zip(columns, added, strict=True)]
        program = self.words.code("action-program", "Command", "edit")
        return joined, [(row, program, code) for row, code in opened]

    def _mention_table(self, columns: Columns) -> pa.Table:
        slot, start, end, code, mutated = columns
        row, field = slot >> 1, slot & 1
        keep = self._wanted(row, code)
        names = sorted(set(self.words.rules))
        rank = np.array([names.index(rule) for rule in self.words.rules] or [0], np.int64)
        order = np.lexsort((rank[code], end, start, field, row))
        order = order[keep[order]]
        row, code = row[order], code[order]
        arrays = [
            to_arrow(row.astype(np.int32)),
            _take(["action", "observation"], field[order]),
            to_arrow(start[order].astype(np.int32)),
            to_arrow(end[order].astype(np.int32)),
            _take(self.words.kinds, code),
            self._scope(row, code),
            _take(self.words.names, code),
            _take(["PROCESSED", "MUTATED"], mutated[order].astype(np.int64)),
            _take(self.words.rules, code),
        ]
        return pa.Table.from_arrays(arrays, schema=_MENTIONS)

    def _wanted(self, row: Ints, code: Ints) -> Bools:
        """Leave out mentions whose rule asks for words that the step's action does not have."""
        keep = np.ones(len(row), bool)
        rule = np.array(self.words.rules or [""], dtype=object)[code]
        for compiled in self.rules:
            if compiled.rule.when_action is not None:
                for i in np.flatnonzero(rule == compiled.rule.name).tolist():
                    keep[i] = compiled.rule.is_wanted(self.steps.action[int(row[i])])
        return keep

    def _scope(self, row: Ints, code: Ints) -> pa.Array:
        """Scope of each mention: its step's for scoped kinds, else empty."""
        scopes = ["", *map(repair, self.steps.scope)]
        scoped = np.array([kind in SCOPED_KINDS for kind in self.words.kinds] or [False])
        return _take(scopes, np.where(scoped[code], row + 1, 0))

    def _relation_table(self, related: list[Edge], opened: list[tuple[int, int, int]]) -> pa.Table:
        index, slot = self._expand(np.array([edge.text for edge in related], np.int64))
        found = {
            self._relation(row, edge.source, edge.type, edge.target, edge.rule)
            for i, row in zip(index.tolist(), (slot >> 1).tolist(), strict=True)
            for edge in (related[i],)
        }
        found |= {self._relation(r, s, "TOUCHED", t, _OPEN_FILE) for r, s, t in opened}
        columns = list(zip(*sorted(found), strict=True)) or [()] * len(_RELATIONS)
        arrays = [to_arrow(np.array(columns[0], np.int32))]
        arrays += [_texts(pl.Series(column, dtype=pl.String)) for column in columns[1:]]
        return pa.Table.from_arrays(arrays, schema=_RELATIONS)

    def _relation(
        self, row: int, source: int, kind: str, target: int, rule: str
    ) -> tuple[object, ...]:
        ends = []
        for code in (source, target):
            of = self.words.kinds[code]
            scope = repair(self.steps.scope[row]) if of in SCOPED_KINDS else ""
            ends.append((of, scope, self.words.names[code]))
        return (row, *ends[0], kind, *ends[1], rule)


def _take(values: list[str], index: Ints) -> pa.Array:
    if len(index) < _FEW_ROWS:
        return _texts(pl.Series([values[i] for i in index.tolist()], dtype=pl.String))
    return _texts(pl.Series(values, dtype=pl.String).gather(index))


def _texts(column: pl.Series) -> pa.Array:
    return column.to_arrow().cast(pa.string())
