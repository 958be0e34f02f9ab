"""Moatless: search trees, and the straight loops before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import loads, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._moatless_nodes import Node, states_in, tree_nodes
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._tree import Branch, branches, links
from sag_research.model import Step, Trajectory

__all__ = ["Moatless"]

_TREE: Final = {"max_expansions", "max_iterations", "selector"}
_NODE: Final = {"node_id", "visits"}
_LOOP: Final = {"transition_rules", "initial_message"}
_NAMELESS: Final = ("trajectory", "traj", "tree")
_KEPT: Final = ("metadata", "max_expansions", "max_iterations", "max_cost", "max_depth", "selector")
_INFO: Final = ("error", "duration", "total_cost", "evaluation_name", "trace_id")


class Moatless:
    """Moatless search trees: ``{root: {node_id, children, …}, selector, agent, …}``, and loops.

    Traps that are honoured

    * A node with an action is a step. At a fork a run goes on to the node that stands last in the
      file; every other way is a run of its own with ``parent``, the step behind which it leaves
      and the relation ``fork``, so each step is in one run only.
    * Trees are nested by ``children`` or listed with ``parent_id``; a list may name parents that
      are missing or that go round in a circle, which is noted and cut.
    * ``reward``, ``value`` and ``visits`` are the guesses of a value function, no outcome: they
      are in the ``state`` of the step, with what the value function took (``judges``). The usage
      of a step is that of the agent's own replies.
    * A tree of one node without an action never began: a run without steps.
    * Older files (``transitions``) are states that name the state before them. Each action of a
      state is a step; one with ``retry`` erred. A state without an action is none of the agent's.
      The observation is what the response says: its message, or all of its output.
    * The model's whole input stands beside every reply: it is not kept.
    * ``status`` in ``info`` is why the loop stopped; there is no label in these files.
    """

    name = "moatless"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim search trees and loops by their keys."""
        seen = outline(head)
        keys = set(seen.keys) if seen.root == "object" else set()
        if keys >= _TREE or keys >= _LOOP:
            return 0.92
        return 0.9 if "root" in keys and seen.below("root") >= _NODE else 0.0

    def read(self, source: Source) -> Reading:
        """Read a tree, or a loop."""
        value = loads(source.bytes())
        if not isinstance(value, dict):
            raise FormatError("no object in it")
        transitions = value.get("transitions")
        is_loop = isinstance(transitions, list)
        root = value.get("root")
        nodes = states_in(transitions) if isinstance(transitions, list) else tree_nodes(root)
        if not nodes:
            raise FormatError("no nodes in it", why="root is no tree, and transitions no list")
        notes: list[str] = []
        found = _branches(nodes, notes)
        about = _about_loop(value) if is_loop else _about_tree(value)
        about["task_id"] = about["task_id"] or _named(source.path)
        return Reading("loop" if is_loop else "tree", _trajectories(nodes, found, about), notes)


def _branches(nodes: list[Node], notes: list[str]) -> list[Branch]:
    up, missing, again = links([one.id for one in nodes], [one.parent for one in nodes])
    nested = [one.up for one in nodes]
    found, cycles = branches(nested if any(one is not None for one in nested) else up)
    problems = (
        (again, "nodes have the id of an earlier one"),
        (len(missing), "nodes name a parent that is not here"),
        (cycles, "cycles of parents were cut"),
    )
    notes += [f"{count} {what}" for count, what in problems if count]
    return found


def _about_tree(value: dict[str, Any]) -> dict[str, Any]:
    metadata = mapping(value.get("metadata"))
    root = value.get("root")
    first = root[0] if isinstance(root, list) and root else root
    agent = mapping(value.get("agent"))
    completion = mapping(agent.get("completion")) or mapping(agent.get("completion_model"))
    config = {name: value.get(name) for name in _KEPT}
    config["system_prompt"] = agent.get("system_prompt")
    return {
        "task_id": shared.word(metadata.get("instance_id")),
        "goal": shared.text_of(mapping(first).get("message") or mapping(first).get("user_message")),
        "model": shared.word(completion.get("model")),
        "config": config,
    }


def _about_loop(value: dict[str, Any]) -> dict[str, Any]:
    info = mapping(value.get("info"))
    rules = mapping(mapping(value.get("transition_rules")).get("global_params"))
    return {
        "task_id": shared.word(info.get("instance_id")),
        "goal": shared.text_of(value.get("initial_message")),
        "model": shared.word(rules.get("model")),
        "exit_status": shared.word(info.get("status")),
        "submission": shared.text_of(info.get("submission")) or None,
        "config": {name: info.get(name) for name in _INFO},
    }


def _trajectories(
    nodes: list[Node], found: list[Branch], about: dict[str, Any]
) -> Iterator[Trajectory]:
    placed: list[dict[int, int]] = []  # of each branch: how many steps stand up to a node
    for number, branch in enumerate(found):
        steps: list[Step] = []
        after: dict[int, int] = {}
        for node in branch.nodes:
            steps += nodes[node].steps
            after[node] = len(steps)
        placed.append(after)
        first = 0
        if branch.parent is not None and branch.at is not None:
            first = placed[branch.parent][branch.at]
        yield _trajectory(number, branch, tuple(steps), first, about)


def _trajectory(
    number: int, branch: Branch, steps: tuple[Step, ...], first: int, about: dict[str, Any]
) -> Trajectory:
    whole = about if number == 0 else {}
    config = whole.get("config", {})
    return Trajectory(
        task_id=about["task_id"],
        record=str(number),
        steps=steps,
        goal=about["goal"],
        repo=shared.repo_of(about["task_id"]),
        agent="moatless",
        model=about["model"],
        end="run.completed" if steps else None,
        exit_status=whole.get("exit_status"),
        submission=whole.get("submission"),
        parent=None if branch.parent is None else str(branch.parent),
        parent_step=first - 1 if branch.parent is not None and first else None,
        config={name: one for name, one in config.items() if one not in (None, "", [], {})},
    )


def _named(path: Path) -> str:
    stem = shared.bare_id(path)
    folder = path.absolute().parent.name
    return folder if stem in _NAMELESS and folder else stem
