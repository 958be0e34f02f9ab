"""Make the golden log of schema version 1: ``python -m tests.log.golden.make_v1``.

The file it made is kept beside it and never made again: it stands for the logs that people have.
A later version of the schema gets a file and a script of its own.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from sag_research.log import SQLiteEventStore, canonical_digest, record_call
from sag_research.model import Event, Run

HERE = Path(__file__).parent
LONG = "a text that is kept beside the event \N{SNOWMAN} " * 20
KEY = canonical_digest({"ask": "a"})


def fill(store: SQLiteEventStore) -> None:
    """Write one of everything that a log can hold."""
    about = {"task_id": "t", "dataset": "d", "repo": "o/r", "agent": "a", "model": "m"}
    store.create_run(
        Run(
            run_id="root", goal=f"mend it {LONG}", label="l", attempt=2, source_id="0" * 16,
            created_at=1.7e9, config={"n": [1, 2.5, None, True, {"deep": "\x00é"}]}, **about,
        )
    )  # fmt: skip
    for n in range(5):
        payload = {
            "thought": f"{n}", "action": f"ls {n}", "observation": f"{n} {LONG}", "calls": [],
            "flags": ["repaired"], "usage": {"tokens_in": 10**30}, "started": 1.7e9 + n,
            "seconds": 0.125, "raw": {"thought": store.put_blob(b"\xff" * 10)},
        }  # fmt: skip
        store.append(Event(run_id="root", type="agent.step", payload=payload, ts=1.7e9 + n))
    answer = {"key": KEY, "occurrence": 0, "text": "yes"}
    record_call(
        store,
        Event(run_id="root", type="tool.responded", payload=answer, cause=2, frame="f", actor="x"),
    )
    store.fork("root", at=4, run_id="child", intervention={"hint": LONG}, label="tried")
    store.append(Event(run_id="child", type="run.failed", payload={"exit_status": "lost"}))
    store.fork("child", step=0, run_id="grandchild")
    store.flatten("child", "flat")
    fact = {"run": "root", "outcome": "failure", "source": "report.json"}
    store.append(Event(run_id="@workspace", type="outcome.recorded", payload=fact))
    store.redact("root", 3, "a name")


def main() -> None:
    """Write the log and what it must say; refuses to replace them."""
    path = HERE / "v1.sqlite"
    if path.exists():
        raise SystemExit(f"{path.name} is there and stays as it is")
    with SQLiteEventStore(path) as store:
        fill(store)
        heads = {run.run_id: store.head(run.run_id) for run in store.runs()}
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("VACUUM")
        db.execute("PRAGMA journal_mode=WAL")
    expected = {name: list(head) for name, head in heads.items()}
    (HERE / "v1.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
