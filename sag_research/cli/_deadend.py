"""Commands that say at which step runs were lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sag_research._text import safe_file_name, visible
from sag_research.cli._base import (
    SHARE,
    notes_on_stderr,
    one_line,
    open_workspace,
    print_json,
    print_table,
    sag,
    with_cohort,
    with_json,
    with_model,
    with_workspace,
)
from sag_research.errors import (
    LeakError,
    MissingDataError,
    NotEnoughDataError,
    UsageError,
)

if TYPE_CHECKING:
    from sag_research.deadend import Alarm, RiskModel, Where
    from sag_research.workspace import Workspace


OWN = " (own alarm)"
"""What ends the name of a row with a model's own alarm, in the backtest's table."""


@sag.group()
def deadend() -> None:
    """Say at which step runs are lost, and how sure that is."""


@deadend.command("fit")
@with_workspace
@with_cohort
@click.option("--model", default="stack", metavar="NAME", show_default=True)
@click.option("--alpha", default=0.05, show_default=True, type=SHARE,
              help="Share of runs that would succeed that the alarm may stop.")  # fmt: skip
@click.option(
    "-o", "--output", required=True, metavar="NAME", help="Saved in the workspace's models/."
)
@with_json
def deadend_fit(
    workspace: str | None, where: str, no_text: bool, model: str, alpha: float, output: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Fit a model of failure, set its alarm, and save both."""
    from sag_research.deadend import Alarm, save

    with open_workspace(workspace) as ws, notes_on_stderr():
        target = _model_folder(ws) / _model_name(output)
        risk, prefixes = _model_called(model, no_text), ws.prefixes(where)
        risk.fit(prefixes)
        alarm, why = None, ""
        try:
            alarm = Alarm(alpha=alpha).calibrate(risk, prefixes)
        except (LeakError, NotEnoughDataError) as error:
            why = str(error)
        target.parent.mkdir(exist_ok=True)
        path = save(risk if alarm is None else alarm, target)
    known = prefixes.labelled
    told = {"path": str(path), "model": model, "runs": len(known),
            "tasks": int(known.runs["task_id"].nunique()), "failed": int(known.failed.sum()),
            "succeeded": int((known.failed == 0).sum()), "left_out": prefixes.left_out,
            "alarm": None if alarm is None else _scalars(alarm.table_.iloc[0].to_dict()),
            "no_alarm": why}  # fmt: skip
    if as_json:
        print_json(told)
        return
    click.echo(f"{path}: {model} fitted on {prefixes!r}")
    click.echo(f"  {alarm!r}" if alarm is not None else f"  no alarm: {one_line(why)}")


@deadend.command("report")
@with_workspace
@with_cohort
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Several times for several; default: stack.",
)
@click.option("--folds", default=5, show_default=True, type=click.IntRange(2))
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1))
@click.option("--alpha", default=0.05, show_default=True, type=SHARE)
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("-o", "--output", metavar="FILE", help="Write it with figures as one HTML page, too.")
@with_json
def deadend_report_(
    workspace: str | None, where: str, no_text: bool, models: tuple[str, ...], output: str | None,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Judge models of failure on tasks that they have not seen.

    Beside each model stand simple baselines, which need no learning from the steps or next to
    none; what each is, is said below the table. All of them are fitted anew on every fold: with
    a few hundred runs that takes some minutes, in proportion to --folds and --repeats; --no-text
    and `--model hazard` are faster. Rows marked "(own alarm)" have the scores of the model of that
    name, and an alarm by the model's own rule in place of the calibrated one.
    """
    from sag_research.deadend import BASELINES, MODELS
    from sag_research.viz import deadend_report

    with open_workspace(workspace) as ws, notes_on_stderr():
        chosen = [_model_called(name, no_text) for name in models or ("stack",)]
        if no_text:
            of_words = {name for name, model in MODELS.items() if model.needs_text}
            settings["baselines"] = [name for name in BASELINES if name not in of_words]
        baselines = settings.get("baselines", BASELINES)
        with _bar(len({*(model.name for model in chosen), *baselines}) + 1) as told:
            found = deadend_report(ws.prefixes(where), chosen, told=told, **settings)
        if output is not None:
            found.to_html(output)
    if as_json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        click.echo(visible(line))
    click.echo()
    shown = ("auroc", "auroc_5", "auroc_10", "brier", "false_aborts", "recall", "steps_saved")
    rows = [
        (row["model"], row["n"], *(_estimate(row, name) for name in shown))
        for row in found.to_dict()["models"]
    ]
    print_table(("model", "n", *shown), rows)
    _print_meanings([str(row[0]) for row in rows])
    for name, why in found.backtest.left_out.items():
        click.echo(f"note: {name} left out: {one_line(why)}", err=True)
    if output is not None:
        click.echo(f"\nReport with figures: {output}")


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str], None]]:
    """Show on standard error which model is being judged, where someone can see it."""
    from tqdm import tqdm

    with tqdm(total=total, unit="model", leave=False, disable=not sys.stderr.isatty()) as bar:
        done = 0

        def told(name: str) -> None:
            nonlocal done
            bar.update(int(done > 0))  # the one before is done
            bar.set_description(f"judging {name}")
            done += 1

        yield told


def _print_meanings(rows: Sequence[str]) -> None:
    """Say below the table what each row is."""
    from sag_research.deadend import MODELS

    click.echo()
    for name in rows:
        base, _, parameter = name.removesuffix(OWN).partition(" ")
        plain = name.removesuffix(OWN)
        if base not in MODELS or (name != plain and plain in rows):
            continue
        about = (MODELS[base].__doc__ or "").strip().split("\n\n")[0]
        about = about.replace("*", "").replace("`", "")
        more = f" Its own alarm asks that {parameter} of those runs failed." if parameter else ""
        click.echo(f"  {plain}: {one_line(about)}{more}")
    if any(name.endswith(OWN) for name in rows):
        click.echo(f"  …{OWN}: the same scores, with an alarm by the model's own rule")
    click.echo(
        "  false_aborts, recall, steps_saved: shares of successes stopped, of failures stopped,"
        " and of all steps that are saved; [95 % interval]"
    )


def _model_called(name: str, no_text: bool) -> RiskModel:
    from sag_research.deadend import PrefixRisk, model_of

    return PrefixRisk(text=False) if no_text and name == PrefixRisk.name else model_of(name)


def _scalars(row: dict[Any, Any]) -> dict[str, Any]:
    """Turn numpy's numbers and truth values into Python's."""
    return {str(k): v.item() if hasattr(v, "item") else v for k, v in row.items()}


def _estimate(row: dict[str, Any], name: str) -> str:
    value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return "-"
    return f"{value:.3f}" if low is None else f"{value:.3f} [{low:.2f}, {high:.2f}]"


@deadend.command("check")
@click.argument("run")
@with_workspace
@with_model
@with_json
def deadend_check(run: str, workspace: str | None, name: str | None, as_json: bool) -> None:
    """Show the risk after each step of a RUN, and whether the alarm fires."""
    from sag_research.viz import alarm_steps

    with open_workspace(workspace) as ws, notes_on_stderr():
        run_id, fitted = ws.resolve(run), _fitted(ws, name)
        found = _located(ws, run_id, fitted.risk)
    alarm, seen = fitted.alarm, run_id in fitted.risk.fitted_runs_
    first = None if alarm is None else next(iter(alarm_steps(alarm, found.risk)), None)
    steps = [
        {"step": step, "token": token, "risk": float(risk),
         "alarm": first is not None and step >= first}
        for step, (token, risk) in enumerate(zip(found.tokens, found.risk, strict=True))
    ]  # fmt: skip
    told = {"run_id": run_id, "model": fitted.name, "seen_in_training": seen,
            "alpha": None if alarm is None else alarm.alpha,
            "threshold": None if alarm is None else alarm.threshold_,
            "alarm_step": first, "steps": steps}  # fmt: skip
    if as_json:
        print_json(told)
        return
    rows = [
        (row["step"], f"{row['risk']:.3f}", "raised" if row["alarm"] else "", row["token"])
        for row in steps
    ]
    print_table(("step", "risk", "alarm", "token"), rows)
    click.echo(_verdict(alarm, first))
    if seen:
        fair = hasattr(fitted.risk, "out_of_fold_")
        how = "the risk is by one that had not seen its task" if fair else "its risk is too sure"
        click.echo(f"The model was fitted on this run; {how}.")


def _verdict(alarm: Alarm | None, step: int | None) -> str:
    if alarm is None:
        return "No alarm was set for this model: see `sag deadend fit`."
    rule = f"(threshold {alarm.threshold_:.3f}, alpha {alarm.alpha:g}, {alarm.mode} mode)"
    return f"No alarm {rule}." if step is None else f"Alarm at step {step} {rule}."


@deadend.command("where")
@click.argument("run")
@with_workspace
@with_model
@with_json
def deadend_where(run: str, workspace: str | None, name: str | None, as_json: bool) -> None:
    """Say at which step a RUN was lost, where to fork it, and on what evidence."""
    from sag_research.viz import where_line, where_values

    with open_workspace(workspace) as ws, notes_on_stderr():
        run_id, fitted = ws.resolve(run), _fitted(ws, name)
        found = _located(ws, run_id, fitted.risk)
        outcome = str(ws.sql("SELECT outcome FROM runs WHERE run_id = ?", [run_id]).rows()[0][0])
    if as_json:
        told = {"run_id": run_id, "outcome": outcome, "model": fitted.name}
        print_json(told | where_values(found))
        return
    click.echo(one_line(where_line(found, outcome)))
    for line in found.evidence:
        click.echo(f"  {one_line(line)}")


class _Fitted(NamedTuple):
    """A saved model, and its alarm if it has one."""

    name: str
    risk: RiskModel
    alarm: Alarm | None


def _fitted(ws: Workspace, name: str | None) -> _Fitted:
    """Load the model of this name, or the only one there is."""
    from sag_research.deadend import Alarm, load

    folder = _model_folder(ws)
    names = sorted(path.stem for path in folder.glob("*.json"))
    if not names:
        raise MissingDataError(
            "no model of failure is fitted in this workspace",
            fix="fit one with `sag deadend fit -o NAME`",
        )
    if name is None and len(names) > 1:
        raise UsageError(f"{len(names)} models are saved", fix=f"say -m {' or -m '.join(names)}")
    chosen = names[0] if name is None else _model_name(name)
    if chosen not in names:
        raise UsageError(f"no model {chosen!r} in {folder}", fix=f"one of {', '.join(names)}")
    saved = load(folder / f"{chosen}.json")
    if not isinstance(saved, Alarm):
        return _Fitted(chosen, saved, None)
    if saved.risk_ is None:
        raise UsageError(f"model {chosen!r} is an alarm alone", fix="fit it again")
    return _Fitted(chosen, saved.risk_, saved)


def _located(ws: Workspace, run_id: str, risk: RiskModel) -> Where:
    """Locate the loss of a run among the others of its task; of a fork or copy, on its own."""
    from sag_research.deadend import locate, prefixes_of_steps

    query = """
        SELECT task_id, parent_id IS NOT NULL OR hidden OR copy_of IS NOT NULL
        FROM runs WHERE run_id = ?"""
    ((task, alone),) = ws.sql(query, [run_id]).rows()
    if alone:  # no member of a cohort
        return locate(risk, prefixes_of_steps(ws.steps(run_id), risk.vocabulary_), 0)
    vocabulary = risk.vocabulary_
    prefixes = ws.prefixes("task_id IS NOT DISTINCT FROM ?", [task], vocabulary=vocabulary)
    return locate(risk, prefixes, run_id)


def _model_folder(ws: Workspace) -> Path:
    if ws.path is None:
        raise UsageError("a workspace in memory keeps no models", fix="name a folder with -w")
    return ws.path / "models"


def _model_name(text: str) -> str:
    """Return the plain name that ``models/NAME``, ``NAME.json`` or ``NAME`` stands for."""
    name = text.removeprefix("models/").removesuffix(".json").removesuffix(".npz")
    if not name or safe_file_name(name) != name:
        raise UsageError(
            f"{text!r} is no name for a model", fix="use letters, digits and ._- only, no folder"
        )
    return name
