"""Mutations that keep the shape of a file, so that what is fuzzed lies behind its parser.

JSON, JSON lines, SQLite databases, Parquet files, zip and tar archives are taken apart, one or
a few of their values are changed, and they are put together again.
"""

from __future__ import annotations

import ast
import io
import json
import random
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import sag_research
from sag_research.errors import Caught
from tests.fuzz.cases import Case, pack, unpack

__all__ = ["mutated"]

Rng = random.Random
Bytes = Callable[[bytes], bytes]

_ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**70, 10**400, 0.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), "", " ", "0", "-1", "x", "NaN", "true", "null", "\x00",
    "half \ud835", "\udcff", "\u202e", "1e999", "9" * 5000, "2024-01-01T00:00:00Z",
    "9999-99-99T99:99:99Z", "0001-01-01T00:00:00+14:00", "../../x", "/etc/passwd", "<script>",
    "\x1b[31m", "a" * 5000, "\r\n", "```\nls\n```", "<function=ls>\n</function>", "[" * 500,
    "{", "[]", "{}", [], {}, [None], [[]], [{}], {"": None}, {"a": {"a": {}}}, [1, "x", None, {}],
    {"0": 0}, {"\x00": 1},
)  # fmt: skip
_DEEP: Final = (60, 99, 101, 400, 1500)


def mutated(data: bytes, most: int, seed: int, raw: Bytes) -> bytes:
    """Return a mutation of a case; always the same one for the same seed.

    Parameters
    ----------
    data : bytes
        A packed case.
    most : int
        Bytes that it may have; a longer one is cut.
    seed : int
    raw : callable
        Mutates bytes of which nothing is known.
    """
    rng = Rng(seed)
    case = unpack(data)
    files = [*case.files]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.randrange(len(files))
        name, content = files[place]
        if rng.random() < 0.03:
            _mutate_files(files, place, rng)
        else:
            files[place] = name, _content(content, rng, raw)
    return pack(Case(case.target, tuple(files)))[:most]


def _mutate_files(files: list[tuple[str, bytes]], place: int, rng: Rng) -> None:
    if len(files) > 1 and rng.random() < 0.5:
        del files[place]
    else:
        files.append((f"{rng.randrange(9)}-{files[place][0]}", files[place][1]))


def _content(data: bytes, rng: Rng, raw: Bytes) -> bytes:
    if rng.random() < 0.15:
        return raw(data) if len(data) < 4_096 else _bitten(data, rng)
    for start, change in _KINDS:
        if data.startswith(start):
            with Caught():  # what was bitten before cannot be taken apart
                return change(data, rng)
    with suppress(ValueError, RecursionError):
        return _json(data, rng)
    return _bitten(data, rng)


def _bitten(data: bytes, rng: Rng) -> bytes:
    """Flip, cut out, double or put in bytes."""
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 4))):
        place, some = rng.randrange(len(spoilt) + 1), rng.randrange(1, 40)
        match rng.randrange(4):
            case 0 if place < len(spoilt):
                spoilt[place] ^= 1 << rng.randrange(8)
            case 1:
                del spoilt[place : place + some]
            case 2:
                spoilt[place:place] = spoilt[place : place + some]
            case _:
                spoilt[place:place] = rng.choice(_words()).encode("utf-8", "replace")
    return bytes(spoilt)


# ---- JSON


def _json(data: bytes, rng: Rng) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    try:
        return _dumped(_changed(json.loads(text, strict=False), rng), rng)
    except json.JSONDecodeError:
        return _json_lines(data.split(b"\n"), rng)


def _json_lines(lines: list[bytes], rng: Rng) -> bytes:
    place = rng.randrange(len(lines))
    match rng.randrange(10):
        case 0:
            del lines[place]
        case 1:
            lines.insert(rng.randrange(len(lines)), lines[place])
        case 2:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        case _:
            value = json.loads(lines[place].decode("utf-8", "surrogateescape"), strict=False)
            lines[place] = _dumped(_changed(value, rng), rng)
    return b"\n".join(lines)


def _dumped(value: Any, rng: Rng) -> bytes:
    text = json.dumps(value, ensure_ascii=rng.random() < 0.7)
    return text.encode("utf-8", "surrogatepass")


def _changed(value: Any, rng: Rng) -> Any:
    """Change one place of a value: walk down, and change what is there when the walk ends."""
    root = [value]
    for _ in range(rng.choice((1, 1, 2))):
        container, key = _place(root, rng)
        container[key] = _another(container[key], root, rng)
        if isinstance(container, list) and len(container) > 1 and rng.random() < 0.1:
            container.insert(key, container[rng.randrange(len(container))])
        elif container is not root and rng.random() < 0.08:
            del container[key]
        elif isinstance(container, dict) and rng.random() < 0.05:
            container[rng.choice(_words())] = container.pop(key)
    return root[0]


def _place(root: list[Any], rng: Rng) -> tuple[Any, Any]:
    container, key = root, 0
    while isinstance(inner := container[key], dict | list) and inner and rng.random() < 0.9:
        container = inner
        key = rng.choice([*inner]) if isinstance(inner, dict) else rng.randrange(len(inner))
    return container, key


def _another(value: Any, root: list[Any], rng: Rng) -> Any:
    choice = rng.randrange(10)
    if choice == 0:  # what stands elsewhere
        container, key = _place(root, rng)
        return json.loads(json.dumps(container[key]))
    if choice == 1:
        return rng.choice(_words())
    if choice == 2 and rng.random() < 0.3:
        return json.loads("[" * (depth := rng.choice(_DEEP)) + "]" * depth)
    if choice == 3 and isinstance(value, dict):
        return {**value, rng.choice(_words()): deepcopy(rng.choice((*_ODD, *_words())))}
    if choice == 4:
        return rng.choice(([value], {"text": value}, [value, value], json.dumps(value)))
    if choice < 8 and isinstance(value, str) and value:
        return _text(value, rng)
    if choice < 8 and isinstance(value, int | float) and abs(value) < 2**60:
        return rng.choice((value + 1, -value, str(value), value * 10, value / 2))
    return deepcopy(rng.choice(_ODD))  # it may be changed in its turn


def _text(text: str, rng: Rng) -> str:
    if text[:1] in "{[" and rng.random() < 0.7:
        with suppress(ValueError, RecursionError):
            return json.dumps(_changed(json.loads(text), rng))
    place = rng.randrange(len(text) + 1)
    piece = rng.choice((*(odd for odd in _ODD if isinstance(odd, str)), *_words()))
    match rng.randrange(4):
        case 0:
            return text[:place]
        case 1:
            return text[:place] + piece
        case 2:
            return piece + text[place:]
        case _:
            return text[:place] + piece + text[place:]


@cache
def _words() -> tuple[str, ...]:
    """Collect the short texts in the readers' own source: the words they look for."""
    found: set[str] = set()
    for path in sorted(Path(sag_research.__file__).parent.glob("ingest/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if 0 < len(node.value) < 40 else set()
    return tuple(sorted(found))


# ---- containers


def _sqlite(data: bytes, rng: Rng) -> bytes:
    """Change one cell."""
    if rng.random() < 0.1:
        return _bitten(data, rng)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as file:
        file.deserialize(data)
        names = [
            str(row[0]) for row in file.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        table = rng.choice([name for name in names if not name.startswith("sqlite_")])
        columns = [str(row[1]) for row in file.execute(f"PRAGMA table_xinfo('{table}')")]
        column = rng.choice(columns)
        count = file.execute(f"SELECT count(*) FROM '{table}'").fetchone()[0]
        where = f"WHERE rowid = (SELECT rowid FROM '{table}' LIMIT 1 OFFSET {rng.randrange(count)})"
        if rng.random() < 0.05:
            file.execute(f"DELETE FROM '{table}' {where}")
        else:
            cell = file.execute(f"SELECT \"{column}\" FROM '{table}' {where}").fetchone()[0]
            file.execute(f"UPDATE '{table}' SET \"{column}\" = ? {where}", [_cell(cell, rng)])
        return file.serialize()


def _cell(value: Any, rng: Rng) -> Any:
    if isinstance(value, bytes) and rng.random() < 0.8:
        with suppress(ValueError, RecursionError):
            return _json(value, rng)
        return _bitten(value, rng)
    if isinstance(value, str) and rng.random() < 0.8:
        return _text(value, rng).encode("utf-8", "replace").decode()
    found = rng.choice((None, 0, -1, 1, 2, 2**62, 1.5, "", "x", b"", b"\xff", "\x00", str(value)))
    return value + 1 if isinstance(value, int) and value < 2**60 and rng.random() < 0.4 else found


def _parquet(data: bytes, rng: Rng) -> bytes:
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    changed = json.loads(json.dumps(_changed(rows, rng), default=str))
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(changed), out)
    return out.getvalue()


_NAMES: Final = (
    "../x",
    "/x",
    "a/../../x",
    "C:\\x",
    "",
    ".",
    "a//b",
    "x" * 300,
    "a\x00b",
    "a.jsonl",
)


def _zip(data: bytes, rng: Rng) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = [(one, archive.read(one)) for one in archive.infolist()]
    out = io.BytesIO()
    chosen = rng.randrange(len(found))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, (about, content) in enumerate(found):
            name, changed = about.filename, content
            if place == chosen and rng.random() < 0.15:
                name = rng.choice(_NAMES)
            elif place == chosen:
                changed = _plain(content, rng)
            again = zipfile.ZipInfo(name)
            again.external_attr = about.external_attr
            if place == chosen and rng.random() < 0.1:
                again.external_attr = rng.getrandbits(32)
            again.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(again, changed)
    return out.getvalue()


def _tar(data: bytes, rng: Rng) -> bytes:
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as archive,
        tarfile.open(fileobj=out, mode="w") as new,
    ):
        members = [*archive]
        chosen = rng.choice(members)
        for about in members:
            content = archive.extractfile(about)
            inside = b"" if content is None else content.read()
            if about is chosen:
                inside = _bent(about, inside, rng)
            about.size = len(inside)
            new.addfile(about, io.BytesIO(inside))
    return out.getvalue()


def _bent(about: tarfile.TarInfo, content: bytes, rng: Rng) -> bytes:
    match rng.randrange(4):
        case 0:
            about.name = rng.choice(_NAMES)
        case 1:
            about.type = rng.choice((b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S", b"?"))
            about.linkname = rng.choice(_NAMES)
        case 2:
            about.mode, about.mtime = rng.getrandbits(12), rng.getrandbits(33)
        case _:
            return _plain(content, rng)
    return content


def _plain(data: bytes, rng: Rng) -> bytes:
    with suppress(ValueError, RecursionError):
        return _json(data, rng)
    return _bitten(data, rng)


_KINDS: Final[tuple[tuple[bytes, Callable[[bytes, Rng], bytes]], ...]] = (
    (b"SQLite format 3\x00", _sqlite),
    (b"PAR1", _parquet),
    (b"PK", _zip),
    (b"runs/", _tar),
)
