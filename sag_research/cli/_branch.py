"""Commands for runs that leave other runs, are executed again, or lose an event's text."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from sag_research._text import atomic_write, repair, strip_terminal, visible
from sag_research.cli._base import (
    cell_text,
    one_line,
    open_workspace,
    print_json,
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
@click.argument("run")
@with_workspace
@click.option("--at", type=int, metavar="N", help="The child sees events 1..N.")
@click.option("--step", type=int, metavar="N", help="The child sees all up to step N.")
@with_json
def fork(run: str, workspace: str | None, at: int | None, step: int | None, as_json: bool) -> None:
    """Branch a RUN at an event or a step."""
    with open_workspace(workspace) as ws:
        child = ws.fork(run, at=at, step=step)
    if as_json:
        print_json({"run_id": child.run_id, "at": child.fork_position, "parent": child.parent_id})
    else:
        told = f"{child.run_id}: sees events 1..{child.fork_position} of {child.parent_id}"
        click.echo(one_line(told))  # an id is a stranger's text


@sag.command()
@click.argument("a")
@click.argument("b")
@with_workspace
@click.option("-o", "--output", metavar="FILE", help="Write both side by side as HTML.")
@with_json
def diff(a: str, b: str, workspace: str | None, output: str | None, as_json: bool) -> None:
    """Compare two runs: the shared prefix, where they part, and the aligned rest."""
    with open_workspace(workspace) as ws:
        found = ws.diff(a, b)
    if output is not None:
        with atomic_write(output) as file:
            file.write(found.to_html().encode("utf-8"))
    rows = [(r.status, r.step_a, r.step_b, r.summary) for r in found.rows]
    columns = ("status", "step_a", "step_b", "summary")
    if as_json:
        print_json({"shared": found.shared, "rows": records_of(columns, rows)})
    else:
        click.echo(repr(found))
        print_table(columns, [row for row in rows if row[0] != "same"])


@sag.command()
@click.argument("run")
@with_workspace
@with_json
def lineage(run: str, workspace: str | None, as_json: bool) -> None:
    """Show a RUN's relatives: its ancestors and all forks."""
    with open_workspace(workspace) as ws:
        found = ws.lineage(run)
    frame = found.table_.astype(object).where(found.table_.notna(), None)
    columns, rows = list(frame.columns), frame.to_numpy().tolist()
    if as_json:
        print_json({"runs": records_of(columns, rows)})
    else:
        print_table(columns, rows)


@sag.command()
@click.argument("run")
@with_workspace
@click.option("--agent", metavar="NAME", help="module:function or file.py:function; default: "
              "what the run's config says under entry_point.")  # fmt: skip
@click.option("--factory", is_flag=True, help="The function makes the agent of (change, seed).")
@click.option("--strict", is_flag=True, help="Take the first divergence for an error.")
@with_json
def replay(
    run: str, workspace: str | None, agent: str | None, factory: bool, strict: bool, as_json: bool
) -> int:
    """Carry out a RUN again on its recorded answers, and say where it first parts from it."""
    from sag_research.runtime import ReplayDivergence

    # what the agent prints is not the answer
    with open_workspace(workspace) as ws, redirect_stdout(sys.stderr):
        report = ws.replay(run, agent, factory=factory, strict=False)
    if as_json:
        print_json(report.to_dict())
    elif not (strict and report.divergence):
        click.echo(one_line(repr(report)))
        for line in str(report.divergence or "").splitlines():
            click.echo(visible(strip_terminal(repair(line))))
    if strict and report.divergence is not None:
        raise ReplayDivergence(report.divergence)
    return 0 if report.ok else 1


@sag.command()
@click.argument("run")
@with_workspace
@click.option("--at", type=click.IntRange(min=1), required=True, metavar="POSITION",
              help="Position of the event in the run.")  # fmt: skip
@click.option("--reason", required=True, metavar="TEXT", help="Stands in its place for good.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_json
def redact(run: str, workspace: str | None, at: int, reason: str, yes: bool, as_json: bool) -> None:
    """Take the text of one event of a RUN out of the log and the warehouse, for good."""
    with open_workspace(workspace) as ws:
        run_id = ws.resolve(run)
        event = next(ws.store.read(run_id, at, at), None)
        if event is None:
            raise UsageError(f"run {run_id!r} has no position {at}")
        if not yes:
            _confirm(
                f"Redact event {at} ({cell_text(event.type, 40)}) of run {cell_text(event.run_id)}?"
            )
        done = ws.redact(run_id, at, reason)
    told = done.event.payload
    if as_json:
        print_json({**told, "removed": done.removed, "kept": done.kept})
    else:
        counts = f"{done.removed} long texts removed, {done.kept} kept that other events hold too"
        click.echo(f"event {at} of run {cell_text(told['run'])} is redacted: {counts}")


def _confirm(question: str) -> None:
    """Ask for a thing that cannot be undone; where there is nobody to ask, refuse."""
    if not sys.stdin.isatty():
        raise UsageError("a redaction cannot be undone", fix="give --yes if you mean it")
    click.confirm(question, abort=True, err=True)
