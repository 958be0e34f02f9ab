"""Looking through a workspace in a notebook: a list of runs, a live drawing, an inspector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import ipywidgets

from sag_research._text import clip, html_table, visible
from sag_research.errors import UsageError
from sag_research.viz import _explorer_html as html
from sag_research.viz._bloom_view import BloomView
from sag_research.viz._explorer_code import ACTIONS, code_for, notebook_shell
from sag_research.viz._explorer_data import Found, Parameters, RunTable, Study, family, read_event
from sag_research.viz._explorer_inspector import Inspector
from sag_research.viz._explorer_list import RunList
from sag_research.viz._explorer_parts import Code, Hits, Turns, wide
from sag_research.viz._explorer_risk import Risks, RiskSource
from sag_research.viz._explorer_space import Drawing
from sag_research.viz._saved import NAME as SAVED
from sag_research.viz._scene import Scene
from sag_research.viz._stage import LAYOUTS
from sag_research.viz._stage import scene as make_scene

__all__ = ["Explorer"]

LANES: Final = 12
"""Runs that are drawn together, at most."""
LISTED: Final = 2_000
"""Steps in the list of steps, at most."""
_STEP: Final = "agent.step"


class Place(NamedTuple):
    """Where the reader is."""

    run: str
    position: int
    step: int | None


class Explorer(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """A workspace to look through; made by ``ws.explore()``.

    Parameters
    ----------
    study : Study
        A workspace.
    where : str
        An SQL condition over the view ``runs``.
    parameters : sequence or mapping
        Values for it.
    risk : Alarm, RiskModel or mapping, optional
        What tells the risk of steps; a mapping gives the risks by run id.
    height : int
        Of the drawing, pixels.

    Attributes
    ----------
    runs : RunList
    view : BloomView
    drawing : Drawing
        Shows the view, or the same scene in space.
    inspector : Inspector
    place : Place or None
        Run, position and step of what is chosen.
    code : str
        What the last button of "Fork here", "Recall from here" and "Risk here" wrote.

    Notes
    -----
    Nothing is read before it is looked at, and runs come fifty at a time. All of it can be
    reached by keyboard: Tab goes from part to part, arrow keys choose runs, steps and tabs,
    Enter presses a button.
    """

    def __init__(
        self,
        study: Study,
        where: str = "true",
        parameters: Parameters = (),
        *,
        risk: RiskSource = None,
        height: int = 560,
    ) -> None:
        self._study, self._risks = study, Risks(study, risk)
        self._graph: Any = None
        self._lanes: list[str] = []
        self._opened: set[str] = set()
        self._quiet = False
        self.place: Place | None = None
        self.view = BloomView(Scene(nodes=[], edges=[], layout="timeline"), height)
        self.view.details = False  # there is a larger inspector below
        self.drawing = Drawing(self.view)
        self.told = ipywidgets.HTML()
        self._turns = Turns(self.say)
        go = self._turns(self.go)
        self.inspector = Inspector(study, go, self._turns)
        self._make_tools(go)
        alarmed = self._is_alarmed if self._risks.has_alarm else None
        table = RunTable(study, where, parameters, alarmed)
        self._search_in = table
        self.runs = RunList(table, self._draw_runs, self._turns)
        self._connect()
        beside = ipywidgets.VBox([self.tools, self.hits, self.drawing], layout=_flexible())
        left = ipywidgets.VBox([self.runs, self.steps_label, self.steps])
        left.layout.flex, left.layout.width = "0 0 auto", "340px"
        above = ipywidgets.HBox([left, beside], layout=wide())
        super().__init__(
            [ipywidgets.HTML(html.STYLE), above, self.actions, self.code_box, self.told,
             self.inspector],
            layout=wide(),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Explorer({self.runs.total} run{'' if self.runs.total == 1 else 's'})"

    # ---- parts

    def _make_tools(self, go: Callable[[Found], None]) -> None:
        self.search = ipywidgets.Text(
            placeholder="Search runs, steps, entities", continuous_update=False,
            layout=ipywidgets.Layout(width="230px"),
        )  # fmt: skip
        self.hits = Hits(go, rows=5)
        self.kind = ipywidgets.ToggleButtons(
            options=list(LAYOUTS), tooltips=["lanes from left to right", "what belongs together"],
            style={"button_width": "78px"},
        )  # fmt: skip
        self.in_space = ipywidgets.ToggleButton(
            description="3D", tooltip="the same drawing in space, which can be turned",
            layout=ipywidgets.Layout(width="44px"),
        )  # fmt: skip
        self.relatives, self.chains = (
            ipywidgets.Checkbox(description=text, indent=False, value=value, tooltip=tip,
                                layout=ipywidgets.Layout(width="auto"))
            for text, value, tip in (
                ("forks", True, "draw parent and forks too"),
                ("collapse", False, "draw neighbouring steps that did the same as one mark"),
            )
        )  # fmt: skip
        self.opener = ipywidgets.Button(
            description="Open chain", disabled=True, layout=ipywidgets.Layout(width="96px"),
            tooltip="Draw each step of the chosen chain",
        )  # fmt: skip
        tools = [self.search, self.kind, self.in_space, self.relatives, self.chains, self.opener]
        self.tools = ipywidgets.HBox(tools, layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.steps_label = ipywidgets.Label(value="Steps")
        self.steps = ipywidgets.Select(
            rows=9, options=[], layout=ipywidgets.Layout(width="auto"), tooltip="Steps of the run"
        )
        self.buttons = {
            name: ipywidgets.Button(description=text, layout=ipywidgets.Layout(width="auto"))
            for name, text in ACTIONS.items()
        }
        self.actions = ipywidgets.HBox(list(self.buttons.values()))
        self.code_box = Code()

    def _connect(self) -> None:
        self.search.observe(self._turns(lambda change: self.find(change["new"])), "value")
        self.kind.observe(self._turns(lambda _: self._draw()), "value")
        self.in_space.observe(self._turns(lambda _: self._turn()), "value")
        self.chains.observe(self._turns(lambda _: self._collapse()), "value")
        self.relatives.observe(self._turns(lambda _: self._draw_runs(self._chosen_runs)), "value")
        self.opener.on_click(self._turns(lambda _: self._open_chain()))
        self.steps.observe(self._turns(self._step_chosen), "value")
        chosen = self._turns(self._node_chosen)
        self.view.observe(lambda change: chosen(change["new"]), "selected")
        for name, button in self.buttons.items():
            button.on_click(self._turns(lambda _, name=name: self.write(name)))

    def say(self, text: str) -> None:
        """Show a sentence below the drawing."""
        self.told.value = html.note(text) if text else ""

    # ---- drawing

    @property
    def scene(self) -> Scene:
        """What is drawn."""
        return self.view.scene

    def _draw_runs(self, runs: list[str]) -> None:
        self._chosen_runs = runs
        wanted = runs[:LANES]
        if self.relatives.value:
            related = [name for run in wanted for name in family(self._study, run, LANES)]
            wanted = list(dict.fromkeys(related if len(runs) == 1 else [*wanted, *related]))[:LANES]
        self.say(f"{LANES} of {len(runs)} runs are drawn." if len(runs) > LANES else "")
        self._lanes, self._opened = wanted, set()
        self._graph = self._study.bloom(wanted).nx
        self._list_steps(runs[0])
        self._draw()
        self.show_run(runs[0])

    def _draw(self) -> None:
        if self._graph is None:
            return
        risk = {run: risks for run in self._lanes if (risks := self._risks.of(run))}
        alarms = None
        if self._risks.has_alarm:
            raised = {run: self._risks.alarm(run) for run in self._lanes}
            alarms = {run: step for run, step in raised.items() if step is not None}
        self.view.scene = make_scene(
            self._graph, self.kind.value, risk=risk or None, alarms=alarms,
            collapse=self.chains.value, expand=self._opened,
        )  # fmt: skip
        self.view.flush()
        self.drawing.follow()
        self.inspector.show_scene(self.view.scene)

    def _turn(self) -> None:
        self.drawing.turn(self.in_space.value)

    def _collapse(self) -> None:
        self._opened = set()
        self._draw()

    def _open_chain(self) -> None:
        key = self.view.selected
        if key.startswith("chain:"):
            self._opened.add(key)
            self._draw()
            self._choose_node(key.removeprefix("chain:"))

    # ---- choosing

    def _list_steps(self, run: str) -> None:
        events = self._study.store.read(run, types=(_STEP,))
        options = []
        for number, event in enumerate(events):
            if number == LISTED:
                break
            action = event.payload.get("action") or event.payload.get("thought") or ""
            label = f"{number} · {visible(clip(action, 60))}"
            options.append((label, (event.run_id, event.position or 0)))
        self._quiet = True
        self.steps.options, self.steps.index = options, None
        self._quiet = False
        cut = f", the first {LISTED:,}" if len(options) == LISTED else ""
        self.steps_label.value = f"Steps of {visible(clip(run, 60))}{cut}"

    def show_run(self, run: str) -> None:
        """Show a run in the inspector."""
        self.place = Place(run, self._study.store.head(run).position, None)
        if self.view.selected != f"run:{run}":
            self._choose_node("")
        self.inspector.show_run(run, self._risks.notes(run))

    def show_step(self, run: str, position: int) -> None:
        """Show a step, or another event, in the inspector; it need not be drawn."""
        event = read_event(self._study, run, position)
        if event is None:
            raise UsageError(f"run {run!r} has no position {position}")
        step = None
        if event.type == _STEP:
            step = self._study.store.count_steps(run, position)
        self.place = Place(event.run_id, position, step)
        risks = self._risks.of(event.run_id) if step is not None else []
        risk = risks[step] if step is not None and step < len(risks) else None
        self._mark_step(event.run_id, position)
        self._choose_node(f"event:{event.run_id}:{position}")
        self.inspector.show_event(event, step, risk)

    def go(self, found: Found) -> None:
        """Go to what a search or a list of uses has found."""
        if found.kind == "entity":
            self._choose_node(f"entity:{found.name}")
            self.inspector.show_entity(found.name)
            return
        if found.name not in self._lanes:
            self._draw_runs([found.name])
        self.runs.mark(found.name)
        if found.kind == "step":
            self._list_steps(found.name)
            self.show_step(found.name, found.position)
        else:
            self._list_steps(found.name)
            self.show_run(found.name)

    def find(self, text: str) -> list[Found]:
        """Search runs, steps and entities for a text, and list what was found."""
        found = self._search_in.search(text.strip()) if text.strip() else []
        self.hits.show(found)
        if text.strip():
            count = f"{len(found)} found" if found else "Nothing found"
            self.say(f"{count} for “{clip(text, 60)}” (at most 20 of a kind are listed).")
        return found

    def _step_chosen(self, change: Any) -> None:
        if not self._quiet and change["new"] is not None:
            self.show_step(*change["new"])

    def _node_chosen(self, key: str) -> None:
        self.opener.disabled = not key.startswith("chain:")
        if self._quiet or not key:
            return
        kind, _, rest = key.removeprefix("chain:").partition(":")
        if kind == "event":
            run, _, position = rest.rpartition(":")
            self.show_step(run, int(position))
        elif kind == "run":
            self._list_steps(rest)
            self.show_run(rest)
        elif kind == "entity":
            self.inspector.show_entity(rest)

    def _choose_node(self, key: str) -> None:
        """Mark a node of the drawing, unless it is marked, or drawn as part of a chain."""
        chain = f"chain:{key}"
        if self.view.selected in (key, chain):
            return
        known = {node.id for node in self.view.scene.nodes}
        self._quiet = True
        self.view.selected = key if key in known else chain if chain in known else ""
        self._quiet = False

    def _mark_step(self, run: str, position: int) -> None:
        values = [value for _, value in self.steps.options]
        self._quiet = True
        self.steps.index = values.index((run, position)) if (run, position) in values else None
        self._quiet = False

    def _is_alarmed(self, run: str) -> bool:
        return self._risks.alarm(run) is not None

    # ---- code

    def write(self, action: str) -> str:
        """Write the code of an action at the chosen place; returns it.

        Parameters
        ----------
        action : {"fork", "recall", "risk", "export"}
        """
        if self.place is None:
            raise UsageError("nothing is chosen", fix="choose a run or a step")
        self.code_box.value = code_for(action, self._study, *_at(self.place))
        self.say("Copy it, or run  explorer.next_cell()  in a cell to get it as the next one.")
        return str(self.code_box.value)

    @property
    def code(self) -> str:
        """What the last button wrote."""
        return str(self.code_box.value)

    def next_cell(self) -> None:
        """Put the code into the notebook's next cell; to be called in a cell.

        A notebook takes new cells from a running cell only, not from a button.
        """
        shell = notebook_shell()
        if shell is None:
            raise UsageError("there is no notebook", fix="use .code")
        if not self.code:
            raise UsageError("there is no code yet", fix="press one of the buttons")
        shell.set_next_input(self.code)

    # ---- showing

    def _ipython_display_(self) -> None:
        from IPython.display import publish_display_data

        table = f'<div class="{SAVED}">{self.saved()}</div>'
        copy = {"text/plain": repr(self), "text/html": table}
        publish_display_data(copy)  # type: ignore[no-untyped-call]
        self.view.show_in(self, repr(self))

    def saved(self) -> str:
        """Return the list of runs as markup, for readers without a kernel."""
        columns = ["run", "task", "model", "outcome", "steps", "forked from"]
        rows = [
            [visible(clip(value, 80)) if isinstance(value, str) else value for value in row[:6]]
            for row in self.runs.rows
        ]
        return html.block(html_table(columns, rows, self.runs.total))


def _at(place: Place) -> tuple[str, int | None, int]:
    return place.run, place.step, place.position


def _flexible() -> ipywidgets.Layout:
    return ipywidgets.Layout(flex="1 1 0", min_width="0", overflow="hidden")
