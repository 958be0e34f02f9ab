"""Whether a run's graph holds what provenance must hold.

SHACL looks at each node; whether the steps form one line is checked here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyoxigraph import NamedNode, RdfFormat, Triple, serialize

from sag_research._text import clip, html_table, visible
from sag_research.bloom._prov_store import TraceStore, name_of, term_value
from sag_research.bloom._prov_terms import graph_node, prov, run_node, sag
from sag_research.errors import MissingDataError

if TYPE_CHECKING:
    import pandas as pd
    from rdflib import Graph

__all__ = ["Fault", "ProvenanceReport", "chain_faults", "shape_faults", "validate_graph"]


class Fault(NamedTuple):
    """One thing that is wrong."""

    rule: str
    node: str
    message: str


@dataclass(frozen=True)
class ProvenanceReport:
    """What a validation found.

    Attributes
    ----------
    run_id : str
    steps, quads : int
        How much was looked at.
    faults : tuple of Fault
    shapes : bool
        Whether the SHACL shapes were applied, too.
    """

    run_id: str
    steps: int
    quads: int
    faults: tuple[Fault, ...]
    shapes: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        found = "valid" if self.ok else f"{len(self.faults):,} faults"
        left = "" if self.shapes else ", SHACL not applied"
        counts = f"{self.steps:,} steps, {self.quads:,} quads"
        return f"ProvenanceReport({visible(clip(self.run_id))}: {found}, {counts}{left})"

    def _repr_html_(self) -> str:
        return html_table(Fault._fields, self.faults[:20], len(self.faults))

    @property
    def table_(self) -> pd.DataFrame:
        """One row a fault: rule, node, message."""
        import pandas as pd

        return pd.DataFrame(self.faults, columns=list(Fault._fields))


def validate_graph(
    traces: TraceStore, run_id: str, *, shapes: bool | None = None
) -> ProvenanceReport:
    """Check a run's graph.

    Parameters
    ----------
    traces : TraceStore
    run_id : str
    shapes : bool, optional
        Apply the SHACL shapes, for which pyshacl must be installed; default: where it is. The
        report says whether they were. The rules about the line of steps are always applied.

    Raises
    ------
    MissingDataError
        If pyshacl is wanted and missing.
    """
    faults = list(chain_faults(traces, run_id))
    if shapes is None:
        shapes = find_spec("pyshacl") is not None
    if shapes:
        faults += shape_faults(traces, graph_node(run_id))
    steps = sum(1 for _ in traces.match(None, sag("ordinal"), None, graph_node(run_id)))
    quads = traces.count(graph_node(run_id))
    return ProvenanceReport(run_id, steps, quads, tuple(faults), shapes)


# ---- the line of steps


def chain_faults(traces: TraceStore, run_id: str) -> Iterator[Fault]:
    """Yield what is wrong with the line of a run's steps.

    Ordinals are contiguous from the first one on, one step is the root, no walk comes back to
    where it was, and a final ends its turn: after it comes a new turn or nothing. A run may answer
    more than once, since a host may refuse an answer and let it go on.
    """
    graph = graph_node(run_id)
    found = list(traces.match(None, sag("ordinal"), None, graph))
    numbers = {name_of(quad.subject): term_value(quad.object) for quad in found}
    if not numbers:
        return
    first = _first_ordinal(traces, run_id)
    yield from _ordinal_faults(
        [(name_of(quad.subject), term_value(quad.object)) for quad in found], first
    )
    before = _before(traces, graph)
    yield from _root_faults(numbers, before, first)
    yield from _cycle_faults(before)
    yield from _final_faults(traces, graph, numbers)


def _first_ordinal(traces: TraceStore, run_id: str) -> int:
    given = traces.match(run_node(run_id), sag("firstOrdinal"), None, graph_node(run_id))
    return next((int(name_of(quad.object)) for quad in given), 0)


def _before(traces: TraceStore, graph: NamedNode) -> dict[str, list[str]]:
    before: defaultdict[str, list[str]] = defaultdict(list)
    steps = {name_of(quad.subject) for quad in traces.match(None, sag("partOfRun"), None, graph)}
    for quad in traces.match(None, prov("wasInformedBy"), None, graph):
        if name_of(quad.subject) in steps:
            before[name_of(quad.subject)].append(name_of(quad.object))
    return before


def _ordinal_faults(found: list[tuple[str, Any]], first: int) -> Iterator[Fault]:
    counted = Counter(number for _, number in found)
    for node, number in found:
        if not isinstance(number, int):
            yield Fault("ordinals", node, f"the ordinal {number!r} is no whole number")
        elif counted[number] > 1:
            yield Fault("ordinals", node, f"the ordinal {number} is taken {counted[number]} times")
    known = sorted(number for number in counted if isinstance(number, int))
    for one, other in zip([first - 1, *known], known, strict=False):
        if other > one + 1:
            missing = f"{one + 1}" if other == one + 2 else f"{one + 1} to {other - 1}"
            yield Fault("ordinals", "", f"no step has the ordinal {missing}")
        elif other <= one:
            yield Fault("ordinals", "", f"the ordinal {other} comes before the first, {first}")


def _root_faults(
    numbers: Mapping[str, Any], before: Mapping[str, list[str]], first: int
) -> Iterator[Fault]:
    """Yield what is wrong with the root: the one step that none of the run's own informed."""
    roots = [node for node in numbers if not set(before.get(node, ())) & numbers.keys()]
    if len(roots) != 1:
        names = ", ".join(clip(node, 60) for node in sorted(roots)[:3])
        yield Fault("root", names, f"{len(roots)} steps are informed by no step of the run, not 1")
    for node in roots:
        if numbers[node] != first:
            yield Fault(
                "root", node, f"the first step has the ordinal {numbers[node]}, not {first}"
            )
        elif not first and before.get(node):
            yield Fault("root", node, "the first step is informed by a step of no ancestor")
    for node, sources in before.items():
        for source in sources:
            if node in numbers and source in numbers and numbers[node] != _next(numbers[source]):
                said = f"step {numbers[node]} is informed by step {numbers[source]}"
                yield Fault("order", node, f"{said}, not by the one before it")


def _next(number: Any) -> Any:
    return number + 1 if isinstance(number, int) else None


def _cycle_faults(before: Mapping[str, list[str]]) -> Iterator[Fault]:
    """Walk back from every step, without recursion; what was walked once is not walked again."""
    done: set[str] = set()
    for start in before:
        path: dict[str, Iterator[str]] = {}
        stack = [] if start in done else [start]
        while stack:
            node = stack[-1]
            if node not in path:
                path[node] = iter(before.get(node, ()))
            following = next(path[node], None)
            if following is None:
                stack.pop()
                done.add(node)
                del path[node]
            elif following in path:
                yield Fault("cycle", following, "walking back along wasInformedBy returns to it")
            elif following not in done:
                stack.append(following)


def _final_faults(
    traces: TraceStore, graph: NamedNode, numbers: Mapping[str, Any]
) -> Iterator[Fault]:
    kinds = {numbers[name_of(quad.subject)]: (name_of(quad.subject), term_value(quad.object))
             for quad in traces.match(None, sag("kind"), None, graph)
             if name_of(quad.subject) in numbers}  # fmt: skip
    for number, (node, kind) in kinds.items():
        _, after = kinds.get(_next(number), ("", None))
        if kind == "final" and after not in (None, "thought", "action"):
            said = f"the final has the ordinal {number}, and after it comes the {after} of no turn"
            yield Fault("final", node, said)


# ---- SHACL

_MOST: Final = 1_000


def shape_faults(traces: TraceStore, graph: NamedNode) -> list[Fault]:
    """Return what the shipped SHACL shapes find wrong with a graph."""
    try:
        from pyshacl import validate
    except ImportError as error:
        raise MissingDataError(
            "pyshacl is not installed",
            fix="run `pip install 'sag-research[prov]'`, or validate(shapes=False)",
        ) from error
    conforms, found, _ = validate(
        rdflib_graph(traces, graph), shacl_graph=_shapes(), inference="none"
    )
    return [] if conforms else sorted(_results(found))[:_MOST]


def _results(found: Graph) -> Iterator[Fault]:
    from rdflib import SH

    for result in found.subjects(SH.focusNode):
        said = [str(text) for text in found.objects(result, SH.resultMessage)]
        path = found.value(result, SH.resultPath)
        rule = str(path or found.value(result, SH.sourceConstraintComponent))
        rule = rule.rpartition("#")[2].rpartition(":")[2]
        yield Fault(rule, str(found.value(result, SH.focusNode)), "; ".join(sorted(said)))


def rdflib_graph(traces: TraceStore, graph: NamedNode) -> Graph:
    """Return a copy of one graph for rdflib."""
    from rdflib import Graph

    triples = [Triple(q.subject, q.predicate, q.object) for q in traces.match(graph=graph)]
    return Graph().parse(data=serialize(triples, format=RdfFormat.N_TRIPLES), format="ox-nt")


@cache
def _shapes() -> Graph:
    from rdflib import Graph

    # the parser that the data go through, too: rdflib's own leaves strings without their type,
    # and then "a" is not "a"
    text = files("sag_research.bloom").joinpath("shapes.ttl").read_text(encoding="utf-8")
    return Graph().parse(data=text, format="ox-ttl")
