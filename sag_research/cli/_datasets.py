"""Commands for public data sets and for the card of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sag_research._text import atomic_write
from sag_research.cli._base import (
    cell_text,
    open_workspace,
    print_json,
    print_table,
    sag,
    with_json,
    with_workspace,
)
from sag_research.cli._ingest import (
    _print_ingest,
)

if TYPE_CHECKING:
    pass


@sag.group()
def datasets() -> None:
    """Public sets of runs, and a card for your own."""


@datasets.command("list")
@with_json
def datasets_list(as_json: bool) -> None:
    """List the public sets that can be fetched."""
    from sag_research.ingest.registry import public_sets

    known = public_sets().values()
    names = ("name", "hub", "revision", "runs", "bytes", "licence", "formats", "agentpile",
             "label", "note")  # fmt: skip
    if as_json:
        print_json({"datasets": [{name: getattr(one, name) for name in names} for one in known]})
        return
    rows = [
        (one.name, one.runs, (one.revision or "unpinned")[:8], one.licence,
         ", ".join(one.formats[:1]) or f"agentpile {one.agentpile}", one.title)
        for one in known
    ]  # fmt: skip
    print_table(("name", "runs", "revision", "licence", "read by", "title"), rows)


@datasets.command("fetch")
@click.argument("name")
@click.option("-o", "--output", metavar="FOLDER", help="Default: sag-datasets/NAME.")
@click.option("--files", multiple=True, metavar="PATTERN", help="Only files like this; repeatable.")
@click.option("--revision", metavar="COMMIT", help="Another one than the pinned one.")
@with_json
def datasets_fetch(
    name: str, output: str | None, files: tuple[str, ...], revision: str | None, as_json: bool
) -> None:
    """Fetch a public set NAME at its pinned commit; run it again to go on."""
    from sag_research.ingest import fetch
    from sag_research.ingest.registry import public_set

    known = public_set(name)
    told = None if as_json else (lambda line: click.echo(cell_text(line, 200), err=True))
    found = fetch(name, output, files=files, revision=revision, progress=told)
    if as_json:
        print_json(found.to_dict())
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
@with_workspace
@click.option("--limit", type=int, metavar="N", help="Only N runs, where agentpile reads the set.")
@with_json
def datasets_load(
    name: str, folder: str | None, workspace: str | None, limit: int | None, as_json: bool
) -> None:
    """Read a public set NAME that was fetched into a FOLDER (default: sag-datasets/NAME)."""
    from sag_research.ingest.registry import public_set

    public_set(name)  # before a workspace is made for nothing
    with open_workspace(workspace, create=True) as ws:
        report = ws.load_public(name, folder, limit=limit)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_ingest(report)


@datasets.command("card")
@with_workspace
@click.option("--title", default="", help="Default: the workspace's name.")
@click.option("--licence", default="", help="What the runs may be used under.")
@click.option("--where", default="true", metavar="SQL", help="A condition on the view runs.")
@click.option("-o", "--output", metavar="FILE", help="Write it there.")
def datasets_card(
    workspace: str | None, title: str, licence: str, where: str, output: str | None
) -> None:
    """Write a data card of a workspace: runs, outcomes, formats, copies, digest."""
    with open_workspace(workspace) as ws:
        text = ws.card(title, licence=licence, where=where)
    if output is None:
        click.echo(text, nl=False)
        return
    with atomic_write(output) as file:
        file.write(text.encode("utf-8"))
    click.echo(output)


@datasets.command("cite")
@with_workspace
def datasets_cite(workspace: str | None) -> None:
    """Print BibTeX for what the workspace holds."""
    with open_workspace(workspace) as ws:
        click.echo(ws.cite())
