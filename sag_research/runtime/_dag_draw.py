"""Documents as Mermaid text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from sag_research._text import clip, escape
from sag_research.errors import UsageError
from sag_research.runtime._dag_document import (
    Document,
    EmbeddedDag,
    Gather,
    Phase,
    Placement,
    Scatter,
    SingleNode,
    Terminal,
)
from sag_research.runtime._dag_registered import Documents

__all__ = ["mermaid"]

ORIENTATIONS: Final = ("TB", "LR", "RL", "BT")
_RESERVED: Final = frozenset({
    "bt", "call", "callback", "class", "classdef", "click", "default", "direction", "end",
    "flowchart", "graph", "href", "interpolate", "linkstyle", "lr", "rl", "style", "subgraph",
    "tb", "td",
    "constructor", "hasownproperty", "isprototypeof", "propertyisenumerable", "tolocalestring",
    "tostring", "valueof",
})  # fmt: skip
"""Words that may not stand where an id does: Mermaid's own, and what JavaScript has in an object.

They are compared in lower case.
"""

_SHAPES: Final[Mapping[type, tuple[str, str]]] = {
    SingleNode: ("[", "]"),
    Scatter: ("[/", "/]"),
    Gather: ("{", "}"),
    EmbeddedDag: ("[[", "]]"),
    Phase: ("{{", "}}"),
}
_TERMINALS: Final[Mapping[str, tuple[str, str]]] = {"failed": (">", "]")}
_COMPLETED: Final = ("(((", ")))")


def mermaid(
    document: Document | str,
    documents: Documents | None = None,
    *,
    orientation: str = "TB",
) -> str:
    """Draw a document as a Mermaid flowchart.

    Parameters
    ----------
    document : Document or str
        A document, or the IRI or name of a registered one.
    documents : Documents, optional
        Where such a one is looked up.
    orientation : str
        ``TB``, ``LR``, ``RL`` or ``BT``.

    Returns
    -------
    str
        Of a document that is not registered, and of a route to nowhere, the text says so.

    Raises
    ------
    UsageError
        If there is no such orientation.

    Examples
    --------
    >>> end = Terminal("urn:sag:dag:stop:end", "end", "completed")
    >>> print(mermaid(Document("urn:sag:dag:stop", "stop", "1", {"main": end.id}, (end,))))
    %% stop 1
    flowchart TB
      entry_main(["main"])
      end_((("end")))
      entry_main --> end_
    <BLANKLINE>
    """
    if orientation not in ORIENTATIONS:
        raise UsageError(
            f"a drawing cannot be oriented {clip(orientation)!r}",
            fix=f"give one of {', '.join(ORIENTATIONS)}",
        )
    if isinstance(document, str):
        held = {} if documents is None else documents.documents
        found = held.get(document) or next((d for d in held.values() if d.name == document), None)
        if found is None:
            what = _label(f"no document {document!r} is registered")
            return f'%% {what}\nflowchart {orientation}\n  unknown["{what}"]\n'
        document = found
    head = f"%% {_label(document.name)} {_label(document.version)}".rstrip()
    lines = "".join(f"  {line}\n" for line in _lines(document))
    return f"{head}\nflowchart {orientation}\n{lines}"


def _lines(document: Document) -> Iterator[str]:
    """Yield entries, placements and routes, each in the document's order."""
    ids = _Ids()
    entries = {label: ids.new(f"entry_{label}") for label in document.entrypoints}
    placements = document.by_id
    nodes = {placement.id: ids.new(placement.name) for placement in placements.values()}
    targets = [*document.entrypoints.values(), *(route.target for route in document.routes)]
    missing = dict.fromkeys(target for target in targets if target not in nodes)
    nodes |= {target: ids.new("missing") for target in missing}
    for label, id in entries.items():
        yield f'{id}(["{_label(label)}"])'
    for iri, placement in placements.items():
        opening, closing = _shape(placement)
        yield f'{nodes[iri]}{opening}"{_label(placement.name)}"{closing}'
    for target in missing:
        yield f'{nodes[target]}["no placement {_label(target)}"]'
    for label, target in document.entrypoints.items():
        yield f"{entries[label]} --> {nodes[target]}"
    for source, port, target in document.routes:
        yield f'{nodes[source]} -->|"{_label(port)}"| {nodes[target]}'


def _shape(placement: Placement) -> tuple[str, str]:
    if isinstance(placement, Terminal):
        return _TERMINALS.get(placement.outcome, _COMPLETED)
    return _SHAPES[type(placement)]


class _Ids:
    """Ids that Mermaid takes, no two of them alike."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, text: str) -> str:
        """Return an id like a text."""
        plain = re.sub(r"[^A-Za-z0-9_]", "_", text)
        plain = plain if re.match("[A-Za-z]", plain) else f"n_{plain}"
        plain = f"{plain}_" if plain.lower() in _RESERVED else plain
        id, number = plain, 2
        while id.lower() in self._taken:
            id, number = f"{plain}_{number}", number + 1
        self._taken.add(id.lower())
        return id


_CODES: Final = {"#": "#35;", "&": "#", "%": "#37;", "`": "#96;", "\\": "#92;", "$": "#36;"}
_PHRASES: Final = re.compile(r"(?<=direction) |(?<=fa[bklrs]):|(?<=fa):", re.IGNORECASE)
"""Mermaid takes a line that says which direction for no node at all, and `fa:` for an icon."""


def _label(text: str) -> str:
    """Return a text that stands in quotes as it is, whatever Mermaid or a page would make of it."""
    page = escape(clip(text, 120)).replace("&#x27;", "&apos;")
    plain = "".join(_CODES.get(character, character) for character in page)
    return _PHRASES.sub(lambda found: f"#{ord(found[0])};", plain)
