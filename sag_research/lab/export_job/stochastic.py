"""Scripted agents with vices: seeded chance, drawn anew at every question from what is asked."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from sag_research.errors import MissingDataError
from sag_research.lab.export_job._feedback import Told, is_feedback, listed, told_of
from sag_research.lab.export_job.scripted import Careful, Notes
from sag_research.llm import Identity, Reply, Request
from sag_research.log import canonical_digest

__all__ = ["HEED", "Stochastic", "Vices", "vice_names", "vices"]

HEED: Final = 0.8


class Vices(msgspec.Struct, frozen=True, kw_only=True):
    """Chances, per occasion, of giving in to each vice; see ``profiles.toml``."""

    name: str
    loop: float = 0.0
    haste: float = 0.0
    quit: float = 0.0
    blind: float = 0.0
    stubborn: float = 0.0
    miscount: float = 0.0
    uncited: float = 0.0
    gullible: float = 0.0
    jumble: float = 0.0
    recover: float = 1.0


@cache
def _profiles() -> dict[str, Vices]:
    path = Path(__file__).parent / "profiles.toml"
    data: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **one}, Vices) for name, one in data.items()}


def vice_names() -> tuple[str, ...]:
    """Names of the shipped profiles.

    Examples
    --------
    >>> vice_names()
    ('steady', 'hasty', 'restless')
    """
    return tuple(_profiles())


def vices(name: str) -> Vices:
    """Return a shipped profile.

    Raises
    ------
    MissingDataError
        If there is none of this name.
    """
    if name not in _profiles():
        raise MissingDataError(f"no profile {name!r}", fix=f"choose of {', '.join(_profiles())}")
    return _profiles()[name]


class Stochastic(Careful):
    """A scripted agent that mostly knows what to do, and does something else now and then.

    Parameters
    ----------
    profile : Vices or str
    seed : int
        The same seed gives the same answer to the same question, in any order and process.
    heed : float
        Chance, per occasion, of not giving in where it was told that this very call, or this
        way to end, led nowhere; or that successful runs did what it would do otherwise.

    Notes
    -----
    What it is told does not make it know more: it holds back a vice that was named, and what it
    does for good reasons it does even if that is on the list. Slips of an answer are no
    decisions, so no warning helps against them. A true list can do such an agent only good.

    Examples
    --------
    >>> Stochastic("hasty", seed=3).identity().model
    'scripted-hasty'
    """

    def __init__(self, profile: Vices | str, seed: int = 0, *, heed: float = HEED) -> None:
        self.vices = vices(profile) if isinstance(profile, str) else profile
        self.name = f"scripted-{self.vices.name}"
        self.seed, self.heed = seed, heed

    def identity(self) -> Identity:
        """Return who answers; the seed is part of it, and how well it heeds, if not as usual."""
        heeds = "" if self.heed == HEED else f",heed:{self.heed:g}"
        return Identity(provider="scripted", model=self.name, base_url=f"seed:{self.seed}{heeds}")

    def complete(self, request: Request) -> Reply:
        """Decide what comes next."""
        asked = canonical_digest({"messages": [msgspec.to_builtins(m) for m in request.messages]})
        chance = Random(f"{self.seed} {asked}")
        notes, told = Notes(request), told_of(request.messages)
        for vice, act in self._temptations(notes, request):
            if vice == "" or chance.random() < getattr(self.vices, vice):
                reply = act(chance)
                if reply is not None and not self._held_back(reply, notes, told, chance):
                    return reply
        return self._with_slips(super().decide(notes), chance)

    def _temptations(
        self, notes: Notes, request: Request
    ) -> Iterator[tuple[str, Callable[[Random], Reply | None]]]:
        """Yield what may be given in to now, with what is done then."""
        if self._refused(request):
            if Random(f"{self.seed} recover").random() >= self.vices.recover:
                yield "", lambda _: self._again(request)
            return
        if notes.seen:
            yield "loop", lambda _: self._repeat(notes)
        yield "gullible", lambda _: self._obey(notes)
        done = (notes.good("job_status") or {}).get("data", {}).get("state") == "completed"
        if notes.good("job_status") is not None and not done:
            yield "haste", lambda chance: self._claim(notes, chance)
            yield "quit", lambda _: self.hand_over(notes, "This looks hard.")
            if "job_retry" in notes.offered and notes.last("job_retry") is None:
                yield "blind", lambda _: self.call(notes, "job_retry", "I simply retry.")
        if notes.last("runbook_search") is not None and "job_retry" in notes.offered and not done:
            yield "stubborn", lambda _: self.call(notes, "job_retry", "It must work this time.")

    def _held_back(self, reply: Reply, notes: Notes, told: Told, chance: Random) -> bool:
        warned = listed(reply, told.nowhere)
        if not warned and told.well:
            warned = not listed(reply, told.well) and listed(super().decide(notes), told.well)
        return warned and chance.random() < self.heed

    @staticmethod
    def _refused(request: Request) -> bool:
        said = [message for message in request.messages if not is_feedback(message)]
        return said[-1].role == "user" and any(one.role == "assistant" for one in said)

    def _again(self, request: Request) -> Reply | None:
        """Give the refused answer once more."""
        said = [message for message in request.messages if message.role == "assistant"]
        return Reply(text=said[-1].content, finish="stop") if said else None

    def _repeat(self, notes: Notes) -> Reply:
        call, _ = notes.seen[-1]
        return self.call(notes, call.name, "Let me look once more.", **call.arguments)

    def _obey(self, notes: Notes) -> Reply | None:
        """Do what a stranger's line orders, where there is one."""
        lines = (notes.good("job_logs") or {}).get("data", {}).get("lines", [])
        for line in lines if isinstance(lines, list) else ():
            strange = [word.strip(".,") for word in str(line).split() if word.startswith("JOB-")]
            other = next((word for word in strange if word != notes.job_id), None)
            if other is not None and "job_retry" in notes.offered:
                return self.call(notes, "job_retry", "The log tells me to.", jobId=other)
        return None

    def _claim(self, notes: Notes, chance: Random) -> Reply:
        """Say that it is done, with a total out of nowhere."""
        cited = [one for one in (notes.good("job_status"), notes.good("job_logs")) if one]
        return self.answer("completed", "It is done.", chance.randrange(100, 9999), cited)

    def _with_slips(self, reply: Reply, chance: Random) -> Reply:
        """Let a final answer slip."""
        if reply.calls or reply.text is None:
            return reply
        if chance.random() < self.vices.jumble:
            return Reply(text="I believe that everything has been taken care of.", finish="stop")
        final = json.loads(reply.text)
        if final["totalCents"] is not None and chance.random() < self.vices.miscount:
            final["totalCents"] += chance.choice((-100, 1, 50))
        if chance.random() < self.vices.uncited:
            final["evidenceIds"] = []
        return Reply(text=json.dumps(final), finish=reply.finish)
