"""What the laboratory is to play, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec

from sag_research._text import atomic_write
from sag_research.errors import MissingDataError, SagError, UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome

__all__ = [
    "Assignment", "Play", "Played", "assignments", "keep_assignment", "kept_assignment",
]  # fmt: skip

_KEPT = "assignment.json"


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One run to be played.

    Attributes
    ----------
    world, scenario : str
    variant : int
        Which of the world's tasks of this scenario.
    policy : str
        Who decides.
    seed : int
        Of the policy's chance.
    attempt : int
        Number of the run among those of the same task and policy, from 1 on.
    again : int
        How often it was begun before and cut off.
    """

    world: str
    scenario: str
    policy: str
    seed: int
    variant: int = 0
    attempt: int = 1
    again: int = 0

    @property
    def task_id(self) -> str:
        """The group key: scenario and variant."""
        return f"{self.world}-{self.scenario}-{self.variant}"

    @property
    def run_id(self) -> str:
        """Id of the run; the same assignment has the same."""
        again = f".again-{self.again}" if self.again else ""
        name = f"{self.task_id}.{self.policy}.{self.attempt}.s{self.seed}{again}"
        return name.replace(":", "_")


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, and what the world says of it."""

    outcome: Outcome
    ending: str


def keep_assignment(directory: Path, assignment: Assignment) -> None:
    """Write down in a run's directory which run it is; see :func:`kept_assignment`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with atomic_write(directory / _KEPT) as file:
            file.write(msgspec.json.encode(assignment))
    except OSError as error:
        why = error.strerror or str(error)
        raise SagError(f"{directory} cannot keep a run", why=why) from None


def kept_assignment(directory: Path) -> Assignment | None:
    """Return the run that a directory keeps, ``None`` where it keeps none.

    Raises
    ------
    SagError
        If what is kept cannot be read.
    """
    path = directory / _KEPT
    try:
        return msgspec.json.decode(path.read_bytes(), type=Assignment)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SagError(f"{path} names no run", why=str(error)) from None


class Play(Protocol):
    """A world that the laboratory can play."""

    name: str
    variants: int

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Names of what can be played."""
        ...

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of who plays where nobody is named."""
        ...

    @property
    def more_policies(self) -> tuple[str, ...]:
        """Names of who can play, too, if asked for by name."""
        ...

    def play(self, store: SQLiteEventStore, assignment: Assignment, **options: Any) -> Played:
        """Run one assignment and judge it."""
        ...

    def close(self) -> None:
        """Give back what the world holds."""
        ...


def assignments(
    world: Play,
    n: int,
    *,
    seed: int = 7,
    scenarios: Sequence[str] = (),
    policies: Sequence[str] = (),
) -> list[Assignment]:
    """Spread a number of runs evenly over tasks and policies.

    Parameters
    ----------
    world : Play
    n : int
        Runs.
    seed : int
        The same seed gives the same assignments; a longer list begins with a shorter one.
    scenarios, policies : sequence of str
        Default: all scenarios, and :attr:`Play.policies`.

    Raises
    ------
    MissingDataError
        If one of them is unknown.
    """
    if n < 1:
        raise UsageError(f"{n} runs cannot be played", fix="ask for at least 1")
    chosen = _known("scenario", scenarios or world.scenarios, world.scenarios)
    can_play = (*world.policies, *world.more_policies)
    playing = _known("policy", policies or world.policies, can_play)
    tasks = [(name, variant) for variant in range(world.variants) for name in chosen]
    made = []
    for number in range(n):
        turn, who = divmod(number, len(playing))
        attempt, which = divmod(turn, len(tasks))
        scenario, variant = tasks[which]
        own = Random(f"{seed} {scenario} {variant} {playing[who]} {attempt}").randrange(10**6)
        made.append(
            Assignment(
                world=world.name, scenario=scenario, variant=variant, policy=playing[who],
                seed=own, attempt=attempt + 1,
            )
        )  # fmt: skip
    return made


def _known(what: str, asked: Sequence[str], known: Sequence[str]) -> list[str]:
    if strange := [name for name in asked if name not in known]:
        raise MissingDataError(f"no {what} {strange[0]!r}", fix=f"choose of {', '.join(known)}")
    return list(dict.fromkeys(asked))
