"""Monitors to compare a real one with: a rule that knows, and chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sag_research.errors import UsageError

if TYPE_CHECKING:
    from sag_research.extract import Vocabulary

__all__ = ["RandomWatch", "RuleWatch"]

_WHOLE: Final = 2**64


class _Says(NamedTuple):
    risk: float
    low: float
    high: float
    alarm: bool
    evidence: str


@cache
def _shipped() -> Vocabulary:
    from sag_research.extract import Vocabulary

    return Vocabulary()


class RuleWatch:
    """Raises the alarm where a rule about the steps so far holds, e.g. what a world knows.

    Its risk is 1 while the rule holds and 0 else, and so are the bounds.

    Parameters
    ----------
    rule : callable
        ``rule(steps)`` is asked after each step about all of them, mappings with ``thought``,
        ``action`` and ``observation``; true: the run is lost.
    evidence : str
        What is written down as the reason.
    vocabulary : Vocabulary, optional
        What makes tokens of steps.

    Attributes
    ----------
    alarm_at_ : int or None
        After how many steps the alarm was raised.
    verdicts_ : list
    tokens_ : list of str

    Examples
    --------
    >>> watch = RuleWatch(lambda steps: len(steps) > 1, "it is late")
    >>> [watch.observe({"action": "ls"}).alarm for _ in range(3)], watch.alarm_at_
    ([False, True, True], 2)
    """

    def __init__(
        self,
        rule: Callable[[Sequence[Mapping[str, Any]]], bool],
        evidence: str = "the rule holds",
        *,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._rule, self._evidence = rule, evidence
        self._vocabulary = vocabulary or _shipped()
        self._steps: list[Mapping[str, Any]] = []
        self.alarm_at_: int | None = None
        self.verdicts_: list[Any] = []
        self.tokens_: list[str] = []

    def __repr__(self) -> str:
        raised = "" if self.alarm_at_ is None else f", alarm after step {self.alarm_at_}"
        return f"{type(self).__name__}({len(self.verdicts_)} steps{raised})"

    def observe(self, step: Mapping[str, Any], /) -> Any:
        """Take in the next step; returns a verdict."""
        self._steps.append(step)
        self.tokens_.append(self._vocabulary.token(step))
        holds = bool(self._rule(self._steps))
        if holds and self.alarm_at_ is None:
            self.alarm_at_ = len(self._steps)
        said = self._said(float(holds))
        self.verdicts_.append(said)
        return said

    def _said(self, risk: float) -> _Says:
        return _Says(risk, risk, risk, self.alarm_at_ is not None, self._evidence)


class RandomWatch(RuleWatch):
    """Raises alarms by chance: what a monitor must be better than that alarms as often.

    Its risk is 0 until the alarm and 1 from there on, so that a run goes back to the last stable
    step before the alarm. It gives no bounds.

    Parameters
    ----------
    rate : float
        Probability of an alarm at each step, for a run that has raised none.
    seed : int or str
        What is drawn depends on this and on all steps so far: a run that is carried on after a
        crash raises its alarm at the same step, and an attempt that acts otherwise draws anew.
    vocabulary : Vocabulary, optional

    Examples
    --------
    >>> watch = RandomWatch(rate=0.2, seed=24)
    >>> [watch.observe({"action": f"ls {n}"}).alarm for n in range(5)]
    [False, False, False, True, True]
    """

    def __init__(
        self, rate: float, seed: int | str = 0, *, vocabulary: Vocabulary | None = None
    ) -> None:
        if not 0 <= rate <= 1:
            raise UsageError(f"rate = {rate} is no probability")
        super().__init__(self._draws, f"chance: {rate:g} at each step", vocabulary=vocabulary)
        self.rate, self.seed = rate, seed
        self._chain = blake2b(f"{seed}".encode(), digest_size=16).digest()

    def _draws(self, steps: Sequence[Mapping[str, Any]]) -> bool:
        """Draw for the last step; once the alarm is raised it stays."""
        texts = [str(steps[-1].get(name, "")) for name in ("thought", "action", "observation")]
        said = msgspec.json.encode([text.encode("utf-8", "surrogatepass") for text in texts])
        self._chain = blake2b(self._chain + said, digest_size=16).digest()
        drawn = int.from_bytes(self._chain[:8], "big") < self.rate * _WHOLE
        return drawn or self.alarm_at_ is not None

    def _said(self, risk: float) -> _Says:
        return super()._said(risk)._replace(low=math.nan, high=math.nan)
