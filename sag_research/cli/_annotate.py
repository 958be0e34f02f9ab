"""The command that lists what people annotated."""

from __future__ import annotations

import click

from sag_research.cli._base import (
    open_workspace,
    print_json,
    print_table,
    records_of,
    sag,
    with_json,
    with_workspace,
)


@sag.command("annotations")
@click.argument("run", required=False)
@with_workspace
@click.option("-o", "--output", metavar="FILE", help="Write a CSV file instead.")
@click.option("--agreement", nargs=2, metavar="A B", help="Compare two annotators.")
@with_json
def list_annotations(
    run: str | None,
    workspace: str | None,
    output: str | None,
    agreement: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """List annotations of all runs, or of a RUN; compare annotators by Cohen's kappa."""
    with open_workspace(workspace) as ws:
        found = None if agreement is None else ws.agreement(*agreement)
        frame = ws.annotations(run) if found is None else found.table_
    if found is not None:
        click.echo(found.says(), err=True)
    if output is not None:
        frame.to_csv(output, index=False, encoding="utf-8", lineterminator="\n")
        click.echo(f"{len(frame)} rows written to {output}", err=True)
        return
    rows = list(frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None))
    if as_json:
        name = "annotations" if found is None else "agreement"
        print_json({name: records_of(list(frame.columns), rows)})
    else:
        print_table(list(frame.columns), rows)
