"""The beginnings that runs share, to walk through: how often each failed, and where runs part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import traitlets

from sag_research.errors import UsageError
from sag_research.viz._prefix_explorer_data import (
    MOST,
    STEPS,
    STOPS,
    branch_table,
    explorer_data,
    frame_of,
    plain,
    token_text,
)
from sag_research.viz._prefix_explorer_plot import plot_tree, tree_boxes
from sag_research.viz._prefix_explorer_tree import PrefixTree, Spot
from sag_research.viz._tree_widget import TreeWidget

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sag_research.deadend import Prefixes

__all__ = ["PrefixExplorer"]

LEAST: Final = 10
"""Runs of a node by default, in cohorts that are large enough for that."""
DEEPEST: Final = 20


class PrefixExplorer(TreeWidget):
    """A zoomable tree of the steps that runs begin with, and the flow of their steps.

    Every node is one exact beginning, as wide as its runs are many. It says how many failed, of
    those whose outcome is known, with Wilson's interval; runs of unknown outcome are shown and
    never count as failed. Forks, and runs whose first steps were taken over from another run, are
    left out. A mark stands where failed runs leave every successful run of their task.

    Parameters
    ----------
    prefixes : Prefixes
        A cohort, as ``ws.prefixes()`` gives it.
    min_runs : int, optional
        Beginnings of fewer runs are drawn together; default: 10, less in a small cohort.
    depth : int
        Steps shown at once.
    view : {"tree", "sankey", "table"}
    title : str
    height : int
        Pixels.

    Attributes
    ----------
    selected : list of str
        Tokens of the chosen beginning; empty for all runs. Set by a click, or by you.
    run : str
        Id of the run that was clicked, ``""`` for none.
    min_runs, depth, view
        As they are now; can be set.

    Notes
    -----
    A page holds at most 2,000 nodes, the most frequent ones. What is rarer is counted together,
    and comes when one zooms in while Python is there.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    JASA 22 (1927) 209-212.

    Examples
    --------
    >>> from sag_research.deadend import Prefixes
    >>> runs = [["look|src|ok", "edit|src|ok"], ["look|src|ok", "test|none|error"]]
    >>> explorer = PrefixExplorer(Prefixes.from_tokens(runs, ["success", "failure"], ["t", "t"]))
    >>> explorer
    PrefixExplorer(2 runs, 1 task, 3 nodes)
    >>> explorer.selected = ["look|src|ok", "test|none|error"]
    >>> explorer.runs_["run_id"].tolist()
    ['run-00001']
    >>> explorer.table_[["depth", "n", "failed", "parted"]].values.tolist()
    [[0, 2, 1, 0], [1, 2, 1, 1], [2, 1, 0, 0], [2, 1, 1, 0]]
    """

    min_runs = traitlets.Int(LEAST, min=1).tag(sync=True)
    depth = traitlets.Int(6, min=1, max=DEEPEST).tag(sync=True)
    view = traitlets.Enum(("tree", "sankey", "table"), "tree").tag(sync=True)
    selected = traitlets.List(traitlets.Unicode())
    run = traitlets.Unicode("")
    # a page names tokens and runs by number: their texts may hold what no message can
    _path = traitlets.List(traitlets.Int()).tag(sync=True)
    _stop = traitlets.List(traitlets.Int()).tag(sync=True)
    _run = traitlets.Int(-1).tag(sync=True)

    def __init__(
        self,
        prefixes: Prefixes,
        *,
        min_runs: int | None = None,
        depth: int = 6,
        view: str = "tree",
        title: str = "",
        height: int = 640,
    ) -> None:
        self._tree = PrefixTree(prefixes)
        self._codes = {name: code for code, name in enumerate(prefixes.table.names)}
        self._left_out = dict(prefixes.left_out)
        self._title = title or "Beginnings that runs share"
        n = len(self._tree)
        least = max(1, min(LEAST, n // 20)) if min_runs is None else min_runs
        super().__init__(
            min_runs=least, depth=depth, view=view, height=height, _start=self._started(least)
        )
        self.on_msg(self._asked)

    def _started(self, least: int) -> dict[str, Any]:
        tree = self._tree
        return {
            "kind": "prefixes",
            "data": explorer_data(tree, tree.root),
            "options": {
                "title": plain(self._title),
                "notes": self._notes(),
                "most": min(len(tree), max(LEAST * 5, least, len(tree) // 4)),
                "whole": list(tree.counts(0, len(tree))),
            },
        }

    def _notes(self) -> list[str]:
        out = {plain(why): n for why, n in self._left_out.items()}
        if self._tree.continuations:
            out["goes on from another run"] = self._tree.continuations
        if not out:
            return []
        said = ", ".join(f"{why} {n:,}" for why, n in out.items())
        return [f"{sum(out.values()):,} runs left out ({said})"]

    def __repr__(self) -> str:
        tasks = int(self._tree.cohort.runs["task_id"].nunique())
        nodes = len(self._start["data"]["nodes"]["parent"]) - 1
        return (
            f"PrefixExplorer({_many(len(self._tree), 'run')}, {_many(tasks, 'task')}, "
            f"{_many(nodes, 'node')})"
        )

    # ------------------------------------------------------------------ what is chosen

    def _spot(self, tokens: Sequence[str]) -> Spot:
        codes = [self._codes.get(name, -1) for name in tokens]
        spot = self._tree.find(codes) if -1 not in codes else None
        if spot is None:
            said = " → ".join(token_text(name) for name in tokens[:8])
            raise UsageError(
                f"no run begins with {plain(said)}", fix="see the tokens of explorer.table_"
            )
        return spot

    @traitlets.validate("selected")
    def _is_there(self, proposal: Any) -> list[str]:
        tokens: list[str] = list(proposal["value"])
        self._spot(tokens)
        return tokens

    @traitlets.observe("selected")
    def _selected_here(self, change: Any) -> None:
        codes = [self._codes[name] for name in change["new"]]
        if codes != self._path:
            with self.hold_sync():
                self._stop = []
                self._path = codes

    @traitlets.observe("_path")
    def _selected_there(self, change: Any) -> None:
        names = self._tree.cohort.table.names
        codes = change["new"]
        if all(0 <= code < len(names) for code in codes) and self._tree.find(codes) is not None:
            self.selected = [names[code] for code in codes]

    @traitlets.observe("_run")
    def _run_there(self, change: Any) -> None:
        if 0 <= change["new"] < len(self._tree):
            self.run = str(self._tree.cohort.runs["run_id"].iloc[change["new"]])

    def _asked(self, _: Any, content: Any, __: Any) -> None:
        """Send the part of the tree below a prefix that a page asks for."""
        codes = content.get("ask") if isinstance(content, dict) else None
        if not isinstance(codes, list) or not all(isinstance(code, int) for code in codes):
            return
        spot = self._tree.find(codes)
        if spot is not None:
            self.send({"data": explorer_data(self._tree, spot)})

    @property
    def stop_(self) -> tuple[int, str] | None:
        """Step and token that are chosen in the flow of steps; token ``""``: the rarer ones."""
        if len(self._stop) != 2:
            return None
        step, code = self._stop
        return step, self._tree.cohort.table.names[code] if code >= 0 else ""

    @property
    def runs_(self) -> pd.DataFrame:
        """The runs of what is chosen, as rows of the cohort's ``runs``."""
        tree, spot = self._tree, self._spot(self.selected)
        rows = tree.runs(spot)
        if len(self._stop) == 2:
            step, code = self._stop
            rows = tree.at_stop(spot, step, code) if code >= 0 else self._rarer(spot, step)
        return tree.cohort.runs.iloc[rows].reset_index(drop=True)

    def _rarer(self, spot: Spot, step: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        stops, _ = self._tree.flows(spot, STEPS, STOPS)
        named = {stop.token for stop in stops if stop.step == step}
        return self._tree.not_at_stop(spot, step, named)

    # ------------------------------------------------------------------ as tables and figures

    @property
    def table_(self) -> pd.DataFrame:
        """The tree as a table: its beginnings of ``min_runs`` runs and more, at most 2,000.

        Columns ``depth prefix token n failed succeeded unknown rate low high ended others
        others_n parted``. ``n`` is the sum of ``n`` of the rows one token longer, of ``ended``
        and of ``others_n``. ``parted`` counts the failed runs that leave, with the next step,
        every successful run of their task.
        """
        branches = self._tree.branches(self._tree.root, MOST)
        return branch_table(self._tree, branches, self.min_runs)

    @property
    def flows_(self) -> pd.DataFrame:
        """The flow of steps behind the chosen beginning: ``step token next n failed …``.

        ``token`` is ``""`` for rarer ones together; ``next`` is NA for runs that ended.
        """
        stops, flows = self._tree.flows(self._spot(self.selected), STEPS, STOPS)
        names = (*self._tree.cohort.table.names, "")  # -1 is the last
        ended = [(stop.step, names[stop.token], None, *stop.ended) for stop in stops]
        went = [
            (stops[one.source].step, names[stops[one.source].token],
             names[stops[one.target].token], *one.counts)
            for one in flows
        ]  # fmt: skip
        columns = ["step", "token", "next", "n", "failed", "succeeded", "unknown"]
        frame = frame_of([*went, *(row for row in ended if row[3])], columns)
        return frame.sort_values(["step", "n"], ascending=[True, False], ignore_index=True)

    @property
    def divergences_(self) -> pd.DataFrame:
        """Where each failed run left every successful run of its task.

        Columns ``run_id task_id step token prefix``: at this step it went on with ``token``,
        after the steps of ``prefix``, which a successful run of its task has too.
        """
        names, runs = self._tree.cohort.table.names, self._tree.cohort.runs
        rows = [
            (runs["run_id"].iloc[run], runs["task_id"].iloc[run], spot.depth, names[token],
             tuple(names[code] for code in self._tree.path(spot)))
            for run, token, spot in self._tree.partings()
        ]  # fmt: skip
        return frame_of(rows, ["run_id", "task_id", "step", "token", "prefix"])

    def plot(self, ax: Axes | None = None, prefix: Sequence[str] = ()) -> Axes:
        """Draw the tree for print.

        Parameters
        ----------
        ax : Axes, optional
            Default: new axes, two columns wide.
        prefix : sequence of str
            Tokens of the beginning that is drawn; default: all runs.
        """
        tree, spot = self._tree, self._spot(prefix)
        branches = tree.branches(spot, MOST, self.depth)
        boxes = tree_boxes(branches, tree.cohort.table.names, self.min_runs, self.depth)
        return plot_tree(boxes, tree.counts(0, len(tree)), self._title, spot.depth, ax)

    def _page(self) -> dict[str, Any]:
        now = {name: getattr(self, name) for name in ("depth", "view", "height")}
        return {**self._start, "options": {**self._start["options"], **now, "min": self.min_runs}}


def _many(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"
