"""Run all rules over many texts at once and say exactly where they matched.

Each rule is one linear-time pass of Rust's regex crate (through polars) that copies the text
with a mark before and after each name. Where the marks stand gives the spans, so no second
engine has to find the matches again. The result equals ``finditer`` of Python's ``re`` with the
same patterns (tested); the cost does not depend on how hostile the text is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ._rules import MARK, Compiled

__all__ = ["Found", "find", "find_with_re", "to_arrow"]

Ints = NDArray[np.int64]

CHUNK: Final = 8_000_000
"""Characters worked on at a time: bounds the memory for marked copies."""
FEW: Final = 100_000
"""Up to this many characters, rules are first chosen by their literals: with fewer patterns in
use, those that polars has compiled stay in its cache of 32."""
TINY: Final = 8_192
"""Up to this many characters Python's ``re`` is quicker than a call of polars, and short enough
that hostile text cannot make it slow."""


class Found(NamedTuple):
    """All matches of one rule: columns of equal length, in order of text and place.

    ``code`` points into ``names``, the different names in order of first sight; spans count
    code points.
    """

    text: Ints
    start: Ints
    end: Ints
    code: Ints
    names: list[str]


_EMPTY: Final = np.empty(0, np.int64)
_NOTHING: Final = Found(_EMPTY, _EMPTY, _EMPTY, _EMPTY, [])


def find(texts: Sequence[str], rules: Sequence[Compiled]) -> list[Found]:
    """Find all matches of each rule in each text.

    Parameters
    ----------
    texts : sequence of str
        Valid Unicode without NUL.
    rules : sequence of Compiled

    Returns
    -------
    list of Found
        One for each rule.
    """
    parts: list[list[Found]] = [[] for _ in rules]
    for offset, chunk in _chunks(texts):
        size = sum(map(len, chunk))
        wanted = _possible(chunk, rules) if size <= FEW else list(range(len(rules)))
        chosen = [rules[i] for i in wanted]
        results = _find_tiny(chunk, chosen) if size <= TINY else _find_chunk(chunk, chosen, size)
        for index, found in zip(wanted, results, strict=True):
            parts[index].append(found._replace(text=found.text + offset))
    return [_join(part) for part in parts]


def find_with_re(texts: Iterable[str], rule: Compiled) -> Iterator[tuple[int, int, int, str]]:
    """Yield (text, start, end, name) by Python's ``re``: the reference, slow and not linear."""
    for index, text in enumerate(texts):
        for match in rule.python.finditer(text):
            yield index, match.start("name"), match.end("name"), match["name"]


def to_arrow(column: NDArray[Any]) -> pa.Array:
    """Wrap integers as an Arrow array without a copy (``pa.array`` would import pandas)."""
    column = np.ascontiguousarray(column)
    kind = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64()}[column.dtype]
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= CHUNK:
            yield start, texts[start : index + 1]
            start, size = index + 1, 0
    if start < len(texts):
        yield start, texts[start:]


def _possible(texts: Sequence[str], rules: Sequence[Compiled]) -> list[int]:
    """Leave out rules whose literals stand in no text."""
    whole = MARK.join(texts)
    return [
        index
        for index, compiled in enumerate(rules)
        if not compiled.gate
        or any("%{" in word or word in whole for word in compiled.rule.literals)
    ]


def _find_tiny(texts: Sequence[str], rules: Sequence[Compiled]) -> Iterator[Found]:
    for rule in rules:
        codes: dict[str, int] = {}
        rows = [
            (text, start, end, codes.setdefault(name, len(codes)))
            for text, start, end, name in find_with_re(texts, rule)
        ]
        if rows:
            columns = np.array(rows, dtype=np.int64).T
            yield Found(columns[0], columns[1], columns[2], columns[3], list(codes))
        else:
            yield _NOTHING


def _find_chunk(texts: Sequence[str], rules: Sequence[Compiled], size: int) -> Iterator[Found]:
    """Find in one chunk: pass over texts without a rule's literals, then mark names in the rest."""
    frame = pl.DataFrame({"text": pl.Series(texts, dtype=pl.String)})
    text = pl.col("text")
    gates = {rule.gate for rule in rules if rule.gate and size > FEW}
    hits = frame.select(
        text.str.contains(gate).arg_true().implode().alias(gate) for gate in sorted(gates)
    )
    every = pl.Series(np.arange(len(texts)), dtype=pl.UInt32)
    rows = [hits[rule.gate][0] if rule.gate in gates else every for rule in rules]
    marked = frame.select(
        text.gather(row)
        .str.replace_all(rule.rust, rule.replacement)
        .implode()
        .alias(rule.rule.name)
        for rule, row in zip(rules, rows, strict=True)
    )
    wide = _wide(frame["text"])
    for rule, row in zip(rules, rows, strict=True):
        yield _read_marks(marked[rule.rule.name][0], row.to_numpy().astype(np.int64), wide)


def _read_marks(marked: pl.Series, rows: Ints, wide: dict[int, Ints]) -> Found:
    """Turn marked copies of the texts ``rows`` into spans."""
    hit = marked.str.contains(MARK, literal=True)
    rows, marked = rows[hit.to_numpy()], marked.filter(hit)
    if not len(marked):
        return _join([])
    array = marked.to_arrow().cast(pa.large_string())
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[: offsets[-1]]
    marks = np.flatnonzero(data[offsets[0] :] == 0) + offsets[0]
    opens, closes = marks[0::2], marks[1::2]
    row = np.searchsorted(offsets, opens, side="right") - 1
    before = 2 * (np.arange(len(opens)) - np.searchsorted(opens, offsets[:-1])[row])
    start = opens - offsets[row] - before
    end = closes - offsets[row] - before - 1
    pieces = pa.LargeStringArray.from_buffers(len(marks) - 1, pa.py_buffer(marks), data_buffer)
    names = pieces.take(to_arrow(np.arange(0, len(marks), 2))).dictionary_encode()
    text = rows[row]
    _to_code_points(text, start, end, wide)
    codes = np.frombuffer(names.indices.buffers()[1], np.int32)[: len(opens)].astype(np.int64)
    return Found(text, start, end, codes, [name[1:] for name in names.dictionary.to_pylist()])


def _wide(texts: pl.Series) -> dict[int, Ints]:
    """For texts beyond ASCII: code points before each byte."""
    rows = (texts.str.len_bytes() != texts.str.len_chars()).arg_true().to_list()
    out = {}
    for row in rows:
        data = np.frombuffer(texts[row].encode(), np.uint8)
        out[row] = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))
    return out


def _to_code_points(text: Ints, start: Ints, end: Ints, wide: dict[int, Ints]) -> None:
    """Change byte places into code points, in place; ``text`` is sorted."""
    for row, points in wide.items():
        low, high = np.searchsorted(text, (row, row + 1))
        start[low:high] = points[start[low:high]]
        end[low:high] = points[end[low:high]]


def _join(parts: list[Found]) -> Found:
    if not parts:
        return _NOTHING
    if len(parts) == 1:
        return parts[0]
    names: dict[str, int] = {}
    codes = []
    for part in parts:
        table = np.array([names.setdefault(n, len(names)) for n in part.names], dtype=np.int64)
        codes.append(table[part.code])
    return Found(
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
        np.concatenate(codes),
        list(names),
    )
