"""A run that is watched while it is lived, and halted."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from sag_research.errors import UsageError
from sag_research.llm import Chunk, Reply
from sag_research.log import SQLiteEventStore
from sag_research.model import Event
from sag_research.runtime._backtrack_policy import BacktrackPolicy, Watch, fires
from sag_research.runtime._experiment_context import RunContext, StepsSpentError

__all__ = ["Account", "HaltedError", "Watched", "own_steps", "unanswered"]

_SOURCES: Final = ("agent.step", "llm.responded")
_EXHAUSTED: Final = {"max_tokens": "tokens exhausted", "max_cost_usd": "money exhausted"}


class HaltedError(StepsSpentError):
    """The run is halted: it seems lost."""


class Account:
    """What the attempts of a run took in tokens and dollars, as far as it is known.

    A run's steps say it, or else its model calls do; never both, for they tell of the same.
    """

    def __init__(self, store: SQLiteEventStore, runs: Sequence[str]) -> None:
        self._store = store
        self._runs = {run: store.get_run(run).fork_position for run in runs}
        self._said: dict[tuple[str, str], dict[str, float]] = {}

    def read(self) -> None:
        """Take in what was written since."""
        for run, until in self._runs.items():
            for event in self._store.read(run, until + 1, types=_SOURCES):
                self._runs[run] = event.position or 0
                for name, value in (event.payload.get("usage") or {}).items():
                    if value is not None:
                        sums = self._said.setdefault((run, event.type), {})
                        sums[name] = sums.get(name, 0) + value

    def total(self, *names: str) -> float | None:
        """Sum up what is known of all runs; None where nothing is."""
        found: list[float] = []
        for run in self._runs:
            said = next((self._said[run, s] for s in _SOURCES if (run, s) in self._said), {})
            found += [said[name] for name in names if name in said]
        return sum(found) if found else None

    def spent(self, rules: BacktrackPolicy) -> str:
        """Name the bound that is reached, "" if there is none.

        Raises
        ------
        UsageError
            If a bound cannot be kept, because nothing is known of what it bounds.
        """
        self.read()
        bounds = (
            ("max_tokens", rules.max_tokens, ("tokens_in", "tokens_out")),
            ("max_cost_usd", rules.max_cost_usd, ("cost_usd",)),
        )
        for name, most, names in bounds:
            if most is None:
                continue
            total = self.total(*names)
            if total is None:
                raise UsageError(
                    f"{name} cannot be kept",
                    why="neither steps nor model calls say what they took",
                    fix="write steps with usage=…, ask models that report it, or bound the steps",
                )
            if total >= most:
                return name
        return ""


class Watched(RunContext):
    """A run's context that shows every step to a monitor.

    Attributes
    ----------
    predicted : Event or None
        The prediction that is to be acted on.
    spent : bool
        Whether no further step may be made.
    """

    predicted: Event | None = None
    spent: bool = False
    exhausted: str = "steps exhausted"
    """Exit status of an agent that a bound ended."""
    _bound: StepsSpentError | None = None
    _halted: HaltedError | None = None
    _due: StepsSpentError | None = None
    """What the agent's next ask raises: one that a crash kept from ending ends as it would have."""

    def __init__(
        self,
        *args: Any,
        monitor: Watch,
        rules: BacktrackPolicy,
        halts: bool,
        account: Account,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.monitor, self.rules, self.halts, self.account = monitor, rules, halts, account
        own = own_steps(self.store, self.run_id)
        mine = monitor.verdicts_[len(monitor.verdicts_) - own :] if own else []
        self._first = next(
            (n for n, said in enumerate(mine, self._steps - own) if fires(rules, said)), None
        )
        if own and self._look():
            self._due = self._over()

    def __enter__(self) -> Watched:
        return self

    @property
    def leaves(self) -> bool:
        """Whether the run is to be left: a prediction was made that is acted on."""
        return self.halts and self.predicted is not None and not self.spent

    def release(self) -> None:
        """Let asks through again: a judge may want to, when the agent has ended."""
        self._halted = self._due = None

    def _look(self) -> bool:
        """Look at all bounds; return whether one is reached."""
        if name := self.account.spent(self.rules):
            most = getattr(self.rules, name)
            self.exhausted = _EXHAUSTED[name]
            self._bound = StepsSpentError(f"run {self.run_id!r} has reached {name} = {most}")
        made = self.max_steps is not None and self._own >= self.max_steps
        self.spent = made or self._bound is not None
        return self.spent

    def _over(self) -> StepsSpentError:
        return self._bound or self._spent()

    def step(self, *args: Any, **more: Any) -> Event:
        """Write down one turn, and halt the run where it seems lost with it.

        Raises
        ------
        HaltedError
        StepsSpentError
            If a bound of the policy is reached.
        """
        self._go_on()
        if self._bound is not None:
            raise self._bound
        before = self._own
        try:
            event = super().step(*args, **more)
        except StepsSpentError:
            if self._own == before:  # nothing was written
                raise
            event = next(self.store.read(self.run_id, self._looked_at))
        self._show(event, halts=self.halts and not self._look())
        if self.spent:
            raise self._over()
        return event

    def _show(self, event: Event, halts: bool) -> None:
        verdict = self.monitor.observe(event.payload)
        if self._first is not None or not fires(self.rules, verdict):
            return
        self._first = self._steps - 1
        self.predicted = self._write_prediction(verdict, self._first)
        if halts:
            self._halted = HaltedError(f"run {self.run_id!r} is halted: {verdict.evidence}")
            raise self._halted

    def catch_up(self) -> None:
        """Predict what a process would have, that was killed after the step and before it."""
        own = self.store.get_run(self.run_id).fork_position + 1
        told = any(self.store.read(self.run_id, own, types=("deadend.predicted",)))
        if self._first is not None and not told:
            verdict = self.monitor.verdicts_[self._first]
            self.predicted = self._write_prediction(verdict, self._first)
        else:
            self.predicted = unanswered(self.store, self.run_id)

    def _write_prediction(self, verdict: Any, step: int) -> Event:
        payload = {
            "step": step, "risk": float(verdict.risk), "evidence": verdict.evidence,
            "low": _number(verdict.low), "high": _number(verdict.high),
        }  # fmt: skip
        for name in ("n", "n_failed"):
            if (count := getattr(verdict, name, None)) is not None:
                payload[name] = int(count)
        about = self.rules.about
        asked = {name: about[name] for name in ("when", "threshold", "p_star") if name in about}
        event = Event(
            run_id=self.run_id, type="deadend.predicted", actor="monitor", payload=payload | asked
        )
        return self.append(event)[0]

    # ---- what an agent does; a run that is halted asks nobody

    def _go_on(self) -> None:
        if self._halted is not None:
            raise self._halted
        if self._due is not None:
            due, self._due = self._due, None
            raise due

    def llm(self, *args: Any, **more: Any) -> Reply:
        """Ask a model; see :meth:`sag_research.llm.Context.llm`."""
        self._go_on()
        return super().llm(*args, **more)

    def stream(self, *args: Any, **more: Any) -> Generator[Chunk, None, None]:
        """Ask a model and take the answer in parts."""
        self._go_on()
        return super().stream(*args, **more)

    def tool(self, *args: Any, **more: Any) -> Any:
        """Call a tool; see :meth:`sag_research.llm.Context.tool`."""
        self._go_on()
        return super().tool(*args, **more)

    async def atool(self, *args: Any, **more: Any) -> Any:
        """Call a tool without blocking the event loop."""
        self._go_on()
        return await super().atool(*args, **more)


def unanswered(store: SQLiteEventStore, run_id: str) -> Event | None:
    """Return the prediction that a process wrote down and was killed before it acted on."""
    own = store.get_run(run_id).fork_position + 1
    types = ("agent.step", "deadend.predicted")
    last: Event | None = None
    for last in store.read(run_id, own, types=types):  # noqa: B007
        pass
    return last if last is not None and last.type == "deadend.predicted" else None


def own_steps(store: SQLiteEventStore, run_id: str) -> int:
    """Count the steps that a run made itself."""
    own = store.get_run(run_id).fork_position + 1
    return sum(1 for _ in store.read(run_id, own, types=("agent.step",)))


def _number(value: float) -> float | None:
    return float(value) if value == value else None
