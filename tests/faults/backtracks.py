"""Kills a run in the middle of going back and carries it on, many times; prints what came of it.

Run as ``python -m tests.faults.backtracks KILLS SEED``. Each attempt is a process forked from this
one, which has no threads, and dies of a real SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import sag_research.deadend  # noqa: F401 - so that not every fork imports it anew
from sag_research.errors import Caught
from sag_research.lab.crates import CratesWorld, Habits, ScriptedWorker, carry_on, judge
from sag_research.lab.crates.play import _question
from sag_research.lab.crates.world import action_text
from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Run
from sag_research.runtime import Agent, BacktrackPolicy, RandomWatch, RunContext, backtrack

WILD = Habits(name="wild", clumsy=0.4, notice=0.0)  # it goes on in a room that is lost
CASES = ("plain", "exhausted", "abort", "recorded")


def plainly(change: Mapping[str, Any], seed: int) -> Agent:
    """An agent all of whose writes are steps: what it has written, it has done."""
    worker = ScriptedWorker(WILD, seed)

    def agent(ctx: RunContext) -> None:
        assert isinstance(ctx.world, CratesWorld)
        while not ctx.world.done:
            reply = worker.complete(_question(ctx))
            text = action_text(reply.calls[0].name, reply.calls[0].arguments)
            said = ctx.world.act(text)
            call = {"id": reply.calls[0].id, "name": reply.calls[0].name, "text": text,
                    "arguments": reply.calls[0].arguments, "observation": said.text}  # fmt: skip
            ctx.step(reply.text or "", text, said.text, calls=[call])

    return agent


def recorded(change: Mapping[str, Any], seed: int) -> Agent:
    inner = carry_on(ScriptedWorker(WILD, seed))

    def agent(ctx: RunContext) -> Any:
        assert isinstance(ctx.world, CratesWorld)
        if not ctx.world.done:
            return inner(ctx)
        ctx.exit_status = "finished"  # it had been, and was killed before that was written down
        return None

    return agent


def judged(ctx: RunContext) -> Any:
    assert isinstance(ctx.world, CratesWorld)
    return judge(ctx.world)


def go(path: Path, case: str) -> None:
    with SQLiteEventStore(path) as store:
        if not store.has_run("r"):
            store.create_run(Run(run_id="r", task_id="t", config={"level": "medium-0"}))
        backtrack(
            store, "r", agent_factory=recorded if case == "recorded" else plainly,
            watch=lambda: RandomWatch(0.3, seed=2), outcome=judged, seed=9,
            world_factory=lambda run: CratesWorld(str(run.config["level"])),
            policy=BacktrackPolicy(
                then="abort" if case == "abort" else "fork", max_backtracks=3,
                max_steps=10 if case == "exhausted" else 60,
            ),
        )  # fmt: skip


def arm(folder: Path, kill_at: int) -> None:
    """Note each point at which a write begins or is done, and die at the n-th."""
    names = (folder / "points").open("a", encoding="utf-8")
    count = [0]

    def point(name: str) -> None:
        count[0] += 1
        names.write(name + "\n")
        names.flush()
        if count[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def noted(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
        def write(self: Any, first: Any, *args: Any, **more: Any) -> Any:
            said = [first] if not isinstance(first, list) else first
            types = [getattr(event, "type", "") for event in said]
            point(" ".join([f"{name}<", *types]))
            done = plain(self, first, *args, **more)
            point(" ".join([f"{name}>", *types]))
            return done

        return write

    for name in ("append", "append_many", "fork"):
        setattr(SQLiteEventStore, name, noted(getattr(SQLiteEventStore, name), name))


def attempt(folder: Path, case: str, kill_at: int) -> NoReturn:
    """The forked process."""
    with Caught() as caught:
        arm(folder, kill_at)
        go(folder / "log.sqlite", case)
    if caught.error is not None:
        traceback.print_exception(caught.error)
    os._exit(caught.error is not None)


def forked(folder: Path, case: str, kill_at: int = 0) -> int:
    """Work in a process of its own; returns how it ended, negative for a signal."""
    child = os.fork()
    if child == 0:
        attempt(folder, case, kill_at)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(folder: Path) -> dict[str, Any]:
    with SQLiteEventStore(folder / "log.sqlite", read_only=True) as store:
        runs = [run.run_id for run in store.runs()]
        events = [event for run in runs for event in store.read(run, lo=_own(store, run))]
        return {
            "runs": runs,
            "digests": [store.head(run).digest for run in runs],
            "said": [e.payload for e in store.read(WORKSPACE_RUN, types=["outcome.recorded"])],
            "steps": [[e.payload for e in store.read(run, types=["agent.step"])] for run in runs],
            "own": [e.type for e in events if not e.type.startswith(("llm.", "tool."))],
            "places": [[e.payload["fork_step"], e.payload["step"], e.payload["from"]]
                       for e in events if e.type == "run.backtracked"],
            "verified": store.verify().ok,
        }  # fmt: skip


def _own(store: SQLiteEventStore, run: str) -> int:
    return store.get_run(run).fork_position + 1


def middle(points: list[str]) -> list[int]:
    """Numbers, from 1, of the points from a prediction to the first write of the next attempt."""
    found, inside = [], False
    for number, name in enumerate(points, 1):
        inside = inside or "deadend.predicted" in name
        if inside:
            found.append(number)
        inside = inside and not (name.startswith("append_many>") and "agent.step" in name)
    return found


def one_of_each(points: list[str], inside: list[int], random: Random) -> list[int]:
    """Choose a point of each kind of write, whatever else is drawn."""
    kinds: dict[str, list[int]] = {}
    for number in inside:
        kinds.setdefault(points[number - 1].partition(" ")[0], []).append(number)
    return [random.choice(numbers) for numbers in kinds.values()]


def main(kills: int, seed: int) -> None:
    random = Random(seed)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        for case in CASES:
            whole = Path(home, case)
            whole.mkdir()
            assert forked(whole, case) == 0
            points = (whole / "points").read_text(encoding="utf-8").splitlines()
            inside = middle(points)
            rest = [n for n in range(3, len(points) + 1) if n not in inside]
            drawn = random.sample(inside, min(kills, len(inside)))
            others = random.sample(rest, min(kills // 3, len(rest)))
            chosen = sorted({*one_of_each(points, inside, random), *drawn, *others})
            ends = []
            for at in chosen:
                folder = Path(home, f"{case}-{at}")
                folder.mkdir()
                killed, again = forked(folder, case, at), forked(folder, case)
                ends.append({"point": points[at - 1], "middle": at in inside, "killed": killed,
                             "again": again, **outcome(folder)})  # fmt: skip
            found[case] = {"whole": outcome(whole), "points": points, "killed": ends}
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
