"""Commands that write runs whole, for other tools and other logs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from sag_research.cli._base import print_json, with_json, with_workspace
from sag_research.cli._export import export, source_of_export, with_redact
from sag_research.errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _with_runs(output: str) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        options = (
            with_workspace,
            click.option("--run", metavar="RUN", help="Only this run."),
            click.option(
                "--where", default="true", metavar="SQL", help="A condition on the view runs."
            ),
            click.option("-o", "--output", required=True, metavar=output),
            with_redact,
            with_json,
        )
        for option in reversed(options):
            command = option(command)
        return command

    return add


@export.command("atif")
@_with_runs("FOLDER")
@click.option(
    "--schema", "version", type=click.Choice(["1.8", "1.7"]), default="1.8", show_default=True,
    help="The version that the files name.",
)  # fmt: skip
def export_atif(version: str, **options: Any) -> None:
    """Write runs as ATIF trajectories, a file for each run."""
    from sag_research.exchange import export_atif as write

    _write(partial(write, version=version), **options)  # type: ignore[arg-type]


@export.command("otlp")
@_with_runs("FILE")
def export_otlp(**options: Any) -> None:
    """Write runs as traces: OTLP in JSON, a request a line."""
    from sag_research.exchange import export_otlp as write

    _write(write, **options)


@export.command("jsonl")
@_with_runs("FILE")
def export_jsonl(**options: Any) -> None:
    """Write runs as native records, one a line: all that another log can take in."""
    from sag_research.exchange import export_jsonl as write

    _write(write, **options)


@export.command("parquet")
@_with_runs("FOLDER")
@click.option("--title", default="", help="Of the card; default: the folder's name.")
@click.option(
    "--licence", default="unknown", metavar="NAME", help="As the Hugging Face hub abbreviates it."
)
def export_parquet(title: str, licence: str, redact: bool, **options: Any) -> None:
    """Write runs, steps and calls as Parquet, with a card for publishing."""
    from sag_research.exchange import export_parquet as write

    full = partial(write, title=title, licence=licence, redacted=redact)
    _write(full, redact=redact, **options)


def _write(
    write: Callable[..., Any],
    workspace: str | None,
    run: str | None,
    where: str,
    output: str,
    redact: bool,
    as_json: bool,
) -> None:
    if run is not None and where != "true":
        raise UsageError("--run and --where name runs in two ways", fix="give one of the two")
    with source_of_export(workspace, redact) as ws:
        if run is not None:
            done = write(ws, output, where="run_id = ?", parameters=[ws.resolve(run)])
        else:
            done = write(ws, output, where=where)
    if as_json:
        print_json(done.to_dict())
    else:
        click.echo(f"{done.path}: {done!r}")
