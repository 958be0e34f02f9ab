"""The demonstration and the notebooks."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sag_research._text import visible
from sag_research.cli._base import (
    notes_on_stderr,
    open_workspace,
    print_table,
    sag,
)
from sag_research.cli._ingest import (
    _print_ingest,
)
from sag_research.errors import (
    SagError,
)

if TYPE_CHECKING:
    from sag_research.viz import DeadEndReport
    from sag_research.workspace import Workspace


@sag.command()
@click.option("-o", "--output", default="sag-demo", metavar="FOLDER", show_default=True)
def demo(output: str) -> None:
    """Do the main job on the bundled data: ingest, query, dead ends, bloom, report."""
    from sag_research.viz import report_tables
    from sag_research.workspace import bundled

    data, folder = bundled("bugfix"), Path(output)
    with open_workspace(str(folder / "workspace"), create=True) as ws:
        _print_ingest(ws.ingest(data, labels=data / "labels.csv"))
        for title, _, table in report_tables(ws.sql):
            click.echo(f"\n{title}")
            print_table(table.columns, table.rows()[:12])
        click.echo("\nDead ends")
        dead = _demo_dead_ends(ws)
        for line in dead.lines():
            click.echo(visible(line))
        click.echo("This compares a few models on 3 folds; `sag deadend report` takes all of them.")
        path = ws.report(folder / "report.html", deadend=dead)
        click.echo(f"\nReport with a graph: {path}")
        command = "sag" if shutil.which("sag") else str(Path(sys.executable).parent / "sag")
        click.echo(f"Go on: {command} runs -w {folder / 'workspace'}")


def _demo_dead_ends(ws: Workspace) -> DeadEndReport:
    """Backtest a small model against a few baselines: seconds, not minutes."""
    from sag_research.deadend import PrefixRisk
    from sag_research.viz import deadend_report

    small = PrefixRisk(text=False, folds=3, trees=50)
    plain = ("hazard", "characters", "repeat-3", "sag-entity-rule", "counts-logistic")
    with notes_on_stderr():
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
