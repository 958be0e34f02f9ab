"""The command that finds secrets, in files and in logs, and takes them out of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sag_research.cli._base import (
    REJECTED,
    cell_text,
    open_workspace,
    print_json,
    print_table,
    sag,
    with_json,
    with_workspace,
)
from sag_research.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = ("file", "run", "step", "field", "kind", "token")
_SHOWN = 200


@sag.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@with_workspace
@click.option("--format", "format_name", metavar="NAME", help="Default: content decides.")
@click.option("--redact", is_flag=True, help="Take what is found out of the workspace's log.")
@click.option("--all", "everything", is_flag=True, help="Print all places, not the first 200.")
@with_json
def scan(
    paths: tuple[str, ...],
    workspace: str | None,
    format_name: str | None,
    redact: bool,
    everything: bool,
    as_json: bool,
) -> int:
    """Find keys and passwords in files, folders and workspaces; they are not printed.

    Without a PATH the workspace's log is looked through. Exit code 3 where any are found, 0 where
    none are; with --redact 0 unless some cannot be taken out. Passwords that were made up for
    tests are counted too.
    """
    if redact and paths:
        raise UsageError(
            "--redact takes secrets out of a log, not out of files",
            fix="give -w WORKSPACE alone; for files: sag ingest --redact",
        )
    if paths:
        from sag_research.ingest.secrets import scan as scan_files

        for path in paths:
            if not Path(path).exists():
                raise UsageError(f"{path} does not exist", fix="check the path")
        report: Any = scan_files(paths, format=format_name)
    else:
        with open_workspace(workspace) as ws:
            report = ws.redact_secrets(dry_run=not redact)
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report, everything)
    is_left = report.left or report.busy if redact else report.found
    return REJECTED if is_left else 0


def _print(report: Any, everything: bool) -> None:
    click.echo(_summary(report))
    shown = report.found if everything else report.found[:_SHOWN]
    if shown:
        print_table(_COLUMNS, [_row(one) for one in shown], width=48)
    if len(report.found) > len(shown):
        click.echo(f"  … and {len(report.found) - len(shown)} more; --all prints them")
    for file, reason in getattr(report, "unread", ()):
        click.echo(f"  not read: {cell_text(file)}: {cell_text(reason, 120)}")
    if getattr(report, "busy", False):
        click.echo(
            "  somebody reads the log, and the file log.sqlite-wal still holds what was taken out: "
            "close what reads it, and give --redact once more"
        )
    for place in getattr(report, "left", ()):
        click.echo(f"  cannot be taken out: {cell_text(place)}")
    click.echo(f"  looked for by {report.detectors}")


def _summary(report: Any) -> str:
    """Say what was found and done: a look and a redaction are two things."""
    if not hasattr(report, "dry_run"):
        return repr(report)
    kinds = ", ".join(f"{count} {kind}" for kind, count in report.counts.items())
    found = f"{len(report.found)} secrets" + (f" ({kinds})" if kinds else "")
    if not report.dry_run:
        done = f"{report.events} events redacted" if report.events else "nothing to redact"
        return f"{found}; {done}"
    look = "looked through the log, nothing was changed"
    made_up = ", those included that were made up for tests" if report.found else ""
    return f"{look}: {found}{made_up}"


def _row(one: Any) -> Sequence[Any]:
    return one.file, one.run, one.step, one.field, one.kind, one.token
