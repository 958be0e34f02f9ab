"""Reading trajectories, and making tokens of steps, as Spark jobs.

Each task does with its share of the files what one machine does with all of them, by the same
functions, and puts a part of the corpus where it belongs; Spark carries no more than the account.
A part's name is its number, so a task that is tried again writes the same files again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fsspec

from sag_research.errors import FormatError, NotEnoughDataError, UsageError
from sag_research.ingest import Found, Source, find, ingest_found
from sag_research.log import SQLiteEventStore
from sag_research.warehouse._warehouse import Warehouse
from sag_research.warehouse.corpus._codes import Codes
from sag_research.warehouse.corpus._corpus import Corpus, CorpusWriter, about, write_about
from sag_research.warehouse.corpus._layout import TABLES
from sag_research.warehouse.corpus._write import write_corpus

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["ingest_files", "tokenise_steps"]

_SHARE: Final = 64e6
"""Bytes of files that one task reads."""
_LOOKED: Final = "number long, digest string, bytes long"
_DONE: Final = "part long, account string"
_TEXTS: Final = ("thought", "action", "observation", "n_calls", "tool", "exit_code", "flags")


def ingest_files(
    spark: SparkSession,
    paths: Sequence[str | Path],
    place: str | Path,
    *,
    labels: str | Path | None = None,
    parts: int | None = None,
) -> Corpus:
    """Read files with the readers of :func:`sag_research.ingest.ingest`, on Spark's workers.

    Files of equal content are read once. Copies in another spelling are found within a part
    only; what one file says of another (a resumed session, labels beside runs) likewise, so files
    of one folder are kept together as far as the parts' sizes allow.

    Parameters
    ----------
    spark : SparkSession
    paths : sequence of path
        Files and folders, at the same place on all workers.
    place : str or path
        Where the corpus is written: a folder all workers see, or an address that fsspec knows.
    labels : path, optional
        As for an ingest.
    parts : int, optional
        How many tasks; one for each 64 MB by default.

    Returns
    -------
    Corpus
        ``about["files"]`` counts files: all, ingested, duplicates, ignored and rejected;
        ``about["rejected"]`` names the last and says why.

    Raises
    ------
    UsageError
        If there is a corpus already.
    """
    target = _target(place)
    found = [_written(one) for one in find(paths)]
    looked = _looked(spark, found)
    first: dict[str, tuple[str, int]] = {}
    for one, (digest, size) in zip(found, looked, strict=True):
        first.setdefault(digest or one, (one, size))
    shares = _shares(list(first.values()), parts)
    rows = [(number, one) for number, share in enumerate(shares) for one in share]
    if not rows:
        raise NotEnoughDataError("no file to read", fix="name files or folders with trajectories")
    frame = spark.createDataFrame(rows, "part long, found string")
    frame = frame.repartitionByRange(len(shares), "part")
    read = _reader(target, None if labels is None else str(labels))
    accounts = _accounts(frame.mapInArrow(read, _DONE).toArrow())
    files = {"files": len(found), "duplicates": len(found) - len(first)}
    return _finished(target, accounts, files)


def _written(found: Found) -> str:
    """Write down what was found, for another process."""
    plain = {"path": str(found.path), "root": str(found.root)}
    return json.dumps(found._asdict() | plain | {"members": list(map(str, found.members))})


def _read_back(text: str) -> Found:
    told = json.loads(text)
    members = tuple(map(Path, told.pop("members")))
    return Found(**told | {"path": Path(told["path"]), "root": Path(told["root"])}, members=members)


def _looked(spark: SparkSession, found: Sequence[str]) -> list[tuple[str | None, int]]:
    """Give the digest and size of each file, in their order."""
    frame = spark.createDataFrame(list(enumerate(found)), "number long, found string")
    rows = frame.mapInArrow(_look, _LOOKED).toArrow().sort_by("number").to_pylist()
    return [(row["digest"], row["bytes"]) for row in rows]


def _look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    schema = pa.schema([("number", "int64"), ("digest", "string"), ("bytes", "int64")])
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            one = _read_back(row["found"])
            source = Source(one.path, one.name, one.root, one.members)
            try:
                known = {"digest": source.digest, "bytes": source.size}
            except (FormatError, OSError):  # the reader says what is wrong with it
                known = {"digest": None, "bytes": 0}
            rows.append({"number": row["number"]} | known)
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _shares(files: Sequence[tuple[str, int]], parts: int | None) -> list[list[str]]:
    """Cut the files, in their order, into shares of about the same size.

    Examples
    --------
    >>> _shares([("a", 9), ("b", 9), ("c", 19)], 2)
    [['a', 'b'], ['c']]
    """
    total = sum(size + 1 for _, size in files)
    wanted = parts or max(1, round(total / _SHARE))
    shares: dict[int, list[str]] = {}
    before = 0
    for one, size in files:
        middle = before + (size + 1) / 2
        shares.setdefault(int(middle * wanted / total), []).append(one)
        before += size + 1
    return list(shares.values())


def _reader(target: str, labels: str | None) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shares: dict[int, list[str]] = {}
        for batch in batches:
            for one in batch.to_pylist():
                shares.setdefault(one["part"], []).append(one["found"])
        for part, found in sorted(shares.items()):
            yield _done(part, _read_share(target, part, found, labels))

    return read


def _read_share(target: str, part: int, found: list[str], labels: str | None) -> dict[str, Any]:
    """Read files into a log of their own, and put its corpus in place."""
    with SQLiteEventStore(":memory:") as store, tempfile.TemporaryDirectory() as scratch:
        report = ingest_found(store, list(map(_read_back, found)), labels)
        warehouse = Warehouse(None, store)
        try:
            corpus = write_corpus(warehouse, Path(scratch) / "corpus")
        finally:
            warehouse.close()
        _put(corpus.place, target, part)
    told = report.to_dict()
    return {
        "rows": corpus.about["rows"],
        "left_out": corpus.about["left_out"],
        "files": {
            "ingested": told["ingested"],
            "duplicates": told["duplicates"],
            "ignored": len(told["ignored"]),
            "rejected": len(told["rejected"]),
        },
        "rejected": told["rejected"],
    }


def tokenise_steps(
    spark: SparkSession, steps: str | Path, runs: str | Path, place: str | Path, parts: int = 8
) -> Corpus:
    """Make a corpus of tables of steps and runs that hold texts, such as exports of ours.

    Parameters
    ----------
    spark : SparkSession
    steps : str or path
        Parquet with ``run_id step action observation``, and as far as known ``thought n_calls
        tool exit_code flags``.
    runs : str or path
        Parquet with ``run_id task_id outcome``, and as far as known the other columns of a
        corpus's runs.
    place : str or path
        Where the corpus is written, on a folder all workers see or an address fsspec knows.
    parts : int
        How many parts the corpus has.

    Raises
    ------
    UsageError
        If there is a corpus already.
    """
    from pyspark.sql import functions as sf

    target = _target(place)
    told, texts = spark.read.parquet(str(runs)), spark.read.parquet(str(steps))
    known = [name for name in _TEXTS if name in texts.columns]
    packed = sf.struct("step", *known)
    grouped = texts.groupBy("run_id").agg(sf.sort_array(sf.collect_list(packed)).alias("steps"))
    number = sf.pmod(sf.xxhash64("run_id"), sf.lit(parts)).alias("part")
    frame = told.join(grouped, "run_id").select(number, *told.columns, "steps")
    frame = frame.repartitionByRange(parts, "part").sortWithinPartitions("part", "run_id")
    accounts = _accounts(frame.mapInArrow(_tokeniser(target), _DONE).toArrow())
    return _finished(target, accounts, {})


def _tokeniser(target: str) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def tokenise(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codes = Codes()
        shares: dict[int, list[Any]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                shares.setdefault(row.pop("part"), []).append(row)
        for part, rows in sorted(shares.items()):
            with tempfile.TemporaryDirectory() as scratch:
                corpus = _tokenised(rows, Path(scratch) / "corpus", codes)
                _put(corpus.place, target, part)
            yield _done(part, {"rows": corpus.about["rows"]})

    return tokenise


def _tokenised(rows: list[Any], place: Path, codes: Codes) -> Corpus:
    import pyarrow as pa

    runs, steps = [], []
    for row in rows:
        own = row.pop("steps")
        failed = {"failure": 1, "success": 0}.get(row["outcome"])
        runs.append(row | {"n_steps": len(own), "failed": failed})
        steps += [one | {"run_id": row["run_id"], "step": at} for at, one in enumerate(own)]
    with CorpusWriter(place, codes) as writer:
        table = pa.Table.from_pylist(steps)
        table = table.append_column("token", pa.array(codes.of_steps(table)))
        writer.add(pa.Table.from_pylist(runs), table)
    return Corpus(place)


def _target(place: str | Path) -> str:
    """Return where a corpus goes, as all workers name it."""
    target = str(place) if "://" in str(place) else str(Path(place).absolute())
    system, path = fsspec.core.url_to_fs(target)
    if system.exists(path):
        raise UsageError(f"{place} exists", fix="name a place that does not")
    return target


def _put(made: str, target: str, part: int) -> None:
    """Put the one part of a corpus in its place in the whole."""
    system, path = fsspec.core.url_to_fs(target)
    for table in TABLES:
        if table == "tokens" and part:
            continue
        system.makedirs(f"{path}/{table}", exist_ok=True)
        (file,) = Path(made, table).glob("*.parquet")
        system.put_file(str(file), f"{path}/{table}/part-{part:05d}.parquet")


def _done(part: int, account: dict[str, Any]) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [pa.array([part], pa.int64()), pa.array([json.dumps(account)])]
    return pa.RecordBatch.from_arrays(columns, names=["part", "account"])


def _accounts(done: pa.Table) -> list[dict[str, Any]]:
    return [json.loads(row["account"]) for row in done.sort_by("part").to_pylist()]


def _finished(target: str, accounts: list[dict[str, Any]], files: dict[str, int]) -> Corpus:
    """Add up what the tasks say, and write what makes the parts a corpus."""
    told = about(Codes(), _sums(accounts, "rows"), _sums(accounts, "left_out"))
    told["rows"]["tokens"] = len(Codes().names)
    told["files"] = files | _sums(accounts, "files", files)
    told["rejected"] = [one for account in accounts for one in account.get("rejected", [])]
    write_about(target, told)
    return Corpus(target)


def _sums(
    accounts: Sequence[dict[str, Any]], name: str, start: dict[str, int] | None = None
) -> dict[str, int]:
    sums = dict(start or {})
    for account in accounts:
        for key, count in account.get(name, {}).items():
            sums[key] = sums.get(key, 0) + count
    return sums
