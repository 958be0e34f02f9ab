"""What a cohort says about dead ends, on a page and in a few lines."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sag_research._text import atomic_write, clip, escape, html_table, strip_terminal
from sag_research.errors import LeakError, NotEnoughDataError, RunNotFoundError, UsageError
from sag_research.viz._figures import COLUMN, PAGE, Floats, figure_bytes, style
from sag_research.viz._figures_backtest import plot_backtest, rows_of
from sag_research.viz._figures_risk import plot_risk
from sag_research.viz._figures_tokens import plot_prefix_sankey

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend import Alarm, Backtest, OutOfFold, Prefixes, RiskModel, Where

__all__ = [
    "DeadEndReport",
    "alarm_steps",
    "deadend_report",
    "plot_where",
    "where_line",
    "where_values",
]

MEASURES: Final = {
    "auroc": "AUROC",
    "auroc_5": "at step 5",
    "auroc_10": "at step 10",
    "false_aborts": "false aborts",
    "recall": "failures caught",
    "steps_saved": "steps saved",
    "random_steps_saved": "by random stops",
}
"""Columns of the page's table, with their titles."""


@dataclass(repr=False)
class DeadEndReport:
    """A backtest, an alarm, and one run that was lost.

    Attributes
    ----------
    backtest : Backtest
    alarm : Alarm or None
        Of the model fitted on all runs; None where the data cannot carry one.
    no_alarm : str
        Why there is none.
    where : Where or None
        At which step one failed run was lost; None where no run failed.
    """

    backtest: Backtest
    alarm: Alarm | None
    no_alarm: str
    where: Where | None

    def __repr__(self) -> str:
        return f"DeadEndReport({self.backtest!r})"

    def _repr_html_(self) -> str:
        return self.html()

    @property
    def rows_(self) -> pd.DataFrame:
        """The backtest's table, best AUROC first."""
        return self.backtest.table_.sort_values("auroc", ascending=False, kind="stable")

    def lines(self) -> list[str]:
        """Say the main results in a few lines of text, safe to print."""
        lines = [_cohort_line(self.backtest), *_model_lines(self.backtest), self._alarm_line()]
        if self.where is not None:
            lines.append(f"Run {where_line(self.where, self._outcome())}")
            lines += [f"  {strip_terminal(line)}" for line in self.where.evidence]
        return lines

    def _outcome(self) -> str:
        """The outcome of the run that was looked at."""
        runs = self.backtest.prefixes.runs
        mine = runs["outcome"][runs["run_id"] == getattr(self.where, "run_id", None)]
        return str(mine.iloc[0]) if len(mine) else "unknown"

    def _alarm_line(self) -> str:
        """Say what the first model's alarm did on tasks that neither it nor its model had seen."""
        row = next(iter(rows_of(self.backtest).values()))
        failed = self.backtest.prefixes.failed
        line = (
            f"Alarm of {row['model']} at alpha {row['alpha']:g} ({row['rule']}): on unseen tasks "
            f"it stopped {_rate(row, 'false_aborts')} of {int((failed == 0).sum())} successes and "
            f"{_rate(row, 'recall')} of {int((failed == 1).sum())} failures, and saved "
            f"{_rate(row, 'steps_saved')} of all steps; as many random stops save "
            f"{_rate(row, 'random_steps_saved')}."
        )
        return line if self.alarm is not None else f"{line} None is set: {self.no_alarm}."

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        where = None if self.where is None else where_values(self.where)
        alarm = None if self.alarm is None else _plain(self.alarm.table_)[0]
        return {
            "models": _plain(self.rows_),
            "left_out": dict(self.backtest.left_out),
            "leaks": list(self.backtest.leaks),
            "alarm": alarm,
            "no_alarm": self.no_alarm,
            "where": where,
        }

    def html(self) -> str:
        """Return the report as sections of a page, all texts escaped, figures inside."""
        table = self.rows_
        shown = [name for name in MEASURES if name in table and table[name].notna().any()]
        cells = [[row["model"], row["n"], *(_interval(row, name) for name in shown)]
                 for row in table.to_dict("records")]  # fmt: skip
        titles = ["model", "n", *(MEASURES[name] for name in shown)]
        parts = [
            "<h2>Dead ends: what tells a failing run early</h2>",
            _note(_cohort_line(self.backtest)),
            *map(_note, _model_lines(self.backtest)),
            _note(
                "Intervals (95 %) resample tasks. Unknown outcomes are left out, never failures."
            ),
            f'<div class="numbers">{html_table(titles, cells)}</div>',
            *(_note(f"{name} left out: {why}") for name, why in self.backtest.left_out.items()),
            _note(self._alarm_line()),
            *self._figures(),
        ]
        return "\n".join(parts + self._where_html())

    def _figures(self) -> list[str]:
        """Draw what the data can carry: some need more runs, or probabilities."""
        models = [n for n in self.rows_["model"] if n in self.backtest.out_of_fold][:3]
        parts = []
        for what, text in CAPTIONS.items():
            ax = _new_axes()
            with suppress(NotEnoughDataError, UsageError):
                plot_backtest(self.backtest, what, models, ax=ax)
                parts.append(f"<figure>{_image(ax, text)}</figure>")
        known = self.backtest.prefixes
        ax = _new_axes(PAGE, 4.5)
        with suppress(NotEnoughDataError):
            plot_prefix_sankey(known.sequences(), known.failed, known.table.names, ax=ax)
            parts.append(f"<figure>{_image(ax, PATHS)}</figure>")
        return [f'<div class="figures">{"".join(parts)}</div>'] if parts else []

    def _where_html(self) -> list[str]:
        if self.where is None:
            return []
        marked = self.where.table_[self.where.table_["mark"] != ""]
        rows = [[row.step, row.token, f"{row.risk:.2f}", row.mark] for row in marked.itertuples()]
        said = "".join(f"<li>{escape(line)}</li>" for line in self.where.evidence)
        picture = _image(
            plot_where(self.where, self.alarm, _new_axes()), "Risk of failure over the run"
        )
        return [
            f"<h2>Run {escape(where_line(self.where, self._outcome()))}</h2>",
            f"<ul>{said}</ul>",
            f'<div class="figures"><figure>{picture}</figure></div>',
            html_table(["step", "token", "risk", "mark"], rows),
        ]

    def to_html(self, path: str | PathLike[str]) -> Path:
        """Write the report as a page of its own."""
        from sag_research.viz._report import report_page

        lead = "Backtest of models of failure, and one run that was lost."
        page = report_page("Dead ends", lead, [], None, "", self)
        with atomic_write(path) as file:
            file.write(page.encode("utf-8"))
        return Path(path)


CAPTIONS: Final = {
    "auroc": "AUROC by step, among runs still alive",
    "cost": "Steps saved against false aborts",
    "reliability": "Predicted risk against what happened",
    "incidence": "How runs end",
}
PATHS: Final = "The beginnings that runs share, with their number and the share that failed"


def deadend_report(
    prefixes: Prefixes,
    models: Sequence[str | RiskModel] | Mapping[str, RiskModel] = ("stack",),
    *,
    baselines: bool | Sequence[str] = True,
    folds: int = 5,
    repeats: int = 1,
    alpha: float = 0.05,
    seed: int = 0,
    run: str | None = None,
    told: Callable[[str], None] = lambda name: None,
) -> DeadEndReport:
    """Backtest models, set an alarm, and say where one failed run was lost.

    Parameters
    ----------
    prefixes : Prefixes
    models : sequence of str or RiskModel, or mapping of names to them
        The alarm, and the step at which the run was lost, are by the first one.
    baselines : bool or sequence of str
        Simple models that stand in the table as well.
    folds, repeats, seed : int
        Of the split by task.
    alpha : float
        Share of successful runs that the alarm may stop.
    run : str, optional
        Id of the run to look at; default: the failed run whose risk rose most.
    told : callable, optional
        Is given the name of each model before it is judged: minutes may pass.

    Raises
    ------
    NotEnoughDataError
        If the runs cannot carry a backtest: one outcome, or fewer tasks than folds.
    """
    from sag_research.deadend import Alarm, backtest, locate

    tested = backtest(prefixes, models, folds=folds, repeats=repeats, alpha=alpha, seed=seed,
                      baselines=baselines, told=told)  # fmt: skip
    told("alarm")
    first = next(iter(tested.judged.values())).model
    risk = fresh(first, seed).fit(prefixes)
    alarm, why = None, ""
    try:
        alarm = Alarm(alpha=alpha, seed=seed).calibrate(risk, prefixes)
    except (LeakError, NotEnoughDataError) as error:
        alarm, why = None, str(error)
    own = getattr(risk, "out_of_fold_", None)
    if run is None:
        run = _telling_run(own or next(iter(tested.out_of_fold.values())), alarm)
    if run is None:
        return DeadEndReport(tested, alarm, why, None)
    if own is None:  # its risk must not come from a model that has seen the run
        tasks, here = prefixes.runs["task_id"], prefixes.runs["run_id"] == run
        if not here.any():
            raise RunNotFoundError(f"no run {clip(run, 60)!r} in this cohort")
        others = tasks != tasks[here].iloc[0]
        risk = fresh(first, seed).fit(prefixes.take(others.to_numpy()))
    return DeadEndReport(tested, alarm, why, locate(risk, prefixes, run))


def fresh(model: RiskModel, seed: int) -> RiskModel:
    """Return an unfitted copy of a model, with this seed if it has none."""
    from sklearn.base import clone

    copy: RiskModel = clone(model)
    if copy.get_params(deep=False).get("seed", 0) is None:
        copy.set_params(seed=seed)
    return copy


def _telling_run(scores: OutOfFold, alarm: Alarm | None) -> str | None:
    """Pick the failed run whose risk rose most, of those with an alarm if there are any."""
    threshold = math.inf if alarm is None else alarm.threshold_
    best: tuple[bool, float, str] | None = None
    for run in np.unique(scores.looks.run[scores.failed == 1]):
        mine = scores.scores[scores.looks.run == run]
        name = str(scores.prefixes.runs["run_id"].iloc[run])
        found = (bool(mine.max() > threshold), float(mine.max() - mine[0]), name)
        if best is None or found > best:
            best = found
    return None if best is None else best[2]


def plot_where(where: Where, alarm: Alarm | None = None, ax: Axes | None = None) -> Axes:
    """Draw a run's risk over its steps, with fork point and, if there is one, the alarm."""
    fires = [] if alarm is None else alarm_steps(alarm, where.risk)
    return plot_risk(where.risk, threshold=None if alarm is None else alarm.threshold_,
                     alarm=fires[0] if fires else None, fork=where.fork_step,
                     step_set=where.step_set, title=where.run_id, ax=ax)  # fmt: skip


def alarm_steps(alarm: Alarm, risk: Sequence[float] | Floats) -> list[int]:
    """Return the 0-based steps at which an alarm fires, given the risk after each step."""
    return [step for step, value in enumerate(risk) if alarm.fires(step + 1, float(value))]


def where_line(where: Where, outcome: str = "failure") -> str:
    """Say in one line, safe to print, where a run was lost, or where its risk rose most."""
    named = ("none" if step is None else step for step in (where.change_step, where.fork_step))
    said = "lost" if outcome == "failure" else f"outcome {outcome}; its risk rises most"
    return "{}: {} at step {}, fork point {}".format(clip(where.run_id, 60), said, *named)


def where_values(where: Where) -> dict[str, Any]:
    """Return a :class:`Where` as plain values."""
    return {"text": where.text, "fork_step": where.fork_step, "change_step": where.change_step,
            "step_set": [int(step) for step in where.step_set],
            "evidence": [str(line) for line in where.evidence],
            "steps": _plain(where.table_)}  # fmt: skip


def _cohort_line(tested: Backtest) -> str:
    row = next(iter(rows_of(tested).values()))
    leak = f"LEAK, not to be believed: {'; '.join(tested.leaks)}. " if tested.leaks else ""
    return (
        f"{leak}{int(row['n'])} runs of {int(row['n_tasks'])} tasks with a known outcome, "
        f"{row['prevalence']:.0%} failed; every score is by a model that had not seen the run's "
        f"task ({int(row['folds'])} folds)."
    )


def _model_lines(tested: Backtest) -> list[str]:
    """Name the best model, the one after it, and the one that alarms and steps are by."""
    rows = rows_of(tested)
    first = next(iter(rows))
    scored = sorted(
        (row for row in rows.values() if not (math.isnan(row["auroc"]) or _is_own(row))),
        key=lambda row: -row["auroc"],
    )
    titles = [f"Best AUROC of {len(scored)} models and baselines", "Next"]
    lines = [f"{title}: {_scored(row)}." for title, row in zip(titles, scored, strict=False)]
    if first not in {row["model"] for row in scored[:2]}:
        lines.append(f"Asked for: {_scored(rows[first])}.")
    if not rows[first]["auroc_low"] > 0.5:
        lines.append(
            f"{first} is not shown to be above chance (0.50) here: "
            "trust neither its alarms nor its steps."
        )
    return lines


def _is_own(row: Mapping[str, Any]) -> bool:
    """Whether a row repeats a model's scores, with an alarm of the model's own."""
    return str(row["model"]).endswith("(own alarm)")


def _scored(row: Mapping[str, Any]) -> str:
    return f"{row['model']}, AUROC {_interval(row, 'auroc')} (n = {row['n']})"


def _interval(row: Mapping[Any, Any], name: str) -> str:
    value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if math.isnan(low) else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _rate(row: Mapping[Any, Any], name: str) -> str:
    value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return "–" if math.isnan(value) else f"{value:.0%} [{low:.0%}, {high:.0%}]"


def _plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table as dictionaries of Python values, None for unknown."""
    table = frame.astype(object).where(frame.notna(), None)
    return [
        {str(k): v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
        for row in table.to_dict("records")
    ]


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _new_axes(width: float = COLUMN, height: float = 2.5) -> Axes:
    """Return axes that no window and no notebook knows of."""
    from matplotlib.figure import Figure

    with style():
        return Figure(figsize=(width, height)).add_subplot()


def _image(ax: Axes, text: str) -> str:
    """Put a figure into a page as a picture: no script runs in it, whatever its texts hold."""
    data = base64.b64encode(figure_bytes(ax, ".svg")).decode("ascii")
    return (
        f'<img alt="{escape(text)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{escape(text)}</figcaption>"
    )
