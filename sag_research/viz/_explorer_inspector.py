"""An explorer's inspector: tabs that are filled when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import ipywidgets

from sag_research.errors import SagError
from sag_research.model import Event
from sag_research.viz import _explorer_html as html
from sag_research.viz._explorer_data import Found, Study, children, run_facts
from sag_research.viz._explorer_parts import Annotations, Entities, Hits, Text, Turns
from sag_research.viz._scene import Scene

__all__ = ["TABS", "Inspector"]

TABS: Final = (
    "Overview", "Step", "Entities", "Payload", "Diff with parent", "Annotations", "Table",
)  # fmt: skip
OVERVIEW, STEP, ENTITIES, PAYLOAD, DIFF, ANNOTATIONS, TABLE = range(len(TABS))
_OF_A_STEP: Final = (STEP, ENTITIES, PAYLOAD)


class Inspector(ipywidgets.Tab):  # type: ignore[misc]  # it has no types
    """What is known of the chosen run, step or entity.

    Parameters
    ----------
    study : Study
    go : callable
        Called with a place to show.
    turns : Turns
        Carries callbacks out.
    """

    selected_index: int | None

    def __init__(self, study: Study, go: Callable[[Found], None], turns: Turns) -> None:
        self._study, self._due = study, dict[int, Callable[[], None]]()
        self._event: Event | None = None
        self.overview, self.relatives = ipywidgets.HTML(), Hits(go, rows=4)
        self.head = ipywidgets.HTML()
        self.texts = {name: Text(name.capitalize()) for name in html.FIELDS}
        self.entities = Entities(study, go, turns)
        self.payload = ipywidgets.HTML()
        self.whole = ipywidgets.ToggleButton(
            description="Show everything", layout=ipywidgets.Layout(width="auto", display="none")
        )
        self.diff, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.annotations = Annotations(study, turns)
        box = ipywidgets.VBox
        super().__init__(
            [
                box([self.overview, self.relatives]), box([self.head, *self.texts.values()]),
                self.entities, box([self.payload, self.whole]), self.diff, self.annotations,
                self.table,
            ],
            titles=TABS,
            layout=ipywidgets.Layout(width="100%"),
        )  # fmt: skip
        self.observe(turns(lambda _: self._fill()), "selected_index")
        self.whole.observe(lambda _: self._draw_payload(), "value")

    def show_run(self, run: str, notes: Sequence[str] = ()) -> None:
        """Show a run."""
        self._due |= {
            OVERVIEW: lambda: self._draw_run(run, notes),
            DIFF: lambda: self._draw_diff(run),
            ANNOTATIONS: lambda: self.annotations.show(run, None),
        }
        if self.selected_index in _OF_A_STEP:
            self.selected_index = OVERVIEW
        self._fill()

    def show_event(self, event: Event, step: int | None, risk: float | None = None) -> None:
        """Show a step, or another event."""
        run, position = event.run_id, event.position or 0
        self._due |= {
            STEP: lambda: self._draw_step(event, step, risk),
            ENTITIES: lambda: self.entities.show(run, position),
            PAYLOAD: lambda: self._draw_event(event),
            ANNOTATIONS: lambda: self.annotations.show(run, step),
        }
        if self.selected_index in (OVERVIEW, DIFF, TABLE):
            self.selected_index = STEP
        self._fill()

    def show_entity(self, entity: str) -> None:
        """Show where an entity is named."""
        self._due[ENTITIES] = lambda: self.entities.show_entity(entity)
        self.selected_index = ENTITIES
        self._fill()

    def show_scene(self, scene: Scene) -> None:
        """Show a drawing as a table."""
        self._due[TABLE] = lambda: setattr(self.table, "value", html.table_html(scene))
        self._fill()

    def _fill(self) -> None:
        """Fill the tab that is seen; the others wait."""
        fill = self._due.pop(self.selected_index or 0, None)
        if fill is not None:
            fill()

    def _draw_run(self, run: str, notes: Sequence[str]) -> None:
        facts, forks = run_facts(self._study, run), children(self._study, run)
        parent, at = facts.get("parent_id"), facts.get("fork_position")
        related = [Found("run", name, 0, 0, f"a child, leaves after position {place}")
                   for name, place in forks]  # fmt: skip
        if parent is not None:
            facts["fork_step"] = self._study.store.count_steps(parent, int(at or 0) + 1) - 1
            related.insert(0, Found("run", parent, 0, 0, "the parent"))
        self.overview.value = html.overview_html(facts, forks, notes)
        self.relatives.show(related)

    def _draw_step(self, event: Event, step: int | None, risk: float | None) -> None:
        self.head.value = html.step_head(event, step, risk)
        texts = html.step_fields(event)
        for name, box in self.texts.items():
            box.layout.display = "" if texts else "none"
            box.show(texts.get(name, ""))

    def _draw_event(self, event: Event) -> None:
        self._event = event
        self.whole.layout.display = "" if html.is_cut(event) else "none"
        self.whole.value = False
        self._draw_payload()

    def _draw_payload(self) -> None:
        if self._event is not None:
            self.payload.value = html.payload_html(self._event, self.whole.value)

    def _draw_diff(self, run: str) -> None:
        parent = self._study.store.get_run(run).parent_id
        if parent is None:
            self.diff.value = html.note("This run has no parent: it was not forked.")
            return
        try:
            self.diff.value = html.block(self._study.diff(parent, run).to_html())
        except SagError as error:
            self.diff.value = html.note(str(error))
