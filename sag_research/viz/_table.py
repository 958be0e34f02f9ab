"""A picture as a table: what marks, colours and flags say, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sag_research._text import clip, repair, visible
from sag_research.viz._grammar import mark_words, tone_words

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.viz._scene import Node, Scene

__all__ = ["scene_rows", "scene_table"]

COLUMNS = ("key", "kind", "run", "step", "did", "result", "flags", "name", "detail")


def scene_table(scene: Scene) -> pd.DataFrame:
    """Give a scene as a DataFrame, one row a node; see :attr:`Scene.table_`."""
    import pandas as pd

    return pd.DataFrame.from_records(scene_rows(scene), columns=list(COLUMNS))


def scene_rows(scene: Scene) -> list[tuple[Any, ...]]:
    """Give the rows of that table."""
    did = {word.name: word.words for word in mark_words()}
    result = {word.name: word.words for word in tone_words()}
    return [
        (
            repair(node.id), node.kind, node.detail.get("run", ""), _steps(node),
            did.get(node.mark, ""), result.get(node.tone, ""), ", ".join(node.flags), _name(node),
            _detail(node),
        )
        for node in scene.nodes
    ]  # fmt: skip


def _steps(node: Node) -> str:
    return node.detail.get("step", "") or node.detail.get("steps", "")


def _name(node: Node) -> str:
    named = node.detail.get("entity") or node.detail.get("action") or node.detail.get("event")
    return visible(clip(named or node.caption or node.label, 120))


def _detail(node: Node) -> str:
    told = node.detail.get("observation") or node.detail.get("outcome") or node.caption
    return visible(clip(told, 120))
