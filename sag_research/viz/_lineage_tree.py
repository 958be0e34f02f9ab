"""The forks of a run, to walk through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import traitlets

from sag_research.errors import RunNotFoundError
from sag_research.viz._lineage_tree_data import Ending, endings, lineage_data
from sag_research.viz._lineage_tree_plot import plot_lineage_tree
from sag_research.viz._prefix_explorer_data import plain
from sag_research.viz._tree_widget import TreeWidget

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.log import SQLiteEventStore
    from sag_research.runtime import Lineage

__all__ = ["LineageTree"]


class HasLineage(Protocol):
    """What a tree is made from, e.g. a workspace."""

    store: SQLiteEventStore

    def lineage(self, run: str) -> Lineage:
        """Return a run's family."""
        ...


class LineageTree(TreeWidget):
    """The family of a run: a row a run, under the one it was forked from, over its own steps.

    Each row says after which step the run left its parent, what was changed, how it came out and
    how it ended; what was taken over from the parent is drawn apart from its own steps.

    Parameters
    ----------
    ws : Workspace
    run : str
        Any member of the family.
    view : {"tree", "table"}
    height : int
        Pixels.

    Attributes
    ----------
    selected : str
        Id of the chosen run. Set by a click, or by you.
    view
        As it is now; can be set.

    Notes
    -----
    Of more than 2,000 runs the way to the one that was asked for is drawn, and the first
    generations; the others are counted with their parents.

    Examples
    --------
    >>> import sag_research as sag
    >>> ws = sag.open(":memory:")
    >>> run = ws.add({"task_id": "t", "steps": [{"action": "ls"}, {"action": "cat a"}]})
    >>> child = ws.fork(run, step=0, intervention={"hint": "read a"}, run_id="child")
    >>> tree = LineageTree(ws, "child")
    >>> tree
    LineageTree('child', 2 runs, depth 1)
    >>> tree.table_[["run_id", "fork_step", "n_inherited", "change"]].values.tolist()[1]
    ['child', 0, 1, 'hint = read a']
    """

    view = traitlets.Enum(("tree", "table"), "tree").tag(sync=True)
    selected = traitlets.Unicode("")
    _row = traitlets.Int(0).tag(sync=True)

    def __init__(self, ws: HasLineage, run: str, *, view: str = "tree", height: int = 560) -> None:
        self._build(ws.lineage(run), ws.store, view, height)

    @classmethod
    def of(
        cls, family: Lineage, store: SQLiteEventStore, *, view: str = "tree", height: int = 560
    ) -> Self:
        """Make a tree of a family that was read already."""
        made = cls.__new__(cls)
        made._build(family, store, view, height)
        return made

    def _build(self, family: Lineage, store: SQLiteEventStore, view: str, height: int) -> None:
        self._family = family
        self._found: list[Ending] = endings(store, family.runs)
        data = lineage_data(family, self._found)
        self._ids: list[str] = data.pop("run_id")  # may hold what no message can
        rest = sum(data["counts"][row][0] for row, many in enumerate(data["others"]) if many)
        notes = [f"{rest:,} of {len(family):,} runs are counted together"] if rest else []
        options = {
            "title": f"Forks of {plain(family.root_id, 60)}",
            "notes": notes,
        }
        start = {"kind": "lineage", "data": data, "options": options}
        super().__init__(_start=start, _row=data["asked"], view=view, height=height)
        self.selected = family.run_id

    def __repr__(self) -> str:
        deepest = max(kin.depth for kin in self._family.runs)
        many = f"{len(self._family):,} run{'' if len(self._family) == 1 else 's'}"
        return f"LineageTree({plain(self._family.run_id, 60)!r}, {many}, depth {deepest})"

    @traitlets.validate("selected")
    def _is_there(self, proposal: Any) -> str:
        run_id: str = proposal["value"]
        if run_id and all(kin.run_id != run_id for kin in self._family.runs):
            raise RunNotFoundError(
                f"no run {plain(run_id, 60)!r} in this family", fix="see tree.table_"
            )
        return run_id

    @traitlets.observe("selected")
    def _selected_here(self, change: Any) -> None:
        if change["new"] in self._ids and self._ids[self._row] != change["new"]:
            self._row = self._ids.index(change["new"])

    @traitlets.observe("_row")
    def _selected_there(self, change: Any) -> None:
        if 0 <= change["new"] < len(self._ids) and self._ids[change["new"]]:
            self.selected = self._ids[change["new"]]

    @property
    def table_(self) -> pd.DataFrame:
        """All runs of the family, parents first.

        Columns ``run_id parent_id fork_position fork_step depth n_events n_steps n_inherited
        outcome change end exit_status``.
        """
        table = self._family.table_.drop(columns="intervention")
        table["change"] = [one.change for one in self._found]
        table["end"] = [one.type for one in self._found]
        table["exit_status"] = [one.status for one in self._found]
        return table

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the tree for print; x is the step.

        Parameters
        ----------
        ax : Axes, optional
            Default: new axes, two columns wide.
        """
        return plot_lineage_tree(self._start["data"], self._start["options"]["title"], ax)

    def _page(self) -> dict[str, Any]:
        now = {"view": self.view, "height": self.height, "chosen": self._row}
        return {**self._start, "options": {**self._start["options"], **now}}
