"""The list of runs beside an explorer's drawing: filters, pages, choosing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ipywidgets

from sag_research._text import clip, visible
from sag_research.model import OUTCOMES
from sag_research.viz._explorer_data import ANY, PAGE, Filters, Page, RunRow, RunTable
from sag_research.viz._explorer_parts import Turns, wide

__all__ = ["RunList", "run_label"]

_NARROW: Final = {"description_width": "66px"}
_SIGNS: Final = {"success": "✓", "failure": "✗"}


def run_label(row: RunRow) -> str:
    """Say a run in one line of plain text."""
    parts = [
        f"{_SIGNS.get(row.outcome, '?')} {row.outcome}",
        visible(clip(row.run_id, 48)),
        f"{row.n_steps} steps",
        visible(clip(row.model, 24)) if row.model else "",
        "alarm" if row.alarm else "",
        "fork" if row.parent_id else "",
    ]
    return " · ".join(part for part in parts if part)


class RunList(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """Runs that pass the filters, fifty at a time; several can be chosen.

    Parameters
    ----------
    table : RunTable
    on_choose : callable
        Called with the ids of the chosen runs, in the order of the list.
    turns : Turns
        Carries callbacks out.
    """

    def __init__(
        self, table: RunTable, on_choose: Callable[[list[str]], None], turns: Turns
    ) -> None:
        self._table, self._on_choose = table, on_choose
        self._page = Page([], 0, 0)
        self._quiet = False
        self._make_filters()
        self.list = ipywidgets.SelectMultiple(
            rows=10, layout=wide(), tooltip="Runs; the arrow keys choose, Shift chooses several"
        )
        self.told = ipywidgets.Label(value="")
        small = ipywidgets.Layout(width="70px")
        self.back = ipywidgets.Button(description="◀ Back", layout=small, tooltip="Earlier runs")
        self.next = ipywidgets.Button(description="More ▶", layout=small, tooltip="Later runs")
        super().__init__(
            [
                self.task, self.model, self.outcome, self.alarm,
                ipywidgets.HBox([self.least, self.most], layout=wide()),
                self.list, ipywidgets.HBox([self.back, self.next, self.told]),
            ],
            layout=wide(),
        )  # fmt: skip
        self._connect(turns)
        self.load()

    def _make_filters(self) -> None:
        self.task = ipywidgets.Text(
            description="Task", placeholder="part of a task's or run's name", style=_NARROW,
            layout=wide(), continuous_update=False,
        )  # fmt: skip
        models = [("any model", ANY)]
        models += [(visible(clip(name, 60)), name) for name in self._table.models()]
        outcomes = [("any outcome", ANY), *((word, word) for word in OUTCOMES)]
        alarms = [("raised or not", ANY), *((word, word) for word in ("raised", "not raised"))]
        self.model, self.outcome, self.alarm = (
            ipywidgets.Dropdown(
                description=name, options=options, value=ANY, style=_NARROW, layout=wide()
            )
            for name, options in (("Model", models), ("Outcome", outcomes), ("Alarm", alarms))
        )
        self.least, self.most = (
            ipywidgets.BoundedIntText(
                value=0, min=0, max=10**9, description=name, style={"description_width": width},
                layout=ipywidgets.Layout(width="50%"), tooltip=f"{name}; 0: no limit",
            )
            for name, width in (("Steps ≥", "66px"), ("≤", "16px"))
        )  # fmt: skip

    def _connect(self, turns: Turns) -> None:
        for filter_ in (self.task, self.model, self.outcome, self.alarm, self.least, self.most):
            filter_.observe(turns(lambda _: self.load()), "value")
        self.back.on_click(turns(lambda _: self.load(max(self._page.start - PAGE, 0))))
        self.next.on_click(turns(lambda _: self.load(self._page.start + PAGE)))
        self.list.observe(turns(self._chosen), "value")

    @property
    def filters(self) -> Filters:
        """What the filters are set to."""
        return Filters(
            self.task.value.strip(), self.model.value, self.outcome.value, self.least.value,
            self.most.value, self.alarm.value,
        )  # fmt: skip

    @property
    def total(self) -> int:
        """How many runs pass."""
        return self._page.total

    @property
    def rows(self) -> list[RunRow]:
        """The runs on this page."""
        return self._page.rows

    def load(self, start: int = 0) -> None:
        """Read a page of the list; the first of its runs is chosen."""
        page = self._page = self._table.page(self.filters, start)
        last = page.start + len(page.rows)
        first = min(page.start + 1, last)
        self.told.value = f"{first:,}–{last:,} of {page.total:,}" if last else "no run passes"
        if page.looked_at:
            self.told.value += f" (first {page.looked_at:,} looked at)"
        self.back.disabled, self.next.disabled = page.start == 0, last >= page.total
        chosen = tuple(row.run_id for row in page.rows[:1])
        self._quiet = True
        self.list.options = [(run_label(row), row.run_id) for row in page.rows]
        self._quiet = False
        self.list.value = chosen

    def mark(self, run: str) -> bool:
        """Show a run as chosen, without choosing it again; false where this page has it not."""
        known = any(row.run_id == run for row in self._page.rows)
        self._quiet = True
        self.list.value = (run,) if known else ()
        self._quiet = False
        return known

    def _chosen(self, change: Any) -> None:
        if not self._quiet and change["new"]:
            self._on_choose(list(change["new"]))
