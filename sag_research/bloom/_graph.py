"""The result object around a bloomed graph."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sag_research._text import atomic_write, clip, escape
from sag_research.bloom._weigh import entity_table

if TYPE_CHECKING:
    import os

    import pandas as pd

    from sag_research.viz import View

__all__ = ["BloomGraph"]


class BloomGraph:
    """A bloomed graph with its tables and its drawing.

    Parameters
    ----------
    graph : networkx.MultiDiGraph
        As made by :func:`~sag_research.bloom.bloom_graph`.

    Attributes
    ----------
    nx : networkx.MultiDiGraph
        The whole graph; a drawing may leave things out, this never does.

    Examples
    --------
    >>> from sag_research.bloom import bloom_graph
    >>> BloomGraph(bloom_graph([("r1", 1)], [("r1", 1, "Error||KeyError")]))
    BloomGraph(1 run, 1 event, 1 entity, 2 edges)
    """

    def __init__(self, graph: Any) -> None:
        self.nx = graph

    @property
    def runs(self) -> list[str]:
        """Ids of the runs in the graph, each parent before its forks."""
        return [data["run_id"] for _, data in self.nx.nodes(data=True) if data["label"] == "Run"]

    @cached_property
    def counts_(self) -> pd.DataFrame:
        """Nodes and edges by type: columns ``what`` (node or edge), ``label``, ``kind``, ``n``."""
        import pandas as pd

        counts: Counter[tuple[str, str, str]] = Counter()
        for _, data in self.nx.nodes(data=True):
            kind = data.get("kind") if data["label"] == "Entity" else data.get("type")
            counts["node", data["label"], kind or ""] += 1
        for source, target, type in self.nx.edges(keys=True):
            labels = f"{self._label(source)} -> {self._label(target)}"
            counts["edge", type, labels] += 1
        rows = [
            (*key, n) for key, n in sorted(counts.items(), key=lambda i: (i[0][0] == "edge", i))
        ]
        return pd.DataFrame.from_records(rows, columns=["what", "label", "kind", "n"])

    @cached_property
    def entities_(self) -> pd.DataFrame:
        """The entities, most telling first (see :func:`~sag_research.bloom.entity_table`)."""
        return entity_table(self.nx)

    def show(self, layout: str = "timeline", height: int = 600, **options: Any) -> View:
        """Draw the graph inline in a notebook.

        Parameters
        ----------
        layout : {"timeline", "force"}
            Lanes of runs under a shelf of entities, or a force-directed cloud.
        height : int
            Pixels.
        **options
            ``seed``, ``entities``, ``events`` as :func:`sag_research.viz.scene` takes them.

        Returns
        -------
        View
            Shows itself in Jupyter as a sandboxed frame that needs no network.
        """
        from sag_research.viz import View, scene

        return View(scene(self.nx, layout=layout, **options), height=height)

    def to_html(
        self, path: str | os.PathLike[str], layout: str = "timeline", **options: Any
    ) -> Path:
        """Write the drawing as one self-contained HTML file; returns its path."""
        from sag_research.viz import page, scene

        html = page(scene(self.nx, layout=layout, **options))
        with atomic_write(path) as file:
            file.write(html.encode("utf-8"))
        return Path(path)

    def _label(self, node: str) -> str:
        return str(self.nx.nodes[node]["label"])

    def __repr__(self) -> str:
        nodes = Counter(label for _, label in self.nx.nodes(data="label"))
        parts = [
            _count(nodes["Run"], "run", "runs"),
            _count(nodes["Event"], "event", "events"),
            _count(nodes["Entity"], "entity", "entities"),
            _count(self.nx.number_of_edges(), "edge", "edges"),
        ]
        return f"BloomGraph({', '.join(parts)})"

    def _repr_html_(self) -> str:
        head = ("entity", "kind", "scope", "mentions", "runs", "changed")
        top = self.entities_.head(10)
        columns = top[["name", "kind", "scope", "mentions", "runs", "mutated"]]
        rows = [head, *columns.itertuples(index=False, name=None)]
        cells = [
            "<tr>" + "".join(f"<{tag}>{escape(clip(cell, 60))}</{tag}>" for cell in row) + "</tr>"
            for tag, row in zip(["th"] + ["td"] * len(top), rows, strict=True)
        ]
        more = len(self.entities_) - len(top)
        note = f"<div>{more} more in <code>.entities_</code></div>" if more else ""
        return f"<div><b>{escape(repr(self))}</b><table>{''.join(cells)}</table>{note}</div>"


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
