"""The command ``sag``: the Python API with flags."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from sag_research import __version__
from sag_research._text import atomic_write, clip, repair, strip_terminal, visible
from sag_research.errors import SagError, UsageError

if TYPE_CHECKING:
    from sag_research.workspace import Workspace

__all__ = ["main"]

REJECTED = 3
"""Exit code: done, but some inputs were rejected."""

Command = TypeVar("Command", bound=Callable[..., Any])


def main() -> NoReturn:
    """Run the command line; every error a user can meet is one line on stderr."""
    try:
        code = sag.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        click.echo("stopped", err=True)
        code = 1
    except SagError as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"error: {_line(str(error))}", err=True)
        code = error.exit_code
    except SystemExit as error:
        # `sag … | head` is no error; click has replaced the closed pipe before it leaves
        code = 0 if "Pacify" in type(sys.stdout).__name__ else error.code
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"error: {_line(str(error))}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _line(text: str) -> str:
    return " ".join(visible(strip_terminal(repair(text))).split())


def _with_workspace(command: Command) -> Command:
    option = click.option(
        "-w", "--workspace", metavar="FOLDER", help="Default: $SAG_WORKSPACE, else ./sag-workspace."
    )
    return option(command)


def _with_json(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(
        command
    )


def _workspace(path: str | None, *, create: bool = False) -> Workspace:
    from sag_research.workspace import open as open_workspace

    return open_workspace(path, create=create)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(_json_value(value), ensure_ascii=False, allow_nan=False))


def _json_value(value: Any) -> Any:
    """Make a value JSON: times as ISO text, bytes as hex, numbers that JSON lacks as text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _records(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int = 60) -> None:
    """Print rows in columns; text of a trajectory is shortened and cannot move the cursor."""
    cells = [[_cell(cell, width) for cell in row] for row in rows]
    table = [list(columns), *cells]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    for row in table:
        click.echo("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def _cell(value: Any, width: int = 100) -> str:
    if isinstance(value, float):
        value = f"{value:.6g}"
    return "" if value is None else visible(clip(value, width))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sag")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def sag(debug: bool) -> None:
    """Study AI agents: ingest trajectories, query them, see them as a graph."""


@sag.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@_with_workspace
@click.option("--labels", metavar="FILE", help="Report, folder of reports, or CSV.")
@click.option("--format", "format_name", metavar="NAME", help="Default: content decides.")
@_with_json
def ingest(
    paths: tuple[str, ...],
    workspace: str | None,
    labels: str | None,
    format_name: str | None,
    as_json: bool,
) -> int:
    """Read trajectories from files and folders into a workspace."""
    for path in (*paths, labels):  # before a workspace is made for nothing
        if path is not None and not Path(path).exists():
            raise UsageError(f"{path} does not exist", fix="check the path")
    with _workspace(workspace, create=True) as ws:
        report = ws.ingest(*paths, labels=labels, format=format_name)
    if as_json:
        _print_json(report.to_dict())
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
    for title, items in (("rejected", report.rejected), ("ignored", report.ignored)):
        _print_reasons(title, items)
    if report.labels is not None:
        click.echo(f"  {report.labels!r}")
    for note in report.notes:
        click.echo(f"  note: {_cell(note, 200)}")


def _print_reasons(title: str, items: Sequence[tuple[str, str]]) -> None:
    """Print each reason with a file that has it, and how many more have."""
    reasons = Counter(reason for _, reason in items)
    for reason, count in reasons.most_common(20):
        path = next(path for path, why in items if why == reason)
        more = f" and {count - 1} more" if count > 1 else ""
        click.echo(f"  {title}: {_cell(path)}{more}: {_cell(reason, 120)}")
    if len(items) > 1:
        click.echo(f"  {title}: {len(items)} in all; `sag sources` lists each")


@sag.command()
@_with_workspace
@click.option("--where", default="true", metavar="SQL", help="A condition on the view runs.")
@_with_json
def runs(workspace: str | None, where: str, as_json: bool) -> None:
    """List the runs."""
    shown = "run_id, model, outcome, detail, exit_status, n_steps, cost_usd"
    with _workspace(workspace) as ws:
        # the condition is the user's own SQL, like the text of `sag sql`
        chosen = "*" if as_json else shown
        result = ws.sql(f"SELECT {chosen} FROM runs WHERE ({where}) ORDER BY seq")  # noqa: S608
    if as_json:
        _print_json({"runs": _records(result.columns, result.rows())})
    else:
        _print_table(result.columns, result.rows())


@sag.command()
@click.argument("run")
@_with_workspace
@_with_json
def steps(run: str, workspace: str | None, as_json: bool) -> None:
    """Show the steps of a RUN (an id, a unique prefix, or a task with one run)."""
    with _workspace(workspace) as ws:
        result = ws.step_rows(run)
    if as_json:
        _print_json({"steps": _records(result.columns, result.rows())})
    else:
        shown = ["step", "tool", "exit_code", "action", "observation"]
        _print_table(
            shown,
            [[row[name] for name in shown] for row in _records(result.columns, result.rows())],
        )


@sag.command()
@click.argument("query")
@_with_workspace
@_with_json
def sql(query: str, workspace: str | None, as_json: bool) -> None:
    """Run a DuckDB QUERY over the views (runs, steps, calls, events, outcomes, entities …)."""
    with _workspace(workspace) as ws:
        result = ws.sql(query)
    if as_json:
        _print_json({"columns": result.columns, "rows": [list(row) for row in result.rows()]})
    else:
        _print_table(result.columns, result.rows(), width=100)


@sag.command()
@click.argument("view", required=False)
@_with_workspace
def schema(view: str | None, workspace: str | None) -> None:
    """Say what the views' columns are and mean (for one VIEW, or all)."""
    from sag_research.workspace import open as open_workspace

    with open_workspace(":memory:" if workspace is None else workspace, create=False) as ws:
        result = ws.warehouse.schema(view)
    _print_table(result.columns, result.rows(), width=100)


@sag.command()
@_with_workspace
@_with_json
def info(workspace: str | None, as_json: bool) -> None:
    """Say what the workspace holds."""
    with _workspace(workspace) as ws:
        facts = ws.info()
    if as_json:
        _print_json(facts)
        return
    click.echo(f"workspace {facts['path']}, digest {facts['digest']}")
    for group in ("counts", "outcomes", "bytes"):
        click.echo("  " + ", ".join(f"{n:,} {name}" for name, n in facts[group].items()))


@sag.command()
@_with_workspace
@_with_json
def sources(workspace: str | None, as_json: bool) -> None:
    """List every file that was read, what became of it, and why."""
    columns = "status, format, n_runs, n_steps, path, reason"
    with _workspace(workspace) as ws:
        chosen = "*" if as_json else columns
        result = ws.sql(f"SELECT {chosen} FROM sources ORDER BY path, root")  # noqa: S608
    if as_json:
        _print_json({"sources": _records(result.columns, result.rows())})
    else:
        _print_table(result.columns, result.rows())


@sag.command()
@click.argument("file")
@_with_workspace
@_with_json
def labels(file: str, workspace: str | None, as_json: bool) -> None:
    """Record outcomes from a label FILE (report, folder of reports, or CSV)."""
    with _workspace(workspace) as ws:
        report = ws.label(file)
    if as_json:
        _print_json(report.to_dict())
    else:
        click.echo(repr(report))


@sag.command()
@click.argument("run")
@_with_workspace
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write.")
@click.option("--layout", type=click.Choice(["timeline", "force"]), default="timeline")
@_with_json
def graph(run: str, workspace: str | None, output: str, layout: str, as_json: bool) -> None:
    """Draw a RUN's bloomed graph as one self-contained HTML file."""
    with _workspace(workspace) as ws:
        bloomed = ws.bloom(run)
        path = bloomed.to_html(output, layout=layout)
    if as_json:
        counts = bloomed.counts_.to_dict(orient="records")
        _print_json({"path": str(path), "counts": counts})
    else:
        click.echo(f"{path}: {bloomed!r}")


@sag.command()
@click.argument("run")
@_with_workspace
@click.option("--at", type=int, metavar="N", help="The child sees events 1..N.")
@click.option("--step", type=int, metavar="N", help="The child sees all up to step N.")
@_with_json
def fork(run: str, workspace: str | None, at: int | None, step: int | None, as_json: bool) -> None:
    """Branch a RUN at an event or a step."""
    with _workspace(workspace) as ws:
        child = ws.fork(run, at=at, step=step)
    if as_json:
        _print_json({"run_id": child.run_id, "at": child.fork_position, "parent": child.parent_id})
    else:
        click.echo(f"{child.run_id}: sees events 1..{child.fork_position} of {child.parent_id}")


@sag.command()
@click.argument("a")
@click.argument("b")
@_with_workspace
@click.option("-o", "--output", metavar="FILE", help="Write both side by side as HTML.")
@_with_json
def diff(a: str, b: str, workspace: str | None, output: str | None, as_json: bool) -> None:
    """Compare two runs: the shared prefix, where they part, and the aligned rest."""
    with _workspace(workspace) as ws:
        found = ws.diff(a, b)
    if output is not None:
        with atomic_write(output) as file:
            file.write(found.to_html().encode("utf-8"))
    rows = [(r.status, r.step_a, r.step_b, r.summary) for r in found.rows]
    columns = ("status", "step_a", "step_b", "summary")
    if as_json:
        _print_json({"shared": found.shared, "rows": _records(columns, rows)})
    else:
        click.echo(repr(found))
        _print_table(columns, [row for row in rows if row[0] != "same"])


@sag.command()
@click.argument("run")
@_with_workspace
@_with_json
def lineage(run: str, workspace: str | None, as_json: bool) -> None:
    """Show a RUN's relatives: its ancestors and all forks."""
    with _workspace(workspace) as ws:
        found = ws.lineage(run)
    frame = found.table_.astype(object).where(found.table_.notna(), None)
    columns, rows = list(frame.columns), frame.to_numpy().tolist()
    if as_json:
        _print_json({"runs": _records(columns, rows)})
    else:
        _print_table(columns, rows)


@sag.command()
@click.argument("run")
@_with_workspace
@click.option("--agent", metavar="NAME", help="module:function or file.py:function; default: "
              "what the run's config says under entry_point.")  # fmt: skip
@click.option("--factory", is_flag=True, help="The function makes the agent of (change, seed).")
@click.option("--strict", is_flag=True, help="Take the first divergence for an error.")
@_with_json
def replay(
    run: str, workspace: str | None, agent: str | None, factory: bool, strict: bool, as_json: bool
) -> int:
    """Carry out a RUN again on its recorded answers, and say where it first parts from it."""
    from sag_research.runtime import ReplayDivergence

    # what the agent prints is not the answer
    with _workspace(workspace) as ws, redirect_stdout(sys.stderr):
        report = ws.replay(run, agent, factory=factory, strict=False)
    if as_json:
        _print_json(report.to_dict())
    elif not (strict and report.divergence):
        click.echo(_line(repr(report)))
        for line in str(report.divergence or "").splitlines():
            click.echo(visible(strip_terminal(repair(line))))
    if strict and report.divergence is not None:
        raise ReplayDivergence(report.divergence)
    return 0 if report.ok else 1


@sag.command()
@click.argument("run")
@_with_workspace
@click.option("--at", type=click.IntRange(min=1), required=True, metavar="POSITION",
              help="Position of the event in the run.")  # fmt: skip
@click.option("--reason", required=True, metavar="TEXT", help="Stands in its place for good.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_with_json
def redact(run: str, workspace: str | None, at: int, reason: str, yes: bool, as_json: bool) -> None:
    """Take the text of one event of a RUN out of the log and the warehouse, for good."""
    with _workspace(workspace) as ws:
        run_id = ws.resolve(run)
        event = next(ws.store.read(run_id, at, at), None)
        if event is None:
            raise UsageError(f"run {run_id!r} has no position {at}")
        if not yes:
            _confirm(f"Redact event {at} ({_cell(event.type, 40)}) of run {_cell(event.run_id)}?")
        done = ws.redact(run_id, at, reason)
    told = done.event.payload
    if as_json:
        _print_json({**told, "removed": done.removed, "kept": done.kept})
    else:
        counts = f"{done.removed} long texts removed, {done.kept} kept that other events hold too"
        click.echo(f"event {at} of run {_cell(told['run'])} is redacted: {counts}")


def _confirm(question: str) -> None:
    """Ask for a thing that cannot be undone; where there is nobody to ask, refuse."""
    if not sys.stdin.isatty():
        raise UsageError("a redaction cannot be undone", fix="give --yes if you mean it")
    click.confirm(question, abort=True, err=True)


@sag.command()
@click.argument("run", required=False)
@_with_workspace
@_with_json
def verify(run: str | None, workspace: str | None, as_json: bool) -> int:
    """Check that the log (or one RUN) is what was written."""
    with _workspace(workspace) as ws:
        report = ws.verify(run)
    if as_json:
        _print_json(report.to_dict())
    else:
        click.echo(repr(report))
        for problem in report.problems:
            click.echo(f"  {_cell(problem.run)} at {problem.position}: {problem.problem}")
    return 0 if report.ok else 1


@sag.command()
@_with_workspace
@click.option("--after", type=int, metavar="SEQ", help="Default: only events still to come.")
@click.option("--follow/--once", default=True, help="Wait for more, or stop at the end.")
@_with_json
def tail(workspace: str | None, after: int | None, follow: bool, as_json: bool) -> None:
    """Follow the log while it is written."""
    with _workspace(workspace) as ws:
        start = ws.store.last_seq() if after is None else after
        events = ws.store.follow(start) if follow else ws.store.tail(start)
        for event in events:
            if as_json:
                _print_json({"seq": event.seq, "run": event.run_id, "position": event.position,
                             "type": event.type, "payload": event.payload})  # fmt: skip
            else:
                payload = _cell(json.dumps(event.payload, ensure_ascii=False))
                run_id, kind = _cell(event.run_id, 60), _cell(event.type, 40)
                click.echo(f"{event.seq}  {run_id}  {kind}  {payload}")


@sag.command()
@_with_workspace
@_with_json
def rebuild(workspace: str | None, as_json: bool) -> None:
    """Throw the warehouse away and project the whole log again."""
    with _workspace(workspace) as ws:
        report = ws.rebuild()
    if as_json:
        _print_json({"events": report.events, "watermark": report.watermark})
    else:
        click.echo(f"{report.events:,} events projected")


@sag.group()
def export() -> None:
    """Write the data for other programs."""


@export.command("duckdb")
@_with_workspace
@click.option("-o", "--output", required=True, metavar="FILE")
def export_duckdb(workspace: str | None, output: str) -> None:
    """Write all views as tables of a plain .duckdb file."""
    with _workspace(workspace) as ws:
        click.echo(str(ws.export_duckdb(output)))


@sag.command()
@_with_workspace
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write.")
@click.option("--run", help="The run to draw; default: a long one that fits.")
def report(workspace: str | None, output: str, run: str | None) -> None:
    """Write the workspace on one HTML page: tables, and one run's graph."""
    with _workspace(workspace) as ws:
        click.echo(str(ws.report(output, run)))


@sag.command()
@click.option("-o", "--output", default="sag-demo", metavar="FOLDER", show_default=True)
def demo(output: str) -> None:
    """Do the main job on the bundled data: ingest, query, bloom, report."""
    from sag_research.viz import report_tables
    from sag_research.workspace import bundled

    data, folder = bundled("bugfix"), Path(output)
    with _workspace(str(folder / "workspace"), create=True) as ws:
        _print_ingest(ws.ingest(data, labels=data / "labels.csv"))
        for title, _, table in report_tables(ws.sql):
            click.echo(f"\n{title}")
            _print_table(table.columns, table.rows()[:12])
        path = ws.report(folder / "report.html")
        click.echo(f"\nReport with a graph: {path}")
        command = "sag" if shutil.which("sag") else str(Path(sys.executable).parent / "sag")
        click.echo(f"Go on: {command} runs -w {folder / 'workspace'}")


@sag.command()
@click.argument("folder", default="notebooks")
def lab(folder: str) -> None:
    """Open the notebooks in JupyterLab (needs the extra `lab`)."""
    import subprocess
    from importlib.util import find_spec

    if find_spec("jupyterlab") is None:
        raise SagError("JupyterLab is not installed", fix="pip install 'sag-research[lab]'")
    if not Path(folder).is_dir():
        raise SagError(f"no folder {folder!r} here", fix="name the folder of your notebooks")
    sys.exit(subprocess.call([sys.executable, "-m", "jupyterlab", folder]))
