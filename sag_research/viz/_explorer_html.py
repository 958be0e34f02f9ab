"""What an explorer's inspector says, as escaped HTML; nothing here knows widgets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sag_research._text import clip, escape, html_table, repair, strip_terminal, visible

if TYPE_CHECKING:
    from sag_research.model import Event
    from sag_research.viz._explorer_data import EntityUse
    from sag_research.viz._scene import Scene

__all__ = [
    "FIELDS",
    "FOLD",
    "STYLE",
    "annotations_html",
    "entities_html",
    "overview_html",
    "payload_html",
    "shown",
    "step_fields",
    "step_head",
    "table_html",
    "text_html",
]

FOLD: Final = 1_500
"""Characters of a text that are shown before it is unfolded."""
_VALUE: Final = 20_000
"""Characters of a value of a payload that are shown before all is asked for."""
_ROWS: Final = 300
FIELDS: Final = ("thought", "action", "observation")

STYLE: Final = """<style>
.sag-x { font: 13px/1.45 var(--jp-ui-font-family, system-ui, sans-serif);
  color: var(--jp-ui-font-color1, inherit); }
.sag-x pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 26em; overflow: auto;
  margin: 2px 0 8px; padding: 6px 8px; font: 12px/1.4 var(--jp-code-font-family, monospace);
  color: inherit; background: var(--jp-layout-color2, #f2f2f2); border: 1px solid
  var(--jp-border-color2, #ccc); border-radius: 3px; }
.sag-x dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 12px; margin: 4px 0; }
.sag-x dt, .sag-x dd { float: none; width: auto; margin: 0; padding: 0; }
.sag-x dt { font-weight: 600; white-space: nowrap; } .sag-x dd { overflow-wrap: anywhere; }
.sag-x table { border-collapse: collapse; font-size: 12px; margin: 4px 0; }
.sag-x th, .sag-x td { text-align: left; vertical-align: top; padding: 2px 10px 2px 0;
  overflow-wrap: anywhere; border-bottom: 1px solid var(--jp-border-color2, #ccc); }
.sag-x h4 { margin: 6px 0 2px; font-size: 13px; }
.sag-x summary { cursor: pointer; }
.sag-x .sag-note { color: var(--jp-ui-font-color1, inherit); font-style: italic; }
</style>"""

_C1: Final = re.compile("[\x7f-\x9f]")


def shown(text: object) -> str:
    r"""Make a text safe inside HTML, with characters that reorder or hide text named.

    Examples
    --------
    >>> shown("\x1b[31m<b>red\u202e")
    '&lt;b&gt;red⟨U+202E⟩'
    """
    return escape(visible(strip_terminal(repair(str(text)))))


def block(inner: str) -> str:
    """Wrap markup so that the style above holds for it."""
    return f'<div class="sag-x">{inner}</div>'


def note(text: str) -> str:
    """Say something that is no datum."""
    return block(f'<p class="sag-note">{escape(text)}</p>')


def text_html(title: str, text: str, whole: bool = False) -> str:
    """Show a text under a title; a long one is cut unless it is wanted whole."""
    if not text:
        return block(f"<h4>{escape(title)}</h4><p class='sag-note'>empty</p>")
    part = text if whole else text[:FOLD]
    more = "" if len(part) == len(text) else " …"
    return block(f"<h4>{escape(title)}</h4><pre tabindex='0'>{shown(part)}{more}</pre>")


def pairs_html(pairs: Sequence[tuple[str, Any]]) -> str:
    """Show names and values; what is not known is left out."""
    known = [(name, value) for name, value in pairs if not _is_missing(value)]
    cells = "".join(f"<dt>{escape(name)}</dt><dd>{shown(value)}</dd>" for name, value in known)
    return f"<dl>{cells}</dl>"


def overview_html(
    facts: Mapping[str, Any], forks: Sequence[tuple[str, int]], notes: Sequence[str] = ()
) -> str:
    """Say what a run is, how it ended and who says so."""
    parent = facts.get("parent_id")
    said = [f"{outcome} ({source or 'source not named'}" + ("" if detail is None else f", {detail}")
            + ("" if score is None else f", score {score:g}") + ")"
            for source, outcome, detail, score in facts.get("said", ())]  # fmt: skip
    origin = [f"{path} ({kind})" for path, kind in facts.get("origin", ())]
    pairs = [
        ("run", facts.get("run_id")), ("label", facts.get("label") or None),
        ("goal", clip(facts.get("goal") or "", 2_000) or None),
        ("outcome", facts.get("outcome")),
        ("said by", "; ".join(said) or "nobody: the outcome is unknown, which is no failure"),
        ("exit status", facts.get("exit_status")),
        ("ended by", facts.get("end_type") or "not ended"),
        ("forked from", None if parent is None else
         f"{parent} at step {facts.get('fork_step')} (position {facts.get('fork_position')})"),
        ("steps", _steps_words(facts)),
        ("task", facts.get("task_id")), ("attempt", facts.get("attempt")),
        ("agent", facts.get("agent")), ("model", facts.get("model")), ("repo", facts.get("repo")),
        ("tokens", _tokens(facts)), ("cost", _cost(facts.get("cost_usd"))),
        ("source", "; ".join(origin) or None),
        ("hidden", facts.get("hidden_reason") or ("yes" if facts.get("hidden") else None)),
    ]  # fmt: skip
    rows = [[name, at] for name, at in forks]
    below = html_table(["fork", "leaves after position"], _shown_rows(rows)) if rows else ""
    told = "".join(f'<p class="sag-note">{escape(line)}</p>' for line in notes)
    return block(pairs_html(pairs) + told + (f"<h4>Children</h4>{below}" if below else ""))


def _steps_words(facts: Mapping[str, Any]) -> str:
    taken = int(facts.get("n_inherited") or 0)
    return f"{facts.get('n_steps')}" + (f", and {taken} taken over" if taken else "")


def _tokens(facts: Mapping[str, Any]) -> str:
    known = [f"{int(facts[name]):,} {word}" for name, word in (("tokens_in", "in"),
             ("tokens_out", "out")) if not _is_missing(facts.get(name))]  # fmt: skip
    return ", ".join(known) or "not known"


def _cost(cost: Any) -> str:
    return "not known" if _is_missing(cost) else f"${float(cost):,.4f}"


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def step_head(event: Event, step: int | None, risk: float | None = None) -> str:
    """Say what a step is, beside its texts."""
    body = event.payload
    calls = [call for call in body.get("calls") or [] if isinstance(call, Mapping)]
    codes = [str(call["exit_code"]) for call in calls if call.get("exit_code") is not None]
    usage = body.get("usage") or {}
    pairs = [
        ("run", event.run_id),
        ("step" if step is not None else "event", event.type if step is None else step),
        ("position", event.position),
        ("tools", ", ".join(str(call["name"]) for call in calls if call.get("name")) or None),
        ("status", ", ".join(str(call.get("status") or "unknown") for call in calls) or None),
        ("exit code", ", ".join(codes) or None),
        ("flags", ", ".join(map(str, body.get("flags") or [])) or None),
        ("seconds", body.get("seconds")),
        ("tokens", _tokens(usage) if usage else None),
        ("risk", None if risk is None or math.isnan(risk) else f"{risk:.3f}"),
    ]
    return block(pairs_html(pairs))


def step_fields(event: Event) -> dict[str, str]:
    """Return a step's texts; for other events, none."""
    if event.type != "agent.step":
        return {}
    return {name: str(event.payload.get(name) or "") for name in FIELDS}


def payload_html(event: Event, whole: bool = False) -> str:
    """Show an event's payload as JSON, one fold a key."""
    parts = []
    for name, value in event.payload.items():
        text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
        text = _C1.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        part = text if whole else text[:_VALUE]
        more = "" if len(part) == len(text) else f" … {len(text) - len(part):,} characters more"
        title = f"{shown(clip(name, 80))} · {len(text):,} characters"
        parts.append(
            f"<details><summary>{title}</summary>"
            f"<pre tabindex='0'>{shown(part)}{more}</pre></details>"
        )
    digest = f"{event.type}, position {event.position}, digest {event.digest}"
    return block(f"<p>{shown(digest)}</p>" + ("".join(parts) or "<p>empty</p>"))


def is_cut(event: Event) -> bool:
    """Whether :func:`payload_html` leaves something out."""
    return any(len(json.dumps(v, ensure_ascii=False, indent=2, default=str)) > _VALUE
               for v in event.payload.values())  # fmt: skip


def entities_html(uses: Sequence[EntityUse], n_runs: int) -> str:
    """Show what a step names."""
    rows = [[use.entity_id, "changed" if use.changed else "read", use.where, use.n,
             f"{use.runs} of {n_runs}"] for use in uses]  # fmt: skip
    titles = ["entity", "the step", "named in", "times", "runs that name it"]
    return block(html_table(titles, _shown_rows(rows)) if rows else "<p>It names nothing.</p>")


def annotations_html(rows: Sequence[Sequence[Any]]) -> str:
    """Show annotations."""
    if not rows:
        return note("Nobody has annotated this run.")
    return block(html_table(["step", "code", "note", "by"], _shown_rows(rows)))


def table_html(scene: Scene) -> str:
    """Show a drawing as a table."""
    from sag_research.viz._table import scene_rows

    every = scene_rows(scene)
    titles = ["kind", "run", "step", "did", "result", "flags", "name", "detail"]
    rows = _shown_rows([row[1:] for row in every[:_ROWS]])
    return block(html_table(titles, rows, len(every)))


def _shown_rows(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Name characters that reorder text; escaping is html_table's."""
    return [[visible(clip(v, 200)) if isinstance(v, str) else v for v in row] for row in rows]
