"""The risk of a run's steps, as a model, an alarm or a table tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sag_research.errors import UsageError

if TYPE_CHECKING:
    from sag_research.deadend import Alarm, RiskModel
    from sag_research.viz._explorer_data import Study

__all__ = ["RiskSource", "Risks"]

RiskSource: TypeAlias = "Alarm | RiskModel | Mapping[str, Sequence[float]] | None"


class Risks:
    """Risks and alarms of runs, computed when they are asked for, once.

    Parameters
    ----------
    study : Study
    source : Alarm, RiskModel, mapping or None
        A mapping gives, by run id, the risk after step 0, 1, ….
    """

    def __init__(self, study: Study, source: RiskSource) -> None:
        self._study = study
        self._alarm = source if source is not None and hasattr(source, "fires") else None
        self._table = source if isinstance(source, Mapping) else None
        model = getattr(source, "risk_", None) if self._alarm is not None else source
        self._model = model if hasattr(model, "predict") else None
        if source is not None and self._model is None and self._table is None:
            raise UsageError(
                f"risk={type(source).__name__} gives no risk",
                fix="give a calibrated Alarm, a fitted model, or a mapping of run id to risks",
            )
        self._known: dict[str, list[float]] = {}

    @property
    def has_alarm(self) -> bool:
        """Whether alarms can be computed."""
        return self._alarm is not None

    def of(self, run: str) -> list[float]:
        """Return the risk after each step, steps taken over included; empty where not known."""
        if run not in self._known:
            self._known[run] = self._compute(run)
        return self._known[run]

    def _compute(self, run: str) -> list[float]:
        if self._table is not None:
            return [float(value) for value in self._table.get(run, ())]
        if self._model is None:
            return []
        steps = self._study.steps(run)
        return [float(value) for value in self._model.predict(steps)] if len(steps) else []

    def alarm(self, run: str) -> int | None:
        """Return the step with which the alarm is raised."""
        if self._alarm is None:
            return None
        fires = self._alarm.fires
        risks = enumerate(self.of(run))
        return next((step for step, value in risks if fires(step + 1, value)), None)

    def notes(self, run: str) -> list[str]:
        """Say what has to be known about a run's risk."""
        seen: frozenset[str] = getattr(self._model, "fitted_runs_", frozenset())
        if run not in seen:
            return []
        return ["The risk is by a model that was fitted on this run: it is too sure of itself."]
