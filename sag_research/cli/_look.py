"""Commands that look at what is there, and keep it in order."""

from __future__ import annotations

import json

import click

from sag_research._text import clip
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
from sag_research.errors import UsageError
from sag_research.model import WORKSPACE_RUN


@sag.command()
@click.argument("condition", nargs=-1, metavar="")
@with_workspace
@click.option("--where", default="true", metavar="SQL", help="A condition on the view runs.")
@with_json
def runs(condition: tuple[str, ...], workspace: str | None, where: str, as_json: bool) -> None:
    """List the runs; those that are hidden (copies, or by hand) are marked."""
    if condition:
        raise UsageError(
            f"`sag runs` takes no argument {clip(condition[0], 60)!r}",
            fix="a condition goes behind --where, e.g. --where \"outcome = 'failure'\"",
        )
    shown = "run_id, model, outcome, detail, exit_status, n_steps, cost_usd"
    mark = "CASE WHEN copy_of IS NOT NULL THEN 'copy' WHEN hidden THEN 'by hand' END AS hidden"
    with open_workspace(workspace) as ws:
        # the condition is the user's own SQL, like the text of `sag sql`
        chosen = "*" if as_json else f"{shown}, {mark}"
        # it stands inside, where `hidden` is the column and not the mark
        query = f"SELECT {chosen} FROM (SELECT * FROM runs WHERE ({where})) ORDER BY seq"  # noqa: S608
        result = ws.sql(query)
    if as_json:
        print_json({"runs": records_of(result.columns, result.rows())})
        return
    columns, rows = list(result.columns), result.rows()
    hidden = sum(row[-1] is not None for row in rows)
    if hidden:
        print_table(columns, rows)
        click.echo(
            f"{hidden} of {len(rows)} runs are hidden and count in no statistics;"
            " --where 'NOT hidden' leaves them out, `sag copies` says why",
            err=True,
        )
    else:
        print_table(columns[:-1], [row[:-1] for row in rows])


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
    counts = dict(facts["counts"])
    runs, hidden = counts.pop("runs"), counts.pop("hidden")
    more = f" (and {hidden:,} hidden: see `sag copies`)" if hidden else ""
    told = (f"{n:,} {name}" for name, n in counts.items())
    click.echo("  " + ", ".join([f"{runs:,} runs{more}", *told]))
    for group, unit in (("outcomes", ""), ("bytes", " bytes of")):
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
        own = run is None and ws.store.has_run(WORKSPACE_RUN)
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(f"{report!r}{_own_facts(report.runs, own)}")
        for problem in report.problems:
            click.echo(f"  {cell_text(problem.run)} at {problem.position}: {problem.problem}")
    return 0 if report.ok else 1


def _own_facts(count: int, own: bool) -> str:
    """Say that one of the histories is no run, so that the number fits that of `sag runs`."""
    return f": {count - 1:,} runs, and the workspace's own facts" if own else ""


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
