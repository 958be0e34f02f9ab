"""Commands that bring runs and labels in, and show copies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sag_research.cli._base import (
    REJECTED,
    cell_text,
    notes_on_stderr,
    one_line,
    open_workspace,
    print_json,
    print_reasons,
    print_table,
    records_of,
    sag,
    with_json,
    with_workspace,
)
from sag_research.errors import (
    UsageError,
)

_LISTED = 20
"""Runs of a kind that a merge names one by one."""


@sag.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@with_workspace
@click.option("--labels", metavar="FILE", help="Report, folder of reports, or CSV.")
@click.option("--format", "format_name", metavar="NAME",
              help="Default: content decides; NAME! takes what looks otherwise, too.")  # fmt: skip
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1),
              help="Processes that read; pays for many or large files.")  # fmt: skip
@click.option("--recheck", is_flag=True, help="Read files again that look unchanged.")
@click.option("--redact", is_flag=True, help="Replace keys and passwords by tokens.")
@with_json
def ingest(
    paths: tuple[str, ...],
    workspace: str | None,
    labels: str | None,
    format_name: str | None,
    jobs: int,
    recheck: bool,
    redact: bool,
    as_json: bool,
) -> int:
    """Read trajectories from files and folders into a workspace."""
    from sag_research.ingest import check_inputs  # takes its time to import
    from sag_research.workspace import default_path

    for path in (*paths, labels):
        if path is not None and not Path(path).exists():
            raise UsageError(f"{path} does not exist", fix="check the path")
    place = workspace or default_path()
    known = check_inputs(paths, labels=labels, format=format_name, workspace=place)
    # nothing is wrong that can be seen: no workspace is made for nothing
    with open_workspace(workspace, create=True) as ws, notes_on_stderr():
        report = ws.ingest(
            *paths, labels=known, format=format_name, jobs=jobs, recheck=recheck, redact=redact
        )
    if as_json:
        print_json(report.to_dict())
    else:
        _print_ingest(report)
    refused_labels = report.labels is not None and report.labels.refused
    partly = report.rejected or report.refused_records or refused_labels
    return REJECTED if partly else 0


def _print_ingest(report: Any) -> None:
    click.echo(repr(report))
    for name, counts in sorted(report.by_format.items()):
        numbers = ", ".join(f"{count} {what}" for what, count in counts.items())
        click.echo(f"  {name}: {numbers}")
    if report.redacted:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.redacted.items()))
        click.echo(f"  secrets replaced: {kinds}")
    for title, items in (("rejected", report.rejected), ("ignored", report.ignored)):
        print_reasons(title, items)
    if report.labels is not None:
        _print_labels(report.labels, "  ")
    for note in report.notes:
        click.echo(f"  note: {one_line(note)}")


def _print_labels(report: Any, indent: str = "") -> None:
    counts, *rest = report.lines()
    click.echo(f"{indent}LabelReport({counts})")
    for line in rest:
        click.echo(f"{indent}  {one_line(line)}")


@sag.command()
@click.argument("file")
@with_workspace
@with_json
def labels(file: str, workspace: str | None, as_json: bool) -> None:
    """Record outcomes from a label FILE (report, folder of reports, or CSV)."""
    with open_workspace(workspace) as ws:
        report = ws.label(file)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_labels(report)
    if report.refused or report.ambiguous or report.contradictory:
        sys.exit(REJECTED)


@sag.command()
@click.option("--hide", "hidden", multiple=True, metavar="RUN", help="Keep it out of statistics.")
@click.option("--show", "shown", multiple=True, metavar="RUN", help="Let it count again.")
@click.option("--find", is_flag=True, help="Look through all runs first, not only new files.")
@with_workspace
@with_json
def copies(
    hidden: tuple[str, ...], shown: tuple[str, ...], find: bool, workspace: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List runs that are other runs once more; they are kept out of statistics."""
    with open_workspace(workspace) as ws:
        ws.hide(*hidden)
        ws.show(*shown)
        notes = ws.find_copies().notes() if find else []
        frame = ws.copies()
    frame = frame.astype(object).where(frame.notna(), None)
    columns, rows = list(frame.columns), frame.to_numpy().tolist()
    if as_json:
        print_json({"copies": records_of(columns, rows)})
        return
    for note in notes:
        click.echo(f"note: {one_line(note)}", err=True)
    if rows:
        print_table(columns, rows)
    else:
        click.echo("no copies" if find else "no copies; --find looks through all runs")


@sag.command()
@click.argument("others", nargs=-1, required=True, metavar="WORKSPACE...")
@with_workspace
@with_json
def merge(others: tuple[str, ...], workspace: str | None, as_json: bool) -> int:
    """Take over the runs of other workspaces; they are only read."""
    for other in others:
        if not Path(other).exists():
            raise UsageError(f"{other} does not exist", fix="name the folder of a workspace")
    with open_workspace(workspace, create=True) as ws, notes_on_stderr():
        report = ws.merge(*others)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_merge(report)
    return 0 if report.is_whole else REJECTED


sag.add_command(
    click.Command(
        "import", callback=merge.callback, params=merge.params,
        help="Another name of `sag merge`, for who looks for it under this one.",
        short_help="The same as `sag merge`; files of runs come in by `sag ingest`.",
    )
)  # fmt: skip


def _print_merge(report: Any) -> None:
    click.echo(repr(report))
    for path, log in report.logs.items():
        names = ("copied", "extended", "known", "conflicts", "refused")
        counts = ", ".join(f"{len(getattr(log, name))} {name}" for name in names)
        click.echo(f"  {cell_text(path, 80)}: {counts}; {log.facts} facts about runs")
        _print_left_out("conflict", log.conflicts)
        _print_left_out("refused", log.refused)
    for one in report.disagreements:
        says = f"{one.source} says {one.here} here and {one.there} there"
        click.echo(f"  disagreement: {cell_text(one.run, 80)}: {cell_text(says, 120)}")
    for note in report.notes:
        click.echo(f"  note: {one_line(note)}")


def _print_left_out(title: str, items: Sequence[tuple[str, str]]) -> None:
    """Print each run that a merge left out, of many the first ones, and where the rest is."""
    for run, why in items[:_LISTED]:
        click.echo(f"  {title}: {cell_text(run, 120)}: {cell_text(why, 300)}")
    if len(items) > _LISTED:
        click.echo(f"  {title}: {len(items)} in all; the same command with --json lists each")
