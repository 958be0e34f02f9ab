"""Parquet into plain values, column by column, a batch of rows at a time.

Of nested columns only the leaves that are needed are converted, each at once for all rows of a
batch; rows are put together at the end. Making dictionaries of all that is in a table
(``to_pylist``) takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._source import Source

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sag_research.ingest._share import Share

__all__ = ["MAGIC", "columns_of", "is_parquet", "structs", "table_rows", "values"]

MAGIC: Final = b"PAR1"
"""How a Parquet file begins and ends."""

_BATCH_BYTES: Final = 16 * 2**20
"""Plain bytes that a batch of rows should have."""
_BATCH_ROWS: Final = 512
_BUFFER: Final = 2**20
_BATCH_LARGEST: Final = 2**30
"""Bytes that a batch may have; a value that is stored once and meant many times is in it often."""
_LARGEST: Final = 64 * 2**30
"""Plain bytes of a file."""
_RATIO: Final = 1_000
"""A file that says it expands further is taken for a bomb; runs of equal values pack well."""
_CELLS: Final = 50_000_000
"""Values of one column in one row group."""

Columns = dict[str, frozenset[str]]
"""Names of the columns, each with the names of the fields below it."""


def is_parquet(head: bytes) -> bool:
    """Tell whether the content begins as Parquet does."""
    return head.startswith(MAGIC)


def columns_of(head: bytes, path: Path) -> Columns | None:
    """Return the columns of a Parquet file; None if they cannot be read.

    They stand at the file's end. They are read from the file, or from ``head`` if that is all
    of it.

    Parameters
    ----------
    head : bytes
        The beginning of the content, or all of it.
    path : Path
        The file, which may be compressed as a whole.
    """
    if head.endswith(MAGIC) and len(head) > 2 * len(MAGIC):
        return _below_each(head)
    try:
        about = path.stat()
    except OSError:
        return None
    return _below_each_in(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=4)
def _below_each_in(path: Path, size: int, changed: int) -> Columns | None:
    """Read a file's columns; the other arguments tell its versions apart."""
    return _below_each(path)


def _below_each(where: Path | bytes) -> Columns | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(pa.BufferReader(where) if isinstance(where, bytes) else where)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return None
    return {field.name: frozenset(_fields(field.type)) for field in schema}


def _fields(kind: pa.DataType) -> Iterable[str]:
    """Name the fields of a struct, or of the structs in a list."""
    import pyarrow.types as t

    while t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        kind = kind.value_type
    return [kind.field(place).name for place in range(kind.num_fields)] if t.is_struct(kind) else ()


def table_rows(
    source: Source,
    wanted: dict[str, frozenset[str]],
    convert: dict[str, Callable[[pa.Array], list[Any]]],
    refused: list[tuple[str, str]],
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the number of each row, from 0, and its values.

    Parameters
    ----------
    source : Source
    wanted : dict of str to frozenset of str
        Columns in the order in which values are given, each with the fields below it that are
        needed; none named means all. A column that the file has not gives None.
    convert : dict of str to callable
        How a column becomes a list, where it is not by :func:`values`.
    refused : list of (str, str)
        Receives the rows of a row group from which on it cannot be read.

    Raises
    ------
    FormatError
        If the file as a whole cannot be read.
    """
    with _opened(source) as file:
        names, paths = _chosen(file, wanted)
        for first, batch in _batches(file, paths, source.share, refused):
            try:
                columns = [
                    _column(batch, name, convert) if name in names else repeat(None)
                    for name in wanted
                ]
            except _errors() as error:
                refused.append(_refusal(first, first + batch.num_rows, error))
                continue
            for row in zip(range(batch.num_rows), *columns, strict=False):
                yield first + row[0], row[1:]


def _errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)


def _refusal(first: int, end: int, error: Exception) -> tuple[str, str]:
    return f"rows {first} to {end - 1}", _reason(error)


def _reason(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return f"the Parquet data cannot be read ({lines[0]})"


@contextmanager
def _opened(source: Source) -> Iterator[pq.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with source.path.open("rb") as file:
            plain = file.read(len(MAGIC)) == MAGIC
        place = source.path if plain else pa.BufferReader(source.bytes())
        # whole row groups would be fetched ahead otherwise, and they may have a gigabyte
        opened = pq.ParquetFile(place, pre_buffer=False, buffer_size=_BUFFER)
    except _errors() as error:
        cut = "no Parquet data at its end" if "magic" in str(error) else _reason(error)
        raise FormatError(
            "Parquet that is damaged or cut short", why=cut, fix="fetch the file again"
        ) from None
    with opened:
        _check_size(source, opened)
        yield opened


def _check_size(source: Source, file: pq.ParquetFile) -> None:
    """Refuse what would take more memory or time than its size lets expect."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    plain = sum(group.total_byte_size for group in groups)
    if plain > _LARGEST or plain > max(2**28, _RATIO * source.size):
        raise FormatError(f"Parquet that expands to {plain} bytes", fix="write it in several files")
    cells = max(
        (group.column(place).num_values for group in groups for place in range(group.num_columns)),
        default=0,
    )
    if cells > _CELLS:
        raise FormatError(
            f"Parquet with {cells} values in one row group",
            why=f"the limit is {_CELLS}",
            fix="write it in smaller row groups",
        )


def _chosen(
    file: pq.ParquetFile, wanted: dict[str, frozenset[str]]
) -> tuple[frozenset[str], list[str]]:
    """Choose the columns to read, and of nested ones only the parts that are needed."""
    schema, paths = file.schema, []
    for place in range(len(schema.names)):
        path = schema.column(place).path
        name, *below = path.split(".")
        if name in wanted and (not wanted[name] or not below or wanted[name] & set(below)):
            paths.append(path)
    return frozenset(path.split(".")[0] for path in paths), paths


def _batches(
    file: pq.ParquetFile, paths: list[str], share: Share | None, refused: list[tuple[str, str]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches with the number of their first row; each is a block of a share."""
    start = block = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        size = max(1, group.total_byte_size // max(1, group.num_rows))
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // size))
        blocks = range(block, block + -(-group.num_rows // rows))
        end = start + group.num_rows
        if share is None or any(map(share.takes, blocks)):
            found = file.iter_batches(batch_size=rows, row_groups=[number], columns=paths)
            yield from _of_group(found, range(start, end, rows), end, blocks, share, refused)
        start, block = end, blocks.stop


def _of_group(
    batches: Iterator[pa.RecordBatch],
    starts: range,
    end: int,
    blocks: range,
    share: Share | None,
    refused: list[tuple[str, str]],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a row group; from the first one on that cannot be read, none."""
    is_bad = False
    for start, block in zip(starts, blocks, strict=True):
        mine = share is None or share.takes(block)
        try:
            batch = None if is_bad else _checked(next(batches))
        except _errors() as error:
            is_bad = True
            if mine:
                refused.append(_refusal(start, end, error))
        else:
            if mine and batch is not None:
                yield start, batch
        if mine and share is not None:
            share.ended()


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.nbytes > _BATCH_LARGEST:
        raise ValueError(f"{batch.nbytes} bytes in {batch.num_rows} rows")
    return batch


def _column(
    batch: pa.RecordBatch, name: str, convert: dict[str, Callable[[pa.Array], list[Any]]]
) -> list[Any]:
    return convert.get(name, values)(batch.column(batch.schema.get_field_index(name)))


def values(array: pa.Array) -> list[Any]:
    """Return an array as plain values: nested ones as lists and dictionaries.

    Text that is no valid UTF-8 comes with lone surrogates in it, as from JSON.

    Examples
    --------
    >>> import pyarrow as pa
    >>> values(pa.array([{"a": "é", "b": [1]}, None]))
    [{'a': 'é', 'b': [1]}, None]
    """
    import pyarrow.types as t

    kind = array.type
    if t.is_string(kind) or t.is_large_string(kind):
        return _strings(array)
    if t.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        columns = [values(array.field(place)) for place in range(kind.num_fields)]
        rows = zip(*columns, strict=True) if columns else repeat((), len(array))
        return _masked(array, [dict(zip(names, row, strict=True)) for row in rows])
    if t.is_list(kind) or t.is_large_list(kind):
        return _lists(array, values)
    if t.is_dictionary(kind):
        known = [*values(array.dictionary), None]
        return [known[place] for place in array.indices.fill_null(len(known) - 1).to_pylist()]
    return _others(array)


def _others(array: pa.Array) -> list[Any]:
    """Return an array of numbers and the like, or of what is rare."""
    import pyarrow as pa
    import pyarrow.types as t

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return values(array.storage)
    if t.is_string_view(kind):
        return _strings(array.cast(pa.large_string()))
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind):
        return _texts(array.cast(pa.large_binary()))
    found: list[Any] = array.to_pylist()
    return found


def _strings(array: pa.Array) -> list[Any]:
    import pyarrow as pa

    try:
        found: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    except (pa.ArrowException, UnicodeDecodeError):  # some text in it is no valid UTF-8
        return _texts(array)
    return found


def _texts(array: pa.Array) -> list[Any]:
    """Return texts, or bytes taken for texts, cut out of their buffer."""
    import numpy as np
    import pyarrow.types as t

    if not len(array):
        return []
    large = t.is_large_string(array.type) or t.is_large_binary(array.type)
    width = np.dtype(np.int64 if large else np.int32)
    _, offsets, data = array.buffers()
    start = array.offset * width.itemsize
    ends = np.frombuffer(offsets, width, len(array) + 1, start)
    raw = b"" if data is None else data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    places = (ends - ends[0]).tolist()
    if raw.isascii():
        text = raw.decode("ascii")
        return _masked(array, [text[left:right] for left, right in pairwise(places)])
    return _masked(
        array,
        [raw[left:right].decode("utf-8", "surrogateescape") for left, right in pairwise(places)],
    )


def _masked(array: pa.Array, found: list[Any]) -> list[Any]:
    """Put None where the array has null."""
    if not array.null_count:
        return found
    valid = array.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [value if known else None for value, known in zip(found, valid, strict=True)]


def _lists(array: pa.Array, convert: Callable[[pa.Array], list[Any]]) -> list[Any]:
    """Return an array of lists, whose items are all converted at once."""
    ends = array.offsets.to_pylist()
    first = ends[0] if ends else 0
    items = convert(array.values.slice(first, ends[-1] - first if ends else 0))
    return _masked(array, [items[left - first : right - first] for left, right in pairwise(ends)])


def structs(make: Callable[..., Any], names: Sequence[str]) -> Callable[[pa.Array], list[Any]]:
    """Return a conversion of lists of structs that calls ``make`` with the fields' values.

    Parameters
    ----------
    make : callable
        Takes the values of the fields in order; those that the struct has not are None.
    names : sequence of str
    """

    def made(array: pa.Array) -> list[Any]:
        kind = array.type
        places = [kind.get_all_field_indices(name)[:1] for name in names]
        columns = [
            values(array.field(place[0])) if place else repeat(None, len(array)) for place in places
        ]
        return _masked(array, list(map(make, *columns)))

    def convert(array: pa.Array) -> list[Any]:
        import pyarrow.types as t

        kind = array.type
        if (t.is_list(kind) or t.is_large_list(kind)) and t.is_struct(kind.value_type):
            return _lists(array, made)
        return values(array)

    return convert
