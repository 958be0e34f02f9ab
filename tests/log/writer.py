"""A process that writes to a log and says on stdout what is safely in it.

Tests start it as ``python writer.py MODE PATH NAME``, talk to it over its pipes and kill it.
Every line that it prints was acknowledged by the store before.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace

from sag_research.errors import ConflictError
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run

LONG = "a text of more than five hundred bytes " * 20
BATCH = 40


def note(run_id: str, name: str, number: int) -> Event:
    payload = {"by": name, "n": number, "text": f"{name} {number} {LONG}"}
    return Event(run_id=run_id, type="note.taken", actor=name, payload=payload)


def say(*words: object) -> None:
    print(*words, flush=True)


def single(store: SQLiteEventStore, name: str) -> None:
    """One event a transaction, without end."""
    store.create_run(Run(run_id=name))
    number = 0
    while True:
        event = store.append(note(name, name, number))
        say(number, event.seq, event.digest)
        number += 1


def batch(store: SQLiteEventStore, name: str) -> None:
    """Batches over two runs, without end; each batch carries its number."""
    for run_id in (f"{name}.1", f"{name}.2"):
        store.create_run(Run(run_id=run_id))
    number = 0
    while True:
        store.append_many([note(f"{name}.{1 + n % 2}", name, number) for n in range(BATCH)])
        say(number)
        number += 1


def fork(store: SQLiteEventStore, name: str) -> None:
    """Forks of forks, each in a transaction with three notes, without end."""
    store.create_run(Run(run_id=name))
    number = 0
    parent = name
    while True:
        child = f"{name}/{number}"
        with store.transaction():
            store.fork(parent, run_id=child, intervention={"n": number, "text": LONG})
            store.append_many([note(child, name, number) for _ in range(3)])
        say(number)
        parent = child if number % 3 else name
        number += 1


def redact(store: SQLiteEventStore, name: str) -> None:
    """Notes with texts of their own and a shared one, each redacted once it is written."""
    store.create_run(Run(run_id=name))
    number = 0
    while True:
        written = note(name, name, number)
        payload = written.payload | {"shared": LONG}
        event = store.append(replace(written, payload=payload))
        say("wrote", number)
        store.redact(name, event.position or 0, f"reason {number}")
        say("redacted", number)
        number += 1


def flatten(store: SQLiteEventStore, name: str) -> None:
    """Copies of a fork of 3 * BATCH events, one of them redacted, without end."""
    store.create_run(Run(run_id=name))
    store.append_many([note(name, name, n) for n in range(2 * BATCH)])
    store.fork(name, run_id=f"{name}/fork", at=BATCH)
    store.append_many([note(f"{name}/fork", name, n) for n in range(2 * BATCH)])
    store.redact(name, 2, "why")
    number = 0
    while True:
        store.flatten(f"{name}/fork", f"{name}/{number}")
        say(number)
        number += 1


def race(store: SQLiteEventStore, name: str) -> None:
    """For each position on stdin, try to be the one who gets it."""
    say("ready")
    for line in sys.stdin:
        try:
            event = store.append(note("r", name, int(line)), expected=int(line))
            say("won", event.position)
        except ConflictError as conflict:
            say("lost", conflict.winner.payload["by"])  # type: ignore[attr-defined]


def own(store: SQLiteEventStore, name: str) -> None:
    """150 events to a run of its own and as many to a run that all share."""
    store.create_run(Run(run_id=name))
    say("ready")
    sys.stdin.readline()
    for number in range(150):
        store.append(note(name, name, number))
        store.append(note("shared", name, number))
    say("done")


def create(path: str) -> None:
    """Open a log that may not be there yet, together with others."""
    say("ready")
    sys.stdin.readline()
    with SQLiteEventStore(path) as store:
        say(store.log_id)


MODES = {
    "single": single, "batch": batch, "fork": fork, "redact": redact, "flatten": flatten,
    "race": race, "own": own,
}  # fmt: skip

if __name__ == "__main__":
    mode, path, name = sys.argv[1:]
    if mode == "create":
        create(path)
    else:
        MODES[mode](SQLiteEventStore(Path(path)), name)
