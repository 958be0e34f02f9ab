"""What recording, walking and loading provenance costs, and what the usual way costs beside it.

    python benchmarks/provenance.py [--rounds 5] [--quick]

Recording: steps of three items (thought, action, observation) with a changed file and an error,
each into a store that already holds a long run, median of a step. Walking: a line of 10,000 items
from its last to its first, in a loop and in SPARQL, and its rules checked. Loading: N-Quads of
1,000 runs of 100 items into an empty store. Peer: rdflib with its memory store, the same quads
and the same walks, in turns with ours, at a size that it can bear; its own path walk raises
RecursionError on a long line, which is noted. Seconds are of the clock (``_s``) and of the
processor (``_cpu_s``): on a busy machine they differ. Written to
``benchmarks/results/provenance.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyoxigraph import Quad, RdfFormat
from rdflib import Dataset, URIRef

from sag_research.bloom import (
    Action,
    Named,
    Observation,
    Recorder,
    RunProvenance,
    Thought,
    TraceItem,
    TraceStore,
    item_quads,
    run_quads,
)
from sag_research.model import Entity, Run

RESULT = Path(__file__).resolve().parent / "results" / "provenance.json"
MILLI = 1e3
FILE, ERROR = Entity("File", "a/b", "src/main.py"), Entity("Error", "", "TimeoutError")
INFORMED = URIRef("http://www.w3.org/ns/prov#wasInformedBy")
WALK = """PREFIX prov: <http://www.w3.org/ns/prov#> PREFIX sag: <urn:sag:vocab:>
SELECT (count(?s) AS ?n) WHERE { GRAPH <urn:sag:graph:chain> { %s prov:wasInformedBy* ?s } }"""


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def seconds(name: str, work: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median seconds of some rounds, by the clock and of the processor."""
    wall, cpu = [], []
    for _ in range(rounds):
        started = time.process_time()
        wall.append(timed(work))
        cpu.append(time.process_time() - started)
    return {
        f"{name}_s": round(statistics.median(wall), 4),
        f"{name}_cpu_s": round(statistics.median(cpu), 4),
    }


def turn(n: int) -> list[tuple[TraceItem, tuple[Named, ...]]]:
    """A thought, a call and what came back, with about 0.5 KB of text."""
    at = 3 * n
    return [
        (TraceItem(at, Thought(f"thought {n} " + "word " * 20)), ()),
        (TraceItem(at + 1, Action("edit", {"n": n}, f"c{n}")), (Named(FILE, "MUTATED"),)),
        (TraceItem(at + 2, Observation("seen " * 60, f"c{n}"), at + 1), (Named(ERROR),)),
    ]


def recording(steps: int) -> dict[str, Any]:
    """Milliseconds of a step, into a run that grows."""
    recorder = Recorder()
    recorder.add_run(Run(run_id="r1", agent="bench"))
    took = []
    for n in range(steps):
        items = turn(n)
        started = time.perf_counter()
        for item, named in items:
            recorder.add("r1", item, named=named)
        took.append(time.perf_counter() - started)
    tenth = max(1, steps // 10)
    return {
        "steps": steps,
        "quads": len(recorder.traces),
        "ms_per_step": round(statistics.median(took) * MILLI, 4),
        "ms_per_step_99": round(sorted(took)[int(steps * 0.99)] * MILLI, 4),
        "last_to_first_tenth": round(
            statistics.median(took[-tenth:]) / statistics.median(took[:tenth]), 2
        ),
    }


def chain(length: int) -> TraceStore:
    """A line of items without entities."""
    traces = TraceStore(run_quads(Run(run_id="chain")))
    traces.oxigraph.bulk_extend(
        quad for n in range(length) for quad in item_quads("chain", TraceItem(n, Thought(f"t{n}")))
    )
    return traces


def walked(traces: TraceStore, length: int) -> None:
    """Walk back in a loop, one look a step, as a recall does."""
    node: Any = f"urn:sag:run:chain:s:{length - 1}"
    count = 0
    while node is not None:
        found = next(traces.match(node, str(INFORMED), None, "urn:sag:graph:chain"), None)
        node, count = None if found is None else found.object, count + 1
    if count != length:
        raise RuntimeError(f"walked {count} of {length}")


def by_path(traces: TraceStore, length: int) -> None:
    """Walk back by one property path."""
    last = f"<urn:sag:run:chain:s:{length - 1}>"
    [count] = traces.sparql(WALK % last)["n"]
    if count != length:
        raise RuntimeError(f"the path found {count} of {length}")


def walking(length: int, rounds: int) -> dict[str, Any]:
    """Seconds to walk a line, and to check that it is one."""
    traces = chain(length)
    run = RunProvenance(traces, "chain")
    work = {
        "loop": lambda: walked(traces, length),
        "path": lambda: by_path(traces, length),
        "table": lambda: run.table_,
        "rules": lambda: run.validate(shapes=False),
    }
    result: dict[str, Any] = {"items": length}
    for name, step in work.items():
        result |= seconds(name, step, rounds)
    return result


def corpus(runs: int, items: int) -> list[Quad]:
    """Runs of some items each."""
    quads: list[Quad] = []
    for r in range(runs):
        run_id = f"run {r}"
        quads += run_quads(Run(run_id=run_id, agent="bench"))
        quads += [
            quad for n in range(items)
            for quad in item_quads(run_id, TraceItem(n, Thought(f"thought {n} of {r}")))
        ]  # fmt: skip
    return quads


def loading(runs: int, items: int, rounds: int) -> dict[str, Any]:
    """Seconds to load quads from text, and to write them."""
    traces = TraceStore(corpus(runs, items))
    text = traces.write(RdfFormat.N_QUADS)

    def load() -> None:
        again = TraceStore()
        again.oxigraph.bulk_load(text, format=RdfFormat.N_QUADS)
        if len(again) != len(traces):
            raise RuntimeError(f"{len(again)} quads of {len(traces)}")

    millions = len(traces) / 1e6
    result = {"quads": len(traces), "megabytes": round(len(text) / 1e6, 1)}
    result |= seconds("load", load, rounds)
    for kind in ("s", "cpu_s"):
        result[f"load_{kind}_per_million"] = round(result[f"load_{kind}"] / millions, 2)
    return result | seconds("write_sorted", lambda: traces.write(RdfFormat.N_QUADS), 1)


def beside_rdflib(runs: int, items: int, length: int, rounds: int) -> dict[str, Any]:
    """The same quads and questions, in turns; ratios are medians of the rounds' ratios."""
    text = TraceStore(corpus(runs, items)).write(RdfFormat.N_QUADS)
    line = chain(length).write(RdfFormat.N_QUADS)
    ours, theirs = chain(length), Dataset().parse(data=line, format="nquads")
    kinds = "SELECT ?k (count(?s) AS ?n) { GRAPH ?g { ?s <urn:sag:vocab:kind> ?k } } GROUP BY ?k"
    last = f"<urn:sag:run:chain:s:{length - 1}>"
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "load": (
            lambda: TraceStore().oxigraph.bulk_load(text, format=RdfFormat.N_QUADS),
            lambda: Dataset().parse(data=text, format="nquads"),
        ),
        "path": (lambda: by_path(ours, length), lambda: list(theirs.query(WALK % last))),
        "kinds": (lambda: ours.sparql(kinds), lambda: list(theirs.query(kinds))),
    }
    result: dict[str, Any] = {"quads": runs * items * 9, "chain": length}
    for name, (mine, other) in pairs.items():
        took = [(timed(mine), timed(other)) for _ in range(rounds)]
        result[name] = {
            "ours_ms": round(statistics.median(a for a, _ in took) * MILLI, 2),
            "rdflib_ms": round(statistics.median(b for _, b in took) * MILLI, 2),
            "times_faster": round(statistics.median(b / a for a, b in took), 1),
        }
    return result | {"rdflib_path_of_2000": _long_path()}


def _long_path() -> str:
    """What rdflib's own paths make of a line of 2,000."""
    theirs = Dataset().parse(data=chain(2_000).write(RdfFormat.N_QUADS), format="nquads")
    try:
        [row] = theirs.query(WALK % "<urn:sag:run:chain:s:1999>")
    except RecursionError:
        return "RecursionError"
    return f"{row.n} found"


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, 3 rounds")
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    result = {
        "recording": recording(500 if options.quick else 5_000),
        "walking": walking(10_000, rounds),
        "loading": loading(100 if options.quick else 1_000, 111, rounds),
        "beside_rdflib": beside_rdflib(20, 50, 500, rounds),
        "versions": {name: version(name) for name in ("pyoxigraph", "rdflib")},
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        },
    }
    path = RESULT.with_stem("provenance-quick") if options.quick else RESULT
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
