"""Models that go on with any conversation, what they make of feedback, and what the world knows."""

from __future__ import annotations

from typing import Any

import pytest

from sag_research.errors import MissingDataError, UsageError
from sag_research.lab.bugfix import (
    BugfixWorld,
    LocalFixer,
    ScriptedFixer,
    carry_on,
    load_task,
    lost_at,
    render,
    task_ids,
    trapped_at,
)
from sag_research.llm import Identity, Message, Reply, Request, ToolCall
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Run
from sag_research.runtime import Agent, BacktrackPolicy, RuleWatch, RunContext, backtrack

TASK = load_task("acme__billing-104")
FIX, DECOY = TASK.fix[0], TASK.decoy[0]


def edit(one: Any) -> dict[str, Any]:
    return {"command": "str_replace", "path": f"/repo/{one.file}",
            "old_str": one.old, "new_str": one.new}  # fmt: skip


class Told:
    """A model that does what it was told beforehand."""

    def __init__(self, *calls: tuple[str, dict[str, Any]] | None) -> None:
        self.calls, self.asked = list(calls), list[Request]()

    def identity(self) -> Identity:
        return Identity(provider="test", model="told")

    def complete(self, request: Request) -> Reply:
        self.asked.append(request)
        call = self.calls.pop(0)
        made = () if call is None else (ToolCall(id="c", name=call[0], arguments=call[1]),)
        return Reply(text="so", calls=made)

    def stream(self, request: Request) -> Any:
        raise NotImplementedError


def lived(model: Any, **more: Any) -> tuple[Any, list[dict[str, Any]], str]:
    with SQLiteEventStore(":memory:") as store, BugfixWorld(TASK, remember=True) as world:
        store.create_run(Run(run_id="r", task_id=TASK.task_id))
        with RunContext(store, "r", world=world, **{"max_steps": 40, **more}) as ctx:
            said = carry_on(model)(ctx)
            return said, [event.payload for event in ctx.steps()], ctx.exit_status


TEST = ("bash", {"command": "python -m pytest -q"})
SUBMIT = ("submit", dict[str, Any]())


def test_success_is_the_held_out_tests_word_alone() -> None:
    good, steps, ending = lived(Told(("str_replace_editor", edit(FIX)), SUBMIT))
    assert (good.outcome, good.detail, ending) == ("success", "resolved", "submitted")
    assert trapped_at(steps) is None
    bad, steps, _ = lived(Told(("str_replace_editor", edit(DECOY)), TEST, SUBMIT))
    assert (bad.outcome, bad.detail) == ("failure", "tests_failed")
    assert lost_at(steps) == 2
    empty, steps, _ = lived(Told(SUBMIT))
    assert (empty.outcome, empty.detail, lost_at(steps)) == ("failure", "empty", 0)


def test_a_trap_is_known_from_the_edit_on_and_can_be_left() -> None:
    back = ("bash", {"command": f"git checkout -- {DECOY.file}"})
    _, steps, _ = lived(
        Told(TEST, ("str_replace_editor", edit(DECOY)), TEST, back, TEST), max_steps=5
    )
    assert steps[2]["calls"][0]["status"] == "ok"  # the agent's own tests pass
    assert [trapped_at(steps[:n]) for n in range(6)] == [None, None, 1, 1, None, None]
    assert lost_at(steps) is None
    with pytest.raises(MissingDataError):
        trapped_at([{"calls": []}])


def test_malformed_calls_and_silence_end_honestly() -> None:
    said, steps, ending = lived(
        Told(("bash", {}), ("dance", {"x": 1}), ("str_replace_editor", {"command": "view"}),
             None, None, None)
    )  # fmt: skip
    assert (said.outcome, ending, len(steps)) == ("failure", "exit_format", 6)
    assert [call["status"] for step in steps[:2] for call in step["calls"]] == ["error", "error"]


def test_only_in_the_world_of_bugs_and_on_known_tasks() -> None:
    with SQLiteEventStore(":memory:") as store:
        store.create_run(Run(run_id="r"))
        with RunContext(store, "r") as ctx, pytest.raises(UsageError):
            carry_on(ScriptedFixer("scripted-a"))(ctx)
    with pytest.raises(MissingDataError):
        ScriptedFixer("scripted-a").complete(Request(messages=(Message(role="user"),)))


def asked(*feedback: str) -> Request:
    """A conversation in which the file of the decoy was just read."""
    with BugfixWorld(TASK) as world:
        shown = world.act(f"cat {DECOY.file}").text
    call = ToolCall(id="c1", name="bash", arguments={"command": f"cat {DECOY.file}"})
    return Request(
        messages=(
            Message(role="user", content=TASK.problem),
            *(Message(role="user", content=one) for one in feedback),
            Message(role="assistant", calls=(call,)),
            Message(role="tool", content=shown, call_id="c1", name="bash"),
        )
    )


def chosen(request: Request, heed: float) -> list[str]:
    replies = [
        ScriptedFixer("scripted-c", seed, heed=heed).complete(request) for seed in range(300)
    ]
    return [render(c.name, c.arguments) for reply in replies for c in reply.calls]


def test_what_was_in_vain_is_avoided_as_often_as_it_is_heeded_and_nothing_is_learnt() -> None:
    decoys = [one for one in TASK.decoy if one.file == DECOY.file]
    vain = "\n".join(f"- {render('str_replace_editor', edit(one))}" for one in decoys)

    def edits(request: Request, heed: float) -> int:
        return sum("str_replace" in one or "sed -i" in one for one in chosen(request, heed)
                   if "view" not in one)  # fmt: skip

    plain, told = asked(), asked("This was tried:\n" + vain)
    assert edits(plain, 1.0) > 40
    assert edits(told, 1.0) <= 10  # mistyped or not, it is not made; the repair is elsewhere
    assert edits(told, 0.0) > 40
    assert edits(asked("This was tried:\n- cat nothing.py"), 1.0) > 40


def test_what_others_did_comes_first() -> None:
    line = render("str_replace_editor", edit(DECOY))
    picked = chosen(asked(f"Others did:\n+ {line}"), 1.0)
    assert sum(DECOY.new in one or "sed -i" in one for one in picked) > 250


def test_the_same_question_has_the_same_answer() -> None:
    request = asked()
    one, two = (ScriptedFixer("scripted-b", 3).complete(request) for _ in range(2))
    assert one == two
    assert one.usage is not None
    assert (one.usage.tokens_in or 0) > 0
    assert len({ScriptedFixer("scripted-b", n).complete(request).text for n in range(20)}) > 3


def test_a_run_is_taken_back_and_hears_what_was_in_vain() -> None:
    def agent(change: Any, seed: int) -> Agent:
        return carry_on(ScriptedFixer("scripted-c", seed, heed=1.0))

    outcomes = []
    for task in task_ids()[:2]:
        with SQLiteEventStore(":memory:") as store:
            store.create_run(Run(run_id="r", task_id=task))
            found = backtrack(
                store, "r", agent_factory=agent, seed=1,
                watch=lambda: RuleWatch(lambda steps: trapped_at(steps) is not None),
                world_factory=lambda run: BugfixWorld(str(run.task_id), remember=True),
                policy=BacktrackPolicy(max_backtracks=4, max_steps=80),
            )  # fmt: skip
            assert found.steps <= 80
            outcomes.append((found.outcome, len(found.runs)))
            assert store.verify().ok
    assert any(runs > 1 for _, runs in outcomes)
    assert {name for name, _ in outcomes} <= {"success", "failure"}


class Scorer:
    """Answers choices evenly, and writes nonsense."""

    def identity(self) -> Identity:
        return Identity(provider="test", model="scorer")

    def complete(self, request: Request) -> Reply:
        if request.choices:
            scores = {choice: 1 / len(request.choices) for choice in request.choices}
            return Reply(text=request.choices[0], scores=scores)
        return Reply(text="return None\nmore")

    def stream(self, request: Request) -> Any:
        raise NotImplementedError


def test_a_local_model_lives_real_turns_with_the_same_tools() -> None:
    endings = set()
    for seed in range(6):
        said, steps, ending = lived(LocalFixer(Scorer(), seed=seed), max_steps=12)
        assert isinstance(said, Outcome)
        assert said.outcome == "failure"
        assert all(call["name"] in ("bash", "str_replace_editor", "submit")
                   for step in steps for call in step["calls"])  # fmt: skip
        endings |= {ending, *("edit" for s in steps if "str_replace " in s["action"])}
    assert {"submitted", "edit"} <= endings
