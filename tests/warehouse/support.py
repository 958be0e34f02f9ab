"""A tiny extractor, and logs written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Event, Run
from sag_research.warehouse import Warehouse
from sag_research.warehouse._tables import SCHEMAS

_NAME = re.compile(r"\b\w+\.py\b")
_KEYS = {"seq", "run_id", "position", "step", "version"}


class TinyExtractor:
    """Finds ``word.py`` in actions and observations; a step's first two files are related."""

    def __init__(self, version: str = "tiny-1", rule: str = "py") -> None:
        self.version = version
        self._rule = rule

    def extract_steps(self, steps: Any) -> tuple[pa.Table, pa.Table]:
        mentions: list[tuple[Any, ...]] = []
        relations: list[tuple[Any, ...]] = []
        for row, (action, observation, scope, _) in enumerate(zip(*steps, strict=True)):
            found = []
            for field, text in (("action", action), ("observation", observation)):
                role = "MUTATED" if field == "action" else "PROCESSED"
                for match in _NAME.finditer(text):
                    span = (match.start(), match.end())
                    name = match.group()
                    mentions.append((row, field, *span, "File", scope, name, role, self._rule))
                    found.append(("File", scope, name))
            if len(found) > 1:
                relations.append((row, *found[0], "IMPORTS", *found[1], self._rule))
        return _table("mentions", mentions), _table("relations", relations)


def _table(name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    fields = [pa.field("row", pa.int32())] + [f for f in SCHEMAS[name] if f.name not in _KEYS]
    columns = zip(*rows, strict=True) if rows else [[] for _ in fields]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def step(run_id: str, text: str = "", **payload: Any) -> Event:
    """An event ``agent.step`` with one call."""
    call = {"id": "c", "name": "bash", "arguments": {"command": text}, "text": text}
    call |= {"observation": f"saw {text}", "status": "ok", "exit_code": 0}
    full = {"thought": f"try {text}", "action": text, "observation": f"saw {text}"}
    return Event(run_id=run_id, type="agent.step", payload={**full, "calls": [call], **payload})


def end(run_id: str, type_: str = "run.completed", **payload: Any) -> Event:
    return Event(run_id=run_id, type=type_, payload=payload)


def outcome(run_id: str, word: Any, source: Any = "report", **payload: Any) -> Event:
    about = {"run": run_id, "outcome": word, "source": source, **payload}
    return Event(run_id=WORKSPACE_RUN, type="outcome.recorded", payload=about)


def source_read(path: str, source_id: str, status: str, **payload: Any) -> Event:
    about = {"path": path, "source_id": source_id, "status": status, "root": "/data", **payload}
    return Event(run_id=WORKSPACE_RUN, type="source.read", payload=about)


def write_runs(store: SQLiteEventStore, run_ids: Iterable[str], n_steps: int = 3) -> None:
    """Write finished runs, each with a label: ``n_steps + 3`` events a run."""
    for number, run_id in enumerate(run_ids):
        with store.transaction():
            store.create_run(Run(run_id=run_id, task_id=f"task-{number % 3}", repo="a/b"))
            steps = [step(run_id, f"edit f{i}.py g{i}.py") for i in range(n_steps)]
            store.append_many(steps[:1])
            two = [{"name": "bash", "text": "ls"}, {"name": "edit", "text": "f.py"}]
            store.append_many(step(run_id, f"two {i}.py", calls=two) for i in range(n_steps)[1:2])
            store.append_many(steps[2:])
            store.append(end(run_id, exit_status="submitted"))
            store.append(outcome(run_id, ("success", "failure")[number % 2]))


def open_warehouse(folder: Path | None, store: SQLiteEventStore, version: str = "tiny-1") -> Any:
    extractor: Any = TinyExtractor(version, rule=version)
    return Warehouse(folder, store, extractor=extractor)


def everything(warehouse: Warehouse) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all views, sorted."""
    from sag_research.warehouse import VIEWS

    found = {view: warehouse.sql(f"FROM {view}").rows() for view in VIEWS}
    return {view: sorted(rows, key=repr) for view, rows in found.items()}


def parquet_files(folder: Path) -> dict[str, bytes]:
    """The bytes of the Parquet files that the manifest names."""
    from sag_research.warehouse._manifest import read_manifest

    names = [segment.file for segment in read_manifest(folder).segments]
    return {name: (folder / name).read_bytes() for name in names}
