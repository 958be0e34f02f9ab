"""A run watched while it goes on."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sag_research.deadend._alarm import Alarm
from sag_research.deadend._stack import PrefixRisk
from sag_research.deadend._step import SeenStep, see
from sag_research.errors import UsageError
from sag_research.extract import Vocabulary

if TYPE_CHECKING:
    from sag_research.model import Step

__all__ = ["DeadEndMonitor", "Verdict"]


class Verdict(NamedTuple):
    """What a monitor says after a step."""

    risk: float
    """P(failure), given the steps so far."""
    low: float
    high: float
    """95 % interval of the failure rate among training runs that had a similar risk (NaN: none)."""
    alarm: bool
    """Whether the alarm is raised, now or at an earlier step of this run."""
    evidence: str
    """How many runs stand behind the interval."""
    n: int = 0
    """Runs behind the interval; 0: there is none."""
    n_failed: int = 0
    """Those of them that failed."""


class DeadEndMonitor:
    """Follows one run and says after each step how likely it is lost.

    Parameters
    ----------
    alarm : Alarm
        Calibrated with a model that scores step by step, such as :class:`PrefixRisk`.
    vocabulary : Vocabulary, optional
        What makes tokens of steps; that of the model's training runs by default.

    Attributes
    ----------
    seen_ : int
        Steps seen.
    alarm_at_ : int or None
        After how many steps the alarm was raised.
    verdicts_ : list of Verdict
        What was said after each step.
    tokens_ : list of str
        What each step was to the model.

    Raises
    ------
    UsageError
        If the alarm is not calibrated, or its model cannot score step by step.

    Notes
    -----
    The monitor reports; it stops nothing. Whether acting on an alarm pays is asked of
    ``alarm.acts(seen, risk)``, which is always false in shadow mode.
    """

    def __init__(self, alarm: Alarm, vocabulary: Vocabulary | None = None) -> None:
        risk = getattr(alarm, "risk_", None) if hasattr(alarm, "threshold_") else None
        if risk is None:
            raise UsageError("the alarm has no model", fix="call alarm.calibrate(risk, prefixes)")
        self.alarm = alarm
        self._vocabulary = vocabulary or risk.vocabulary_ or Vocabulary()
        self._stream = risk.begin()
        self._similar = _Similar(risk)
        self.seen_ = 0
        self.alarm_at_: int | None = None
        self.verdicts_: list[Verdict] = []
        self.tokens_: list[str] = []

    def __repr__(self) -> str:
        state = f"risk {self.verdicts_[-1].risk:.2f}" if self.verdicts_ else "nothing seen"
        raised = "" if self.alarm_at_ is None else f", alarm after step {self.alarm_at_}"
        return f"DeadEndMonitor({self.seen_} steps, {state}{raised})"

    def observe(self, step: Step | Mapping[str, Any] | SeenStep) -> Verdict:
        """Take in the next step.

        Parameters
        ----------
        step : Step, mapping or SeenStep
            A mapping has ``thought``, ``action``, ``observation`` and, if known, ``calls`` or
            ``exit_code``.

        Returns
        -------
        Verdict
        """
        seen = see(step, self._vocabulary)
        risk = self._stream.observe(seen)
        self.tokens_.append(seen.token)
        self.seen_ += 1
        above = risk > self.alarm.threshold_  # asked first: most steps end here
        if above and self.alarm_at_ is None and self.alarm.fires(self.seen_, risk):
            self.alarm_at_ = self.seen_
        similar = self._similar.of(risk)
        raised = self.alarm_at_ is not None
        verdict = Verdict(
            risk, similar.low, similar.high, raised, similar.evidence, similar.n, similar.n_failed
        )
        self.verdicts_.append(verdict)
        return verdict


class _Interval(NamedTuple):
    low: float = math.nan
    high: float = math.nan
    evidence: str = ""
    n: int = 0
    n_failed: int = 0


class _Similar:
    """Interval and sentence for each tenth of the training runs' scores, made once."""

    def __init__(self, risk: Any) -> None:
        self._cuts: list[float] = []
        self._said = [_Interval()]
        if isinstance(risk, PrefixRisk):
            found = risk.similar_
            self._cuts = found.cuts.tolist()
            rows = zip(found.n, found.failed, found.low, found.high, strict=True)
            self._said = [
                _Interval(
                    float(low), float(high),
                    f"{bad} of {n} runs that had a similar risk failed", int(n), int(bad),
                )
                for n, bad, low, high in rows
            ]  # fmt: skip

    def of(self, risk: float) -> _Interval:
        return self._said[bisect_left(self._cuts, risk)]
