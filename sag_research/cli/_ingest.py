"""Commands that bring runs and labels in, and show copies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sag_research.cli._base import (
    REJECTED,
    cell_text,
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

if TYPE_CHECKING:
    pass


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
    with open_workspace(workspace, create=True) as ws:
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
        click.echo(f"  {report.labels!r}")
    for note in report.notes:
        click.echo(f"  note: {cell_text(note, 200)}")


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
        click.echo(repr(report))
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
        click.echo(f"note: {cell_text(note, 300)}", err=True)
    print_table(columns, rows)


@sag.command()
@click.argument("others", nargs=-1, required=True, metavar="WORKSPACE...")
@with_workspace
@with_json
def merge(others: tuple[str, ...], workspace: str | None, as_json: bool) -> int:
    """Take over the runs of other workspaces; they are only read."""
    for other in others:
        if not Path(other).exists():
            raise UsageError(f"{other} does not exist", fix="name the folder of a workspace")
    with open_workspace(workspace, create=True) as ws:
        report = ws.merge(*others)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_merge(report)
    return 0 if report.is_whole else REJECTED


sag.add_command(merge, "import")


def _print_merge(report: Any) -> None:
    click.echo(repr(report))
    for path, log in report.logs.items():
        names = ("copied", "extended", "known", "conflicts", "refused")
        counts = ", ".join(f"{len(getattr(log, name))} {name}" for name in names)
        click.echo(f"  {cell_text(path, 80)}: {counts}; {log.facts} facts about runs")
        for title, items in (("conflict", log.conflicts), ("refused", log.refused)):
            print_reasons(title, items)
    for one in report.disagreements:
        says = f"{one.source} says {one.here} here and {one.there} there"
        click.echo(f"  disagreement: {cell_text(one.run, 80)}: {cell_text(says, 120)}")
    for note in report.notes:
        click.echo(f"  note: {cell_text(note, 200)}")
