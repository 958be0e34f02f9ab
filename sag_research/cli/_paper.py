"""Commands that make a study folder, run it, and run it again."""

from __future__ import annotations

from pathlib import Path

import click

from sag_research.cli._base import (
    cell_text,
    notes_on_stderr,
    print_json,
    sag,
    with_json,
)

SHOWN = 40


@sag.group()
def paper() -> None:
    """A study whose tables and figures come out of one command, again on any machine."""


@paper.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--example", metavar="NAME", help="failure-prefixes or prefixguard: a worked example."
)
@click.option("--data", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
              help="Trajectories that the study is about; repeatable.")  # fmt: skip
@click.option("--labels", metavar="FILE", type=click.Path(path_type=Path),
              help="Their label file.")  # fmt: skip
@with_json
def paper_init(
    folder: Path, example: str | None, data: tuple[Path, ...], labels: Path | None, as_json: bool
) -> None:
    """Make a study FOLDER: study.toml, analysis.py, paper.tex, references.bib, Makefile."""
    from sag_research.paper import init

    made = init(folder, example, data=data, labels=labels)
    if as_json:
        print_json({"folder": str(made), "files": sorted(path.name for path in made.iterdir())})
        return
    click.echo(f"{made}: go on with `sag paper build {made}`")


@paper.command("build")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--accept-data", is_flag=True, help="Take data that is not what study.toml names.")
@with_json
def paper_build(folder: Path, accept_data: bool, as_json: bool) -> None:
    """Run the study in FOLDER: tables, figures and a manifest, into its results/."""
    from sag_research.paper import build

    with notes_on_stderr():
        built = build(folder, accept_data=accept_data)
    if as_json:
        print_json(built.to_dict())
        return
    click.echo(f"{built.folder}: {built!r}")
    for name, one in built.manifest["outputs"].items():
        click.echo(f"  {name}  {cell_text(one['title'])}".rstrip())


@paper.command("check")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@with_json
def paper_check(folder: Path, as_json: bool) -> None:
    """Run the study in FOLDER again elsewhere; exit code 1 where results differ."""
    from sag_research.paper import check

    with notes_on_stderr():
        found = check(folder)
    if as_json:
        print_json(found.to_dict())
    else:
        for note in found.notes:
            click.echo(f"note: {cell_text(note, 300)}", err=True)
        for one in found.differences[:SHOWN]:
            click.echo(cell_text(str(one), 300))
        if (more := len(found.differences) - SHOWN) > 0:
            click.echo(f"and {more} more differences; `--json` lists all")
        what = f"{found.n_outputs} tables and figures, {found.n_cells:,} cells compared"
        n = len(found.differences)
        click.echo(f"{what}: {n or 'no'} difference{'s' * (n > 1)}")
    if not found.same:
        raise SystemExit(1)
