"""Commands that look at what is there, and keep it in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from sag_research.cli._base import (
    cell_text,
    open_workspace,
    print_json,
    print_table,
    records_of,
    sag,
    with_json,
    with_workspace,
)

if TYPE_CHECKING:
    pass


@sag.command()
@with_workspace
@click.option("--where", default="true", metavar="SQL", help="A condition on the view runs.")
@with_json
def runs(workspace: str | None, where: str, as_json: bool) -> None:
    """List the runs."""
    shown = "run_id, model, outcome, detail, exit_status, n_steps, cost_usd"
    with open_workspace(workspace) as ws:
        # the condition is the user's own SQL, like the text of `sag sql`
        chosen = "*" if as_json else shown
        result = ws.sql(f"SELECT {chosen} FROM runs WHERE ({where}) ORDER BY seq")  # noqa: S608
    if as_json:
        print_json({"runs": records_of(result.columns, result.rows())})
    else:
        print_table(result.columns, result.rows())


@sag.command()
@click.argument("run")
@with_workspace
@with_json
def steps(run: str, workspace: str | None, as_json: bool) -> None:
    """Show the steps of a RUN (an id, a unique prefix, or a task with one run)."""
    with open_workspace(workspace) as ws:
        result = ws.step_rows(run)
    if as_json:
        print_json({"steps": records_of(result.columns, result.rows())})
    else:
        shown = ["step", "tool", "exit_code", "thought", "action", "observation"]
        print_table(
            shown,
            [[row[name] for name in shown] for row in records_of(result.columns, result.rows())],
            width=44,
        )


@sag.command()
@click.argument("query")
@with_workspace
@with_json
def sql(query: str, workspace: str | None, as_json: bool) -> None:
    """Run a DuckDB QUERY over the views (runs, steps, calls, events, outcomes, entities …)."""
    with open_workspace(workspace) as ws:
        result = ws.sql(query)
    if as_json:
        print_json({"columns": result.columns, "rows": [list(row) for row in result.rows()]})
    else:
        print_table(result.columns, result.rows(), width=100)


@sag.command()
@click.argument("view", required=False)
@with_workspace
def schema(view: str | None, workspace: str | None) -> None:
    """Say what the views' columns are and mean (for one VIEW, or all)."""
    from sag_research.workspace import open as open_workspace

    with open_workspace(":memory:" if workspace is None else workspace, create=False) as ws:
        result = ws.warehouse.schema(view)
    print_table(result.columns, result.rows(), width=100)


@sag.command()
@with_workspace
@with_json
def info(workspace: str | None, as_json: bool) -> None:
    """Say what the workspace holds."""
    with open_workspace(workspace) as ws:
        facts = ws.info()
    if as_json:
        print_json(facts)
        return
    click.echo(f"workspace {facts['path']}, digest {facts['digest']}")
    for group, unit in (("counts", ""), ("outcomes", ""), ("bytes", " bytes of")):
        told = (f"{n:,}{unit} {name}" for name, n in facts[group].items())
        click.echo("  " + ", ".join(told))


@sag.command()
@with_workspace
@with_json
def sources(workspace: str | None, as_json: bool) -> None:
    """List every file that was read, what became of it, and why."""
    columns = "status, format, n_runs, n_steps, path, reason"
    with open_workspace(workspace) as ws:
        chosen = "*" if as_json else columns
        result = ws.sql(f"SELECT {chosen} FROM sources ORDER BY path, root")  # noqa: S608
    if as_json:
        print_json({"sources": records_of(result.columns, result.rows())})
    else:
        print_table(result.columns, result.rows())


@sag.command()
@click.argument("run")
@with_workspace
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write.")
@click.option("--layout", type=click.Choice(["timeline", "force"]), default="timeline")
@with_json
def graph(run: str, workspace: str | None, output: str, layout: str, as_json: bool) -> None:
    """Draw a RUN's bloomed graph as one self-contained HTML file."""
    with open_workspace(workspace) as ws:
        bloomed = ws.bloom(run)
        path = bloomed.to_html(output, layout=layout)
    if as_json:
        counts = bloomed.counts_.to_dict(orient="records")
        print_json({"path": str(path), "counts": counts})
    else:
        click.echo(f"{path}: {bloomed!r}")


@sag.command()
@click.argument("run", required=False)
@with_workspace
@with_json
def verify(run: str | None, workspace: str | None, as_json: bool) -> int:
    """Check that the log (or one RUN) is what was written."""
    with open_workspace(workspace) as ws:
        report = ws.verify(run)
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(repr(report))
        for problem in report.problems:
            click.echo(f"  {cell_text(problem.run)} at {problem.position}: {problem.problem}")
    return 0 if report.ok else 1


@sag.command()
@with_workspace
@click.option("--after", type=int, metavar="SEQ", help="Default: only events still to come.")
@click.option("--follow/--once", default=True, help="Wait for more, or stop at the end.")
@with_json
def tail(workspace: str | None, after: int | None, follow: bool, as_json: bool) -> None:
    """Follow the log while it is written."""
    with open_workspace(workspace) as ws:
        start = ws.store.last_seq() if after is None else after
        events = ws.store.follow(start) if follow else ws.store.tail(start)
        for event in events:
            if as_json:
                print_json({"seq": event.seq, "run": event.run_id, "position": event.position,
                             "type": event.type, "payload": event.payload})  # fmt: skip
            else:
                payload = cell_text(json.dumps(event.payload, ensure_ascii=False))
                run_id, kind = cell_text(event.run_id, 60), cell_text(event.type, 40)
                click.echo(f"{event.seq}  {run_id}  {kind}  {payload}")


@sag.command()
@with_workspace
@with_json
def rebuild(workspace: str | None, as_json: bool) -> None:
    """Throw the warehouse away and project the whole log again."""
    with open_workspace(workspace) as ws:
        report = ws.rebuild()
    if as_json:
        print_json({"events": report.events, "watermark": report.watermark})
    else:
        click.echo(f"{report.events:,} events projected")


@sag.command()
@with_workspace
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write.")
@click.option("--run", help="The run to draw; default: a long one that fits.")
def report(workspace: str | None, output: str, run: str | None) -> None:
    """Write the workspace on one HTML page: tables, and one run's graph."""
    with open_workspace(workspace) as ws:
        click.echo(str(ws.report(output, run)))
