"""What all commands share: the group, options, the workspace, and how things are printed."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from sag_research import __version__
from sag_research._text import clip, explained, repair, strip_terminal, visible
from sag_research.errors import SagError

if TYPE_CHECKING:
    from sag_research.workspace import Workspace


REJECTED = 3
"""Exit code: done, but some inputs were rejected."""


SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


_ACTING = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal acts on; JSON reads their escapes as the same text."""


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
        click.echo(f"error: {one_line(str(error))}", err=True)
        code = error.exit_code
    except SystemExit as error:
        # `sag … | head` is no error; click has replaced the closed pipe before it leaves
        code = 0 if "Pacify" in type(sys.stdout).__name__ else error.code
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"error: {one_line(explained(error))}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def one_line(text: str) -> str:
    return " ".join(visible(strip_terminal(repair(text))).split())


def with_workspace(command: Command) -> Command:
    option = click.option(
        "-w", "--workspace", metavar="FOLDER", help="Default: $SAG_WORKSPACE, else ./sag-workspace."
    )
    return option(command)


def with_json(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(
        command
    )


def with_cohort(command: Command) -> Command:
    where = click.option(
        "--where", default="true", metavar="SQL", help="A condition on the view runs."
    )
    no_text = click.option(
        "--no-text", is_flag=True, help="Without models of words; the texts' lengths still count."
    )
    return where(no_text(command))


def with_model(command: Command) -> Command:
    return click.option(
        "-m", "--model", "name", metavar="NAME", help="A fitted model; default: the only one."
    )(command)


def with_event_log(command: Command) -> Command:
    options = (
        with_workspace,
        click.option("--run", metavar="RUN", help="Only this run."),
        click.option(
            "--where", default="true", metavar="SQL", help="A condition on the view runs."
        ),
        click.option("--texts", is_flag=True, help="Write the texts of the steps, too."),
        click.option("-o", "--output", required=True, metavar="FILE", help="… .gz compresses."),
        with_json,
    )
    for option in reversed(options):
        command = option(command)
    return command


def open_workspace(path: str | None, *, create: bool = False) -> Workspace:
    from sag_research.workspace import open as open_workspace

    return open_workspace(path, create=create)


def print_json(value: Any) -> None:
    text = json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)
    click.echo(_ACTING.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


def json_value(value: Any) -> Any:
    """Make a value JSON: times as ISO text, bytes as hex, numbers that JSON lacks as text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def records_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int = 60) -> None:
    """Print rows in columns; text of a trajectory is shortened and cannot move the cursor."""
    cells = [[cell_text(cell, width) for cell in row] for row in rows]
    table = [list(columns), *cells]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    for row in table:
        click.echo("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def cell_text(value: Any, width: int = 100) -> str:
    if isinstance(value, float):
        value = f"{value:.6g}"
    return "" if value is None else visible(clip(value, width))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sag")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def sag(debug: bool) -> None:
    """Study AI agents: ingest trajectories, query them, see them as a graph."""


def print_reasons(title: str, items: Sequence[tuple[str, str]]) -> None:
    """Print each reason with a file that has it, and how many more have."""
    reasons = Counter(reason for _, reason in items)
    for reason, count in reasons.most_common(20):
        path = next(path for path, why in items if why == reason)
        more = f" and {count - 1} more" if count > 1 else ""
        click.echo(f"  {title}: {cell_text(path)}{more}: {cell_text(reason, 400)}")
    if len(items) > 1:
        click.echo(f"  {title}: {len(items)} in all; `sag sources` lists each")


@contextmanager
def notes_on_stderr() -> Iterator[None]:
    """Print each warning as one line on stderr, without the place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        click.echo(f"note: {one_line(text)}", err=True)
