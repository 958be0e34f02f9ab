"""What the runtime asks of agents and of the worlds they act in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from sag_research.model import Outcome, OutcomeName, Run

if TYPE_CHECKING:
    from sag_research.runtime._experiment_context import RunContext

__all__ = ["ActingWorld", "Agent", "AgentFactory", "OutcomeOf", "Said", "World", "WorldFactory"]


@runtime_checkable
class World(Protocol):
    """Where an agent acts, and which can be taken back to an earlier state."""

    def snapshot(self) -> Any:
        """Return the whole state as plain JSON data."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Make the state exactly what it was when the snapshot was taken."""
        ...

    def close(self) -> None:
        """Give back what the world holds; closing twice does nothing."""
        ...


@runtime_checkable
class ActingWorld(World, Protocol):
    """A world that also executes an action given as text, so that a run can be replayed in it."""

    def act(self, action: str) -> Any:
        """Execute an action; the observation is the result itself, or its attribute ``text``."""
        ...


Said: TypeAlias = Outcome | OutcomeName | bool | None
"""An outcome as people say it; ``None`` is unknown."""


class Agent(Protocol):
    """Carries on with a run until it is done; whatever callable does that is one."""

    def __call__(self, ctx: RunContext, /) -> Said:
        """Work, writing every turn with ``ctx.step(…)``; may say how it went."""
        ...


AgentFactory: TypeAlias = Callable[[Mapping[str, Any], int], Agent]
"""``factory(change, seed)`` makes the agent of one continuation."""

WorldFactory: TypeAlias = Callable[[Run], World]
"""``factory(run)`` makes a fresh world of the run's task."""

OutcomeOf: TypeAlias = "Callable[[RunContext], Said]"
"""``outcome(ctx)`` judges a finished continuation, e.g. by the state of ``ctx.world``."""
