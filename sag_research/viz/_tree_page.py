"""What the two trees of a notebook share: their script, and a page that needs nothing else."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, Final

from sag_research._text import escape, script_json

__all__ = ["tree_frame", "tree_page", "tree_script", "tree_style"]

_DRAWING: Final = ("tree_parts.js", "prefix_explorer.js", "lineage_tree.js")


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath("js", name).read_text(encoding="utf-8")


def tree_script(last: str) -> str:
    """Return the drawing code, and after it the file that connects it to a page or to Python."""
    return "\n".join(_part(name) for name in (*_DRAWING, last))


def tree_style() -> str:
    """Return the trees' style sheet."""
    return _part("tree.css")


def tree_page(start: Mapping[str, Any]) -> str:
    """Draw a tree on one self-contained page that can load nothing and send nothing.

    Parameters
    ----------
    start : mapping
        ``kind``, ``data`` and ``options``, as the script takes them.

    Returns
    -------
    str
        HTML, ASCII only; the same tree gives the same text.
    """
    packed = gzip.compress(script_json(dict(start)).encode("ascii"), compresslevel=9, mtime=0)
    return Template(_part("tree_page.html")).substitute(
        title=_ascii(escape(start["options"]["title"])),
        style=_ascii(tree_style(), "backslashreplace"),
        data=base64.b64encode(packed).decode("ascii"),
        script=_escaped(tree_script("tree_page.js")),
    )


def tree_frame(start: Mapping[str, Any], height: int) -> str:
    """Wrap the page in a sandboxed frame for a notebook, hidden while a live view is beside it."""
    title = escape(start["options"]["title"])
    return (
        f'<div class="sag-saved"><iframe srcdoc="{escape(tree_page(start))}" '
        f'sandbox="allow-scripts" width="100%" height="{int(height)}" style="border:0" '
        f'title="{title}"></iframe></div>'
    )


def _ascii(text: str, errors: str = "xmlcharrefreplace") -> str:
    return text.encode("ascii", errors).decode("ascii")


def _escaped(script: str) -> str:
    r"""Write what is not ASCII as ``\uXXXX``: it stands in strings and comments only."""
    return "".join(
        c if c.isascii() else "".join(f"\\u{unit:04x}" for unit in _units(c)) for c in script
    )


def _units(character: str) -> list[int]:
    encoded = character.encode("utf-16-be")
    return [int.from_bytes(encoded[i : i + 2], "big") for i in range(0, len(encoded), 2)]
