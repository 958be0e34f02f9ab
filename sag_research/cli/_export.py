"""Commands that write for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sag_research.cli._base import (
    open_workspace,
    print_json,
    sag,
    with_event_log,
    with_json,
    with_workspace,
)
from sag_research.errors import (
    UsageError,
)

if TYPE_CHECKING:
    from sag_research.workspace import Workspace


@sag.group()
def export() -> None:
    """Write the data for other programs."""


def with_redact(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--redact", is_flag=True, help="Replace keys and passwords by tokens.")(
        command
    )


@contextmanager
def source_of_export(workspace: str | None, redact: bool) -> Iterator[Workspace]:
    """Open what is exported: the workspace, or a copy of it without secrets."""
    with open_workspace(workspace) as ws:
        if not redact:
            yield ws
            return
        with ws.redacted_copy() as clean:
            yield clean


@export.command("duckdb")
@with_workspace
@click.option("-o", "--output", required=True, metavar="FILE")
@with_redact
def export_duckdb(workspace: str | None, output: str, redact: bool) -> None:
    """Write all views as tables of a plain .duckdb file."""
    with source_of_export(workspace, redact) as ws:
        click.echo(str(ws.export_duckdb(output)))


@export.command("xes")
@with_event_log
@with_redact
def export_xes(**options: Any) -> None:
    """Write runs as an XES event log for process mining."""
    from sag_research.exchange import export_xes as write

    _export_log(write, **options)


@export.command("csv")
@with_event_log
@with_redact
def export_csv(**options: Any) -> None:
    """Write runs as a CSV event log, one row a step."""
    from sag_research.exchange import export_csv as write

    _export_log(write, **options)


@export.command("cypher")
@with_workspace
@click.option("--run", metavar="RUN", help="Only this run and its ancestors.")
@click.option("--where", default="true", metavar="SQL", help="A condition on the view runs.")
@click.option("--texts", is_flag=True, help="Write the texts of the steps, too.")
@click.option("--hidden", is_flag=True, help="Write hidden runs, copies and extractions, too.")
@click.option("-o", "--output", required=True, metavar="FOLDER")
@with_redact
@with_json
def export_cypher(hidden: bool, **options: Any) -> None:
    """Write the graph as CSV for Neo4j, with scripts that load it."""
    from sag_research.exchange import export_cypher as write

    _export_log(partial(write, hidden=hidden), **options)


def _export_log(
    write: Callable[..., Any],
    workspace: str | None,
    run: str | None,
    where: str,
    texts: bool,
    output: str,
    redact: bool,
    as_json: bool,
) -> None:
    if run is not None and where != "true":
        raise UsageError("--run and --where name runs in two ways", fix="give one of the two")
    with source_of_export(workspace, redact) as ws:
        if run is not None:
            done = write(ws, output, where="run_id = ?", parameters=[ws.resolve(run)], texts=texts)
        else:
            done = write(ws, output, where=where, texts=texts)
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(f"{done.path}: {done!r}")


def with_provenance(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        with_workspace,
        click.option("--run", metavar="RUN", help="Only this run; default: all."),
        click.option("-o", "--output", required=True, metavar="FILE"),
        with_redact,
        with_json,
    )
    for option in reversed(options):
        command = option(command)
    return command


@export.command("prov")
@with_provenance
def export_prov(**options: Any) -> None:
    """Write provenance as PROV-JSON, a bundle for each run."""
    _export_provenance("prov-json", **options)


@export.command("trig")
@with_provenance
def export_trig(**options: Any) -> None:
    """Write provenance (W3C PROV) as TriG, a graph for each run."""
    _export_provenance("trig", **options)


@export.command("nquads")
@with_provenance
def export_nquads(**options: Any) -> None:
    """Write provenance (W3C PROV) as N-Quads, a line for each quad."""
    _export_provenance("nquads", **options)


@export.command("jsonld")
@with_provenance
def export_jsonld(**options: Any) -> None:
    """Write provenance (W3C PROV) as JSON-LD, a graph for each run."""
    _export_provenance("jsonld", **options)


def _export_provenance(
    format: str, workspace: str | None, run: str | None, output: str, redact: bool, as_json: bool
) -> None:
    from sag_research.bloom import write_provenance

    with source_of_export(workspace, redact) as ws:
        if run is None:
            ws.recorder.catch_up()
            quads = list(ws.recorder.traces)
        else:
            quads = ws.provenance(run).quads()
    path = write_provenance(quads, format, output)
    runs = max(0, len({quad.graph_name for quad in quads}) - 1)  # one graph is the catalogue
    if as_json:
        print_json({"path": str(path), "format": format, "runs": runs, "quads": len(quads)})
    else:
        click.echo(f"{path}: {runs:,} runs, {len(quads):,} quads as {format}")
