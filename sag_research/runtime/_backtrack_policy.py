"""The rules of going back: when a run is halted, where it goes back to, what it is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from sag_research.errors import UsageError
from sag_research.runtime._loop_graph import positive

if TYPE_CHECKING:
    from sag_research.deadend import ForkSet
    from sag_research.runtime._backtrack_feedback import Situation

__all__ = ["BacktrackPolicy", "Feedback", "Recalls", "Siblings", "Watch", "fires", "where_to"]


class Watch(Protocol):
    """What follows a run, e.g. :class:`sag_research.deadend.DeadEndMonitor`.

    What it says must follow from the steps alone: a run that was cut off is shown to a new one.
    """

    tokens_: list[str]
    verdicts_: list[Any]
    alarm_at_: int | None

    def observe(self, step: Any, /) -> Any:
        """Take in the next step; returns a verdict with ``risk low high alarm evidence``.

        It may have ``n`` and ``n_failed``: the past runs behind it, and the failed among them.
        """
        ...


Feedback: TypeAlias = "Callable[[Situation], str]"
"""Says to an agent that was taken back what it should know."""

Siblings: TypeAlias = "Callable[[Situation], Iterable[str | Sequence[Mapping[str, Any]]]]"
"""Names successful runs of the same task: ids in the log, or their steps as mappings."""

Recalls: TypeAlias = "Callable[[Situation], Any]"
"""Recalls past successes: a text, or what :meth:`sag_research.Workspace.recall` returns."""


class BacktrackPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a run is halted, where it goes back to, and what it is told.

    Attributes
    ----------
    when : {'alarm', 'shadow', 'threshold', 'pays'}
        ``alarm``: when the monitor raises its alarm. ``shadow``: the same, but it is only written
        down, and nothing is halted. ``threshold``: when the risk is at least `threshold`.
        ``pays``: when the lower bound of the probability of failure is above `p_star`; a monitor
        that gives no bound never halts a run. In each attempt it happens once.
    threshold : float, optional
        For ``threshold``.
    p_star : float, optional
        For ``pays``: see :func:`sag_research.deadend.break_even`.
    where : {'change-point', 'fixed', 'start', 'conformal'}
        The last stable step before the risk rose; so many steps back; the beginning; the last
        stable step before the earliest step of `fork_set`.
    back : int
        Steps, for ``fixed``, and where no change point is found.
    fork_set : ForkSet, optional
        For ``conformal``: from :func:`sag_research.deadend.calibrate_forks`.
    then : {'fork', 'abort'}
        ``abort`` ends the run where it is halted, whatever `max_backtracks` is.
    feedback : {'avoid-list', 'contrast', 'recall', 'none'} or callable
        ``avoid-list``: the actions that were taken behind the fork point. ``contrast``: these,
        and what successful runs of the same task did from the point that they share with this
        one. ``recall``: what `recall` finds. A callable is given a :class:`Situation` and returns
        the text. Texts of past runs are shortened, and nothing in them is hidden.
    siblings : callable, optional
        For ``contrast``: names the successful runs; default: those in the log that have the run's
        ``task_id``.
    recall : callable, optional
        For ``recall``: e.g. ``lambda s: ws.recall(run=s.run_id)``.
    max_backtracks : int
        Forks, for ``fork``; an alarm after the last is written down only.
    max_steps : int
        Steps of all attempts together.
    max_tokens : int, optional
        Tokens of all attempts together, in and out. Checked after each step, so the last step may
        go beyond it.
    max_cost_usd : float, optional
        The same in dollars.

    Examples
    --------
    >>> BacktrackPolicy(when="pays", p_star=0.6, where="start").about
    {'when': 'pays', 'p_star': 0.6, 'where': 'start', 'then': 'fork', 'feedback': 'avoid-list'}
    """

    when: Literal["alarm", "shadow", "threshold", "pays"] = "alarm"
    threshold: float | None = None
    p_star: float | None = None
    where: Literal["change-point", "fixed", "start", "conformal"] = "change-point"
    back: int = 3
    fork_set: ForkSet | None = None
    then: Literal["fork", "abort"] = "fork"
    feedback: Literal["avoid-list", "contrast", "recall", "none"] | Feedback = "avoid-list"
    siblings: Siblings | None = None
    recall: Recalls | None = None
    max_backtracks: int = 2
    max_steps: int = 100
    max_tokens: int | None = None
    max_cost_usd: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in _WORDS.items():
            said = getattr(self, name)
            if said not in allowed and not (name == "feedback" and callable(said)):
                raise UsageError(f"{name}={said!r} is unknown", fix=f"one of {', '.join(allowed)}")
        for field, (name, value) in _NEEDS.items():
            if getattr(self, name) == value and getattr(self, field) is None:
                raise UsageError(f"{name}={value!r} needs {field}", fix=f"give {field}=…")
        for name in ("threshold", "p_star"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:  # NaN is none either
                raise UsageError(f"{name} = {share} is no probability")
        self._check_bounds()

    def _check_bounds(self) -> None:
        positive(self.back, "back")
        positive(self.max_steps, "max_steps")
        if self.max_tokens is not None:
            positive(self.max_tokens, "max_tokens")
        if self.max_cost_usd is not None and not 0 < self.max_cost_usd < math.inf:
            raise UsageError("max_cost_usd must be positive and finite")
        if self.max_backtracks < 0:
            raise UsageError("max_backtracks cannot be negative")

    @property
    def about(self) -> dict[str, Any]:
        """The rules as they are written down with what follows of them."""
        told = self.feedback
        word = told if isinstance(told, str) else getattr(told, "__name__", type(told).__name__)
        asked = {"threshold": self.threshold, "p_star": self.p_star}
        given = {name: asked[name] for name, (_, when) in _NEEDS.items()
                 if name in asked and when == self.when}  # fmt: skip
        return {"when": self.when, **given, "where": self.where, "then": self.then,
                "feedback": word}  # fmt: skip


_WORDS: dict[str, tuple[str, ...]] = {
    "when": ("alarm", "shadow", "threshold", "pays"),
    "where": ("change-point", "fixed", "start", "conformal"),
    "then": ("fork", "abort"),
    "feedback": ("avoid-list", "contrast", "recall", "none"),
}
_NEEDS: dict[str, tuple[str, str]] = {
    "threshold": ("when", "threshold"),
    "p_star": ("when", "pays"),
    "fork_set": ("where", "conformal"),
    "recall": ("feedback", "recall"),
}


def fires(rules: BacktrackPolicy, verdict: Any) -> bool:
    """Tell whether a verdict is one to act on, or in shadow to write down."""
    if rules.threshold is not None and rules.when == "threshold":
        return bool(verdict.risk >= rules.threshold)
    if rules.p_star is not None and rules.when == "pays":
        return bool(verdict.low > rules.p_star)  # a bound that is unknown is above nothing
    return bool(verdict.alarm)


def where_to(monitor: Watch, n_steps: int, rules: BacktrackPolicy) -> tuple[int | None, int | None]:
    """Find where the risk rose, and the step to go back to; None: the beginning."""
    from sag_research.deadend import fork_point  # scikit-learn takes seconds to import

    sets = rules.fork_set if rules.where == "conformal" else None
    change, stable = fork_point([one.risk for one in monitor.verdicts_], monitor.tokens_, sets)
    if rules.where == "start":
        return change, None
    if rules.where == "fixed" or (change is None and sets is None):
        fixed = n_steps - 1 - rules.back
        return change, fixed if fixed >= 0 else None
    return change, stable
