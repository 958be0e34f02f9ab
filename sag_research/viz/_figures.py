"""What all figures for papers share: size, type, colours, and files that come out the same twice.

Colours are those of Okabe and Ito, which stay apart for the common kinds of colour blindness; every
line differs from the others in its dashes and marks as well, so that a figure also survives a
printer without colour.

References
----------
M. Okabe, K. Ito, Color Universal Design, 2008.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sag_research._text import atomic_write, clip
from sag_research.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["COLUMN", "OKABE_ITO", "PAGE", "save_figure", "style"]

P = ParamSpec("P")
R = TypeVar("R")
Floats: TypeAlias = NDArray[np.float64]

COLUMN: Final = 3.4
"""Width of a figure in one column of a paper, in inches."""
PAGE: Final = 7.0
"""Width of a figure over both columns, in inches."""
FONT: Final = 7.0
"""The smallest type in a figure, in points."""

OKABE_ITO: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442",
)  # fmt: skip
BLUE, VERMILION, GREEN, PURPLE, ORANGE = OKABE_ITO[:5]
GREY: Final = "#7c8b9a"
PALE: Final = "#dfe4e9"
FAILURE, SUCCESS = VERMILION, GREEN

DASHES: Final = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)))
MARKS: Final = ("o", "s", "^", "D", "v", "P", "X")

_RC: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same outlines on every machine
    "font.size": FONT,
    "axes.titlesize": FONT + 1,
    "axes.labelsize": FONT,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "legend.fontsize": FONT,
    "legend.title_fontsize": FONT,
    "figure.titlesize": FONT + 1,
    "figure.figsize": (COLUMN, 2.4),
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "savefig.bbox": None,  # the width asked for is the width that is printed
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "text.parse_math": False,  # names from a trajectory are no formulas
    "text.usetex": False,
    "svg.hashsalt": "sag",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "pdf.compression": 6,
    "path.simplify": False,
}

METADATA: Final[dict[str, dict[str, Any]]] = {
    ".pdf": {"Creator": "sag_research", "Producer": None, "CreationDate": None},
    ".svg": {"Creator": "sag_research", "Date": None},
    ".png": {"Software": None},
}


@contextmanager
def style() -> Iterator[None]:
    """Draw with the type, lines and colours of a paper's figures while the block runs.

    The figure functions of this room use it themselves; it is for drawing more into their axes.
    """
    import matplotlib
    from cycler import cycler

    settings: Any = _RC | {"axes.prop_cycle": cycler(color=OKABE_ITO)}
    with matplotlib.rc_context(settings):
        yield


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Let a figure function run in :func:`style`."""

    @wraps(draw)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with style():
            return draw(*args, **kwargs)

    return run


def axes_or_new(ax: Axes | None, height: float = 2.4, width: float = COLUMN) -> Axes:
    """Return `ax`, or the axes of a new figure of this size in inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height))[1]


def save_figure(figure: Figure | SubFigure | Axes, path: str | PathLike[str]) -> Path:
    """Write a figure as PDF, SVG or PNG; the same figure gives the same bytes.

    Parameters
    ----------
    figure : Figure or Axes
        For axes, the figure that they are in.
    path : path-like
        Its suffix, ``.pdf``, ``.svg`` or ``.png``, names the format.

    Returns
    -------
    pathlib.Path

    Notes
    -----
    No date, no random id and no version stands in the file. Another version of matplotlib may
    still draw a little differently.
    """
    target = Path(path)
    drawn = figure_bytes(figure, target.suffix)
    with atomic_write(target) as file:
        file.write(drawn)
    return target


def figure_bytes(figure: Figure | SubFigure | Axes, suffix: str) -> bytes:
    """Return the bytes of a figure in the format of a file name's suffix."""
    from matplotlib.figure import Figure as WholeFigure

    metadata = METADATA.get(suffix.lower())
    if metadata is None:
        raise UsageError(
            f"no figure format {suffix!r}", fix=f"end the name in {', '.join(METADATA)}"
        )
    whole = figure if isinstance(figure, WholeFigure) else figure.get_figure(root=True)
    if whole is None:
        raise UsageError("these axes are in no figure")
    buffer = BytesIO()
    with style():
        whole.savefig(buffer, format=suffix[1:].lower(), metadata=metadata)
    return buffer.getvalue()


def column(values: ArrayLike, name: str, length: int | None = None) -> Floats:
    """Return values as a one-dimensional array of float64, of the given length if any.

    Raises
    ------
    UsageError
        If the shape is another one.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "(n,)" if length is None else f"({length},)"
        raise UsageError(f"{name} has shape {array.shape}", fix=f"give an array of shape {wanted}")
    return array


def inches(ax: Axes) -> tuple[float, float]:
    """Return the width and height of axes, before a layout has moved them."""
    figure, place = ax.get_figure(root=True), ax.get_position()
    whole = (COLUMN, 2.4) if figure is None else figure.get_size_inches()
    return float(place.width * whole[0]), float(place.height * whole[1])


def whole_numbers(ax: Axes) -> None:
    """Let ticks on the horizontal axis stand at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def token_label(name: str, limit: int = 22) -> str:
    """Write a token for people; the verb is left out where the result names it.

    Examples
    --------
    >>> [token_label(name) for name in ("edit|src|ok", "test|none|test-fail", "think|none|none")]
    ['edit src ok', 'test-fail', 'think']
    """
    verb, *more = name.split("|")
    said = any(part.startswith(f"{verb}-") for part in more)
    parts = [part for part in ([] if said else [verb]) + more if part != "none"]
    return clip(" ".join(parts), limit)


def bottom_counts(ax: Axes, x: ArrayLike, counts: ArrayLike, title: str, rows: int = 1) -> None:
    """Write numbers below the axis, in turn in so many rows, as many as there is room for."""
    places, numbers = np.asarray(x, dtype=np.float64), np.asarray(counts)
    if not len(places):
        return
    low, high = ax.get_xlim()
    room = max(1, int(inches(ax)[0] / 0.36))  # a number of five digits takes a third of an inch
    apart, last = 0.8 * (high - low) / room, np.full(rows, -np.inf)
    shown = min(rows * room, len(places))
    chosen = np.unique(np.round(np.linspace(0, len(places) - 1, shown)).astype(int))
    for i in chosen:
        row = int(np.argmin(last))
        if places[i] - last[row] >= apart:
            ax.annotate(f"{int(numbers[i]):,}", (places[i], 0), (0, -17 - 9 * row),
                        xycoords=ax.get_xaxis_transform(), textcoords="offset points",
                        ha="center", va="top", color=GREY, annotation_clip=False)  # fmt: skip
            last[row] = places[i]
    ax.set_xlabel(ax.get_xlabel(), labelpad=3 + 9 * rows)
    ax.annotate(title, (0, 0), (-4, -17), xycoords="axes fraction", textcoords="offset points",
                ha="right", va="top", color=GREY, annotation_clip=False)  # fmt: skip
