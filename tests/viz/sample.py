"""An invented run of thirty steps and a fork that ends better, as rows of a bloomed graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sag_research.bloom import EventRow, MentionRow, RelationRow, RunRow, bloom_graph

REPO = "acme/calendar"

KINDS = {"F": "File", "M": "Module", "S": "Symbol", "E": "Error", "T": "Test", "C": "Command",
         "K": "Configuration", "Y": "System"}  # fmt: skip

RUN, FORK = "leap-day~1", "leap-day~1-fork"
FORK_AT = 10
"""Position of step 8, the last one before the parent goes astray."""


def entity_id(kind: str, name: str) -> str:
    scope = REPO if kind in "FMST" else ""
    return f"{KINDS[kind]}|{scope}|{name}"


def story(run_id: str) -> list[str]:
    """The lines of a run in ``story.txt``."""
    text = Path(__file__).with_name("story.txt").read_text(encoding="utf-8")
    return text.split(f"# run {run_id}\n")[1].split("# run ")[0].splitlines()


def tell(run_id: str, first: int) -> tuple[list[EventRow], list[MentionRow]]:
    """Read a run's story; its first step stands at position ``first``."""
    events, mentions = [], []
    for position, line in enumerate(story(run_id), first):
        thought, action, observation, names, code = line.split("|")
        events.append(
            EventRow(run_id, position, step=position - 2, cause=position - 1, thought=thought,
                     action=action, observation=observation, exit_code=int(code))
        )  # fmt: skip
        for word in names.split():
            role = "MUTATED" if word.startswith("!") else "PROCESSED"
            kind, name = word.lstrip("!").split(":", 1)
            mentions.append(MentionRow(run_id, position, entity_id(kind, name), role, 1, "told"))
    return events, mentions


def tables(fork: bool = True) -> dict[str, list[Any]]:
    """The rows of the run, with its fork or without."""
    steps, mentions = tell(RUN, 2)
    end = EventRow(RUN, len(steps) + 2, "run.completed", body='{"exit_status":"submitted"}')
    events = [EventRow(RUN, 1, "run.created"), *steps, end]
    about = ("leap-day", "demo-agent", "model-a")
    goal = "parse_date must accept 30 February"
    runs = [RunRow(RUN, None, None, *about, goal, "failure", "submitted", 30)]
    if fork:
        steps, more = tell(FORK, FORK_AT + 2)
        # run.forked takes a position that is no step
        own = [row._replace(step=row.position - 3) for row in steps]
        begin = EventRow(FORK, FORK_AT + 1, "run.forked", body='{"hint":"look at the parser"}')
        events += [begin, *own, EventRow(FORK, FORK_AT + 2 + len(own), "run.completed")]
        mentions += more
        runs.append(RunRow(FORK, RUN, FORK_AT, *about, None, "success", "submitted", 7))
    relations = [
        RelationRow(entity_id("F", "calendar/parse.py"), "DEFINES", entity_id("S", "parse_date"),
                    "leap-day~1", 4, "def"),
        RelationRow(entity_id("F", "calendar/zones.py"), "DEFINES", entity_id("S", "ZoneTable"),
                    "leap-day~1", 11, "class"),
    ]  # fmt: skip
    return {"events": events, "mentions": mentions, "relations": relations, "runs": runs}


def graph(fork: bool = True) -> Any:
    """The bloomed graph of the sample."""
    return bloom_graph(**tables(fork))
