"""Where a run was lost: the rise of its risk, where to go back to, where its siblings went on."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sag_research._text import clip, escape, html_table, visible
from sag_research.deadend._changepoint import Change, StepSets, change_point
from sag_research.deadend._crossfit import OutOfFold, as_out_of_fold
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes
from sag_research.deadend._splits import LeakWarning
from sag_research.errors import NotEnoughDataError, RunNotFoundError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend._alarm import Alarm
    from sag_research.deadend._forkset import ForkSet

__all__ = [
    "Divergence",
    "Where",
    "divergence",
    "first_error",
    "fork_point",
    "fork_step",
    "is_stable",
    "last_repeat",
    "locate",
]

FAULTS = frozenset(
    [
        *("error", "traceback", "syntax", "import", "not-found", "timeout"),
        *("unavailable", "mismatch", "forbidden", "refused"),
    ]
)
"""Results after which a run does not stand on firm ground. A failing test is information."""
ACTS = frozenset(
    [
        *("edit", "create", "delete", "undo", "run", "test", "install", "git"),
        *("browse", "call", "look", "search"),
    ]
)
"""Verbs that something comes back from; with the result ``none`` their call is still open."""
_QUOTE = 160


@dataclass(frozen=True)
class Divergence:
    """Where a run left all successful runs of its task."""

    step: int | None
    """First step (0-based) that no successful sibling took after the same steps; None if the run
    never left them, or there are none."""
    siblings: int
    """Successful runs of the same task."""
    token: str = ""
    """What this run did there."""
    others: tuple[tuple[str, int], ...] = ()
    """What the siblings did that had come so far, with how many of them; "" for ending there."""
    nearest: str = ""
    """Id of a sibling that had come so far."""


@dataclass(frozen=True, eq=False, repr=False)
class Where:
    """The answer to "at which step was this run lost?".

    Attributes
    ----------
    run_id : str
    risk : ndarray of float64, shape (n_steps,)
        Risk after each step.
    change : Change
        The rise that explains most of it.
    fork_step : int or None
        Last stable step before the rise, to fork from; None: start again.
    step_set : tuple of int
        Steps of which one is the true one, if `sets` were calibrated; else empty.
    sets : StepSets or None
    divergence : Divergence
    evidence : tuple of str
        Sentences, quotations inert.
    """

    run_id: str
    risk: Floats
    change: Change
    fork_step: int | None
    step_set: tuple[int, ...]
    sets: StepSets | None
    divergence: Divergence
    evidence: tuple[str, ...]
    tokens: tuple[str, ...]
    stable: NDArray[np.bool_] = field(repr=False)

    @property
    def change_step(self) -> int | None:
        """Step (0-based) from which on the risk is higher."""
        return self.change.step

    @property
    def text(self) -> str:
        """The evidence, one sentence a line."""
        return "\n".join(self.evidence)

    def __repr__(self) -> str:
        return (
            f"Where({clip(self.run_id, 40)!r}, change_step={self.change_step}, "
            f"fork_step={self.fork_step}, {len(self.tokens)} steps)"
        )

    @property
    def table_(self) -> pd.DataFrame:
        """``step token risk weight stable in_step_set mark``, one row a step."""
        import pandas as pd

        marks: list[list[str]] = [[] for _ in self.tokens]
        named = {"change": self.change_step, "fork": self.fork_step}
        for name, step in (named | {"divergence": self.divergence.step}).items():
            if step is not None:
                marks[step].append(name)
        steps = np.arange(len(self.tokens))
        columns: dict[str, Any] = {
            "step": steps,
            "token": list(self.tokens),
            "risk": self.risk,
            "weight": self.change.weight,
            "stable": self.stable,
            "in_step_set": np.isin(steps, self.step_set),
            "mark": [" ".join(names) for names in marks],
        }
        return pd.DataFrame(columns)

    def _repr_html_(self) -> str:
        shown = self.table_[self.table_["mark"] != ""]
        rows = [[r.step, r.token, f"{r.risk:.2f}", r.mark] for r in shown.itertuples()]
        said = "".join(f"<li>{escape(line)}</li>" for line in self.evidence)
        return f"<ul>{said}</ul>" + html_table(["step", "token", "risk", "mark"], rows)

    def plot(self, alarm: Alarm | None = None, ax: Axes | None = None) -> Axes:
        """Draw the risk over the steps, with the alarm, the fork point and the set of steps."""
        from sag_research.viz import plot_where

        return plot_where(self, alarm, ax)


def locate(
    risk: RiskModel,
    prefixes: Prefixes,
    run: str | int,
    *,
    sets: StepSets | None = None,
    snapshots: Sequence[int] | None = None,
) -> Where:
    """Find the step at which a run was lost.

    Parameters
    ----------
    risk : RiskModel
        Fitted. For a run that it was fitted on, its ``out_of_fold_`` scores are used.
    prefixes : Prefixes
        The run's cohort, with its siblings.
    run : str or int
        Run id, the beginning of one, or index.
    sets : StepSets, optional
        From :func:`calibrate_steps`; without, no set of steps is given.
    snapshots : sequence of int, optional
        Steps of which the world was saved; the fork point is then one of them.

    Raises
    ------
    RunNotFoundError

    Warns
    -----
    LeakWarning
        If the model has seen the run and keeps no scores from before it did.
    """
    risk._check_fitted()
    index = find_run(prefixes, run)
    one = prefixes.take([index])
    values = risk_by_step(risk, prefixes, index)
    change = change_point(values)
    stable = stable_steps(one)
    fork = fork_step(stable, change.step, snapshots)
    apart = divergence(prefixes, index)
    tokens = tuple(one.table.names[code] for code in one.sequences()[0])
    steps = sets.of(change) if sets is not None else ()
    evidence = (
        *_about_change(change, tokens),
        *_about_set(steps, sets),
        *_about_fork(fork, change, tokens, snapshots is not None),
        *_about_divergence(prefixes, index, apart),
    )
    name = str(one.runs["run_id"].iloc[0])
    return Where(name, values, change, fork, steps, sets, apart, evidence, tokens, stable)


def find_run(prefixes: Prefixes, run: str | int) -> int:
    """Return the index of a run given by id, unique beginning of one, or index."""
    if isinstance(run, (int, np.integer)):
        if not 0 <= run < len(prefixes):
            raise RunNotFoundError(f"no run {run}", why=f"the cohort has {len(prefixes)}")
        return int(run)
    ids = prefixes.runs["run_id"].astype(str)
    found = np.flatnonzero(ids == run)
    if not len(found):
        found = np.flatnonzero(ids.str.startswith(run))
    if len(found) != 1:
        some = ", ".join(clip(name, 40) for name in ids.iloc[found[:5]])
        why = f"{len(found)} runs begin so: {some}" if len(found) else "not in this cohort"
        raise RunNotFoundError(f"no one run {clip(run, 40)!r}", why=why)
    return int(found[0])


def risk_by_step(risk: RiskModel, prefixes: Prefixes, run: int) -> Floats:
    """Risk after each step, by models that have not seen the run if that can be had."""
    one = prefixes.take([run])
    run_id = one.runs["run_id"].iloc[0]
    if run_id not in risk.fitted_runs_:
        return risk.predict(one)
    scores = _unseen(risk, one)
    if scores is not None and len(scores):
        return _held(scores.looks, scores.scores, int(one.n_steps[0]))
    warnings.warn(
        f"model {risk.name!r} was fitted on run {clip(run_id, 40)!r}: its risk is too sure",
        LeakWarning,
        stacklevel=3,
    )
    return risk.predict(one)


def _unseen(risk: RiskModel, one: Prefixes) -> OutOfFold | None:
    """Return the run's own scores from before the model saw it, if these can be had."""
    try:
        own = getattr(risk, "out_of_fold_", None)
    except (NotEnoughDataError, UsageError):  # too few tasks, or saved without its training runs
        return None
    return None if own is None else as_out_of_fold(own, one)


def _held(looks: Looks, scores: Floats, n_steps: int) -> Floats:
    """Carry each look's score on to the steps before the next look."""
    place = np.searchsorted(looks.seen, np.arange(1, n_steps + 1), side="right") - 1
    return scores[np.maximum(place, 0)]


def stable_steps(one: Prefixes) -> NDArray[np.bool_]:
    """After which steps of a run nothing is broken and no call is open, shape (n_steps,)."""
    stable = np.array([is_stable(name) for name in one.table.names], np.bool_)
    return stable[one.sequences()[0]]


def is_stable(token: str) -> bool:
    """Whether nothing is broken and no call is open after a step of this token.

    Examples
    --------
    >>> is_stable("edit|src|ok"), is_stable("run|-|traceback"), is_stable("call|-|none")
    (True, False, False)
    """
    verb, _, rest = token.partition("|")
    result = rest.rpartition("|")[2]
    return result not in FAULTS and not (result == "none" and verb in ACTS)


def fork_point(
    risk: Sequence[float], tokens: Sequence[str], fork_set: ForkSet | None = None
) -> tuple[int | None, int | None]:
    """Find where a run that is under way began to be lost, and where to go back to.

    Parameters
    ----------
    risk : sequence of float, shape (n_steps,)
        After each step so far.
    tokens : sequence of str, shape (n_steps,)
    fork_set : ForkSet, optional
        From :func:`calibrate_forks`: go back to before the earliest step of its set, not to
        before the rise.

    Returns
    -------
    change, fork : int or None
        Step from which on the risk is higher, and the last stable step before it (or before the
        set); None: the risk never rises, or there is no such step.

    Examples
    --------
    >>> fork_point([.2, .2, .2, .8], ["look|src|ok", "run|-|error", "edit|src|ok", "run|-|error"])
    (3, 2)
    """
    change = change_point(np.asarray(risk, np.float64))
    stable = np.array([is_stable(token) for token in tokens], np.bool_)
    before = change.step
    if fork_set is not None:
        before = fork_set.earliest(change.step, len(stable))
    return change.step, fork_step(stable, before)


def fork_step(
    stable: NDArray[np.bool_], change: int | None, snapshots: Sequence[int] | None = None
) -> int | None:
    """Return the last stable step before the change, among the snapshots if there are any."""
    if change is None:
        return None
    before = np.flatnonzero(stable[:change])
    if snapshots is not None:
        before = before[np.isin(before, np.asarray(snapshots, np.int64))]
    return int(before[-1]) if len(before) else None


def divergence(prefixes: Prefixes, run: int) -> Divergence:
    """Find where a run left all successful runs of its task."""
    runs = prefixes.runs
    same = (runs["task_id"] == runs["task_id"].iloc[run]).to_numpy(np.bool_)
    siblings = np.flatnonzero(same & (prefixes.failed == 0) & (np.arange(len(prefixes)) != run))
    if not len(siblings):
        return Divergence(None, 0)
    tokens, names = prefixes.table.tokens, prefixes.table.names
    own = tokens[prefixes.start[run] : prefixes.stop[run]]
    theirs = {int(i): tokens[prefixes.start[i] : prefixes.stop[i]] for i in siblings}
    shared = {i: common(own, other) for i, other in theirs.items()}
    step = max(shared.values())
    near = [i for i, length in shared.items() if length == step]
    if step == len(own):
        return Divergence(None, len(siblings), nearest=str(runs["run_id"].iloc[near[0]]))
    did = Counter(names[theirs[i][step]] if step < len(theirs[i]) else "" for i in near)
    nearest = str(runs["run_id"].iloc[near[0]])
    return Divergence(step, len(siblings), names[own[step]], tuple(did.most_common()), nearest)


def common(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    """Return how many first tokens two runs share."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length


def first_error(one: Prefixes) -> int | None:
    """Return the first step of a run whose result is a fault: what a locator must beat."""
    results = [name.rpartition("|")[2] in FAULTS for name in one.table.names]
    found = np.flatnonzero(np.array(results)[one.sequences()[0]])
    return int(found[0]) if len(found) else None


def last_repeat(one: Prefixes) -> int | None:
    """Return the last step of a run that repeats the token before it."""
    own: Ints = one.sequences()[0].astype(np.int64)
    found = np.flatnonzero(own[1:] == own[:-1]) + 1
    return int(found[-1]) if len(found) else None


# ---------------------------------------------------------------------- evidence in words


def quoted(text: str) -> str:
    """Show text of a trajectory as a quotation that nothing can act on."""
    return f"“{visible(clip(text, _QUOTE))}”"


def _about_change(change: Change, tokens: Sequence[str]) -> tuple[str, ...]:
    if change.step is None:
        return ("The risk never rises for good: no step is singled out.",)
    return (
        f"From step {change.step} on the risk is {change.after:.2f}, before it {change.before:.2f} "
        f"(explains {change.explained:.0%} of its variance over {len(tokens)} steps); "
        f"that step is {quoted(tokens[change.step])}.",
    )


def _about_set(steps: Sequence[int], sets: StepSets | None) -> tuple[str, ...]:
    if sets is None or not steps:
        return ()
    return (
        f"Steps {steps[0]} to {steps[-1]} contain the step at which such runs were lost in "
        f"{1 - sets.alpha:.0%} of cases (calibrated on {sets.n} runs).",
    )


def _about_fork(
    fork: int | None, change: Change, tokens: Sequence[str], saved: bool
) -> tuple[str, ...]:
    if change.step is None:
        return ()
    kind = "stable step with a snapshot" if saved else "stable step"
    if fork is None:
        return (f"There is no {kind} before it: start again.",)
    return (f"The last {kind} before it is {fork}, {quoted(tokens[fork])}: fork there.",)


def _about_divergence(prefixes: Prefixes, run: int, apart: Divergence) -> tuple[str, ...]:
    if not apart.siblings:
        return ("No other run of this task is known to have succeeded.",)
    count = f"{apart.siblings} successful run{'s' if apart.siblings > 1 else ''} of this task"
    if apart.step is None:
        return (f"It never leaves the path of the {count}.",)
    others = ", ".join(f"{quoted(name) if name else 'end'} ({n})" for name, n in apart.others)
    said = f"It leaves the {count} at step {apart.step}: {quoted(apart.token)} instead of {others}."
    row = int(prefixes.start[run]) + apart.step
    action = prefixes.table.text("action")[row]
    return (said, f"Its action there was {quoted(action)}.") if action else (said,)
