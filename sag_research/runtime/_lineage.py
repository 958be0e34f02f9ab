"""The family tree of a run: where it was forked from, and what was forked from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sag_research._text import clip, escape, html_table
from sag_research.errors import UsageError
from sag_research.log import SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime._lineage_outcomes import read_outcomes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.viz import LineageTree

__all__ = ["Kin", "Lineage", "lineage"]

_HTML_ROWS: Final = 50
_NAMED: Final = 40
_COLOURS: Final = {"success": "#009e73", "failure": "#d55e00", "unknown": "#7c8b9a"}


class Kin(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a family."""

    run_id: str
    parent_id: str | None
    fork_position: int
    """Last position shared with the parent; 0 for the root."""
    fork_step: int | None
    """Last step shared with the parent; ``None`` where no step is shared."""
    depth: int
    n_events: int
    """Its own; the inherited ones are ``fork_position``."""
    n_steps: int
    """Its own."""
    n_inherited: int
    """Steps taken over from its ancestors."""
    outcome: str
    intervention: str
    """What was changed at the fork, shortened."""


class Lineage:
    """A run's family: its root and everything forked from it, parents before their children.

    Attributes
    ----------
    run_id, root_id : str
        The run that was asked for, and where its family begins.
    runs : list of Kin
    """

    def __init__(
        self, run_id: str, runs: Iterable[Kin], store: SQLiteEventStore | None = None
    ) -> None:
        self.run_id, self.runs, self._store = run_id, list(runs), store
        self.root_id = self.runs[0].run_id

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        deepest = max(kin.depth for kin in self.runs)
        root = f"root {clip(self.root_id, 60)!r}, "
        return f"Lineage({clip(self.run_id, 60)!r}, {root}{len(self)} runs, depth {deepest})"

    @property
    def ancestors_(self) -> list[str]:
        """Ids from the root down to the run's parent."""
        parents = {kin.run_id: kin.parent_id for kin in self.runs}
        found: list[str] = []
        above = parents[self.run_id]
        while above is not None:
            found.append(above)
            above = parents[above]
        return found[::-1]

    @property
    def table_(self) -> pd.DataFrame:
        """One row a run, with the columns of :class:`Kin`."""
        import pandas as pd

        rows = [msgspec.structs.astuple(kin) for kin in self.runs]
        frame = pd.DataFrame(rows, columns=list(Kin.__struct_fields__))
        return frame.astype({"fork_step": "Int64"})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw a line for each run over its own positions, joined to its parent at the fork.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; default: new axes.

        Returns
        -------
        Axes
            x is the position, y the row of :attr:`table_`; colour is the outcome.
        """
        from matplotlib.collections import LineCollection

        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots(figsize=(8, min(1.5 + 0.25 * len(self), 12)))[1]
        row = {kin.run_id: number for number, kin in enumerate(self.runs)}
        for outcome, colour in _COLOURS.items():
            kins = [kin for kin in self.runs if kin.outcome == outcome]
            lines = [[(kin.fork_position, row[kin.run_id]), (_end(kin), row[kin.run_id])]
                     for kin in kins]  # fmt: skip
            label = f"{outcome} ({len(kins)})"
            ax.add_collection(LineCollection(lines, colors=colour, linewidths=2, label=label))
        joins = [
            [(kin.fork_position, row[kin.parent_id]), (kin.fork_position, row[kin.run_id])]
            for kin in self.runs
            if kin.parent_id is not None
        ]
        ax.add_collection(LineCollection(joins, colors="#b8c2cc", linewidths=0.8, zorder=1))
        asked = self.runs[row[self.run_id]]
        ax.plot([_end(asked)], [row[self.run_id]], "D", color="#0072b2", markersize=6)
        if len(self) <= _NAMED:
            for kin in self.runs:  # ids are no formulas
                ax.text(_end(kin), row[kin.run_id], f"  {clip(kin.run_id, 30)}", fontsize=7,
                        va="center", parse_math=False, clip_on=True)  # fmt: skip
        ax.set(xlabel="position", ylabel="run", ylim=(len(self) - 0.5, -0.5))
        ax.set_xlim(0, 1.3 * max(_end(kin) for kin in self.runs) + 1)
        ax.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
        return ax

    def show(self, **options: Any) -> LineageTree:
        """Walk through the family: a widget, a table, a page, a figure.

        Parameters
        ----------
        **options
            As for :class:`sag_research.viz.LineageTree`: ``view``, ``height``.

        Raises
        ------
        UsageError
            If the family was not read from a log.
        """
        from sag_research.viz import LineageTree

        if self._store is None:
            raise UsageError("this family has no log", fix="read it with lineage(store, run)")
        return LineageTree.of(self, self._store, **options)

    def _repr_html_(self) -> str:
        shown = self.runs[:_HTML_ROWS]
        rows = [msgspec.structs.astuple(kin) for kin in shown]
        table = html_table(Kin.__struct_fields__, rows, len(self))
        return f"<div><b>{escape(repr(self))}</b>{table}</div>"


def _end(kin: Kin) -> int:
    return kin.fork_position + kin.n_events


Outcomes = Callable[[str], str | None] | Mapping[str, str]


def lineage(store: SQLiteEventStore, run: str, *, outcomes: Outcomes | None = None) -> Lineage:
    """Return the family of a run: its root, and all that was forked from it.

    Parameters
    ----------
    store : SQLiteEventStore
    run : str
        Any member.
    outcomes : callable or mapping, optional
        Outcome by run id; default: what the log's labels say.

    Raises
    ------
    RunNotFoundError

    Examples
    --------
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1"))
    >>> _ = store.fork("r1", run_id="r2", intervention={"model": "other"})
    >>> family = lineage(store, "r2")
    >>> family
    Lineage('r2', root 'r1', 2 runs, depth 1)
    >>> family.runs[1].intervention
    '{"model":"other"}'
    """
    members = _members(store.family(run))
    said = _said(store, [member.run_id for member, _ in members], outcomes)
    shared: dict[tuple[str, int], int] = {}  # steps before a fork; siblings have the same
    kins = [_kin(store, member, depth, said, shared) for member, depth in members]
    return Lineage(run, kins, store)


def _members(family: Iterable[Run]) -> list[tuple[Run, int]]:
    """List the tree from its root, children in the order of their forks."""
    root, *others = family
    children: defaultdict[str, list[Run]] = defaultdict(list)
    for run in others:
        if run.parent_id is not None:
            children[run.parent_id].append(run)
    found: list[tuple[Run, int]] = []
    waiting = [(root, 0)]
    while waiting:
        run, depth = waiting.pop()
        found.append((run, depth))
        below = sorted(children[run.run_id], key=lambda child: child.fork_position)
        waiting += [(child, depth + 1) for child in reversed(below)]
    return found


def _said(
    store: SQLiteEventStore, run_ids: list[str], outcomes: Outcomes | None
) -> Callable[[str], str | None]:
    if outcomes is None:
        known = read_outcomes(store, run_ids)
        return lambda run_id: known[run_id].outcome
    return outcomes.get if isinstance(outcomes, Mapping) else outcomes


def _kin(
    store: SQLiteEventStore,
    run: Run,
    depth: int,
    said: Callable[[str], str | None],
    shared: dict[tuple[str, int], int],
) -> Kin:
    place, end = (run.parent_id or "", run.fork_position), store.head(run.run_id).position
    if place not in shared:
        shared[place] = store.count_steps(run.run_id, run.fork_position + 1)
    inherited = shared[place]
    outcome = said(run.run_id)
    return Kin(
        run_id=run.run_id,
        parent_id=run.parent_id,
        fork_position=run.fork_position,
        fork_step=inherited - 1 if inherited else None,
        depth=depth,
        n_events=end - run.fork_position,
        n_steps=store.count_steps(run.run_id, end + 1) - inherited,
        n_inherited=inherited,
        outcome=outcome if outcome in _COLOURS else "unknown",
        intervention=_intervention(store, run),
    )


def _intervention(store: SQLiteEventStore, run: Run) -> str:
    if run.parent_id is None:
        return ""
    own = run.fork_position + 1
    events = store.read(run.run_id, own, own, types=("run.forked",))
    payload: dict[str, Any] = next((event.payload for event in events), {})
    return clip(msgspec.json.encode(payload).decode("utf-8"), 120) if payload else ""
