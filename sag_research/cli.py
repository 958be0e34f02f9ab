"""The command ``sag``: the Python API with flags."""

from __future__ import annotations

import json
import math
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from sag_research import __version__
from sag_research._text import atomic_write, clip, repair, safe_file_name, strip_terminal, visible
from sag_research.errors import (
    LeakError,
    MissingDataError,
    NotEnoughDataError,
    SagError,
    UsageError,
)

if TYPE_CHECKING:
    from sag_research.deadend import Alarm, RiskModel, Where
    from sag_research.viz import DeadEndReport
    from sag_research.workspace import Workspace

__all__ = ["main"]

REJECTED = 3
"""Exit code: done, but some inputs were rejected."""

_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)

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


def _with_cohort(command: Command) -> Command:
    where = click.option(
        "--where", default="true", metavar="SQL", help="A condition on the view runs."
    )
    no_text = click.option(
        "--no-text", is_flag=True, help="Without models of words; the texts' lengths still count."
    )
    return where(no_text(command))


def _with_model(command: Command) -> Command:
    return click.option(
        "-m", "--model", "name", metavar="NAME", help="A fitted model; default: the only one."
    )(command)


def _with_event_log(command: Command) -> Command:
    options = (
        _with_workspace,
        click.option("--run", metavar="RUN", help="Only this run."),
        click.option(
            "--where", default="true", metavar="SQL", help="A condition on the view runs."
        ),
        click.option("--texts", is_flag=True, help="Write the texts of the steps, too."),
        click.option("-o", "--output", required=True, metavar="FILE", help="… .gz compresses."),
        _with_json,
    )
    for option in reversed(options):
        command = option(command)
    return command


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
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1),
              help="Processes that read; pays for many or large files.")  # fmt: skip
@click.option("--recheck", is_flag=True, help="Read files again that look unchanged.")
@_with_json
def ingest(
    paths: tuple[str, ...],
    workspace: str | None,
    labels: str | None,
    format_name: str | None,
    jobs: int,
    recheck: bool,
    as_json: bool,
) -> int:
    """Read trajectories from files and folders into a workspace."""
    for path in (*paths, labels):  # before a workspace is made for nothing
        if path is not None and not Path(path).exists():
            raise UsageError(f"{path} does not exist", fix="check the path")
    with _workspace(workspace, create=True) as ws:
        report = ws.ingest(*paths, labels=labels, format=format_name, jobs=jobs, recheck=recheck)
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
@click.option("--hide", "hidden", multiple=True, metavar="RUN", help="Keep it out of statistics.")
@click.option("--show", "shown", multiple=True, metavar="RUN", help="Let it count again.")
@click.option("--find", is_flag=True, help="Look through all runs first, not only new files.")
@_with_workspace
@_with_json
def copies(
    hidden: tuple[str, ...], shown: tuple[str, ...], find: bool, workspace: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List runs that are other runs once more; they are kept out of statistics."""
    with _workspace(workspace) as ws:
        ws.hide(*hidden)
        ws.show(*shown)
        notes = ws.find_copies().notes() if find else []
        frame = ws.copies()
    frame = frame.astype(object).where(frame.notna(), None)
    columns, rows = list(frame.columns), frame.to_numpy().tolist()
    if as_json:
        _print_json({"copies": _records(columns, rows)})
        return
    for note in notes:
        click.echo(f"note: {_cell(note, 300)}", err=True)
    _print_table(columns, rows)


@sag.group()
def datasets() -> None:
    """Public sets of runs, and a card for your own."""


@datasets.command("list")
@_with_json
def datasets_list(as_json: bool) -> None:
    """List the public sets that can be fetched."""
    from sag_research.ingest.registry import public_sets

    known = public_sets().values()
    names = ("name", "hub", "revision", "runs", "bytes", "licence", "formats", "agentpile",
             "label", "note")  # fmt: skip
    if as_json:
        _print_json({"datasets": [{name: getattr(one, name) for name in names} for one in known]})
        return
    rows = [
        (one.name, one.runs, (one.revision or "unpinned")[:8], one.licence,
         ", ".join(one.formats[:1]) or f"agentpile {one.agentpile}", one.title)
        for one in known
    ]  # fmt: skip
    _print_table(("name", "runs", "revision", "licence", "read by", "title"), rows)


@datasets.command("fetch")
@click.argument("name")
@click.option("-o", "--output", metavar="FOLDER", help="Default: sag-datasets/NAME.")
@click.option("--files", multiple=True, metavar="PATTERN", help="Only files like this; repeatable.")
@click.option("--revision", metavar="COMMIT", help="Another one than the pinned one.")
@_with_json
def datasets_fetch(
    name: str, output: str | None, files: tuple[str, ...], revision: str | None, as_json: bool
) -> None:
    """Fetch a public set NAME at its pinned commit; run it again to go on."""
    from sag_research.ingest import fetch
    from sag_research.ingest.registry import public_set

    known = public_set(name)
    told = None if as_json else (lambda line: click.echo(_cell(line, 200), err=True))
    found = fetch(name, output, files=files, revision=revision, progress=told)
    if as_json:
        _print_json(found.to_dict())
        return
    what = "the pinned commit" if found.pinned else "not pinned, now recorded"
    click.echo(f"{found.path}: {len(found.files)} files, {found.bytes:,} bytes, {found.kept} there"
               f" before; {found.revision} ({what})")  # fmt: skip
    for title, text in (("licence", known.licence), ("label", known.label), ("note", known.note)):
        if text:
            click.echo(f"  {title}: {text}")
    click.echo(f"Go on: sag datasets load {name} {found.path}")


@datasets.command("load")
@click.argument("name")
@click.argument("folder", required=False)
@_with_workspace
@click.option("--limit", type=int, metavar="N", help="Only N runs, where agentpile reads the set.")
@_with_json
def datasets_load(
    name: str, folder: str | None, workspace: str | None, limit: int | None, as_json: bool
) -> None:
    """Read a public set NAME that was fetched into a FOLDER (default: sag-datasets/NAME)."""
    from sag_research.ingest.registry import public_set

    public_set(name)  # before a workspace is made for nothing
    with _workspace(workspace, create=True) as ws:
        report = ws.load_public(name, folder, limit=limit)
    if as_json:
        _print_json(report.to_dict())
    else:
        _print_ingest(report)


@datasets.command("card")
@_with_workspace
@click.option("--title", default="", help="Default: the workspace's name.")
@click.option("--licence", default="", help="What the runs may be used under.")
@click.option("--where", default="true", metavar="SQL", help="A condition on the view runs.")
@click.option("-o", "--output", metavar="FILE", help="Write it there.")
def datasets_card(
    workspace: str | None, title: str, licence: str, where: str, output: str | None
) -> None:
    """Write a data card of a workspace: runs, outcomes, formats, copies, digest."""
    with _workspace(workspace) as ws:
        text = ws.card(title, licence=licence, where=where)
    if output is None:
        click.echo(text, nl=False)
        return
    with atomic_write(output) as file:
        file.write(text.encode("utf-8"))
    click.echo(output)


@datasets.command("cite")
@_with_workspace
def datasets_cite(workspace: str | None) -> None:
    """Print BibTeX for what the workspace holds."""
    with _workspace(workspace) as ws:
        click.echo(ws.cite())


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
        told = f"{child.run_id}: sees events 1..{child.fork_position} of {child.parent_id}"
        click.echo(_line(told))  # an id is a stranger's text


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


@export.command("xes")
@_with_event_log
def export_xes(**options: Any) -> None:
    """Write runs as an XES event log for process mining."""
    from sag_research.exchange import export_xes as write

    _export_log(write, **options)


@export.command("csv")
@_with_event_log
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
    with _workspace(workspace) as ws:
        if run is not None:
            done = write(ws, output, where="run_id = ?", parameters=[ws.resolve(run)], texts=texts)
        else:
            done = write(ws, output, where=where, texts=texts)
    if as_json:
        _print_json(done.to_dict())
    else:
        click.echo(f"{done.path}: {done!r}")


@sag.group()
def deadend() -> None:
    """Say at which step runs are lost, and how sure that is."""


@deadend.command("fit")
@_with_workspace
@_with_cohort
@click.option("--model", default="stack", metavar="NAME", show_default=True)
@click.option("--alpha", default=0.05, show_default=True, type=_SHARE,
              help="Share of runs that would succeed that the alarm may stop.")  # fmt: skip
@click.option(
    "-o", "--output", required=True, metavar="NAME", help="Saved in the workspace's models/."
)
@_with_json
def deadend_fit(
    workspace: str | None, where: str, no_text: bool, model: str, alpha: float, output: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Fit a model of failure, set its alarm, and save both."""
    from sag_research.deadend import Alarm, save

    with _workspace(workspace) as ws, _notes():
        target = _model_folder(ws) / _model_name(output)
        risk, prefixes = _model_called(model, no_text), ws.prefixes(where)
        risk.fit(prefixes)
        alarm, why = None, ""
        try:
            alarm = Alarm(alpha=alpha).calibrate(risk, prefixes)
        except (LeakError, NotEnoughDataError) as error:
            why = str(error)
        target.parent.mkdir(exist_ok=True)
        path = save(risk if alarm is None else alarm, target)
    known = prefixes.labelled
    told = {"path": str(path), "model": model, "runs": len(known),
            "tasks": int(known.runs["task_id"].nunique()), "failed": int(known.failed.sum()),
            "succeeded": int((known.failed == 0).sum()), "left_out": prefixes.left_out,
            "alarm": None if alarm is None else _scalars(alarm.table_.iloc[0].to_dict()),
            "no_alarm": why}  # fmt: skip
    if as_json:
        _print_json(told)
        return
    click.echo(f"{path}: {model} fitted on {prefixes!r}")
    click.echo(f"  {alarm!r}" if alarm is not None else f"  no alarm: {_line(why)}")


@deadend.command("report")
@_with_workspace
@_with_cohort
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Several times for several; default: stack.",
)
@click.option("--folds", default=5, show_default=True, type=click.IntRange(2))
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1))
@click.option("--alpha", default=0.05, show_default=True, type=_SHARE)
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("-o", "--output", metavar="FILE", help="Write it with figures as one HTML page, too.")
@_with_json
def deadend_report_(
    workspace: str | None, where: str, no_text: bool, models: tuple[str, ...], output: str | None,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Judge models of failure on tasks that they have not seen."""
    from sag_research.deadend import BASELINES, MODELS
    from sag_research.viz import deadend_report

    with _workspace(workspace) as ws, _notes():
        chosen = [_model_called(name, no_text) for name in models or ("stack",)]
        if no_text:
            of_words = {name for name, model in MODELS.items() if model.needs_text}
            settings["baselines"] = [name for name in BASELINES if name not in of_words]
        found = deadend_report(ws.prefixes(where), chosen, **settings)
        if output is not None:
            found.to_html(output)
    if as_json:
        _print_json(found.to_dict())
        return
    for line in found.lines():
        click.echo(visible(line))
    click.echo()
    shown = ("auroc", "auroc_5", "auroc_10", "brier", "false_aborts", "recall", "steps_saved")
    rows = [
        (row["model"], row["n"], *(_estimate(row, name) for name in shown))
        for row in found.to_dict()["models"]
    ]
    _print_table(("model", "n", *shown), rows)
    for name, why in found.backtest.left_out.items():
        click.echo(f"note: {name} left out: {_line(why)}", err=True)
    if output is not None:
        click.echo(f"\nReport with figures: {output}")


def _model_called(name: str, no_text: bool) -> RiskModel:
    from sag_research.deadend import PrefixRisk, model_of

    return PrefixRisk(text=False) if no_text and name == PrefixRisk.name else model_of(name)


def _scalars(row: dict[Any, Any]) -> dict[str, Any]:
    """Turn numpy's numbers and truth values into Python's."""
    return {str(k): v.item() if hasattr(v, "item") else v for k, v in row.items()}


def _estimate(row: dict[str, Any], name: str) -> str:
    value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return "-"
    return f"{value:.3f}" if low is None else f"{value:.3f} [{low:.2f}, {high:.2f}]"


@deadend.command("check")
@click.argument("run")
@_with_workspace
@_with_model
@_with_json
def deadend_check(run: str, workspace: str | None, name: str | None, as_json: bool) -> None:
    """Show the risk after each step of a RUN, and whether the alarm fires."""
    from sag_research.viz import alarm_steps

    with _workspace(workspace) as ws, _notes():
        run_id, fitted = ws.resolve(run), _fitted(ws, name)
        found = _located(ws, run_id, fitted.risk)
    alarm, seen = fitted.alarm, run_id in fitted.risk.fitted_runs_
    first = None if alarm is None else next(iter(alarm_steps(alarm, found.risk)), None)
    steps = [
        {"step": step, "token": token, "risk": float(risk),
         "alarm": first is not None and step >= first}
        for step, (token, risk) in enumerate(zip(found.tokens, found.risk, strict=True))
    ]  # fmt: skip
    told = {"run_id": run_id, "model": fitted.name, "seen_in_training": seen,
            "alpha": None if alarm is None else alarm.alpha,
            "threshold": None if alarm is None else alarm.threshold_,
            "alarm_step": first, "steps": steps}  # fmt: skip
    if as_json:
        _print_json(told)
        return
    rows = [
        (row["step"], f"{row['risk']:.3f}", "raised" if row["alarm"] else "", row["token"])
        for row in steps
    ]
    _print_table(("step", "risk", "alarm", "token"), rows)
    click.echo(_verdict(alarm, first))
    if seen:
        fair = hasattr(fitted.risk, "out_of_fold_")
        how = "the risk is by one that had not seen its task" if fair else "its risk is too sure"
        click.echo(f"The model was fitted on this run; {how}.")


def _verdict(alarm: Alarm | None, step: int | None) -> str:
    if alarm is None:
        return "No alarm was set for this model: see `sag deadend fit`."
    rule = f"(threshold {alarm.threshold_:.3f}, alpha {alarm.alpha:g}, {alarm.mode} mode)"
    return f"No alarm {rule}." if step is None else f"Alarm at step {step} {rule}."


@deadend.command("where")
@click.argument("run")
@_with_workspace
@_with_model
@_with_json
def deadend_where(run: str, workspace: str | None, name: str | None, as_json: bool) -> None:
    """Say at which step a RUN was lost, where to fork it, and on what evidence."""
    from sag_research.viz import where_line, where_values

    with _workspace(workspace) as ws, _notes():
        run_id, fitted = ws.resolve(run), _fitted(ws, name)
        found = _located(ws, run_id, fitted.risk)
        outcome = str(ws.sql("SELECT outcome FROM runs WHERE run_id = ?", [run_id]).rows()[0][0])
    if as_json:
        told = {"run_id": run_id, "outcome": outcome, "model": fitted.name}
        _print_json(told | where_values(found))
        return
    click.echo(_line(where_line(found, outcome)))
    for line in found.evidence:
        click.echo(f"  {_line(line)}")


class _Fitted(NamedTuple):
    """A saved model, and its alarm if it has one."""

    name: str
    risk: RiskModel
    alarm: Alarm | None


def _fitted(ws: Workspace, name: str | None) -> _Fitted:
    """Load the model of this name, or the only one there is."""
    from sag_research.deadend import Alarm, load

    folder = _model_folder(ws)
    names = sorted(path.stem for path in folder.glob("*.json"))
    if not names:
        raise MissingDataError(
            "no model of failure is fitted in this workspace",
            fix="fit one with `sag deadend fit -o NAME`",
        )
    if name is None and len(names) > 1:
        raise UsageError(f"{len(names)} models are saved", fix=f"say -m {' or -m '.join(names)}")
    chosen = names[0] if name is None else _model_name(name)
    if chosen not in names:
        raise UsageError(f"no model {chosen!r} in {folder}", fix=f"one of {', '.join(names)}")
    saved = load(folder / f"{chosen}.json")
    if not isinstance(saved, Alarm):
        return _Fitted(chosen, saved, None)
    if saved.risk_ is None:
        raise UsageError(f"model {chosen!r} is an alarm alone", fix="fit it again")
    return _Fitted(chosen, saved.risk_, saved)


def _located(ws: Workspace, run_id: str, risk: RiskModel) -> Where:
    """Locate the loss of a run among the others of its task; of a fork or copy, on its own."""
    from sag_research.deadend import locate, prefixes_of_steps

    query = """
        SELECT task_id, parent_id IS NOT NULL OR hidden OR copy_of IS NOT NULL
        FROM runs WHERE run_id = ?"""
    ((task, alone),) = ws.sql(query, [run_id]).rows()
    if alone:  # no member of a cohort
        return locate(risk, prefixes_of_steps(ws.steps(run_id), risk.vocabulary_), 0)
    vocabulary = risk.vocabulary_
    prefixes = ws.prefixes("task_id IS NOT DISTINCT FROM ?", [task], vocabulary=vocabulary)
    return locate(risk, prefixes, run_id)


def _model_folder(ws: Workspace) -> Path:
    if ws.path is None:
        raise UsageError("a workspace in memory keeps no models", fix="name a folder with -w")
    return ws.path / "models"


def _model_name(text: str) -> str:
    """Return the plain name that ``models/NAME``, ``NAME.json`` or ``NAME`` stands for."""
    name = text.removeprefix("models/").removesuffix(".json").removesuffix(".npz")
    if not name or safe_file_name(name) != name:
        raise UsageError(
            f"{text!r} is no name for a model", fix="use letters, digits and ._- only, no folder"
        )
    return name


@contextmanager
def _notes() -> Iterator[None]:
    """Print each warning as one line on stderr, without the place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        click.echo(f"note: {_line(text)}", err=True)


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
    """Do the main job on the bundled data: ingest, query, dead ends, bloom, report."""
    from sag_research.viz import report_tables
    from sag_research.workspace import bundled

    data, folder = bundled("bugfix"), Path(output)
    with _workspace(str(folder / "workspace"), create=True) as ws:
        _print_ingest(ws.ingest(data, labels=data / "labels.csv"))
        for title, _, table in report_tables(ws.sql):
            click.echo(f"\n{title}")
            _print_table(table.columns, table.rows()[:12])
        click.echo("\nDead ends")
        dead = _demo_dead_ends(ws)
        for line in dead.lines():
            click.echo(visible(line))
        path = ws.report(folder / "report.html", deadend=dead)
        click.echo(f"\nReport with a graph: {path}")
        command = "sag" if shutil.which("sag") else str(Path(sys.executable).parent / "sag")
        click.echo(f"Go on: {command} runs -w {folder / 'workspace'}")


def _demo_dead_ends(ws: Workspace) -> DeadEndReport:
    """Backtest a small model against a few baselines: seconds, not minutes."""
    from sag_research.deadend import PrefixRisk
    from sag_research.viz import deadend_report

    small = PrefixRisk(text=False, folds=3, trees=50)
    plain = ("hazard", "characters", "repeat-3", "sag-entity-rule")
    with _notes():
        return deadend_report(ws.prefixes(), [small], baselines=plain, folds=3)


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
