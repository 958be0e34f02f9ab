"""Runs that are carried on in a world taken back: by the old rules, with notes taken back, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from sag_research.errors import UsageError
from sag_research.lab.crates import CratesWorld
from sag_research.lab.export_job import (
    Careful,
    Chooser,
    ExportJobWorld,
    Report,
    Stochastic,
    Vices,
    carry_on,
    judge,
    lost_at,
    outcome,
    scenario_names,
)
from sag_research.lab.export_job.scripted import Notes
from sag_research.llm import Message, Model, Reply, Request, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome, Run
from sag_research.runtime import Agent, BacktrackPolicy, RunContext, backtrack
from tests.lab.export_job.support import JOB, Counted, answer, request_for, run_task, steps

QUICK: Final = tuple(name for name in scenario_names() if name != "timeout")
TIMEOUT: Final = 1.0
RETRY: Final = f'job_retry({{"jobId":"{JOB}"}})'
QUIT: Final = '{"status": "needs-human", "summary": "This looks hard.", "totalCents": null'


@pytest.fixture
def store() -> SQLiteEventStore:
    made = SQLiteEventStore(":memory:")
    made.create_run(Run(run_id="r", task_id="export-job-transient-0"))
    return made


@pytest.fixture(scope="module")
def world() -> Iterator[ExportJobWorld]:
    """One service for all tests of this file; each of them begins with a reset."""
    with ExportJobWorld() as made:
        yield made


class Quick(Careful):
    """Makes no turn that is not needed."""

    def decide(self, notes: Notes) -> Reply:
        found, status = super().decide(notes), notes.good("job_status")
        if status is not None and status["data"]["error"] == "E_SCHEMA":
            return self.hand_over(notes, "The column is missing.")
        if not found.calls or found.calls[0].name != "job_status":
            return found
        if (notes.good("job_retry") or {}).get("data", {}).get("state") == "completed":
            return self.deliver(notes)
        return found


def lived(
    store: SQLiteEventStore, world: ExportJobWorld, model: Model, run: str = "r", **more: Any
) -> Outcome:
    """Let a model go on with a run."""
    context = {name: more.pop(name) for name in ("change", "max_steps") if name in more}
    with RunContext(store, run, world=world, snapshots=True, **context) as ctx:
        said = carry_on(model, timeout=TIMEOUT, **more)(ctx)
    assert isinstance(said, Outcome)
    return said


def taken(store: SQLiteEventStore, run: str = "r") -> list[dict[str, Any]]:
    return [event.payload for event in store.read(run, types=("agent.step",))]


def forked(store: SQLiteEventStore, world: ExportJobWorld, step: int, run: str = "r~1") -> str:
    """Go back to where a step had been made, world and all."""
    event = list(store.read("r", types=("agent.step",)))[step]
    store.fork("r", at=event.position or 0, run_id=run)
    kept = [e.payload for e in store.read(run, types=("world.snapshot",))][-1]
    assert kept["steps"] == step + 1
    world.restore(kept["state"])
    return run


def posts(world: ExportJobWorld) -> int:
    return sum(method == "POST" for method, _ in world.requests)


# ---- the old rules


@pytest.mark.parametrize("scenario", QUICK)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_is_what_a_task_would_be(
    scenario: str, seed: int, world: ExportJobWorld, store: SQLiteEventStore, tmp_path: Path
) -> None:
    world.reset(scenario)
    report = run_task(tmp_path, Stochastic("restless", seed), request_for(world))
    assert isinstance(report, Report)
    said, requests = judge(world, report), world.requests
    world.reset(scenario)
    assert lived(store, world, Stochastic("restless", seed)) == said
    assert taken(store) == steps(tmp_path)
    assert world.requests == requests
    lost = lost_at(taken(store), scenario)
    assert (lost is None) == (said.outcome == "success")


def test_limits_and_mode_are_kept(world: ExportJobWorld, store: SQLiteEventStore) -> None:
    world.reset("transient")
    lived(store, world, Careful(), mode="inspect", max_actions=2)
    end = next(iter(store.read("r", types=("job.stopped",))))
    assert (end.payload["reason"], len(taken(store)), world.retries) == ("max-actions", 3, 0)
    assert "job_retry" not in str(taken(store))


def test_an_answer_with_the_last_step_is_verified(
    world: ExportJobWorld, store: SQLiteEventStore
) -> None:
    world.reset("completed")
    assert lived(store, world, Careful(), max_steps=3).outcome == "success"
    world.reset("completed")
    store.create_run(Run(run_id="short"))
    said = lived(store, world, Careful(), run="short", max_steps=2)
    assert said.detail == "wrong-ending: partial, max-steps"


def test_it_works_in_no_other_world(store: SQLiteEventStore) -> None:
    with (
        RunContext(store, "r", world=CratesWorld("easy-0")) as ctx,
        pytest.raises(UsageError, match="ExportJobWorld"),
    ):
        carry_on(Careful())(ctx)


# ---- going back


def test_the_effect_behind_the_fork_point_is_undone(
    world: ExportJobWorld, store: SQLiteEventStore
) -> None:
    world.reset("disconnect")
    assert lived(store, world, Careful()).outcome == "success"
    assert (world.retries, world.state, posts(world)) == (1, "completed", 1)
    run = forked(store, world, 2)  # state, log and handbook have been read
    assert (world.retries, world.state, posts(world)) == (0, "failed", 0)
    model = Counted()
    assert lived(store, world, model, run=run).outcome == "success"
    assert (world.retries, posts(world)) == (1, 1)
    own = store.get_run(run).fork_position
    made = [e.payload for e in store.read(run, own + 1, types=("agent.step",))]
    assert made == taken(store)[3:]
    assert len(model.asked) == len(made) == 4


def test_the_effect_before_the_fork_point_is_kept(
    world: ExportJobWorld, store: SQLiteEventStore
) -> None:
    world.reset("disconnect")
    lived(store, world, Careful())
    run = forked(store, world, 3)  # the retry has been asked for, and its reply was lost
    retry = Reply(text="Once more.", calls=taken_call(store, 3))
    assert lived(store, world, Counted(retry), run=run).outcome == "success"
    told = msgspec.json.decode(taken(store, run)[4]["observation"])
    assert told["data"] == {"effect": True, "jobId": JOB, "skipped": True, "state": "completed"}
    assert (world.retries, posts(world)) == (1, 1)


def taken_call(store: SQLiteEventStore, step: int) -> tuple[Any, ...]:
    from sag_research.llm import ToolCall

    call = taken(store)[step]["calls"][0]
    return (ToolCall(name=call["name"], arguments=call["arguments"], id="again"),)


def test_the_notes_behind_the_fork_point_are_gone(
    world: ExportJobWorld, store: SQLiteEventStore
) -> None:
    world.reset("transient")
    lived(store, world, Careful())
    file = msgspec.json.decode(taken(store)[5]["observation"])["evidence_id"]
    run = forked(store, world, 4)  # completed, and the file not fetched yet
    model = Counted(answer(evidenceIds=[file]))
    assert lived(store, world, model, run=run).outcome == "success"
    assert "was not found in this task" in model.asked[1].messages[-1].content
    assert [step["flags"] for step in taken(store, run)[5:]] == [["final"], [], ["final"]]


def test_what_was_used_of_the_limits_is_gone_back_to(
    world: ExportJobWorld, store: SQLiteEventStore
) -> None:
    world.reset("transient")
    assert lived(store, world, Careful(), max_actions=6).outcome == "success"
    assert lived(store, world, Careful(), run=forked(store, world, 3), max_actions=6).outcome == (
        "success"
    )
    run = forked(store, world, 3, run="r~2")
    said = lived(store, world, Careful(), run=run, max_actions=4)
    assert said.detail == "wrong-ending: partial, max-actions"


# ---- what it was told


TOLD: Final = f"From here, this was tried and led nowhere:\n- {QUIT}…\n- {RETRY}"


def test_feedback_is_a_message_where_the_run_went_on(
    world: ExportJobWorld, store: SQLiteEventStore
) -> None:
    world.reset("transient")
    lived(store, world, Careful())
    model = Counted()
    lived(store, world, model, run=forked(store, world, 2), change={"feedback": TOLD})
    for number, asked in enumerate(model.asked):
        at = 1 + 2 * 3  # behind the goal and three turns of two messages
        assert asked.messages[at].content == TOLD
        assert sum(message.content == TOLD for message in asked.messages) == 1
        assert len(asked.messages) == at + 1 + 2 * number
    model = Counted()
    change = {"avoid": [RETRY]}
    lived(store, world, model, run=forked(store, world, 2, run="r~2"), change=change)
    assert model.asked[0].messages[-1].content.endswith(f"led nowhere:\n- {RETRY}")


def conversation(*more: Message) -> Request:
    """What a policy sees that has read the state of a job that failed."""
    with ExportJobWorld() as made:
        store, model = SQLiteEventStore(":memory:"), Counted()
        store.create_run(Run(run_id="r"))
        lived(store, made, model, max_steps=2)
    asked = model.asked[1]
    return msgspec.structs.replace(asked, messages=(*asked.messages, *more))


def told(text: str) -> Message:
    return Message(role="user", name="monitor", content=text)


def share(policy: Callable[[int], Model], request: Request, status: str) -> float:
    replies = [policy(seed).complete(request) for seed in range(400)]
    return sum(not one.calls and status in (one.text or "") for one in replies) / len(replies)


def test_a_policy_heeds_what_it_is_told_with_some_chance() -> None:
    quitting = Vices(name="quitting", quit=0.5)
    plain, warned = conversation(), conversation(told(TOLD))
    other = conversation(told(f"From here, this was tried and led nowhere:\n- {RETRY}"))
    praised = conversation(told('2 successful runs did:\n+ job_logs({"jobId":"JOB-204"})'))
    for request, heed, expected in (
        (plain, 1.0, 0.5), (warned, 1.0, 0.0), (warned, 0.0, 0.5), (warned, 0.5, 0.25),
        (other, 1.0, 0.5), (praised, 1.0, 0.0),
    ):  # fmt: skip
        got = share(lambda s, heed=heed: Stochastic(quitting, s, heed=heed), request, "needs-human")  # type: ignore[misc]
        assert got == pytest.approx(expected, abs=0.08), (heed, expected)  # > 3 standard errors


def test_what_is_right_is_done_though_it_is_on_the_list() -> None:
    """A warning never shows the way, and never closes it."""
    upright = Vices(name="upright")
    logs = 'job_logs({"jobId":"JOB-204"})'
    request = conversation(told(f"From here, this was tried and led nowhere:\n- {logs}"))
    assert Stochastic(upright, 1, heed=1.0).complete(request).calls[0].name == "job_logs"


def test_heed_changes_nothing_where_nothing_was_told() -> None:
    request = conversation()
    for seed in range(50):
        calm, deaf = (Stochastic("restless", seed, heed=heed) for heed in (1.0, 0.0))
        assert calm.complete(request) == deaf.complete(request)


def test_feedback_after_a_refused_answer_is_no_refusal() -> None:
    request = conversation(told(TOLD))
    assert Stochastic(Vices(name="stiff", recover=0.0), 1).complete(request).calls
    refused = conversation(
        Message(role="assistant", content="Done!"), Message(role="user", content="no"), told(TOLD)
    )
    assert Stochastic(Vices(name="stiff", recover=0.0), 1).complete(refused).text == "Done!"


def test_a_chooser_is_shown_what_it_is_told() -> None:
    class Scores(Scripted):
        def complete(self, request: Request) -> Reply:
            self.requests.append(request)
            return Reply(text=" logs", scores=dict.fromkeys(request.choices, 1.0))

    model = Scores([], name="scores")
    Chooser(model).complete(conversation(told(TOLD)))
    prompt = model.requests[0].messages[0].content
    assert prompt.endswith("\n(From here, this was tried and led nowhere: / human / retry)\n>")


# ---- backtracking


class Said(NamedTuple):
    risk: float
    low: float
    high: float
    alarm: bool
    evidence: str


class Oracle:
    """Knows with which step a run is lost."""

    def __init__(self, scenario: str) -> None:
        self.tokens_: list[str] = []
        self.verdicts_: list[Said] = []
        self.alarm_at_: int | None = None
        self._scenario, self._seen = scenario, list[Any]()

    def observe(self, step: Mapping[str, Any], /) -> Said:
        self._seen.append(step)
        self.tokens_.append("call|job|ok")
        lost = lost_at(self._seen, self._scenario) is not None
        if lost and self.alarm_at_ is None:
            self.alarm_at_ = len(self._seen)
        said = Said(0.9 if lost else 0.1, 0.0, 1.0, self.alarm_at_ is not None, "the world says so")
        self.verdicts_.append(said)
        return said


def gone_back(
    store: SQLiteEventStore, scenario: str, vices: Vices | str, seed: int, **rules: Any
) -> Any:
    def agent(change: Mapping[str, Any], own: int) -> Agent:
        return carry_on(Stochastic(vices, own), timeout=TIMEOUT)

    return backtrack(
        store, "r", agent_factory=agent, watch=lambda: Oracle(scenario), seed=seed,
        world_factory=lambda run: ExportJobWorld(scenario), outcome=outcome,
        policy=BacktrackPolicy(**{"max_backtracks": 8, "max_steps": 60, **rules}),
    )  # fmt: skip


def test_a_lost_run_is_taken_back_until_it_succeeds(store: SQLiteEventStore) -> None:
    found = gone_back(store, "hostile", Vices(name="weak", quit=0.3, gullible=0.4), seed=4)
    assert found.outcome == "success"
    assert len(found.runs) > 1
    for left in found.runs[:-1]:
        at = lost_at(taken(store, left), "hostile")
        assert at == len(taken(store, left)) - 1
    assert lost_at(taken(store, found.runs[-1]), "hostile") is None
    assert store.verify().ok


def test_a_run_that_is_aborted_is_judged_as_it_stands(store: SQLiteEventStore) -> None:
    found = gone_back(store, "transient", Vices(name="weak", quit=0.9), seed=4, then="abort")
    assert found.outcome == "failure"
    assert len(found.runs) == 1


SEED: Final = 2  # taken back twice


class Died(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("write", range(3, 57, 6))
def test_a_run_that_dies_at_any_write_ends_as_if_it_had_not(
    write: int, store: SQLiteEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    vices = Vices(name="weak", quit=0.35)
    whole = SQLiteEventStore(":memory:")
    whole.create_run(Run(run_id="r", task_id="export-job-transient-0"))
    expected = gone_back(whole, "disconnect", vices, seed=SEED)
    left = [write]
    plain = SQLiteEventStore.append_many

    def dying(self: SQLiteEventStore, *args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise Died
        return plain(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteEventStore, "append_many", dying)
        with pytest.raises(Died):
            gone_back(store, "disconnect", vices, seed=SEED)
    found = gone_back(store, "disconnect", vices, seed=SEED)
    assert (found.outcome, found.runs, found.steps) == (
        expected.outcome, expected.runs, expected.steps,
    )  # fmt: skip
    assert len(found.runs) > 1
    for run in found.runs:
        assert taken(store, run) == taken(whole, run)
    state = [e.payload["state"] for e in store.read(found.runs[-1], types=("world.snapshot",))][-1]
    assert state["tables"]["jobs"][0][7] == 1  # the effect, once


# ---- the truth


@pytest.mark.parametrize("scenario", ["transient", "permanent", "completed", "hostile"])
def test_a_run_is_lost_with_the_step_from_which_nothing_is_won(
    scenario: str, world: ExportJobWorld
) -> None:
    """Forked before that step, a good agent still wins; forked behind it, it cannot."""
    vices = Vices(name="weak", quit=0.1, loop=0.2, haste=0.3, uncited=0.5, recover=0.0)
    before, behind = set[str](), set[str]()
    for seed in range(8):
        store = SQLiteEventStore(":memory:")
        store.create_run(Run(run_id="r"))
        world.reset(scenario)
        said = lived(store, world, Stochastic(vices, seed))
        lost = lost_at(taken(store), scenario)
        assert (lost is None) == (said.outcome == "success")
        if lost is None:
            continue
        behind.add(lived(store, world, Quick(), run=forked(store, world, lost)).outcome)
        if lost > 0:
            run = forked(store, world, lost - 1, run="r~2")
            before.add(lived(store, world, Quick(), run=run).outcome)
    assert before == {"success"}
    assert behind == {"failure"}
