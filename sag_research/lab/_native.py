"""Runs of a log as native records, and sets of them on disk with a card and checksums."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import TERMINAL_TYPES, WORKSPACE_RUN

__all__ = ["empty_folder", "native_record", "played_records", "rates", "write_set"]

_RUN = ("task_id", "goal", "dataset", "repo", "agent", "model", "attempt")
_STEP = ("thought", "action", "observation", "flags", "usage")
_CALL = ("id", "name", "arguments", "text", "observation", "status", "exit_code")


def native_record(
    store: SQLiteEventStore, run_id: str, outcome: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a run as a native record; without times, so that equal runs are equal records.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
    outcome : mapping, optional
        An outcome object, see ``docs/native.md``.
    """
    run = store.get_run(run_id)
    record: dict[str, Any] = {name: getattr(run, name) for name in _RUN if getattr(run, name)}
    steps, end, exit_status = [], None, None
    for event in store.read(run_id):
        if event.type == "agent.step":
            steps.append(_step(event.payload))
        elif event.type in TERMINAL_TYPES:
            end, exit_status = event.type, event.payload.get("exit_status")
    record |= {"steps": steps, "end": end, "exit_status": exit_status, "config": run.config}
    return record if outcome is None else {**record, "outcome": dict(outcome)}


def _step(payload: Mapping[str, Any]) -> dict[str, Any]:
    step = {name: payload[name] for name in _STEP if payload.get(name)}
    calls = [{name: call[name] for name in _CALL if call.get(name)} for call in payload["calls"]]
    if not calls:
        return step
    kept = {name: value for name, value in step.items() if name not in ("action", "observation")}
    return {**kept, "calls": calls}


def played_records(log: Path) -> list[dict[str, Any]]:
    """Return every run of a log that the laboratory judged, by id, as native records."""
    with SQLiteEventStore(str(log)) as store:
        outcomes = {
            str(event.payload["run"]): {k: v for k, v in event.payload.items() if k != "run"}
            for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",))
        }
        return [native_record(store, run, outcomes[run]) for run in sorted(outcomes)]


def empty_folder(out: Path) -> None:
    """Make a folder for a set.

    Raises
    ------
    UsageError
        If there is something in it.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty", fix="name a new folder")
    out.mkdir(parents=True, exist_ok=True)


def write_set(out: Path, records: Sequence[Mapping[str, Any]], card: Callable[[int], str]) -> None:
    """Write ``runs.jsonl.zst``, ``README.md`` and ``SHA256SUMS``.

    Parameters
    ----------
    out : pathlib.Path
    records : sequence of mapping
    card : callable
        Makes the data card's text, given the size of the compressed runs in bytes.
    """
    lines = b"".join(msgspec.json.encode(record, order="sorted") + b"\n" for record in records)
    packed = zstandard.ZstdCompressor(level=19).compress(lines)
    (out / "runs.jsonl.zst").write_bytes(packed)
    (out / "README.md").write_text(card(len(packed)), encoding="utf-8")
    names = ("README.md", "runs.jsonl.zst")
    sums = [f"{hashlib.sha256((out / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def rates(records: Sequence[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> str:
    """Write rows of a Markdown table: runs, failures and their share, by a key."""
    runs = Counter(key(record) for record in records)
    failed = Counter(key(record) for record in records if record["outcome"]["outcome"] == "failure")
    return "\n".join(
        f"| `{name}` | {n} | {failed[name]} | {failed[name] / n:.2f} |"
        for name, n in sorted(runs.items())
    )
