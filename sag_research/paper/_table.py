"""A table as LaTeX (booktabs), Markdown and CSV, from one DataFrame."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sag_research.errors import UsageError
from sag_research.paper._escape import csv_text, latex, markdown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["csv_table", "has_counts", "latex_table", "markdown_table"]

DIGITS: Final = 3
_NONE: Final = "–"


class Cell(NamedTuple):
    """What stands in a cell: words that must be escaped, or a number of ours that need not."""

    text: str
    is_number: bool


def has_counts(frame: pd.DataFrame) -> bool:
    """Tell whether a table says how many runs, tasks or looks its numbers rest on."""
    names = [str(name) for name in frame.columns]
    return any(name == "n" or name.startswith("n_") for name in names)


def csv_table(frame: pd.DataFrame) -> str:
    """Write every column, numbers with six digits; what is unknown is empty."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow([csv_text(name) for name in frame.columns])
    for row in _rows(frame):
        write.writerow([_plain(value) for value in row])
    return out.getvalue()


def latex_table(frame: pd.DataFrame, digits: int = DIGITS) -> str:
    r"""Write a ``tabular`` with the rules of booktabs, to be ``\input`` in a ``table``."""
    names, rows = _presented(frame, digits)
    align = "".join("r" if all(cell.is_number for cell in column) and column else "l"
                    for column in zip(*rows, strict=True)) or "l" * len(names)  # fmt: skip
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines.append(" & ".join(latex(name.replace("_", " ")) for name in names) + r" \\")
    lines.append(r"\midrule")
    for row in rows:
        shown = (
            cell.text.replace(_NONE, "--") if cell.is_number else latex(cell.text) for cell in row
        )
        lines.append(" & ".join(shown) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def markdown_table(
    frame: pd.DataFrame, title: str = "", notes: Sequence[str] = (), digits: int = DIGITS
) -> str:
    """Write a table for a page, with its title above and its notes below."""
    names, rows = _presented(frame, digits)
    lines = [f"**{markdown(title, 200)}**", ""] if title else []
    lines.append("| " + " | ".join(markdown(name.replace("_", " ")) for name in names) + " |")
    lines.append("|" + "---|" * len(names))
    for row in rows:
        shown = (cell.text if cell.is_number else markdown(cell.text) for cell in row)
        lines.append("| " + " | ".join(shown) + " |")
    for note in notes:
        lines += ["", markdown(note, 400)]
    return "\n".join([*lines, ""])


def _presented(frame: pd.DataFrame, digits: int) -> tuple[list[str], list[list[Cell]]]:
    """Put each number's interval beside it, in one cell."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise UsageError("a table has two columns of one name", fix="name its columns apart")
    with_interval = {name for name in names if {f"{name}_low", f"{name}_high"} <= set(names)}
    if "low" in names and "high" in names:
        at = names.index("low") - 1
        with_interval |= {names[at]} if at >= 0 else set()
    ends = {name: _ends(name, names) for name in with_interval}
    hidden = {end for pair in ends.values() for end in pair}
    shown = [name for name in names if name not in hidden]
    rows = [dict(zip(names, row, strict=True)) for row in _rows(frame)]
    return shown, [
        [_cell(row[name], [row[end] for end in ends.get(name, ())], digits) for name in shown]
        for row in rows
    ]


def _ends(name: str, names: Sequence[str]) -> tuple[str, str]:
    own = (f"{name}_low", f"{name}_high")
    return own if set(own) <= set(names) else ("low", "high")


def _cell(value: Any, interval: Sequence[Any], digits: int) -> Cell:
    found = _number(value, digits)
    if found is None:
        return Cell(str(value), False)
    ends = [_number(end, digits) or _NONE for end in interval]
    known = ends and _NONE not in ends and found != _NONE
    return Cell(f"{found} [{ends[0]}, {ends[1]}]" if known else found, True)


def _number(value: Any, digits: int) -> str | None:
    """Write a number, or the sign for none; None where the value is no number."""
    if value is None or _is_missing(value):
        return _NONE
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    if isinstance(value, (float, np.floating)):
        number = round(float(value), digits) + 0.0  # no minus before a zero
        return f"{number:,.{digits}f}" if math.isfinite(number) else str(number)
    return None


def _plain(value: Any) -> str:
    if value is None or _is_missing(value):
        return ""
    if isinstance(value, (float, np.floating)) and not isinstance(value, bool):
        return f"{float(value) + 0.0:.6g}"
    if isinstance(value, (int, np.integer)):
        return str(value)
    return csv_text(value)


def _is_missing(value: Any) -> bool:
    """Tell NaN, NaT and NA, of which none equals itself for sure."""
    same = value == value  # only what is missing differs from itself
    return not (same is True or (isinstance(same, np.bool_) and bool(same)))


def _rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(frame.astype(object).itertuples(index=False, name=None))
