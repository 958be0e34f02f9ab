"""Commands that let agents run in the laboratory's worlds."""

from __future__ import annotations

import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from sag_research.cli._base import (
    one_line,
    open_workspace,
    print_json,
    print_table,
    sag,
    with_json,
    with_workspace,
)
from sag_research.errors import SagError, UsageError

if TYPE_CHECKING:
    from sag_research.lab import BatchReport, Played
    from sag_research.workspace import Workspace

_WORLD = click.option("--world", default="export-job", metavar="NAME", help="Default: export-job.")


@sag.group()
def agent() -> None:
    """Let agents run in the laboratory's worlds; `sag agent list` says which there are."""


@agent.command("list")
@with_json
def list_worlds(as_json: bool) -> None:
    """List the worlds, what can be played in them, and who can play."""
    from sag_research.lab import open_world, world_names

    found: list[dict[str, Any]] = []
    for name in world_names():
        with closing(open_world(name)) as world:
            players = [*world.policies, *world.more_policies]
            found.append({"world": name, "scenarios": list(world.scenarios), "policies": players})
    if as_json:
        print_json({"worlds": found})
    else:
        rows = [(w["world"], ", ".join(w["scenarios"]), ", ".join(w["policies"])) for w in found]
        print_table(("world", "scenarios", "policies"), rows, width=200)


@agent.command()
@with_workspace
@_WORLD
@click.option("--scenario", metavar="NAME", help="Default: the world's first.")
@click.option("--policy", metavar="NAME", help="Who decides. Default: the world's first.")
@click.option(
    "--provider", metavar="NAME", help="A model decides: openai, anthropic, gemini, local."
)
@click.option("--model", metavar="NAME", help="With --provider: which model.")
@click.option("--seed", type=int, metavar="N", help="Default: 0.")
@click.option("--goal", metavar="TEXT", help="In your words.")
@click.option("--steps", type=int, metavar="N", help="Model calls at most.")
@click.option("--actions", type=int, metavar="N", help="Tool calls at most.")
@click.option("--inspect", "inspecting", is_flag=True, help="Look, and change nothing.")
@click.option("--browser", is_flag=True, help="Fetch the file with a real Chromium.")
@click.option(
    "--stop-after",
    type=click.Choice(["decision", "observation", "report"]),
    help="Leave the task then; the same command carries on.",
)
@click.option("--directory", metavar="FOLDER", help="Keep the task and its world there.")
@with_json
def run(workspace: str | None, world: str, as_json: bool, **said: Any) -> None:
    """Run one agent in a world; the run goes into the workspace, with its outcome.

    With --directory a run that was left or cut off is carried on by the same command, in the
    same workspace: the service goes on with its own database, under its old address.
    """
    from sag_research.lab import open_world

    if said["stop_after"] and not said["directory"]:
        raise UsageError("a task that is left must be kept", fix="name a folder with --directory")
    with open_workspace(workspace, create=True) as ws, closing(open_world(world)) as playing:
        if said["directory"] and ws.path is None:
            raise UsageError("a workspace in memory keeps no run", fix="name a folder with -w")
        one, options = _assignment(ws, playing, said)
        played = playing.play(ws.store, one, **options)
        _record(ws, one.run_id, played)
        _tell_run(ws, one.run_id, played, as_json)


def _record(ws: Workspace, run_id: str, played: Played) -> None:
    """Write the outcome down, unless it is none yet, or stands there already."""
    from sag_research.lab import record_outcome

    said = (run_id, played.outcome.outcome, played.outcome.detail)
    known = ws.sql("SELECT run_id, outcome, detail FROM outcomes WHERE run_id = ?", [run_id]).rows()
    if played.outcome.outcome != "unknown" and said not in known:
        record_outcome(ws.store, run_id, played.outcome)


def _assignment(ws: Workspace, world: Any, said: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from sag_research.lab import Assignment, kept_assignment

    kept = kept_assignment(Path(said["directory"])) if said["directory"] else None
    scenario = said["scenario"] or (kept.scenario if kept else world.scenarios[0])
    if scenario not in world.scenarios:
        raise UsageError(f"no scenario {scenario!r}", fix=f"choose of {', '.join(world.scenarios)}")
    model = _model(said["provider"], said["model"])
    policy = said["provider"] or said["policy"] or (kept.policy if kept else world.policies[0])
    if model is None and policy in _PROVIDERS:
        raise UsageError(f"{policy} is a provider", fix=f"say --provider {policy}")
    seed = said["seed"] if said["seed"] is not None else kept.seed if kept else 0
    one = Assignment(
        world=world.name, scenario=scenario, policy=policy, seed=seed,
        attempt=kept.attempt if kept else 1,
    )  # fmt: skip
    while kept is None and ws.store.has_run(one.run_id):
        one = msgspec.structs.replace(one, attempt=one.attempt + 1)
    limits = {"goal": said["goal"], "max_steps": said["steps"], "max_actions": said["actions"]}
    limits |= {"mode": "inspect" if said["inspecting"] else None}
    limits |= {"delivery": "browser" if said["browser"] else None, "model": model}
    limits |= {"stop_after": said["stop_after"]}
    limits |= {"directory": Path(said["directory"]) if said["directory"] else None}
    return one, {name: value for name, value in limits.items() if value is not None}


_PROVIDERS = ("openai", "anthropic", "gemini", "local")


def _model(provider: str | None, model: str | None) -> Any:
    """Make the adapter that is asked for; its key comes from the environment."""
    if provider is None:
        return None
    from sag_research import llm

    classes = (llm.OpenAICompatible, llm.Anthropic, llm.Gemini, llm.Local)
    makers = dict(zip(_PROVIDERS, classes, strict=True))
    if provider not in makers:
        raise UsageError(f"no provider {provider!r}", fix=f"choose of {', '.join(makers)}")
    if model is None and provider != "local":
        raise UsageError(f"{provider} has many models", fix="name one with --model")
    maker: Any = makers[provider]
    return maker() if model is None else maker(model)


def _tell_run(ws: Workspace, run_id: str, played: Played, as_json: bool) -> None:
    rows = ws.sql(
        "SELECT step, thought, action, observation FROM steps WHERE run_id = ? ORDER BY step",
        [run_id],
    ).rows()
    if as_json:
        print_json({
            "run_id": run_id, "outcome": played.outcome.outcome, "detail": played.outcome.detail,
            "ending": played.ending, "steps": len(rows),
        })  # fmt: skip
        return
    print_table(("step", "thought", "action", "observation"), rows)
    if played.outcome.outcome == "unknown":
        click.echo(f"{one_line(run_id)}: left after the {played.ending}; the same command goes on")
    else:
        click.echo(f"{one_line(run_id)}: {played.outcome.outcome} ({played.ending})")


@agent.command()
@with_workspace
@_WORLD
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME", help="Repeat for several.")
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="Repeat for several.")
@click.option("-n", "n", default=100, show_default=True, metavar="N", help="Runs.")
@click.option("--seed", default=7, show_default=True)
@click.option("--jobs", default=1, show_default=True, metavar="N", help="Processes.")
@with_json
def batch(
    workspace: str | None,
    world: str,
    scenarios: tuple[str, ...],
    policies: tuple[str, ...],
    n: int,
    seed: int,
    jobs: int,
    as_json: bool,
) -> None:
    """Run many agents, spread over tasks and policies; run it again to carry on."""
    from tqdm import tqdm

    from sag_research.lab import play_batch

    with open_workspace(workspace, create=True) as ws:
        if ws.path is None:
            raise UsageError("processes cannot share a workspace in memory", fix="name a folder")
        shown = tqdm(total=n, unit="run", disable=not sys.stderr.isatty())
        with shown if not as_json else nullcontext():
            report = play_batch(
                ws.store.path, world, n, seed=seed, scenarios=scenarios, policies=policies,
                jobs=jobs, told=lambda row: shown.update(),
            )  # fmt: skip
        ws.sync()
    _tell_batch(report, as_json)
    if failed := [row for row in report.rows if row.error]:
        raise SagError(f"{len(failed)} runs could not be played", why=one_line(failed[0].error))


def _tell_batch(report: BatchReport, as_json: bool) -> None:
    if as_json:
        rows = [{name: getattr(row, name) for name in row.__struct_fields__} for row in report.rows]
        print_json({"world": report.world, "runs": rows})
        return
    kinds = sorted({(row.policy, row.outcome) for row in report.rows if not row.error})
    counts = [
        (policy, outcome, sum((r.policy, r.outcome) == (policy, outcome) for r in report.rows))
        for policy, outcome in kinds
    ]
    print_table(("policy", "outcome", "runs"), counts)
    click.echo(repr(report))
