"""The same runs as files of their own, as JSON lines, packed JSON lines, and Parquet rows."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

Step = dict[str, Any]
CONTAINERS = (".jsonl", ".jsonl.zst", ".parquet")
_ROWS = 500
_MESSAGE = pa.struct([("role", pa.string()), ("text", pa.string()), ("system_prompt", pa.string())])
_SCHEMA = pa.schema(
    [
        ("instance_id", pa.string()),
        ("model_name", pa.string()),
        ("target", pa.bool_()),
        ("trajectory", pa.list_(_MESSAGE)),
        ("exit_status", pa.string()),
        ("generated_patch", pa.string()),
    ]
)


def write_rows(paths: Iterable[Path], stem: Path) -> dict[str, Path]:
    """Write the runs of SWE-agent files as rows of all kinds; returns the files by suffix."""
    found = {suffix: stem.with_name(stem.name + suffix) for suffix in CONTAINERS}
    rows = (_row(path) for path in paths)
    packer = zstandard.ZstdCompressor(level=3)
    with (
        found[".jsonl"].open("wb") as plain,
        packer.stream_writer(found[".jsonl.zst"].open("wb")) as packed,
        pq.ParquetWriter(found[".parquet"], _SCHEMA, compression="zstd") as parquet,
    ):
        while part := list(itertools.islice(rows, _ROWS)):
            lines = b"".join(json.dumps(row).encode() + b"\n" for row in part)
            plain.write(lines)
            packed.write(lines)
            parquet.write_table(pa.Table.from_pylist(part, _SCHEMA))
    return found


def _row(path: Path) -> dict[str, Any]:
    data = json.loads(path.read_bytes())
    messages = [{"role": "user", "text": "ISSUE:\nIt is broken."}]
    for step in data["trajectory"]:
        said = f"{step.get('thought') or ''}\n```\n{step.get('action') or ''}\n```"
        messages.append({"role": "ai", "text": said})
        messages.append({"role": "user", "text": step.get("observation") or ""})
    return {
        "instance_id": path.stem,
        "model_name": "model",
        "target": len(messages) % 2 == 0,
        "trajectory": [{"system_prompt": None, **message} for message in messages],
        "exit_status": "submitted",
        "generated_patch": "diff",
    }


# ---- the straightforward way to read each of them


def plain_runs(path: Path) -> Iterator[tuple[str, list[Step]]]:
    """Yield name and steps of each run in a file, the short way."""
    if path.name.endswith(".parquet"):
        for row in pq.read_table(path).to_pylist():
            yield row["instance_id"], _steps_of_row(row)
    elif path.name.endswith((".jsonl", ".jsonl.zst")):
        opened = zstandard.open if path.suffix == ".zst" else open
        with opened(path, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                yield row["instance_id"], _steps_of_row(row)
    else:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            yield path.stem, _steps_of_file(json.load(file))


def _steps_of_row(row: dict[str, Any]) -> list[Step]:
    return [
        {"thought": said["text"], "action": _fenced(said["text"]), "observation": heard["text"]}
        for said, heard in itertools.pairwise(row["trajectory"])
        if said["role"] == "ai"
    ]


def _fenced(text: str) -> str:
    return text.rpartition("\n```")[0].rpartition("```\n")[2]


def _steps_of_file(data: dict[str, Any]) -> list[Step]:
    if "messages" not in data:
        return data.get("trajectory") or []
    messages = [m for m in data["messages"] if m["role"] != "system"][1:]
    return [
        {"action": message["content"], "observation": after["content"]}
        for message, after in itertools.pairwise(messages)
        if message["role"] == "assistant"
    ]
