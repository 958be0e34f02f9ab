"""The command that remembers: which past runs met the same things."""

from __future__ import annotations

import click

from sag_research.cli._base import (
    cell_text,
    open_workspace,
    print_json,
    print_table,
    sag,
    with_json,
    with_workspace,
)


@sag.command()
@click.argument("entities", nargs=-1)
@with_workspace
@click.option("-k", default=5, show_default=True, type=click.IntRange(0), help="So many runs.")
@click.option("--run", metavar="RUN", help="The run that asks; without ENTITY, by its steps.")
@click.option("--step", type=click.IntRange(0), help="With --run: the last step it has seen.")
@click.option(
    "--failures", default=0, type=click.IntRange(0), help="So many failed runs, as warnings."
)
@click.option("--any", "anything", is_flag=True, help="Runs of any outcome, not successes alone.")
@click.option(
    "--prompt", "tokens", type=click.IntRange(1), metavar="TOKENS", help="Print text for a model."
)
@with_json
def recall(
    entities: tuple[str, ...],
    workspace: str | None,
    k: int,
    run: str | None,
    step: int | None,
    failures: int,
    anything: bool,
    tokens: int | None,
    as_json: bool,
) -> None:
    """Find past runs that met each ENTITY (a name or an id; aliases count)."""
    outcomes = "any" if anything else "success"
    with open_workspace(workspace) as ws:
        found = ws.recall(entities, run=run, step=step, k=k, failures=failures, outcomes=outcomes)
        if as_json:
            print_json(
                {
                    "runs": [one._asdict() for one in found.found],
                    "names": [one._asdict() for one in found.asked],
                    "pool": found.pool,
                    "graph": found.to_dict(),
                }
            )
            return
        if tokens is not None:
            click.echo(found.prompt(tokens))
            return
    shown = ["run_id", "outcome", "score", "step", "n_steps", "matched"]
    rows = [
        (one.run_id, one.outcome + (" (warning)" if one.warning else ""), round(one.score, 3),
         one.step, one.n_steps, ", ".join(one.matched))
        for one in found.found
    ]  # fmt: skip
    print_table(shown, rows)
    click.echo(repr(found), err=True)
    for one in found.asked:
        if not one.weight:
            why = "unknown" if not one.means else f"too common: {one.runs} runs know it"
            click.echo(f"note: {cell_text(one.name, 60)}: {why}", err=True)
