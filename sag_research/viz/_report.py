"""A workspace on one HTML page: its tables, and one run as a graph."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from sag_research._text import escape, html_table
from sag_research.viz._page import inline
from sag_research.viz._scene import Scene

if TYPE_CHECKING:
    from sag_research.viz._report_deadend import DeadEndReport
    from sag_research.warehouse import QueryResult

__all__ = ["report_page", "report_tables"]


def _part(name: str) -> str:
    return files(__package__).joinpath("report", name).read_text(encoding="utf-8")


def report_tables(query: Callable[[str], QueryResult]) -> list[tuple[str, str, QueryResult]]:
    """Ask for the report's tables.

    Returns
    -------
    list of (title, note, QueryResult)
        Tables without rows are left out.
    """
    sections = tomllib.loads(_part("sections.toml"))["section"]
    answers = [(s["title"], s["note"], query(s["sql"])) for s in sections]
    return [answer for answer in answers if len(answer[2])]


def report_page(
    title: str,
    lead: str,
    tables: list[tuple[str, str, QueryResult]],
    scene: Scene | None,
    footer: str,
    deadend: DeadEndReport | None = None,
) -> str:
    """Make one self-contained page that needs no network; all texts are escaped here."""
    parts = [
        f'<h2>{escape(title)}</h2><p class="note">{escape(note)}</p>'
        + html_table(table.columns, table.rows())
        for title, note, table in tables
    ]
    if deadend is not None:
        parts.append(deadend.html())
    if scene is not None:
        note = "Steps in time order below, the entities their texts name above. Click a node."
        parts.append(f'<h2>One run, bloomed</h2><p class="note">{note}</p>{inline(scene, 640)}')
    return Template(_part("report.html")).substitute(
        title=escape(title),
        lead=escape(lead),
        style=_part("report.css"),
        sections="\n".join(parts),
        footer=escape(footer),
    )
