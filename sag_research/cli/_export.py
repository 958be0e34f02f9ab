"""Commands that write for other programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sag_research.cli._base import (
    open_workspace,
    print_json,
    sag,
    with_event_log,
    with_workspace,
)
from sag_research.errors import (
    UsageError,
)

if TYPE_CHECKING:
    pass


@sag.group()
def export() -> None:
    """Write the data for other programs."""


@export.command("duckdb")
@with_workspace
@click.option("-o", "--output", required=True, metavar="FILE")
def export_duckdb(workspace: str | None, output: str) -> None:
    """Write all views as tables of a plain .duckdb file."""
    with open_workspace(workspace) as ws:
        click.echo(str(ws.export_duckdb(output)))


@export.command("xes")
@with_event_log
def export_xes(**options: Any) -> None:
    """Write runs as an XES event log for process mining."""
    from sag_research.exchange import export_xes as write

    _export_log(write, **options)


@export.command("csv")
@with_event_log
def export_csv(**options: Any) -> None:
    """Write runs as a CSV event log, one row a step."""
    from sag_research.exchange import export_csv as write

    _export_log(write, **options)


def _export_log(
    write: Callable[..., Any],
    workspace: str | None,
    run: str | None,
    where: str,
    texts: bool,
    output: str,
    as_json: bool,
) -> None:
    if run is not None and where != "true":
        raise UsageError("--run and --where name runs in two ways", fix="give one of the two")
    with open_workspace(workspace) as ws:
        if run is not None:
            done = write(ws, output, where="run_id = ?", parameters=[ws.resolve(run)], texts=texts)
        else:
            done = write(ws, output, where=where, texts=texts)
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(f"{done.path}: {done!r}")
