"""From one drawing to the next: what a page that shows the first must be told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["apply_patch", "scene_patch"]

_NODE: Final = ("keys", "nodes", "kinds", "texts", "marks")
_WHOLE: Final = ("bands", "legend", "notes", "title", "layout", "options")

Data = dict[str, Any]
AnyData = Mapping[str, Any]
EdgeKey = tuple[str, str, str]


def scene_patch(old: AnyData, new: AnyData) -> Data:
    """Tell what to change for one drawing to become another.

    Parameters
    ----------
    old, new : dict
        As :func:`sag_research.viz.scene_data` gives them.

    Returns
    -------
    dict
        ``add`` and ``change``: columns ``keys nodes kinds texts marks`` of those nodes;
        ``remove``: keys; ``edges``: ``add``, a list of dicts with ``source`` and ``target`` (keys),
        ``kind``, ``label`` and ``looks``, and ``remove``, a list of ``[source, target, kind]``.
        ``bands legend notes title layout options`` are there where they differ. Nothing to tell
        is an empty dict.

    Notes
    -----
    An edge whose looks or label changed is removed and added. Numbers in ``nodes`` mean nothing
    here: a node is known by its key.
    """
    before, after = _nodes(old), _nodes(new)
    patch = {
        "add": _columns(row for key, row in after.items() if key not in before),
        "change": _columns(row for key, row in after.items() if before.get(key, row) != row),
        "remove": [key for key in before if key not in after],
        "edges": _edge_patch(_edges(old), _edges(new)),
    }
    patch = {name: part for name, part in patch.items() if part}
    return patch | {name: new[name] for name in _WHOLE if old.get(name) != new.get(name)}


def apply_patch(data: AnyData, patch: AnyData) -> Data:
    """Carry a patch out, as a page does.

    Returns
    -------
    dict
        The new drawing; its nodes and edges may stand in another order than in the one that the
        patch was made of.
    """
    nodes = {key: row for key, row in _nodes(data).items() if key not in patch.get("remove", ())}
    for part in ("add", "change"):
        if part in patch:
            nodes |= _nodes(patch[part])
    edges = _edges(data)
    told = patch.get("edges", {})
    for key in told.get("remove", ()):
        edges.pop(tuple(key), None)
    for edge in told.get("add", ()):
        edges[edge["source"], edge["target"], edge["kind"]] = edge
    return _assemble(nodes, edges) | {
        name: patch.get(name, data.get(name)) for name in _WHOLE if name in data or name in patch
    }


def _nodes(data: AnyData) -> dict[str, tuple[Any, ...]]:
    rows = zip(*(data[name] for name in _NODE), strict=True)
    return {row[0]: (row[0], {**row[1], "id": 0}, *row[2:]) for row in rows}


def _columns(rows: Iterable[tuple[Any, ...]]) -> Data:
    columns = list(zip(*rows, strict=True))
    return (
        {name: list(column) for name, column in zip(_NODE, columns, strict=True)} if columns else {}
    )


def _edges(data: AnyData) -> dict[EdgeKey, Data]:
    keys, edges = data["keys"], {}
    for edge, (kind, label) in zip(data["edges"], data["links"], strict=True):
        looks = {name: value for name, value in edge.items() if name not in ("id", "from", "to")}
        source, target = keys[edge["from"]], keys[edge["to"]]
        edges[source, target, kind] = {
            "source": source, "target": target, "kind": kind, "label": label, "looks": looks,
        }  # fmt: skip
    return edges


def _edge_patch(before: dict[EdgeKey, Data], after: dict[EdgeKey, Data]) -> Data:
    gone = [list(key) for key, edge in before.items() if after.get(key) != edge]
    new = [edge for key, edge in after.items() if before.get(key) != edge]
    return {name: part for name, part in (("add", new), ("remove", gone)) if part}


def _assemble(nodes: dict[str, tuple[Any, ...]], edges: dict[EdgeKey, Data]) -> Data:
    number = {key: place for place, key in enumerate(nodes)}
    data = dict(zip(_NODE, ([row[at] for row in nodes.values()] for at in range(5)), strict=True))
    data["nodes"] = [{**node, "id": place} for place, node in enumerate(data["nodes"])]
    kept = [edge for edge in edges.values() if {edge["source"], edge["target"]} <= number.keys()]
    data["edges"] = [
        {**edge["looks"], "id": place, "from": number[edge["source"]], "to": number[edge["target"]]}
        for place, edge in enumerate(kept)
    ]
    data["links"] = [[edge["kind"], edge["label"]] for edge in kept]
    return data
