"""Parts of an explorer's inspector: folded texts, code to copy, annotations, an entity's uses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import ipywidgets
import traitlets

from sag_research._text import clip, visible
from sag_research.errors import SagError
from sag_research.viz import _explorer_html as html
from sag_research.viz._explorer_data import Found, Study, entities_of, uses_of

if TYPE_CHECKING:
    from sag_research.viz._explorer_data import EntityUse

__all__ = ["Annotations", "Code", "Entities", "Text", "Turns", "hit_label", "wide"]


class Turns:
    """Carries callbacks out one at a time, and says what went wrong.

    Messages of one page may arrive on several threads at once. Errors that a reader can do
    something about are told; others are the notebook's to show.

    Parameters
    ----------
    say : callable
        Called with a sentence.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self._lock = say, threading.RLock()

    def __call__(self, work: Callable[..., Any]) -> Callable[..., None]:
        """Make a callback of a function."""

        def turn(*arguments: Any) -> None:
            with self._lock:
                try:
                    work(*arguments)
                except SagError as error:
                    self.say(str(error))

        return turn


def wide() -> ipywidgets.Layout:
    """Make a layout as wide as what is around; each widget needs one of its own."""
    return ipywidgets.Layout(width="auto")


class Code(anywidget.AnyWidget):
    """Code that can be read and copied, not changed."""

    _esm = Path(__file__).parent / "js" / "explorer_code.js"
    value = traitlets.Unicode("").tag(sync=True)

    def __repr__(self) -> str:
        return f"Code({clip(self.value, 60)!r})"


class Text(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """A text that is folded while it is long."""

    def __init__(self, title: str) -> None:
        self._title, self._text = title, ""
        self.body = ipywidgets.HTML()
        self.more = ipywidgets.ToggleButton(layout=ipywidgets.Layout(width="auto", display="none"))
        super().__init__([self.body, self.more], layout=wide())
        self.more.observe(self._draw, "value")

    def show(self, text: str) -> None:
        """Show a text, folded."""
        self._text = text
        long = len(text) > html.FOLD
        self.more.layout.display = "" if long else "none"
        self.more.value = False
        self._draw()

    def _draw(self, _: Any = None) -> None:
        n = f"{len(self._text):,}"
        self.more.description = (
            f"Show less of {n}" if self.more.value else f"Show all {n} characters"
        )
        self.body.value = html.text_html(self._title, self._text, self.more.value)


def hit_label(found: Found) -> str:
    """Say what was found in one line of plain text."""
    name = visible(clip(found.name, 60))
    if found.kind == "step":
        return f"step {found.step} of {name} · {visible(clip(found.text, 60))}"
    if found.kind == "run":
        return f"run {name} · {visible(clip(found.text, 60))}"
    return f"entity {name}"


class Hits(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """Places to go to: a list, and a button."""

    def __init__(self, go: Callable[[Found], None], rows: int = 6) -> None:
        self._go, self._hits = go, [Found("", "", 0, 0, "")][:0]
        self.list = ipywidgets.Select(options=[], rows=rows, layout=wide())
        self.button = ipywidgets.Button(description="Go there", tooltip="Show the chosen place")
        super().__init__([self.list, self.button], layout=wide())
        self.button.on_click(self._pressed)
        self.show([])

    def show(self, hits: Sequence[Found]) -> None:
        """List places; where there is none, nothing is shown."""
        self._hits = list(hits)
        self.list.options = [(hit_label(hit), number) for number, hit in enumerate(self._hits)]
        self.list.index = 0 if self._hits else None
        self.layout.display = "" if self._hits else "none"

    def _pressed(self, _: Any) -> None:
        if self.list.index is not None:
            self._go(self._hits[self.list.index])


class Entities(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """What a step names, and where else each is named."""

    def __init__(self, study: Study, go: Callable[[Found], None], turns: Turns) -> None:
        self._study = study
        self.body = ipywidgets.HTML()
        self.list = ipywidgets.Select(options=[], rows=5, layout=wide())
        self.told = ipywidgets.HTML()
        self.hits = Hits(go)
        super().__init__([self.body, self.list, self.told, self.hits], layout=wide())
        self.list.observe(turns(lambda change: self._where(change["new"])), "value")

    def show(self, run: str, position: int) -> None:
        """Show what a step names."""
        uses = entities_of(self._study, run, position)
        total = self._study.sql("SELECT count(*) FROM runs WHERE NOT hidden").rows()[0][0]
        self.body.value = html.entities_html(uses, int(total))
        self._offer(uses)

    def show_entity(self, entity: str) -> None:
        """Show where an entity is named."""
        self.body.value = html.block(f"<h4>{html.shown(entity)}</h4>")
        self._offer([])
        self._where(entity)

    def _offer(self, uses: Sequence[EntityUse]) -> None:
        self.list.layout.display = "" if uses else "none"
        first = [("where else is …", "")]
        self.list.options = first + [(visible(use.entity_id), use.entity_id) for use in uses]
        self.list.value = ""
        self._where("")

    def _where(self, entity: str) -> None:
        found = uses_of(self._study, entity) if entity else []
        runs = len({hit.name for hit in found})
        told = f"{len(found)} steps of {runs} runs name it (at most 200 are listed)."
        self.told.value = html.note(told) if entity else ""
        self.hits.show(found)


class Annotations(ipywidgets.VBox):  # type: ignore[misc]  # it has no types
    """Codes and notes of people: to make, to take back, to compare."""

    def __init__(self, study: Study, turns: Turns) -> None:
        self._study, self._told = study, turns.say
        self._run, self._step = "", 0
        self._rows: list[tuple[Any, ...]] = []
        self._make()
        compare = ipywidgets.HBox([self.a, self.b, self.agree])
        super().__init__(
            [
                self.place, ipywidgets.HBox([self.code, self.by]), self.note, self.add, self.body,
                ipywidgets.HBox([self.list, self.remove], layout=wide()), compare, self.kappa,
            ],
            layout=wide(),
        )  # fmt: skip
        self.add.on_click(turns(self._add))
        self.remove.on_click(turns(self._remove))
        self.agree.on_click(turns(self._agree))

    def _make(self) -> None:
        style = {"description_width": "76px"}
        self.place = ipywidgets.Label()
        self.code = ipywidgets.Combobox(
            description="Code", placeholder="e.g. wrong-file", ensure_option=False, style=style
        )
        self.by = ipywidgets.Text(description="Who", value="me", style=style)
        self.note = ipywidgets.Textarea(description="Note", rows=2, style=style, layout=wide())
        self.add = ipywidgets.Button(description="Annotate", button_style="primary")
        self.body = ipywidgets.HTML()
        self.list = ipywidgets.Dropdown(options=[], layout=ipywidgets.Layout(width="60%"))
        self.remove = ipywidgets.Button(description="Take back")
        self.a, self.b = (ipywidgets.Dropdown(options=[], description=n, style=style)
                          for n in ("Annotator", "and"))  # fmt: skip
        self.agree = ipywidgets.Button(description="Agreement", tooltip="Cohen's kappa")
        self.kappa = ipywidgets.HTML()

    def show(self, run: str, step: int | None) -> None:
        """Show a run's annotations; a new one goes to this step, or to the run as a whole."""
        self._run, self._step = run, step if step is not None else -1
        where = "the run as a whole" if step is None else f"step {step}"
        self.place.value = f"Annotate {where} of {visible(clip(run, 80))}"
        everything = self._study.annotations()
        self.code.options = [clip(code, 80) for code in sorted(set(everything["code"]))]
        self._offer_people(sorted(set(everything["by"])))
        columns = ["step", "code", "note", "by"]
        frame = self._study.annotations(run)[columns].astype(object)
        rows = frame.where(frame.notna(), None).itertuples(index=False, name=None)
        self._rows = [tuple(row) for row in rows]
        self.body.value = html.annotations_html(self._rows)
        self.list.options = [(_annotation_label(row), n) for n, row in enumerate(self._rows)]
        self.list.index = 0 if self._rows else None
        self.list.layout.display = self.remove.layout.display = "" if self._rows else "none"

    def _offer_people(self, people: list[str]) -> None:
        """Keep the two that were chosen, unless it was one twice."""
        kept = list(dict.fromkeys([self.a.value, self.b.value]))
        chosen = [who for who in kept if who in people]
        chosen += [who for who in people if who not in chosen]
        for number, box in enumerate((self.a, self.b)):
            box.options = [(visible(clip(who, 40)), who) for who in people]
            box.value = chosen[number] if len(chosen) > number else None
        self.agree.disabled = len(people) < 2

    def _add(self, _: Any) -> None:
        step = None if self._step < 0 else self._step
        self._study.annotate(
            self._run, step, code=self.code.value, note=self.note.value, by=self.by.value
        )
        self._told(f"Annotated {self.place.value.removeprefix('Annotate ')}.")
        self.note.value = ""
        self.show(self._run, step)

    def _remove(self, _: Any) -> None:
        if self.list.value is None:
            return
        step, code, _note, by = self._rows[self.list.value]
        self._study.remove_annotation(self._run, step, code=code, by=by)
        self.show(self._run, None if self._step < 0 else self._step)

    def _agree(self, _: Any) -> None:
        found = self._study.agreement(self.a.value, self.b.value)
        self.kappa.value = html.block(found._repr_html_())


def _annotation_label(row: tuple[Any, ...]) -> str:
    step, code, _, by = row
    where = "run" if step is None else f"step {step}"
    return visible(clip(f"{where} · {code} · {by}", 80))
