"""Carrying a run out again, and taking a text out of it, from the command line."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sag_research as sag
from sag_research.cli import main
from sag_research.model import Event, Run
from tests.cli.test_cli import sag as in_a_process

AGENT = """
import time
from sag_research.llm import Scripted
from sag_research.log import SQLiteEventStore
from sag_research.runtime import ReactiveRuntime

import words  # stands beside this file

def solve(ctx):
    print("thinking aloud")
    for n in range(2):
        thought = ctx.llm(Scripted(lambda request: words.ANSWER, name="m"), f"Step {n}?").text
        ctx.step(thought, f"date {n}", str(ctx.now()))

def careless(ctx):
    ctx.llm(Scripted(["go"], name="m"), "Step 0?")
    ctx.now()
    ctx.step("go", "date 0", f"\\x1b[31m<b>{time.time()}</b>")

def raises(ctx):
    raise RuntimeError("lost its \\x1b[31mway")

def leaves(ctx):
    raise SystemExit(0)

def coin(change, seed):
    def agent(ctx):
        while True:
            ctx.step("toss", "toss", str(ctx.rng().random() < change["chance"]), usage=None)
            assert ctx.seed == seed
    return agent

runtime = ReactiveRuntime(SQLiteEventStore(":memory:"))

@runtime.behavior(on_events="seed")
def sow(rt, event):
    rt.emit("grown", {"id": rt.ctx.uuid()})
"""


class Done(NamedTuple):
    """What a command did, as subprocess says it."""

    returncode: Any
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process, which is quicker; with nobody at the terminal."""
    monkeypatch.delenv("SAG_WORKSPACE", raising=False)

    def run(*arguments: str, cwd: Path) -> Done:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["sag", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit) as stop:
            main()
        return Done(stop.value.code, *capsys.readouterr())

    return run


def sag_json(command: Command, *arguments: str, cwd: Path) -> Any:
    done = command(*arguments, "--json", cwd=cwd)
    assert done.stdout.count("\n") == 1, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with agents in a file, and a workspace in which they lived."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "my_agents.py").write_text(AGENT, encoding="utf-8")
    (folder / "words.py").write_text("ANSWER = 'go'\n", encoding="utf-8")
    (folder / "stops.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    (folder / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", LIVE], cwd=folder, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


LIVE = """
import sag_research as sag, my_agents
from sag_research.model import Event, Run
from sag_research.runtime import Experiment, ReactiveRuntime, RunContext
with sag.open("sag-workspace") as ws:
    for name, config in (("named", {"entry_point": "my_agents:solve"}), ("plain", {})):
        ws.store.create_run(Run(run_id=name, task_id=name, config=config))
        with RunContext(ws.store, name) as ctx:
            my_agents.solve(ctx)
        ws.store.append(Event(run_id=name, type="run.completed"))
    ws.store.create_run(Run(run_id="hostile", config={"entry_point": "broken:x"}))
    ws.store.create_run(Run(run_id="dispatched"))
    with ReactiveRuntime(ws.store) as runtime:
        runtime.behavior(on_events="seed", name="sow")(my_agents.sow)
        runtime.emit("seed", run_id="dispatched")
        runtime.dispatch_loop()
    ws.store.create_run(Run(run_id="tossed"))
    Experiment(ws.store, "tossed", at=1, arms={"fair": {"chance": 0.5}}, repeats=1, max_steps=3,
               agent_factory=my_agents.coin, snapshots=False, name="coin").run()
"""


def continuation(study: Path) -> str:
    with sag.open(study / "sag-workspace") as ws:
        return next(run.run_id for run in ws.store.runs() if run.parent_id == "tossed")


@pytest.mark.parametrize(
    ("run", "agent"),
    [
        ("named", None),
        ("plain", "my_agents:solve"),
        ("plain", "my_agents.py:solve"),
        ("dispatched", "./my_agents.py:runtime"),
    ],
)
def test_a_run_is_carried_out_again(
    command: Command, study: Path, run: str, agent: str | None
) -> None:
    chosen = [] if agent is None else ["--agent", agent]
    real = command if agent == "my_agents:solve" else in_a_process
    done = real("replay", run, *chosen, cwd=study)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"ReplayReport('{run}': equal; ")
    assert ("thinking aloud" in done.stderr) is (run != "dispatched")
    found = sag_json(command, "replay", run, *chosen, "--strict", cwd=study)
    assert (found["ok"], found["divergence"], found["run"]) == (True, None, run)
    assert 0 < found["made"] < found["events"]


def test_a_continuation_is_carried_out_again_by_its_factory(command: Command, study: Path) -> None:
    """With the seed and change of its fork, to the limit of steps that stopped it."""
    run = continuation(study)
    found = sag_json(command, "replay", run, "--agent", "my_agents:coin", "--factory", cwd=study)
    assert found["ok"], found
    assert found["reused"] == 3
    done = command("replay", run, "--agent", "my_agents:coin", cwd=study)
    assert done.returncode == 1


def test_the_first_divergence_is_told(command: Command, study: Path) -> None:
    arguments = ("replay", "plain", "--agent", "my_agents:careless")
    done = command(*arguments, cwd=study)
    assert done.returncode == 1
    assert "event 5 of run 'plain'" in done.stdout
    assert "\n  $.observation\n- " in done.stdout
    assert "\x1b" not in done.stdout
    strict = command(*arguments, "--strict", cwd=study)
    assert (strict.returncode, strict.stdout) == (1, "")
    assert strict.stderr.splitlines()[-1].startswith("error: event 5 of run 'plain'")
    about = sag_json(command, *arguments, cwd=study)["divergence"]
    assert (about["position"], about["kind"], about["fields"]) == (5, "different", ["payload"])
    assert [change["path"] for change in about["changes"]] == ["$.observation"]
    assert about["recorded"]["payload"]["action"] == "date 0"
    assert about["replayed"]["payload"]["observation"].startswith("\x1b[31m<b>")


def test_an_agent_that_raises_is_a_divergence(command: Command, study: Path) -> None:
    done = command("replay", "plain", "--agent", "my_agents:raises", cwd=study)
    assert done.returncode == 1
    assert "the agent raised RuntimeError: lost its" in done.stdout
    assert "\x1b" not in done.stdout


def test_an_agent_that_ends_the_program_is_not_taken_for_equal(
    command: Command, study: Path
) -> None:
    done = command("replay", "plain", "--agent", "my_agents.py:leaves", cwd=study)
    assert (done.returncode, done.stdout) == (1, "")
    assert "was ended by its agent" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["plain"], "nothing says which agent made run 'plain'"),
        (["hostile"], "not imported unasked"),
        (["plain", "--agent", "my_agents"], "names no function"),
        (["plain", "--agent", "my_agents:"], "names no function"),
        (["plain", "--agent", "my_agents:a b"], "names no function"),
        (["plain", "--agent", "gone.py:solve"], "no file"),
        (["plain", "--agent", "my_agents:gone"], "has no 'gone'"),
        (["plain", "--agent", "no_such_module:x"], "No module named"),
        (["plain", "--agent", "broken:x"], "ZeroDivisionError"),
        (["plain", "--agent", "stops.py:x"], "it ends the program"),
        (["plain", "--agent", "words:ANSWER"], "nothing to replay the run with"),
        (["plain", "--agent", "my_agents:solve", "--factory"], "the factory made no agent"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_one_line(
    command: Command, study: Path, arguments: list[str], why: str
) -> None:
    done = command("replay", *arguments, cwd=study)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_stranger_cannot_name_what_is_imported(command: Command, tmp_path: Path) -> None:
    """Neither the file that a run was read from, nor a fork of that run, nor a record."""
    (tmp_path / "evil.py").write_text("print('imported')\n", encoding="utf-8")
    record = {"task_id": "t", "steps": [{"action": "ls"}], "config": {"entry_point": "evil:x"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(record), encoding="utf-8")
    with sag.open(tmp_path / "sag-workspace") as ws:
        ws.ingest(tmp_path / "a.jsonl", progress=False)
        (parent,) = [run.run_id for run in ws.store.runs()]
        added = ws.add(record | {"task_id": "u"})
        child = ws.fork(parent, at=1).run_id
        for run_id in (parent, child):  # as if something had been lived there
            ws.store.append(Event(run_id=run_id, type="effect.recorded", payload={"value": 1}))
        ws.store.create_run(Run(run_id="f", config={"entry_point": "evil.py:x"}))
        ws.store.append(Event(run_id="f", type="effect.recorded", payload={"value": 1}))
    for run in (parent, child, str(added), "f"):
        done = command("replay", run, cwd=tmp_path)
        assert done.returncode == 2
        assert "imported" not in done.stdout
        assert "--agent" in done.stderr


# ---- redact

SECRET = "swordfish " * 100


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    with sag.open(tmp_path / "sag-workspace") as ws:
        ws.store.create_run(Run(run_id="r"))
        payload = {"action": "cat .env", "observation": SECRET}
        ws.store.append(Event(run_id="r", type="agent.step", payload=payload))
        ws.sync()
    return tmp_path


def holds(command: Command, folder: Path) -> bool:
    """Whether log or warehouse can still give the secret."""
    shown: Any = command("steps", "r", "--json", cwd=folder).stdout
    shown += command("sql", "FROM steps", "--json", cwd=folder).stdout
    return "swordfish" in shown


def test_a_text_is_taken_out(command: Command, leaky: Path) -> None:
    assert holds(command, leaky)
    about = sag_json(
        command, "redact", "r", "--at", "2", "--reason", "a password", "--yes", cwd=leaky
    )
    assert about == {"run": "r", "position": 2, "reason": "a password", "removed": 1, "kept": 0}
    assert not holds(command, leaky)
    assert command("verify", cwd=leaky).returncode == 0
    again = command("redact", "r", "--at", "2", "--reason", "x", "--yes", cwd=leaky)
    assert again.returncode == 2
    assert "no body any more" in again.stderr


def test_nobody_to_ask_is_no_consent(command: Command, leaky: Path) -> None:
    done = command("redact", "r", "--at", "2", "--reason", "a password", cwd=leaky)
    assert done.returncode == 2
    assert "give --yes" in done.stderr
    assert holds(command, leaky)


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_on_a_terminal_it_asks(command: Command, leaky: Path, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    program = "from sag_research.cli import main; main()"
    arguments = ["redact", "r", "--at", "2", "--reason", "a password", "-w", "sag-workspace"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=leaky, stdin=theirs,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "Redact event 2 (agent.step) of run r?" in done.stderr + done.stdout
    assert holds(command, leaky) is (code != 0)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["r", "--at", "9", "--reason", "x"], "no position 9"),
        (["r", "--at", "0", "--reason", "x"], "0"),
        (["r", "--reason", "x"], "--at"),
        (["r", "--at", "2"], "--reason"),
        (["nobody", "--at", "2", "--reason", "x"], "no run 'nobody'"),
    ],
)
def test_what_cannot_be_redacted(
    command: Command, leaky: Path, arguments: list[str], why: str
) -> None:
    done = command("redact", *arguments, "--yes", cwd=leaky)
    assert done.returncode in (1, 2)
    assert why in done.stderr
    assert holds(command, leaky)


def test_the_names_of_a_fork_stay_on_one_line(command: Command, tmp_path: Path) -> None:
    with sag.open(tmp_path / "ws") as ws:
        ws.store.create_run(Run(run_id="a\nb\x1b[2J"))
    done = command("fork", "a", "-w", "ws", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "\x1b" not in done.stdout
