"""What pictures cost: first paint, a click, an overview of many runs, the HTML of a large graph.

    python benchmarks/viz.py [--quick] [--rounds 5] [--limit 20] [--ipysigma PYTHON]

Pages are opened in Chromium without a network and without a graphics card, ours and those of pyvis
(its defaults, of the same nodes, edges and texts) in turns; a paint counts from the beginning of
the navigation. pyvis has painted when its layout has come to rest; before, it shows a bar. What
takes longer than the limit is told as ``> limit`` and not tried again. ``--ipysigma`` names a
Python that has ipysigma, whose page needs a network: only its writing is timed. A click counts
until another step is described. The overview is of 100,000 runs of 20 steps in an Arrow table:
counted, drawn, written, and shown. Times are wall clock; the load is told beside.

Results: ``benchmarks/results/viz.json``. Needs the test tools (playwright, a Chromium, JupyterLab).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _viz_browser import (
    OURS,
    PICTURE,
    PYVIS,
    chromium,
    clicks_in_lab,
    clicks_in_page,
    seconds_until,
)
from _viz_peers import Pairs, has_sigma, pyvis_page, sigma_seconds

import sag_research as sag
from sag_research.viz import Edge, Node, Scene, overview, page, scene

RESULTS = Path(__file__).resolve().parent / "results"
TARGETS = {"paint_500": 0.7, "paint_2000": 1.2, "overview": 3.0, "click_page": 0.15,
           "click_lab": 0.15, "html": 0.5}  # fmt: skip
SIZES = (500, 2_000)
LARGE, DEGREE = 10_000, 2
RUNS, STEPS = 100_000, 20
CLICKS = 10
NAMED, RUN, MOST = 38, 35, 1_940
"""Entities in all, nodes a run, and marks that are drawn without collapsing steps."""


class Times:
    """Seconds by name; None stands for longer than the limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.taken: dict[str, list[float | None]] = {}

    def add(self, name: str, seconds: float | None) -> None:
        """Keep one."""
        self.taken.setdefault(name, []).append(seconds)

    def is_over(self, name: str) -> bool:
        """Whether it took too long before."""
        return None in self.taken.get(name, [])

    def summary(self) -> dict[str, Any]:
        """Median, extremes and number of each."""
        return {name: self._of(name, taken) for name, taken in self.taken.items()}

    def _of(self, name: str, taken: list[float | None]) -> dict[str, Any]:
        known = [one for one in taken if one is not None]
        if self.is_over(name):
            return {"median_s": f"> {self.limit:g}", "n": len(taken)}
        told: dict[str, Any] = {
            "median_s": round(statistics.median(known), 4), "least_s": round(min(known), 4),
            "most_s": round(max(known), 4), "n": len(known),
        }  # fmt: skip
        if name in TARGETS:
            told |= {"target_s": TARGETS[name], "met": told["median_s"] <= TARGETS[name]}
        return told

    def ratio(self, peer: str, ours: str) -> float | str | None:
        """Median over rounds of the peer's time by ours."""
        both = list(zip(self.taken.get(peer, []), self.taken.get(ours, []), strict=False))
        if not both:
            return None
        if self.is_over(peer):
            own = statistics.median(one for one in self.taken[ours] if one is not None)
            return f"> {self.limit / own:.0f}"
        return round(statistics.median(a / b for a, b in both if a is not None and b), 1)


def drawn_scene(nodes: int) -> Scene:
    """Bloom runs of 32 steps; as large as asked for, or a little less."""
    with sag.open(":memory:") as ws:
        looks = ("grep -n price shop/cart.py", "sed -i s/1/2/ shop/m{}.py", "pytest tests/t{}.py")
        for run in range((nodes - NAMED) // RUN):
            steps = [
                {"thought": f"step {n} of run {run}", "action": looks[n % 3].format(n % 9),
                 "observation": f"KeyError: 'k{n % 5}' in shop/m{(n + run) % 30}.py " * 8}
                for n in range(32)
            ]  # fmt: skip
            ws.add({"task_id": f"t{run}", "model": "m", "repo": "acme/shop", "steps": steps})
        return scene(ws.bloom().nx, events=MOST)


def large_scene(n: int) -> Scene:
    """Steps on lanes of a hundred, each linked to the next and to another one."""
    nodes = [
        Node(id=f"event:r{i // 100}:{i % 100}", kind="Step", x=40.0 * (i % 100), y=i // 100 * 90.0,
             mark="look", tone="ok", detail={"run": f"r{i // 100}", "action": f"cat file{i}.py"})
        for i in range(n)
    ]  # fmt: skip
    edges = [
        Edge(source=nodes[a].id, target=nodes[b].id, kind="NEXT")
        for i in range(n)
        for a, b in ((i, (i + 1) % n), (i, (7 * i + 3) % n))
    ]
    return Scene(nodes=nodes, edges=edges, layout="timeline", title="large")


def plain(drawn: Scene) -> tuple[list[str], Pairs]:
    """The same nodes, texts and edges, numbered."""
    numbers = {node.id: number for number, node in enumerate(drawn.nodes)}
    texts = [
        node.label or " ".join(f"{name}: {text}" for name, text in node.detail.items())[:500]
        for node in drawn.nodes
    ]
    return texts, [(numbers[edge.source], numbers[edge.target]) for edge in drawn.edges]


def many_runs(runs: int, steps: int) -> Any:
    """A table of steps, as the overview takes one."""
    rng = np.random.default_rng(5)
    n = runs * steps
    ids = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.arange(runs, dtype=np.int32), steps)),
        pa.array([f"run-{i}" for i in range(runs)]),
    )
    ends = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(rng.integers(0, 3, runs, dtype=np.int32), steps)),
        pa.array(["failure", "success", "unknown"]),
    )
    return pa.table(
        {"run_id": ids.cast(pa.string()), "step": np.tile(np.arange(steps), runs),
         "outcome": ends.cast(pa.string()), "class": rng.integers(0, 6, n)}
    )  # fmt: skip


def time_paints(times: Times, browser: Any, pages: dict[int, tuple[Path, Path]]) -> None:
    """Open each page once, ours and that of pyvis in turns."""
    for size, (ours, peer) in pages.items():
        times.add(f"paint_{size}", seconds_until(browser, ours, OURS, times.limit))
        if not times.is_over(f"paint_{size}_pyvis"):
            took = seconds_until(browser, peer, PYVIS, times.limit)
            times.add(f"paint_{size}_pyvis", took)


def time_html(times: Times, drawn: Scene, sigma: Path | None) -> None:
    """Build the HTML of a large graph, ours and theirs in turns."""
    texts, pairs = plain(drawn)
    begun = time.perf_counter()
    page(drawn)
    times.add("html", time.perf_counter() - begun)
    if not times.is_over("html_pyvis"):
        begun = time.perf_counter()
        made = pyvis_page(texts, pairs, times.limit)
        times.add("html_pyvis", None if made is None else time.perf_counter() - begun)
    if sigma is not None and not times.is_over("html_ipysigma"):
        times.add("html_ipysigma", sigma_seconds(sigma, texts, pairs, times.limit))


def time_overview(times: Times, browser: Any, table: Any, path: Path) -> None:
    """Count, draw, write and show."""
    begun = time.perf_counter()
    overview(table).to_html(path)
    built = time.perf_counter() - begun
    times.add("overview_built", built)
    shown = seconds_until(browser, path, PICTURE, times.limit)
    times.add("overview", None if shown is None else built + shown)


def write_pages(folder: Path, drawn: Iterable[Scene], limit: float) -> dict[int, tuple[Path, Path]]:
    """Write both pages of each scene."""
    pages = {}
    for size, one in zip(SIZES, drawn, strict=True):
        ours, peer = one.to_html(folder / f"{size}.html"), folder / f"{size}-pyvis.html"
        made = pyvis_page(*plain(one), 20 * limit)
        assert made is not None, "pyvis took too long to write its page"
        peer.write_text(made, encoding="utf-8")
        pages[size] = (ours, peer)
    return pages


def measure(rounds: int, part: int, limit: float, sigma: Path | None) -> dict[str, Any]:
    """All figures, round by round."""
    times, began = Times(limit), os.getloadavg()[0]
    drawn = [drawn_scene(size) for size in SIZES]
    large, table = large_scene(LARGE // part), many_runs(RUNS // part, STEPS)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        pages = write_pages(folder, drawn, limit)
        for _ in range(rounds):
            time_paints(times, browser, pages)
            time_html(times, large, sigma)
            time_overview(times, browser, table, folder / "overview.html")
            for took in clicks_in_page(browser, pages[SIZES[1]][0], CLICKS):
                times.add("click_page", took)
        for took in clicks_in_lab(browser, CLICKS):
            times.add("click_lab", took)
        version = browser.version
    ratios = {
        f"{peer}_over_{ours}": times.ratio(f"{ours}_{peer}", ours)
        for ours in (*(f"paint_{size}" for size in SIZES), "html")
        for peer in ("pyvis", "ipysigma")
    }
    return {
        "chromium": version, "rounds": rounds, "limit_s": limit,
        "scenes": {str(s): repr(one) for s, one in zip(SIZES, drawn, strict=True)},
        "html_of": repr(large), "overview_of": {"runs": RUNS // part, "steps": table.num_rows},
        "times": times.summary(),
        "ratios": {name: value for name, value in ratios.items() if value is not None},
        "ipysigma": "writing timed" if sigma else "not installed",
        "load": {"before": round(began, 2), "after": round(os.getloadavg()[0], 2)},
    }  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, tables a tenth as large")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for a peer")
    parser.add_argument("--ipysigma", type=Path, default=Path(sys.executable), metavar="PYTHON")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    sigma = options.ipysigma if has_sigma(options.ipysigma) else None
    rounds, part = (1, 10) if options.quick else (options.rounds, 1)
    result = {"python": platform.python_version(), "quick": options.quick} | measure(
        rounds, part, options.limit, sigma
    )
    print(json.dumps(result, indent=1))
    path = options.output or RESULTS / ("viz-quick.json" if options.quick else "viz.json")
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
