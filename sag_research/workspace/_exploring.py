"""Looking through a workspace by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sag_research.workspace._annotating import Annotating
from sag_research.workspace._branching import Branching
from sag_research.workspace._looking import Looking

if TYPE_CHECKING:
    from sag_research.deadend import Alarm, RiskModel
    from sag_research.viz import Explorer

__all__ = ["Exploring"]


class Exploring(Looking, Annotating, Branching):
    """The method of a workspace that opens an explorer on it."""

    def explore(
        self,
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        risk: Alarm | RiskModel | Mapping[str, Sequence[float]] | None = None,
        height: int = 560,
    ) -> Explorer:
        """Look through runs in a notebook: a list with filters, a live drawing, an inspector.

        Parameters
        ----------
        where : str
            An SQL condition over the view ``runs``, e.g. ``"model = ?"``.
        parameters : sequence or mapping
            Values for the condition.
        risk : Alarm, RiskModel or mapping, optional
            What tells the risk of steps: a calibrated alarm, a fitted model, or by run id the
            risk after each step.
        height : int
            Of the drawing, pixels.
        """
        from sag_research.viz import Explorer  # widgets take their time to import

        return Explorer(self, where, parameters, risk=risk, height=height)
