"""One run of a scripted model in the world, from the first turn to the verdict."""

from __future__ import annotations

from random import Random

import msgspec

from sag_research.lab.bugfix.policy import Profile, ScriptedPolicy, Turn
from sag_research.lab.bugfix.world import BugfixWorld, Verdict, render

__all__ = ["MAX_STEPS", "Episode", "Step", "run_episode"]

MAX_STEPS = 40
SYSTEM = "You repair bugs in Python repositories with the tools you are given."
NO_ACTION = "Your reply held no action. Reply with one thought and one action.\n"
_AUTOSUBMIT = 0.6
_CHARACTERS_PER_TOKEN = 4


class Step(msgspec.Struct, frozen=True):
    """One turn and what came of it; ``state`` is that after the action."""

    turn: Turn
    action: str
    observation: str
    state: dict[str, str]


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run.

    Attributes
    ----------
    task_id, model : str
    steps : tuple of Step
    exit_status : str
        Why the run stopped, in SWE-agent's words; says nothing about the outcome.
    submission : str or None
        The final patch, if one was handed in.
    stats : dict
        ``instance_cost`` (US dollars), ``tokens_sent``, ``tokens_received``, ``api_calls``;
        counted from text lengths, four characters to a token.
    verdict : Verdict
        Result of the held-out test in the final tree.
    """

    task_id: str
    model: str
    steps: tuple[Step, ...]
    exit_status: str
    submission: str | None
    stats: dict[str, float]
    verdict: Verdict


class _Meter:
    """Counts tokens and dollars; every call sends the whole conversation again."""

    def __init__(self, traits: Profile, problem: str) -> None:
        self.traits = traits
        self.context = len(SYSTEM) + len(problem)
        self.sent = self.received = self.calls = 0

    def add(self, reply: str, observation: str) -> None:
        self.sent += self.context // _CHARACTERS_PER_TOKEN
        self.received += max(1, len(reply) // _CHARACTERS_PER_TOKEN)
        self.calls += 1
        self.context += len(reply) + len(observation)

    @property
    def cost(self) -> float:
        money = self.sent * self.traits.price_in + self.received * self.traits.price_out
        return round(money / 1e6, 6)

    def stats(self) -> dict[str, float]:
        return {
            "instance_cost": self.cost,
            "tokens_sent": self.sent,
            "tokens_received": self.received,
            "api_calls": self.calls,
        }


def run_episode(
    world: BugfixWorld, policy: ScriptedPolicy, *, seed: int = 0, max_steps: int = MAX_STEPS
) -> Episode:
    """Let a model work until it submits, stops, or is stopped.

    Parameters
    ----------
    world : BugfixWorld
        Fresh, of the policy's task.
    policy : ScriptedPolicy
    seed : int
        Decides whether an interrupted run's patch could still be collected.
    max_steps : int
        Calls of the model allowed; more end the run as a cost limit does.

    Returns
    -------
    Episode
    """
    meter, steps = _Meter(policy.traits, world.task.problem), list[Step]()
    reason = _loop(world, policy, meter, steps, max_steps)
    diff = world.diff()
    if reason != "submitted":
        collected = bool(diff) and Random(f"{seed} exit").random() < _AUTOSUBMIT
        reason = f"submitted ({reason})" if collected else reason
    return Episode(
        task_id=world.task.task_id,
        model=policy.traits.name,
        steps=tuple(steps),
        exit_status=reason,
        submission=diff if reason.startswith("submitted") else None,
        stats=meter.stats(),
        verdict=world.evaluate(),
    )


def _loop(
    world: BugfixWorld, policy: ScriptedPolicy, meter: _Meter, steps: list[Step], limit: int
) -> str:
    observation, empty = None, 0
    while True:
        turn = policy.act(observation)
        if turn is None:
            return "exit_forfeit"
        action = render(turn.name, turn.arguments) if turn.name else ""
        empty = 0 if turn.name else empty + 1
        result = world.call(turn.name, turn.arguments) if turn.name else None
        text = result.text if result else NO_ACTION
        steps.append(Step(turn, action, text, world.state))
        meter.add(turn.thought + action, text)
        if result and result.done:
            return "submitted"
        if empty == 3:
            return "exit_format"
        if meter.cost > policy.traits.cost_limit or meter.calls >= limit:
            return "exit_cost"
        observation = result
