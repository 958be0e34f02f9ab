"""Recall measured on real runs: what it finds, what it costs, and whether it foresees failure.

    SAG_REAL_DATA=... python benchmarks/memory_quality.py [--quick]

tau-bench airline (50 tasks x 4 runs), where ``SAG_REAL_DATA`` names a folder of real runs, and
the bundled bug-fix runs (32 tasks x 10 runs). A query is a run after 2, 4, 6 or 9 steps; relevant
are the other runs of its task. Settings were chosen on one half of the tasks; the table is of the
other half. Beside recall and its channels: BM25 (bm25s), sentence embeddings (MiniLM), SAG's rule
(two shared names) as a set and ranked, the full history, and chance. All methods answer a query
before the next one comes. Intervals resample tasks. Needs the extra ``embed``. Embeddings are
asked on the real runs only: they take minutes.

``--quick``: fewer queries, without embeddings. Results: ``benchmarks/results/memory_quality.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import sag_research as sag
from sag_research.bloom import RecallEvaluation

RESULTS = Path(__file__).resolve().parent / "results"
SEEN = (2, 4, 6, 9)
OTHERS = ("bm25", "embedding", "sag-rule", "sag-rule-ranked", "random")
BUGFIX = ("recall", "recall-entities", "recall-words", "recall-order", "bm25", "sag-rule",
          "sag-rule-ranked", "full-history", "random")  # fmt: skip
QUICK = ("recall", "bm25", "sag-rule", "sag-rule-ranked", "full-history", "random")
TARGET_NDCG, TARGET_TIMES = 0.70, 2.0


def evaluations(real: str | None, quick: bool) -> dict[str, RecallEvaluation]:
    """Ask all methods on each set of runs; queries are of the half that nothing was tuned on."""
    found = {}
    methods = QUICK if quick else None
    queries = 20 if quick else None
    with tempfile.TemporaryDirectory() as folder:
        if real is not None:
            with sag.open(Path(folder) / "tau") as ws:
                ws.ingest(Path(real) / "taubench", progress=False)
                found["tau-bench"] = sag.evaluate_recall(
                    ws, seen=SEEN, half="report", methods=methods, queries=queries
                )
        with sag.open(Path(folder) / "bugfix") as ws:
            bundled = sag.bundled("bugfix")
            ws.ingest(bundled, labels=bundled / "labels.csv", progress=False)
            found["bugfix"] = sag.evaluate_recall(
                ws, seen=SEEN[:3], half="report", methods=methods or BUGFIX, queries=queries or 60
            )
    return found


def figures(evaluation: RecallEvaluation) -> dict[str, Any]:
    """Every figure with its interval, and recall's advantage over each other method."""
    others = [name for name in OTHERS if name in evaluation.methods]
    return {
        "what": repr(evaluation),
        "missing": list(evaluation.missing),
        "table": records(evaluation.table_),
        "recall_minus_other": {
            metric: records(evaluation.differences(others, metric))
            for metric in ("ndcg", "precision")
        },
    }


def records(table: Any) -> list[dict[str, Any]]:
    """Rows as JSON has them: numbers rounded, what is unknown as null."""
    return [
        {
            name: None if value != value else round(value, 4) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in table.to_dict(orient="records")
    ]


def targets(evaluation: RecallEvaluation) -> dict[str, Any]:
    """What was promised before it was measured, and what became of it."""
    found: dict[str, Any] = {}
    at_6 = evaluation.value("recall", "ndcg", 6)
    found["ndcg at 6 >= .70"] = {"value": round(at_6.value, 3), "met": at_6.value >= TARGET_NDCG}
    for seen in (4, 6, 9):
        own = evaluation.value("recall", "precision", seen).value
        for rule in ("sag-rule", "sag-rule-ranked"):
            other = evaluation.value(rule, "precision", seen).value
            times = own / other if other else None
            found[f"precision at {seen} against {rule}"] = {
                "recall": round(own, 3), "rule": round(other, 3),
                "times": None if times is None else round(times, 2),
                "met": times is None or times >= TARGET_TIMES,
            }  # fmt: skip
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer queries, no embeddings")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    found = evaluations(os.environ.get("SAG_REAL_DATA"), options.quick)
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "sag_research": sag.__version__,
        "quick": options.quick,
        "sets": {name: figures(evaluation) for name, evaluation in found.items()},
    }
    if "tau-bench" in found:
        result["targets"] = targets(found["tau-bench"])
    for name, evaluation in found.items():
        print(f"\n{name}: {evaluation!r}")
        print(evaluation.summary_.round(3).to_string(index=False))
    print(json.dumps(result.get("targets", "no real runs: SAG_REAL_DATA is not set"), indent=1))
    name = "memory_quality-quick.json" if options.quick else "memory_quality.json"
    path = options.output or RESULTS / name
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
