"""Scripted models read what they see, repeat themselves exactly, and can be resumed."""

from __future__ import annotations

import pytest

from sag_research.errors import MissingDataError
from sag_research.lab.bugfix import (
    BugfixWorld,
    Episode,
    Observation,
    ScriptedPolicy,
    load_task,
    profile,
    profile_names,
    run_episode,
)
from sag_research.lab.bugfix._memory import Memory

TASK = load_task("acme__billing-104")


def play(model: str, seed: int, max_steps: int = 40) -> Episode:
    with BugfixWorld(TASK) as world:
        return run_episode(world, ScriptedPolicy(TASK, model, seed), max_steps=max_steps)


def test_same_seed_same_run_other_seed_other_run() -> None:
    first = play("scripted-b", 5, max_steps=8)
    assert play("scripted-b", 5, max_steps=8) == first
    assert play("scripted-b", 6, max_steps=8).steps != first.steps


def test_resume_from_observations() -> None:
    episode = play("scripted-a", 2, max_steps=6)
    observations = [Observation(step.observation, 0) for step in episode.steps[:4]]
    again = ScriptedPolicy(TASK, "scripted-a", 2)
    turns = [again.act(None), *(again.act(seen) for seen in observations)]
    assert turns == [step.turn for step in episode.steps[:5]]


def test_reseeding_takes_another_way() -> None:
    def after(seed: int | None) -> list[object]:
        with BugfixWorld(TASK) as world:
            policy = ScriptedPolicy(TASK, "scripted-c", 11)
            turn = policy.act(None)
            assert turn is not None
            seen = world.call(turn.name, turn.arguments)
            if seed is not None:
                policy.reseed(seed)
            return [policy.act(seen)]

    assert after(None) == after(None)
    assert any(after(seed) != after(None) for seed in range(5))


def test_edits_only_what_it_has_seen() -> None:
    """A model that is shown nothing changes nothing, however gifted it is."""
    for seed in range(5):
        policy = ScriptedPolicy(TASK, "scripted-a", seed)
        turn = policy.act(None)
        for _ in range(30):
            if turn is None:
                break
            assert turn.arguments.get("command") != "str_replace"
            assert "sed -i" not in str(turn.arguments)
            turn = policy.act(Observation("", 0))


def test_memory_reads_tracebacks() -> None:
    memory = Memory("a problem")
    text = (
        "tests/test_core.py:18: in test_import_net\n    x\n"
        "billing/core.py:32: in net\n    y\nE   TypeError: no\n"
        "FAILED tests/test_core.py::test_import_net - TypeError: no\n"
    )
    memory.read("bash", {"command": "python -m pytest -q"}, Observation(text, 1))
    assert memory.trace == ["billing/core.py"]
    assert (memory.failing, memory.error) == ("test_import_net", "TypeError")
    assert not memory.passing


@pytest.mark.parametrize("listing", ["ls -R", "find . -name '*.py'", "find /repo -type f"])
def test_memory_reads_listings(listing: str) -> None:
    memory = Memory("a problem")
    with BugfixWorld(TASK) as world:
        memory.read("bash", {"command": listing}, world.act(listing))
    heard = {name for name in memory.heard if name.endswith(".py")}
    assert heard == {name for name in TASK.files() if name.endswith(".py")}


def test_stops_at_the_call_limit_and_counts_its_cost() -> None:
    episode = play("scripted-a", 2, max_steps=3)
    assert len(episode.steps) == 3
    assert episode.exit_status == "exit_cost"
    assert episode.submission is None
    assert episode.stats["api_calls"] == 3
    assert 0 < episode.stats["instance_cost"] < profile("scripted-a").cost_limit


def test_profiles_differ_in_every_vice() -> None:
    careful, hasty, weak = (profile(name) for name in profile_names())
    assert careful.insight > weak.insight
    assert hasty.haste > careful.haste
    assert weak.loop > careful.loop
    with pytest.raises(MissingDataError):
        profile("scripted-z")
