"""Exact counts of whole prefixes: the runs' token rows, sorted, with running sums of failures."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from sag_research.deadend._prefixes import Ints, Prefixes
from sag_research.errors import FormatError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PrefixCursor", "PrefixIndex", "Support", "open_arrays", "save_arrays"]

KIND, VERSION = "prefix-index", 1
KEY_BITS = 63
CHUNK_RUNS = 32_768
LOCAL_HEADER = 30
"""Bytes of a zip member's own header, before its name."""


class Support(NamedTuple):
    """How many runs begin with a prefix, and how many of them failed."""

    n: int
    failed: int


class PrefixIndex:
    """The runs of known outcome in the order of their token rows.

    Runs that share a prefix stand side by side, so a prefix is a range of them, and one token more
    narrows the range by binary search. Nothing is hashed: the counts are exact and order matters.

    Parameters
    ----------
    tokens : ndarray of unsigned int, shape (n_steps,)
        The runs' token codes, one run after another, in sorted order.
    offset : ndarray of int64, shape (n_runs + 1,)
        Where each run starts in `tokens`.
    failed : ndarray of int32, shape (n_runs + 1,)
        Failed runs among the first 0, 1, 2 … runs.
    run : ndarray of int32, shape (n_runs,)
        Each run's index in what the index was built from.

    Examples
    --------
    >>> p = Prefixes.from_tokens([["a", "b"], ["a", "c"], ["b", "a"]],
    ...                          ["failure", "success", "success"])
    >>> index = PrefixIndex.of(p, p.table.tokens)
    >>> index
    PrefixIndex(3 runs, 6 steps)
    >>> cursor = index.begin()
    >>> cursor.narrow(0), cursor.narrow(1)
    (Support(n=2, failed=1), Support(n=1, failed=1))
    """

    def __init__(
        self,
        tokens: NDArray[Any],
        offset: Ints,
        failed: NDArray[np.int32],
        run: NDArray[np.int32],
    ) -> None:
        self.tokens, self.offset, self.failed, self.run = tokens, offset, failed, run

    @classmethod
    def of(cls, prefixes: Prefixes, codes: NDArray[np.int32]) -> Self:
        """Build from a cohort's runs of known outcome and a code for each row of its table."""
        return cls.build(codes, prefixes.start, prefixes.stop, prefixes.failed)

    @classmethod
    def build(
        cls, codes: NDArray[Any], start: Ints, stop: Ints, failed: NDArray[np.float64]
    ) -> Self:
        """Build from flat codes; runs whose `failed` is NaN are left out.

        Parameters
        ----------
        codes : ndarray of int, shape (n,)
            Token codes, 0 or more.
        start, stop : ndarray of int64, shape (n_runs,)
            Where each run stands in `codes`.
        failed : ndarray of float64, shape (n_runs,)
            1 for failure, 0 for success, NaN for unknown.
        """
        known = np.flatnonzero(np.isfinite(failed))
        start, length = start[known], (stop - start)[known]
        kind = np.min_scalar_type(int(codes.max(initial=0)))
        codes = codes.astype(kind, copy=False)
        order = _sorted_rows(codes, start, length)
        length = length[order]
        offset = np.concatenate(([0], np.cumsum(length)))
        tokens = np.empty(int(offset[-1]), dtype=kind)
        for first in range(
            0, len(order), CHUNK_RUNS
        ):  # a row number for every step at once is large
            part = slice(first, first + CHUNK_RUNS)
            base = int(offset[first])
            rows = np.repeat(start[order[part]] - (offset[:-1][part] - base), length[part])
            rows += np.arange(len(rows))
            tokens[base : base + len(rows)] = codes[rows]
        bad = np.concatenate(([0], np.cumsum(failed[known][order] == 1)))
        return cls(tokens, offset, bad.astype(np.int32), known[order].astype(np.int32))

    def __len__(self) -> int:
        return len(self.run)

    def __repr__(self) -> str:
        return f"PrefixIndex({len(self)} runs, {len(self.tokens)} steps)"

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what the index is made of, under the names of its parameters."""
        return {
            "tokens": self.tokens, "offset": self.offset, "failed": self.failed, "run": self.run
        }  # fmt: skip

    def begin(self) -> PrefixCursor:
        """Return a cursor at the empty prefix, which all runs share."""
        return PrefixCursor(self)

    def count(self, codes: Sequence[int]) -> Support:
        """Count the runs that begin with these codes."""
        cursor, found = self.begin(), Support(len(self), int(self.failed[-1]))
        for code in codes:
            found = cursor.narrow(code)
        return found

    def members(self, codes: Sequence[int]) -> NDArray[np.int32]:
        """Return the runs that begin with these codes, as indices into what was indexed."""
        cursor = self.begin()
        for code in codes:
            cursor.narrow(code)
        return np.asarray(self.run[cursor.low : cursor.high])

    @cached_property
    def tops(self) -> tuple[list[int], list[int]]:
        """Where the runs that begin with each code start and end in the sorted order."""
        begun = np.flatnonzero(np.diff(self.offset))
        first = np.full(len(self), -1, dtype=np.int64)
        first[begun] = self.tokens[self.offset[:-1][begun]]
        ends = np.searchsorted(first, np.arange(int(first.max(initial=-1)) + 2))
        return ends[:-1].tolist(), ends[1:].tolist()

    @cached_property
    def views(self) -> tuple[memoryview, memoryview, memoryview]:
        """Tokens, offsets and failures; a view of memory hands out plain integers, and faster."""
        return self.tokens.data, self.offset.data, self.failed.data

    def narrow_all(self, codes: NDArray[Any], start: Ints, length: Ints) -> tuple[Ints, Ints]:
        """Count, for every prefix of these runs, the indexed runs that begin with it.

        Parameters
        ----------
        codes : ndarray of int
        start, length : ndarray of int64, shape (n_runs,)
            Where each run stands in `codes`, and how many of its steps are wanted.

        Returns
        -------
        n, failed : ndarray of int64, shape (length.sum(),)
            After the first, second … step of the first run, then of the next.
        """
        first = np.cumsum(length) - length
        n, failed = np.zeros((2, int(length.sum())), dtype=np.int64)
        low = np.zeros(len(start), dtype=np.int64)
        high = np.full(len(start), len(self), dtype=np.int64)
        for depth in range(int(length.max(initial=0))):
            at = np.flatnonzero((length > depth) & (high > low))
            if not len(at):
                break
            code = codes[start[at] + depth].astype(np.int64)
            left = self._bisect(low[at], high[at], depth, code)
            low[at], high[at] = left, self._bisect(left, high[at], depth, code + 1)
            n[first[at] + depth] = high[at] - low[at]
            failed[first[at] + depth] = self.failed[high[at]] - self.failed[low[at]]
        return n, failed

    def _bisect(self, low: Ints, high: Ints, depth: int, code: Ints) -> Ints:
        """Find, in each range of runs, the first whose token at `depth` is not below `code`."""
        low, high = low.copy(), high.copy()
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) // 2
            place = self.offset[middle] + depth
            inside = place < self.offset[middle + 1]
            below = ~inside  # a run that ended stands before those that go on
            below[inside] = self.tokens[place[inside]] < code[open_[inside]]
            low[open_[below]] = middle[below] + 1
            high[open_[~below]] = middle[~below]
        return low

    def shared(self) -> Ints:
        """Return how many tokens each run shares with the run before it, shape (n_runs,)."""
        length = np.diff(self.offset)
        common = np.zeros(len(self), dtype=np.int64)
        alike = np.arange(1, len(self))
        depth = 0
        while len(alike):
            place = self.offset[alike] + depth
            long = (length[alike] > depth) & (length[alike - 1] > depth)
            alike, place = alike[long], place[long]
            before = self.offset[alike - 1] + depth
            alike = alike[self.tokens[place] == self.tokens[before]]
            depth += 1
            common[alike] = depth
        return common

    def prefixes(self, min_runs: int = 1) -> pd.DataFrame:
        """Count every distinct prefix of at least `min_runs` runs.

        Returns
        -------
        DataFrame
            ``depth n failed first``, where the runs ``first … first + n - 1`` of the sorted order
            begin with it: its tokens are those of the first, up to ``depth``.
        """
        import pandas as pd

        common, length = self.shared(), np.diff(self.offset)
        parts = []
        for depth in range(1, int(length.max(initial=0)) + 1):
            deep = length >= depth
            new = np.flatnonzero(deep & (common < depth))
            # a range ends at the next run that begins a prefix of its own at this depth, or stops
            ends = np.flatnonzero(~deep | (common < depth))
            after = np.append(ends, len(self))[np.searchsorted(ends, new, side="right")]
            keep = after - new >= min_runs
            low, high = new[keep], after[keep]
            counts = {"n": high - low, "failed": self.failed[high] - self.failed[low]}
            parts.append(pd.DataFrame({"depth": depth} | counts | {"first": low}))
        columns: dict[str, list[int]] = {"depth": [], "n": [], "failed": [], "first": []}
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns, dtype=int)

    def row(self, at: int, depth: int | None = None) -> list[int]:
        """Return the codes of the run at this place of the sorted order, or its first `depth`."""
        begin, end = int(self.offset[at]), int(self.offset[at + 1])
        codes: list[int] = self.tokens[begin : end if depth is None else begin + depth].tolist()
        return codes

    def save(self, path: str | Path) -> None:
        """Write ``path`` (``.npz``, not compressed, so that it can be mapped) and its ``.json``."""
        save_arrays(path, self.arrays(), {"kind": KIND, "version": VERSION})

    @classmethod
    def open(cls, path: str | Path, mmap: bool = True) -> Self:
        """Open a saved index, mapped into memory by default.

        Raises
        ------
        FormatError
            If the file is no index, or of another version.
        """
        arrays, meta = open_arrays(path, mmap)
        if (meta.get("kind"), meta.get("version")) != (KIND, VERSION):
            raise FormatError(
                f"{Path(path).name} is no prefix index of version {VERSION}",
                fix="build it again from the cohort",
            )
        return cls(*(arrays[name] for name in ("tokens", "offset", "failed", "run")))


class PrefixCursor:
    """A prefix of the index that grows by one token at a time.

    Attributes
    ----------
    low, high : int
        The runs ``low … high - 1`` of the sorted order begin with the prefix.
    depth : int
        Its number of tokens.
    """

    __slots__ = ("_failed", "_index", "_offset", "_tokens", "depth", "high", "low")

    def __init__(self, index: PrefixIndex) -> None:
        self._index = index
        self._tokens, self._offset, self._failed = index.views
        self.depth, self.low, self.high = 0, 0, len(index)

    def narrow(self, code: int) -> Support:
        """Append a token; return how many runs begin with the longer prefix."""
        if self.depth == 0:
            starts, ends = self._index.tops
            known = 0 <= code < len(starts)
            self.low, self.high = (starts[code], ends[code]) if known else (0, 0)
        elif self.low < self.high:
            self.low = self._bisect(self.low, self.high, code)
            self.high = self._bisect(self.low, self.high, code + 1)
        self.depth += 1
        return Support(self.high - self.low, self._failed[self.high] - self._failed[self.low])

    def _bisect(self, low: int, high: int, code: int) -> int:
        tokens, offset, depth = self._tokens, self._offset, self.depth
        while low < high:
            middle = (low + high) // 2
            place = offset[middle] + depth
            if place >= offset[middle + 1] or tokens[place] < code:
                low = middle + 1
            else:
                high = middle
        return low


def _sorted_rows(codes: NDArray[Any], start: Ints, length: Ints) -> Ints:
    """Return the order of the token rows; a row that ends stands before one that goes on.

    Several tokens at a time are packed into one number and sorted; only rows still alike go on.
    """
    bits = int(codes.max(initial=0) + 1).bit_length()
    width = max(KEY_BITS // bits, 1)
    order = np.arange(len(start))
    alike, group = order.copy(), np.zeros(len(order), dtype=np.int64)
    depth = 0
    while len(alike):
        rows = order[alike]
        key = _packed(codes, start[rows], length[rows], depth, width, bits)
        by = np.lexsort((key, group)) if depth else np.argsort(key, kind="stable")
        order[alike] = rows[by]
        key, group = key[by], group[by]
        depth += width
        same = (key[1:] == key[:-1]) & (group[1:] == group[:-1])
        reaches = length[order[alike]] >= depth
        tied = np.concatenate(([False], same)) | np.concatenate((same, [False]))
        group = np.cumsum(np.concatenate(([True], ~same)))
        # rows that ended before are alike for good; those that end just here get key 0 next
        keep = tied & reaches
        alike, group = alike[keep], group[keep]
    return order


def _packed(
    codes: NDArray[Any], start: Ints, length: Ints, depth: int, width: int, bits: int
) -> Ints:
    """Pack `width` tokens of each row into a number that sorts as they do; 0 is the end."""
    key = np.zeros(len(start), dtype=np.int64)
    for step in range(depth, depth + width):
        key <<= bits
        inside = length > step
        key[inside] += codes[start[inside] + step].astype(np.int64) + 1
    return key


def save_arrays(path: str | Path, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
    """Write arrays to ``.npz`` and `meta` beside it to ``.json``."""
    path = Path(path)
    if path.suffix != ".npz":
        raise UsageError(f"{path.name} does not end in .npz", fix=f"say {path.stem}.npz")
    with ZipFile(path, "w", ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(array), allow_pickle=False)
    text = json.dumps(meta, sort_keys=True, indent=1) + "\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")


def open_arrays(
    path: str | Path, mmap: bool = True
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Open what :func:`save_arrays` wrote: arrays (read-only where mapped) and `meta`.

    Raises
    ------
    FormatError
        If a file is damaged, or of another kind.
    """
    path = Path(path)
    try:
        meta: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        with ZipFile(path) as archive:
            return {
                member.filename.removesuffix(".npy"): _member(path, archive, member, mmap)
                for member in archive.infolist()
            }, meta
    except (BadZipFile, ValueError, struct.error) as error:
        raise FormatError(f"{path.name} cannot be read", why=str(error)) from error


def _member(path: Path, archive: ZipFile, member: ZipInfo, mmap: bool) -> NDArray[Any]:
    """Read one array of the archive, or map it: a stored member lies there byte for byte."""
    with archive.open(member) as stream:
        if not mmap or member.compress_type != ZIP_STORED:
            return np.asarray(npy.read_array(stream, allow_pickle=False))
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        shape, fortran, kind = read[npy.read_magic(stream)](stream)
        header = stream.tell()
    if kind.hasobject or 0 in shape:
        with archive.open(member) as stream:
            return np.asarray(npy.read_array(stream, allow_pickle=False))
    with path.open("rb") as file:
        file.seek(member.header_offset + LOCAL_HEADER - 4)
        lengths = struct.unpack("<HH", file.read(4))
    at = member.header_offset + LOCAL_HEADER + sum(lengths) + header
    return np.memmap(path, kind, "r", at, shape, "F" if fortran else "C").reshape(shape)
