"""Peers of the drawing: pyvis as its manual shows it, ipysigma in a process of its own."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

Pairs = list[tuple[int, int]]

SIGMA = """
import json, sys, tempfile, time
from pathlib import Path
import networkx
from ipysigma import Sigma
given = json.load(sys.stdin)
begun = time.perf_counter()
graph = networkx.DiGraph()
graph.add_nodes_from((n, {"label": t}) for n, t in enumerate(given["texts"]))
graph.add_edges_from(given["pairs"])
with tempfile.TemporaryDirectory() as folder:
    Sigma.write_html(graph, str(Path(folder) / "graph.html"))
    print(json.dumps(time.perf_counter() - begun))
"""


def pyvis_page(texts: list[str], pairs: Pairs, limit: float) -> str | None:
    """Give the HTML of pyvis with its defaults, scripts inlined; None where it takes too long."""
    from pyvis.network import Network

    end = time.perf_counter() + limit
    network = Network(cdn_resources="in_line")
    for number, text in enumerate(texts):
        network.add_node(number, label=text[:40], title=text)
        if time.perf_counter() > end:
            return None
    for source, target in pairs:
        network.add_edge(source, target)
        if time.perf_counter() > end:
            return None
    return str(network.generate_html(notebook=False))


def sigma_seconds(python: Path, texts: list[str], pairs: Pairs, limit: float) -> float | None:
    """Time in which ipysigma writes its page, without imports; None where it takes too long."""
    given = json.dumps({"texts": texts, "pairs": pairs})
    try:
        done = subprocess.run([python, "-c", SIGMA], input=given, capture_output=True, text=True,
                              check=True, timeout=limit)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return float(json.loads(done.stdout))


def has_sigma(python: Path) -> bool:
    """Whether ipysigma can be imported there."""
    return subprocess.run([python, "-c", "import ipysigma"], capture_output=True).returncode == 0
