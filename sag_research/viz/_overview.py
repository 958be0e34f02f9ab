"""All runs of a workspace at once: a row of pixels holds some runs, a column some steps."""

from __future__ import annotations

import base64
import os
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sag_research._text import (
    atomic_write,
    escape,
    html_table,
    repair,
    safe_file_name,
    script_json,
)
from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.viz._figures import METADATA, style
from sag_research.viz._grammar import mark_words, step_look, tone_words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Overview", "overview"]

ROWS: Final = 640
COLUMNS: Final = 480
"""Pixels of the picture at most, before it is made larger."""
DID: Final = ("#56b4e9", "#0072b2", "#e69f00", "#cc79a7", "#009e73", "#b8c0c8")
RESULT: Final = ("#0072b2", "#e8701a", "#f0e442", "#b8c0c8")
OUTCOMES: Final = ("failure", "success", "unknown")
_COLUMNS: Final = ("run_id", "step", "task_id", "outcome", "class", "risk")
Colour = Literal["did", "result", "risk"]


class _Answers(Protocol):
    def sql(self, query: str, parameters: Any = None) -> Any: ...


class Overview:
    """A picture of many runs; see :func:`overview`.

    Attributes
    ----------
    n_runs : int
    left_out : dict of str to int
        Runs of a workspace that are not drawn, by the reason.
    table_ : pandas.DataFrame
        The picture as a table, one row a row of pixels.
    """

    def __init__(
        self,
        cells: _Cells,
        colour: Colour,
        title: str,
        pages: str,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        self._cells, self._colour, self._title, self._pages = cells, colour, title, pages
        self.left_out = dict(left_out or {})
        self.n_runs = cells.n_runs

    def __repr__(self) -> str:
        rows, columns = self._cells.shape
        return f"Overview({self.n_runs:,} runs in {rows} rows, {columns} columns, {self._colour})"

    @cached_property
    def table_(self) -> pd.DataFrame:
        """Columns ``row n_runs failure success unknown longest runs``; of the runs the first."""
        import pandas as pd

        rows = [
            (y, sum(row.counts.values()), *(row.counts.get(o, 0) for o in OUTCOMES), row.longest,
             ", ".join(repair(run) for run in row.runs))
            for y, row in enumerate(self._cells.rows)
        ]  # fmt: skip
        names = ["row", "n_runs", *OUTCOMES, "longest", "runs"]
        return pd.DataFrame.from_records(rows, columns=names)

    @cached_property
    def _drawn(self) -> tuple[bytes, float, float]:
        """The PNG, and between which shares of its height the rows lie."""
        buffer = BytesIO()
        with style():
            figure, axes = self._figure()
            figure.savefig(buffer, format="png", metadata=METADATA[".png"], dpi=120)
            box = axes.get_position()
        return buffer.getvalue(), 1 - box.y1, 1 - box.y0

    def _figure(self) -> tuple[Figure, Axes]:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.0, 6.0))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.1, 0.08, 0.88, 0.82))
        self._draw(axes)
        return figure, axes

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the picture; returns its axes."""
        with style():
            if ax is None:
                return self._figure()[1]
            self._draw(ax)
        return ax

    def _draw(self, axes: Axes) -> None:
        cells = self._cells
        axes.imshow(_paint(cells, self._colour), aspect="auto", interpolation="nearest",
                    extent=(0, cells.shape[1] * cells.wide, cells.shape[0], 0))  # fmt: skip
        axes.set_xlabel(_step_axis(cells))
        axes.set_title(f"{self.n_runs:,} runs from top to bottom, their steps to the right",
                       loc="left", pad=20)  # fmt: skip
        blocks = _blocks(cells)
        axes.set_yticks([(low + high) / 2 for _, low, high in blocks],
                        [name for name, _, _ in blocks])  # fmt: skip
        axes.tick_params(axis="y", length=0)
        for _, _, high in blocks[:-1]:
            axes.axhline(high, color="#1c2329", linewidth=0.8)
        _legend(axes, self._colour)

    def to_png(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture; the same runs give the same bytes. Returns its path."""
        with atomic_write(path) as file:
            file.write(self._drawn[0])
        return Path(path)

    def html(self) -> str:
        """Give the picture on one self-contained page that says what each row holds."""
        png, top, bottom = self._drawn
        rows = [
            {"says": _says(row), "runs": [[repair(run), self._page_of(run)] for run in row.runs]}
            for row in self._cells.rows
        ]
        table = self.table_
        shown = [list(row) for row in table.head(200).itertuples(index=False)]
        text = Template(_part("js/overview.html")).substitute(
            title=escape(self._title),
            lead=f"{self.n_runs:,} runs in {len(rows)} rows; steps to the right.{self._rest()}",
            alt=escape(repr(self)),
            png=base64.b64encode(png).decode("ascii"),
            last=len(rows) - 1,
            table=html_table(list(table.columns), shown, total=len(table)),
            data=script_json({"rows": rows, "top": top, "bottom": bottom}),
            script=_part("js/overview.js"),
        )
        return text.encode("ascii", "xmlcharrefreplace").decode("ascii")

    def _rest(self) -> str:
        told = ", ".join(f"{n:,} {why}" for why, n in self.left_out.items())
        return f" Not drawn: {told}." if told else ""

    def _page_of(self, run: str) -> str:
        return f"{self._pages}/{safe_file_name(run, '.html')}" if self._pages else ""

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write :meth:`html` to a file; returns its path."""
        with atomic_write(path) as file:
            file.write(self.html().encode("ascii"))
        return Path(path)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        frame = (
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts" width="100%" '
            f'height="780" style="border:0" title="Overview of runs"></iframe>'
        )
        return {"text/plain": repr(self), "text/html": frame}


def overview(
    source: Any,
    colour: Colour = "did",
    order: Literal["outcome", "task"] = "outcome",
    *,
    rows: int = ROWS,
    columns: int = COLUMNS,
    title: str = "Runs at a glance",
    pages: str = "",
) -> Overview:
    """Draw any number of runs as one picture: DuckDB counts, only pixels come back.

    A cell's colour is what most of its steps did (or the mean of their risks); it fades to white
    as the runs of its row end.

    Parameters
    ----------
    source : Workspace, or pandas, polars or pyarrow table
        What answers ``.sql(query, parameters)`` over the views ``runs`` and ``steps``; or a table
        with ``run_id`` and ``step`` (0-based), and as far as known ``task_id``, ``outcome``,
        ``class`` (place of a mark or tone in the legend) and ``risk`` (0 to 1).
    colour : {"did", "result", "risk"}
        What the steps did, by the name of the program they start with; how they ended, by exit
        code; the risk, which only a table has.
    order : {"outcome", "task"}
        What stands together; tasks are then sorted by outcome, and both by length.
    rows, columns : int
        Cells of the picture at most.
    title : str
    pages : str
        A folder beside the page, in which a page for each run lies, named by
        :func:`sag_research._text.safe_file_name`; the rows then link to it.

    Raises
    ------
    UsageError
        An argument is none of those.
    NotEnoughDataError
        There are no steps.
    """
    if colour not in ("did", "result", "risk") or order not in ("outcome", "task"):
        raise UsageError(
            f"colour={colour!r}, order={order!r}",
            fix="use did, result or risk, and outcome or task",
        )
    if rows < 1 or columns < 1:
        raise UsageError(f"rows={rows}, columns={columns}", fix="use 1 or more")
    parameters: dict[str, Any] = {"by_task": order == "task", "rows": rows, "columns": columns}
    tail, left_out = _part("overview.sql"), {}
    if hasattr(source, "sql"):
        if colour == "risk":
            raise UsageError(
                "a workspace holds no risk of each step",
                fix="pass a table with run_id, step and risk, e.g. of PrefixRisk.predict",
            )
        parameters |= _words(source) | {"did": colour == "did"}
        found = source.sql(f"WITH given AS ({_part('overview_steps.sql')}){tail}", parameters)
        found = found.arrow()
        left_out = {
            str(why): int(n) for why, n in source.sql(_part("overview_left_out.sql")).rows()
        }
    else:
        found = _of_table(
            source, f"WITH given AS ({_part('overview_table.sql')}){tail}", parameters
        )
    return Overview(_Cells(found, columns), colour, title, pages, left_out)


def _of_table(table: Any, query: str, parameters: Mapping[str, Any]) -> Any:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("raw", table)
        held = {name for name, *_ in connection.sql("DESCRIBE raw").fetchall()}
        if missing := {"run_id", "step"} - held:
            raise UsageError(
                f"the table has no column {min(missing)!r}", fix="give " + ", ".join(_COLUMNS)
            )
        given = connection.sql("FROM raw")
        parts = [f'"{name}"' if name in held else f'NULL AS "{name}"' for name in _COLUMNS]
        given.project(", ".join(parts)).create_view("handed_in")
        return connection.sql(query, params=dict(parameters)).to_arrow_table()


def _words(source: _Answers) -> dict[str, Any]:
    """Ask the vocabulary what the words mean that actions begin with."""
    names = [word.name for word in mark_words()]
    rows = source.sql(_part("overview_words.sql")).rows()
    marks = {word: step_look({"action": word})[0] for word, _ in rows if word}
    return {
        "other": names.index("other"),
        "words": list(marks),
        "classes": [names.index(mark) for mark in marks.values()],
    }


class _Row:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.runs: list[str] = []
        self.longest = 0


class _Cells:
    """What DuckDB counted.

    Attributes
    ----------
    n : ndarray of float, shape (rows, columns, classes)
        Steps of each class.
    risk : ndarray of float, shape (rows, columns)
        Sum of the risks.
    wide : int
        Steps a column.
    """

    def __init__(self, table: Any, columns: int) -> None:
        parts: dict[str, Any] = table.to_pydict()
        is_row = np.array([what == "row" for what in parts["what"]], dtype=bool)
        if not is_row.any():
            raise NotEnoughDataError("there are no steps to draw", fix="ingest runs first")
        y = np.array(parts["y"], dtype=np.int64)
        x = np.array(parts["x"], dtype=np.int64)
        n = np.array(parts["n"], dtype=np.float64)
        self.wide = int(parts["wide"][0])
        self.rows = _rows(parts, np.flatnonzero(is_row))
        self.n_runs = sum(sum(row.counts.values()) for row in self.rows)
        cell = np.flatnonzero(~is_row)
        self.shape = (len(self.rows), min(int(x[cell].max()) + 1, columns))
        kind = [parts["class"][place] for place in cell]
        classes = np.array([-1 if one is None else one for one in kind], dtype=np.int64)
        self.n: NDArray[np.float64] = np.zeros((*self.shape, 7))
        np.add.at(self.n, (y[cell], x[cell], np.clip(classes, -1, 5)), n[cell])
        risk = np.array([parts["risk"][place] or 0.0 for place in cell])
        self.risk: NDArray[np.float64] = np.zeros(self.shape)
        np.add.at(self.risk, (y[cell], x[cell]), risk)


def _rows(parts: Mapping[str, Any], places: NDArray[np.int64]) -> list[_Row]:
    rows: dict[int, _Row] = defaultdict(_Row)
    for place in places:
        row = rows[parts["y"][place]]
        outcome = parts["outcome"][place]
        outcome = outcome if outcome in OUTCOMES else "unknown"
        row.counts[outcome] = row.counts.get(outcome, 0) + parts["n"][place]
        row.runs += parts["runs"][place]
        row.longest = max(row.longest, parts["x"][place])
    return [rows[y] for y in sorted(rows)]


def _step_axis(cells: _Cells) -> str:
    end, longest = cells.shape[1] * cells.wide, max(row.longest for row in cells.rows)
    return "step" if longest <= end else f"step; the last run ends at {longest:,}, beyond the edge"


def _says(row: _Row) -> str:
    n = sum(row.counts.values())
    told = ", ".join(f"{row.counts[o]:,} {o}" for o in OUTCOMES if o in row.counts)
    more = f"; {len(row.runs)} of them:" if n > len(row.runs) else ":"
    return f"{n:,} run{'s' * (n != 1)} ({told}), at most {row.longest:,} steps{more}"


def _paint(cells: _Cells, colour: Colour) -> NDArray[np.float64]:
    """Take the colour of most of a cell's steps, and mix in white for the runs that ended."""
    total = cells.n.sum(axis=2)
    if colour == "risk":
        mean = np.divide(cells.risk, total, out=np.zeros_like(total), where=total > 0)
        mixed = 1 - mean[:, :, None] * (1 - _rgb("#882255"))
        mixed = np.where(total[:, :, None] > 0, 0.93 * mixed, 1.0)
    else:
        scheme = DID if colour == "did" else RESULT
        palette = np.array([_rgb(one) for one in (*scheme, *["#b8c0c8"] * 7)])[:7]
        mixed = palette[cells.n.argmax(axis=2)]
    runs = np.array([sum(row.counts.values()) for row in cells.rows], dtype=np.float64)
    still = np.clip(total / (runs[:, None] * cells.wide), 0, 1)[:, :, None]
    return np.asarray(mixed * still + (1 - still))


def _rgb(colour: str) -> NDArray[np.float64]:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def _blocks(cells: _Cells) -> list[tuple[str, float, float]]:
    """Give neighbouring rows of one outcome a name, if they are not too many."""
    blocks: list[tuple[str, float, float]] = []
    for y, row in enumerate(cells.rows):
        name = max(OUTCOMES, key=lambda outcome: row.counts.get(outcome, 0))
        if blocks and blocks[-1][0] == name:
            blocks[-1] = (name, blocks[-1][1], y + 1.0)
        else:
            blocks.append((name, float(y), y + 1.0))
    return blocks if len(blocks) <= len(OUTCOMES) else []


def _legend(axes: Axes, colour: Colour) -> None:
    from matplotlib.patches import Patch

    if colour == "risk":
        shades = [(0.0, "risk 0"), (0.5, "0.5"), (1.0, "1")]
        names = [(tuple(0.93 * (1 - v * (1 - _rgb("#882255")))), text) for v, text in shades]
    else:
        words = mark_words() if colour == "did" else tone_words()
        scheme = DID if colour == "did" else RESULT
        names = [(scheme[i], word.words) for i, word in enumerate(words)]  # type: ignore[misc]
    patches = [Patch(facecolor=one, label=text) for one, text in names]
    axes.legend(handles=patches, loc="lower left", bbox_to_anchor=(0, 1), ncols=6,
                borderaxespad=0.2, handlelength=1.2, columnspacing=1.2)  # fmt: skip


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
