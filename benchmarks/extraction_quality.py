"""Quality and cost of extraction: rules, a local model, and both, on logs that tools produced.

    python benchmarks/extraction_quality.py [--steps 36] [--clip 900] [--weights smollm2]

All ways get the same steps (a sample over languages and both halves of ``tests/extract/produced``)
and the same beginning of each observation. Precision and recall count mentions of files, errors
and tests by span and kind; intervals are of resampled cases, since the variants of a case go
together. The model's calls are recorded; what it costs is counted in questions, tokens and
seconds. Written to ``benchmarks/results/extraction_quality.json``. Without weights only the rules
are scored. On all steps the rules are scored by ``python -m tests.extract.score --set produced``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sag_research.extract import EntityExtractor, ModelExtractor
from sag_research.llm import Context, Local, installed_weights
from sag_research.log import SQLiteEventStore
from sag_research.model import Mention, Run
from tests.extract.produced.load import LANGUAGES, load_produced
from tests.extract.score import Labelled, Span, compare, intervals, score

RESULT = Path(__file__).resolve().parent / "results" / "extraction_quality.json"
KINDS = ("File", "Error", "Test")
FIELD = "observation"


class Way(NamedTuple):
    """Predictions of one way for each step, and what they took."""

    name: str
    spans: list[list[Span]]
    dropped: int = 0
    named: int = 0
    asked: int = 0
    malformed: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    seconds: float = 0.0


def sample(steps: int, clip: int) -> list[Labelled]:
    """Take steps over languages in turn, in an order that only their ids decide."""
    entries = [entry for part in ("open", "sealed") for entry in load_produced(part)]
    entries.sort(key=lambda entry: hashlib.sha256(entry["id"].encode()).hexdigest())
    by_language = [[e for e in entries if e["id"].split("/")[0] == name] for name in LANGUAGES]
    turns = max(map(len, by_language))
    mixed = [group[n] for n in range(turns) for group in by_language if n < len(group)]
    return [_clipped(entry, clip) for entry in mixed[:steps]]


def _clipped(entry: Labelled, clip: int) -> Labelled:
    """Keep the labels of the three kinds that end in the part which every way reads."""
    text = entry["texts"][FIELD]
    upto = min(len(text), clip)
    if upto < len(text):
        upto = text.rfind("\n", 0, upto) + 1 or upto

    def inside(mention: Span) -> bool:
        return mention[0] == FIELD and mention[2] <= upto

    return {
        **entry,
        "texts": {"action": entry["texts"]["action"], FIELD: text[:upto]},
        "fields": {"action": {"chars": 0, "upto": -1}, FIELD: {"chars": upto}},
        "mentions": [m for m in entry["mentions"] if inside(m) and m[3] in KINDS],
        "optional": [m for m in entry["optional"] if inside(m)],
    }


def spans_of(mentions: list[Mention]) -> list[Span]:
    """Mentions of the three kinds in the shape of the scorer."""
    return [
        (m.field, m.start, m.end, m.entity.kind, m.entity.name)
        for m in mentions
        if m.entity.kind in KINDS
    ]


def by_rules(entries: list[Labelled], extractor: EntityExtractor) -> Way:
    """Rules alone; the seconds are those of one call a step."""
    begin = time.perf_counter()
    spans = [spans_of(extractor.mentions(entry["texts"][FIELD])) for entry in entries]
    return Way("rules", spans, seconds=time.perf_counter() - begin)


def by_model(entries: list[Labelled], context: Context, way: Any) -> Way:
    """One way of asking a model."""
    reader = ModelExtractor(context, way, kinds=KINDS, clip=1_000_000)
    begin = time.perf_counter()
    found = [reader.extract(entry["texts"][FIELD]) for entry in entries]
    seconds = time.perf_counter() - begin
    kept = sum(len({m.entity for m in one.mentions}) for one in found)
    dropped = sum(len(one.dropped) for one in found)
    tokens = [
        _sum([getattr(one.usage, name) for one in found]) for name in ("tokens_in", "tokens_out")
    ]
    return Way(
        f"model, {way}",
        [spans_of(one.mentions) for one in found],
        dropped,
        kept + dropped,
        sum(one.asked for one in found),
        sum(one.malformed for one in found),
        *tokens,
        seconds,
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def together(rules: Way, model: Way) -> Way:
    """Rules first; of the model what touches nothing that they found."""
    spans = []
    for ours, theirs in zip(rules.spans, model.spans, strict=True):
        more = [s for s in theirs if not any(s[1] < o[2] and o[1] < s[2] for o in ours)]
        spans.append([*ours, *more])
    name = f"rules + {model.name}"
    return model._replace(name=name, spans=spans, seconds=model.seconds + rules.seconds)


def measured(entries: list[Labelled], way: Way) -> dict[str, Any]:
    """One row of the table."""
    table = score(entries, way.spans)
    compared = [compare(e, s) for e, s in zip(entries, way.spans, strict=True)]
    labelled, found, hits = (sum(map(len, column)) for column in zip(*compared, strict=True))
    precision, recall = intervals(entries, way.spans)
    n = len(entries)
    return {
        "way": way.name, "steps": n, "labelled": labelled, "found": found,
        "precision": hits / found if found else None, "precision_95": _known(precision),
        "recall": hits / labelled if labelled else None, "recall_95": _known(recall),
        "by_kind": {
            kind: {"labelled": table[kind].gold, "found": table[kind].predicted,
                   "right": table[kind].hits}
            for kind in KINDS
        },
        "named": way.named, "made_up": way.dropped, "malformed": way.malformed,
        "questions_a_step": way.asked / n,
        "tokens_in_a_step": None if way.tokens_in is None else way.tokens_in / n,
        "tokens_out_a_step": None if way.tokens_out is None else way.tokens_out / n,
        "seconds_a_step": way.seconds / n,
    }  # fmt: skip


def _known(interval: tuple[float, float]) -> tuple[float, float] | None:
    """An interval, or None where nothing was found."""
    return None if any(map(math.isnan, interval)) else interval


def ways(entries: list[Labelled], weights: str | None) -> list[Way]:
    """Carry out every way; without weights only the rules."""
    extractor = EntityExtractor()
    by_rules(entries[:1], extractor)  # compile the rules
    rules = by_rules(entries, extractor)
    if weights is None:
        print("no weights are installed: rules alone", file=sys.stderr)
        return [rules]
    found = [rules]
    with SQLiteEventStore(":memory:") as store, Local(weights, cache_prompt=True) as model:
        for way in ("names", "spans"):
            store.create_run(Run(run_id=way, kind="extraction"))
            context = Context(store, way, model=model, mode="record", actor="extractor")
            asked = by_model(entries, context, way)
            found += [asked, together(rules, asked)]
    return found


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print one row a way."""

    def share(row: dict[str, Any], name: str) -> str:
        interval = row[f"{name}_95"]
        if row[name] is None or interval is None:
            return "-"
        return f"{row[name]:.2f} ({interval[0]:.2f}-{interval[1]:.2f})"

    head = f"{'way':<22}{'steps':>6}{'precision':>19}{'recall':>19}{'made up':>12}"
    print(f"{head}{'asks':>7}{'tokens in/out':>15}{'s':>9}   a step")
    for row in rows:
        tokens = [row[f"tokens_{way}_a_step"] for way in ("in", "out")]
        spent = "/".join("?" if value is None else f"{value:.0f}" for value in tokens)
        made_up = f"{row['made_up']} of {row['named']}" if row["named"] else "-"
        print(
            f"{row['way']:<22}{row['steps']:>6}{share(row, 'precision'):>19}"
            f"{share(row, 'recall'):>19}{made_up:>12}{row['questions_a_step']:>7.1f}"
            f"{spent:>15}{row['seconds_a_step']:>9.4f}"
        )


def main() -> int:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description="Quality and cost of extraction.")
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--clip", type=int, default=900)
    parser.add_argument("--weights", default=next(iter(installed_weights()), None))
    arguments = parser.parse_args()
    entries = sample(arguments.steps, arguments.clip)
    rows = [measured(entries, way) for way in ways(entries, arguments.weights)]
    result = {
        "rules": EntityExtractor().version, "weights": arguments.weights,
        "clip": arguments.clip, "ids": [entry["id"] for entry in entries],
        "machine": {"python": platform.python_version(), "cores": os.cpu_count()},
        "ways": rows,
    }  # fmt: skip
    print_table(rows)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
