"""DAG documents: which node comes after which, as data that can be checked, drawn and run.

A document is a set of placements. A placement names an implementation and says, for each port
that this may leave by, which placement comes next. Cycles are allowed; an agent is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from sag_research._text import clip, html_table
from sag_research.errors import SagError

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "EMBEDDED_PORTS", "GATHER_PORTS", "REDUCER_PORTS", "STRATEGIES", "Body", "DagReference",
    "Document", "DocumentError", "EmbeddedDag", "Execution", "Fault", "Gather", "ItemExecution",
    "Phase", "Placement", "ReservoirExecution", "Route", "Scatter", "SingleNode", "Terminal",
    "kind_of", "routes_of",
]  # fmt: skip

GATHER_PORTS: Final = ("success", "error", "empty")
"""What a gather leaves by: no record failed, one did, there was none."""

EMBEDDED_PORTS: Final = ("completed", "failed")
"""What an embedded document leaves by: the outcome of the terminal it came to."""

REDUCER_PORTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "aggregate": ("all-success", "partial", "all-error", "empty"),
        "all-success": ("success", "error", "empty"),
        "any-success": ("success", "error", "empty"),
        "terminal": ("success", "error", "empty"),
    }
)
"""The ports of a scatter by its reducer, for the reducers that are always there."""

STRATEGIES: Final = ("append", "map", "partition", "collect", "discard", "custom")
"""The ways to gather that are always there."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with a document, and where."""

    document: str
    """IRI of the document."""
    placement: str
    """IRI of the placement, empty for the document as a whole."""
    port: str
    """The port, or the label of the entry, empty where the fault is no route's."""
    code: str
    """The kind of the fault, such as ``unknown-target``."""
    what: str
    """What is wrong."""
    fix: str = ""
    """What can be done about it."""

    def __str__(self) -> str:
        where = " ".join(part for part in (self.placement or self.document, self.port) if part)
        return f"{clip(where, 120)}: {self.what}" + (f"; {self.fix}" if self.fix else "")


class DocumentError(SagError):
    """Documents cannot be read, or not be run as they are.

    Attributes
    ----------
    faults : tuple of Fault
        All that is wrong, not only the first.
    """

    def __init__(self, what: str, faults: tuple[Fault, ...] = ()) -> None:
        self.faults = tuple(faults)
        shown = " | ".join(str(fault) for fault in self.faults[:5])
        more = f" | and {len(self.faults) - 5} more" if len(self.faults) > 5 else ""
        super().__init__(what, why=shown + more, fix="`error.faults` lists all" if more else "")
        self.args = (what, self.faults)  # what a copy, e.g. in another process, is made of


class DagReference(
    msgspec.Struct, frozen=True, rename={"from_": "from"}, forbid_unknown_fields=True
):
    """A document that is chosen for each item, by what the item holds, out of a closed list."""

    path: str
    """Where in the item the IRI of its document stands, as in ``dagIri`` or ``call.dagIri``."""
    candidates: tuple[str, ...]
    """IRIs that may be chosen; a tool is the document ``tool:<name>``."""
    from_: str = "item"


class Body(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a scatter does with each item: a node, or a document. Exactly one is given."""

    node: str = ""
    """Name of an implementation."""
    dag: str | DagReference = ""
    """IRI of a document, or how to choose one."""


class ItemExecution(
    msgspec.Struct, frozen=True, tag_field="mode", tag="item", omit_defaults=True,
    forbid_unknown_fields=True,
):  # fmt: skip
    """Each item has a body of its own."""

    concurrency: int = 1
    """Bodies that may be under way at a time."""
    throttle: float | int | None = None
    """Seconds between the starts of two bodies, ``None`` for no wait."""


class ReservoirExecution(
    msgspec.Struct, frozen=True, tag_field="mode", tag="reservoir", omit_defaults=True,
    forbid_unknown_fields=True,
):  # fmt: skip
    """Items are kept back by a key, and given to a body many at a time."""

    key: str
    """Where in the item its key stands."""
    capacity: int
    """Items of one key that are given to a body."""
    idle: float | int | None = None
    """Seconds without a new item after which fewer are given, ``None`` to wait for the end."""


Execution: TypeAlias = ItemExecution | ReservoirExecution
"""How the items of a scatter are given to its bodies."""


class SingleNode(
    msgspec.Struct, frozen=True, tag_field="@type", tag="SingleNode", rename={"id": "@id"},
    forbid_unknown_fields=True,
):  # fmt: skip
    """One node that runs once each time it is come to."""

    id: str
    name: str
    node: str
    """Name of its implementation."""
    outputs: dict[str, str] = {}
    """IRI of the placement that comes next, by port."""


class Scatter(
    msgspec.Struct, frozen=True, tag_field="@type", tag="ScatterNode",
    rename={"id": "@id", "item_key": "itemKey"}, forbid_unknown_fields=True,
):  # fmt: skip
    """A body for each item of a list or stream, and a port for how they ended together."""

    id: str
    name: str
    source: str
    """Where in the state the items stand."""
    body: Body
    outputs: dict[str, str] = {}
    """IRI of the placement that comes next, by port."""
    item_key: str = "currentItem"
    """Where in its state a body finds its item."""
    reducer: str = "aggregate"
    """What makes the port out of how the bodies ended."""
    execution: Execution = ItemExecution()


class Gather(
    msgspec.Struct, frozen=True, tag_field="@type", tag="GatherNode", rename={"id": "@id"},
    forbid_unknown_fields=True,
):  # fmt: skip
    """Brings what scattered bodies left into the one state."""

    id: str
    name: str
    sources: tuple[str, ...]
    """IRIs of the scatters whose records it takes."""
    strategy: str
    """One of ``STRATEGIES``."""
    outputs: dict[str, str] = {}
    """IRI of the placement that comes next, by port."""
    target: str = ""
    """Where in the state the records go, for a strategy that needs one place."""
    mapping: dict[str, str] = {}
    """For ``map``: place in the state by place in a body's state."""
    function: str = ""
    """For ``custom``: name of the registered strategy."""


class EmbeddedDag(
    msgspec.Struct, frozen=True, tag_field="@type", tag="EmbeddedDAGNode", rename={"id": "@id"},
    forbid_unknown_fields=True,
):  # fmt: skip
    """Another document, run as one node with a state of its own."""

    id: str
    name: str
    dag: str
    """IRI of the document."""
    outputs: dict[str, str] = {}
    """IRI of the placement that comes next, by port, of which there are ``EMBEDDED_PORTS``."""
    inputs: dict[str, str] = {}
    """Place in the inner state by place in this one; copied before. Empty: the whole state."""
    results: dict[str, str] = {}
    """Place in this state by place in the inner one; copied after. Empty: the whole state."""


class Terminal(
    msgspec.Struct, frozen=True, tag_field="@type", tag="TerminalNode", rename={"id": "@id"},
    forbid_unknown_fields=True,
):  # fmt: skip
    """An end, and what it means to have come to it."""

    id: str
    name: str
    outcome: str
    """``completed`` or ``failed``."""


class Phase(
    msgspec.Struct, frozen=True, tag_field="@type", tag="PhaseNode", rename={"id": "@id"},
    forbid_unknown_fields=True,
):  # fmt: skip
    """A node that belongs before or after the flow. It is checked and drawn, and never run."""

    id: str
    name: str
    when: str
    """``pre`` or ``post``."""
    node: str
    """Name of its implementation."""
    outputs: dict[str, str] = {}
    """IRI of the placement that comes next, by port; a phase may have none."""


Placement: TypeAlias = SingleNode | Scatter | Gather | EmbeddedDag | Terminal | Phase
"""A node at its place in a document."""


class Route(NamedTuple):
    """One way from placement to placement."""

    source: str
    port: str
    target: str


def routes_of(placement: Placement) -> Mapping[str, str]:
    """Return the IRI that comes after a placement, by port; a terminal has none."""
    return {} if isinstance(placement, Terminal) else placement.outputs


def kind_of(placement: Placement) -> str:
    """Return the kind of a placement as it stands in a document, such as ``ScatterNode``."""
    return str(type(placement).__struct_config__.tag)


class Document(msgspec.Struct, frozen=True):
    """A DAG document; read by :func:`load_document`.

    Parameters
    ----------
    id : str
        An absolute IRI.
    name, version : str
    entrypoints : dict of str to str
        IRI of the placement where a run begins, by label.
    placements : tuple of Placement

    Notes
    -----
    A document can be made that cannot be run; :func:`validate_document` says what is wrong
    with it.

    Examples
    --------
    >>> hello, end = "urn:sag:dag:greet:hello", "urn:sag:dag:greet:end"
    >>> placements = (
    ...     SingleNode(hello, "hello", "say-hello", {"done": end}),
    ...     Terminal(end, "end", "completed"),
    ... )
    >>> Document("urn:sag:dag:greet", "greet", "1", {"main": hello}, placements)
    Document('greet' 1, 2 placements, 1 route)
    """

    id: str
    name: str
    version: str
    entrypoints: dict[str, str]
    placements: tuple[Placement, ...]

    def __repr__(self) -> str:
        counts = ((len(self.placements), "placement"), (len(self.routes), "route"))
        said = ", ".join(f"{n} {what}" + "s" * (n != 1) for n, what in counts)
        return f"Document({clip(self.name)!r} {clip(self.version, 20)}, {said})"

    @property
    def routes(self) -> tuple[Route, ...]:
        """Every way from placement to placement, in the document's order."""
        return tuple(
            Route(placement.id, port, target)
            for placement in self.placements
            for port, target in routes_of(placement).items()
        )

    @property
    def by_id(self) -> dict[str, Placement]:
        """The placements by IRI; of several with one IRI the first."""
        found: dict[str, Placement] = {}
        for placement in self.placements:
            found.setdefault(placement.id, placement)
        return found

    @property
    def kinds(self) -> Counter[str]:
        """How many placements there are of each kind."""
        return Counter(map(kind_of, self.placements))

    def to_networkx(self) -> nx.MultiDiGraph:
        """Return the placements and routes as a graph whose edges are keyed by port.

        Returns
        -------
        networkx.MultiDiGraph
            Nodes are IRIs, with ``name`` and ``kind``; edges have ``port``, which is their key
            too. ``graph`` has ``id``, ``name``, ``version`` and ``entrypoints``. A target that
            the document does not hold is a node without attributes.
        """
        import networkx as nx

        about: dict[str, Any] = {"id": self.id, "name": self.name, "version": self.version}
        graph = nx.MultiDiGraph(**about, entrypoints=dict(self.entrypoints))
        for placement in self.by_id.values():
            graph.add_node(placement.id, name=placement.name, kind=kind_of(placement))
        for source, port, target in self.routes:
            graph.add_edge(source, target, key=port, port=port)
        return graph

    def _repr_html_(self) -> str:
        names = {iri: placement.name for iri, placement in self.by_id.items()}
        rows = []
        for placement in self.placements[:50]:
            ways = [f"{port} → {names.get(target, target)}"
                    for port, target in routes_of(placement).items()]  # fmt: skip
            leads = placement.outcome if isinstance(placement, Terminal) else ", ".join(ways)
            rows.append((placement.name, kind_of(placement), leads))
        return html_table(("placement", "kind", "leads to"), rows, len(self.placements))
