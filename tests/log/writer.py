"""A process that writes to a log and says on stdout what is safely in it.

Tests start it as ``python writer.py MODE PATH NAME``, talk to it over its pipes and kill it.
Every line that it prints was acknowledged by the store before.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from sag_research.errors import ConflictError
from sag_research.llm import Context, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.log._connection import connect
from sag_research.model import Event, Run

LONG = "a text of more than five hundred bytes " * 20
BATCH = 40
ASKS = 40
STEPS = {
    1: """
ALTER TABLE runs ADD COLUMN shade TEXT NOT NULL DEFAULT 'grey';
""",
    2: """
CREATE TABLE sizes (seq INTEGER PRIMARY KEY REFERENCES events, bytes INTEGER NOT NULL) STRICT;
INSERT INTO sizes SELECT seq, length(body) FROM events;
CREATE TABLE copies (digest BLOB PRIMARY KEY, size INTEGER NOT NULL, data BLOB) STRICT;
INSERT INTO copies SELECT digest, size, data FROM blobs ORDER BY digest;
DROP TABLE copies;
CREATE INDEX sizes_bytes ON sizes (bytes);
""",
}
"""Two versions of the schema that are not there yet: one adds, one reads all and writes much."""


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


def answer(n: int) -> str:
    return f"{n} {LONG}"


def agent(ctx: Context) -> None:
    """Asks a model, a tool and the clock, and says what it has written down."""
    for n in range(ASKS):
        said = ctx.llm(None, f"question {n % 7}").text
        seen = ctx.tool("look", answer, {"n": n % 5})
        step = {"thought": said, "observation": seen, "state": ctx.now()}
        event = ctx.store.append(Event(run_id=ctx.run or "", type="agent.step", payload=step))
        say(ctx.run, event.position, event.digest)


def model() -> Scripted:
    """A model that never says the same twice."""
    numbers = count()
    return Scripted(lambda request: f"{next(numbers)} {LONG}")


def replay(store: SQLiteEventStore, name: str) -> None:
    """Strict replays of the run ``original``, each into a run of its own, without end."""
    for number in count():
        run_id = f"{name}/{number}"
        store.create_run(Run(run_id=run_id))
        agent(strictly(store, run_id))


def strictly(store: SQLiteEventStore, run_id: str) -> Context:
    identity = model().identity()
    return Context(store, run_id, source="original", mode="replay", model=identity)


def reuse(store: SQLiteEventStore, name: str) -> None:
    """One run, begun anew and again; what it has asked before is not asked again."""
    if not store.has_run(name):
        store.create_run(Run(run_id=name))
    say("ready")
    agent(Context(store, name, mode="reuse", model=model()))
    say("done")
    sys.stdin.readline()  # to be killed even so


def migrate(path: str) -> None:
    """Bring a log to the version that two more steps lead to."""
    say("ready")
    sys.stdin.readline()
    connect(path, migrations=STEPS).close()
    say("done")
    sys.stdin.readline()


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
    "race": race, "own": own, "replay": replay, "reuse": reuse,
}  # fmt: skip

if __name__ == "__main__":
    mode, path, name = sys.argv[1:]
    if mode in ("create", "migrate"):
        {"create": create, "migrate": migrate}[mode](path)
    else:
        MODES[mode](SQLiteEventStore(Path(path)), name)
