"""Score the shipped rules against labelled steps.

``python -m tests.extract.score`` prints precision and recall per kind, with numbers of mentions.
``--set real`` takes the hand-labelled steps of real agents (they need ``SAG_REAL_DATA``),
``--set produced`` the logs that real tools produced (see ``produced/GUIDELINES.md``).

Of the real steps, ``--part development`` and ``--part held-out`` take every second one: rules were
improved by looking at misses in the first part only, so the second says what to expect of new
data. The produced ones have an ``open`` part and a ``sealed`` one, for the same reason, and a
``fresh`` one that was written after the rules were finished.
``--misses`` lists what went wrong (development or open part, unless asked otherwise).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sag_research.extract import EntityExtractor, StepTexts
from tests.extract.gold.check import KINDS, load_gold
from tests.extract.produced.load import KINDS as PRODUCED_KINDS
from tests.extract.produced.load import LANGUAGES, load_produced

__all__ = ["PARTS", "Score", "compare", "predict", "score"]

PARTS = {"all": slice(None), "development": slice(0, None, 2), "held-out": slice(1, None, 2)}

Labelled = dict[str, Any]
Span = tuple[str, int, int, str, str]


class Score(NamedTuple):
    """Counts of one kind: labelled, predicted, and right by span and kind, or by name."""

    gold: int = 0
    predicted: int = 0
    hits: int = 0
    gold_names: int = 0
    predicted_names: int = 0
    name_hits: int = 0

    @property
    def precision(self) -> float:
        """Share of predictions that are labelled with this span and kind; nan without any."""
        return _ratio(self.hits, self.predicted)

    @property
    def recall(self) -> float:
        """Share of labels found with this span and kind; nan without any."""
        return _ratio(self.hits, self.gold)

    @property
    def name_precision(self) -> float:
        """Precision of the sets of names of each step."""
        return _ratio(self.name_hits, self.predicted_names)

    @property
    def name_recall(self) -> float:
        """Recall of the sets of names of each step."""
        return _ratio(self.name_hits, self.gold_names)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def predict(gold: list[Labelled], extractor: EntityExtractor | None = None) -> list[list[Span]]:
    """Extract from the labelled steps: one list of (field, start, end, kind, name) a step."""
    steps = StepTexts(
        [entry["texts"]["action"] for entry in gold],
        [entry["texts"]["observation"] for entry in gold],
        [""] * len(gold),
        [None] * len(gold),
    )
    found: list[list[Span]] = [[] for _ in gold]
    for row in (extractor or EntityExtractor()).extract_steps(steps).mentions.to_pylist():
        found[row["row"]].append((row["field"], row["start"], row["end"], row["kind"], row["name"]))
    return found


def compare(entry: Labelled, predicted: Iterable[Span]) -> tuple[set[Span], set[Span], set[Span]]:
    """Return labels, counted predictions and hits (labels whose span and kind were predicted).

    Predictions outside the labelled text do not count, nor do those that touch an optional span
    and are no label.
    """
    gold = set(entry["mentions"])
    places = {mention[:4]: mention for mention in gold}
    optional = [mention[:3] for mention in entry["optional"]]
    counted, hits = set(), set()
    for span in predicted:
        field, start, end = span[:3]
        if end > entry["fields"][field].get("upto", end):
            continue
        if span[:4] in places:
            hits.add(places[span[:4]])
        elif any(field == f and start < e and s < end for f, s, e in optional):
            continue
        counted.add(span)
    return gold, counted, hits


def score(gold: list[Labelled], predicted: list[list[Span]]) -> dict[str, Score]:
    """Score every kind, and ``all`` of them together."""
    counts: Counter[tuple[str, int]] = Counter()
    for entry, spans in zip(gold, predicted, strict=True):
        labels, counted, hits = compare(entry, spans)
        label_names, found_names = ({m[3:] for m in ms} for ms in (labels, counted))
        extra = {m[3:] for m in entry["optional"]} - label_names
        columns = [
            [m[3] for m in labels], [m[3] for m in counted], [m[3] for m in hits],
            [kind for kind, _ in label_names],
            [kind for kind, name in found_names if (kind, name) not in extra],
            [kind for kind, _ in label_names & found_names],
        ]  # fmt: skip
        for column, kinds in enumerate(columns):
            counts.update((kind, column) for kind in kinds)
    table = {kind: Score(*(counts[kind, i] for i in range(6))) for kind in KINDS}
    table["all"] = Score(*(sum(values) for values in zip(*table.values(), strict=True)))
    return table


def _print_table(table: dict[str, Score]) -> None:
    print(f"{'':<14}{'mentions: span and kind':^34}{'names in a step':^34}")
    columns = ("precision", "recall", "labelled", "found")
    print(f"{'kind':<14}" + "".join(f"{name:>10}" for name in columns * 2))
    for kind, s in table.items():
        left = f"{s.precision:10.3f}{s.recall:10.3f}{s.gold:10}{s.predicted:10}"
        right = (
            f"{s.name_precision:10.3f}{s.name_recall:10.3f}{s.gold_names:10}{s.predicted_names:10}"
        )
        print(f"{kind:<14}{left}{right}")


def intervals(
    gold: list[Labelled], predicted: list[list[Span]], resamples: int = 1_000, seed: int = 7
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Give 95 % intervals of overall precision and recall, by resampling whole steps.

    Mentions of one step stand or fall together, so steps are drawn, not mentions; and of produced
    steps cases, since the variants of one do so too.
    """
    counts = np.array(
        [
            [len(part) for part in compare(entry, spans)]
            for entry, spans in zip(gold, predicted, strict=True)
        ]
    )
    groups: dict[str, list[int]] = {}
    for i, entry in enumerate(gold):
        groups.setdefault(entry.get("id", "").rpartition("/")[0] or str(i), []).append(i)
    counts = np.array([counts[members].sum(axis=0) for members in groups.values()])
    rng = np.random.default_rng(seed)
    sums = np.array(
        [counts[rng.integers(0, len(counts), len(counts))].sum(axis=0) for _ in range(resamples)]
    )
    low_high = [
        np.quantile(sums[sums[:, of] > 0][:, 2] / sums[sums[:, of] > 0][:, of], (0.025, 0.975))
        if sums[:, of].any()
        else (np.nan, np.nan)
        for of in (1, 0)
    ]
    (p_low, p_high), (r_low, r_high) = low_high
    return (float(p_low), float(p_high)), (float(r_low), float(r_high))


def _print_misses(gold: list[Labelled], predicted: list[list[Span]]) -> None:
    for entry, spans in zip(gold, predicted, strict=True):
        labels, counted, hits = compare(entry, spans)
        right = {mention[:4] for mention in hits}
        wrong = [("missed", m) for m in labels - hits]
        wrong += [("false", m) for m in counted if m[:4] not in right]
        for word, mention in sorted(wrong, key=lambda pair: pair[1]):
            text = entry["texts"][mention[0]]
            around = text[max(0, mention[1] - 40) : mention[2] + 25]
            print(f"{word:<7}{mention[3]:<14}{mention[4]!r} in {around!r} ({mention[0]})")


def load(name: str, part: str) -> list[Labelled]:
    """Return one part of one set of labelled steps; ``produced`` has ``open`` and ``sealed``."""
    if name == "produced":
        parts = ("open", "sealed") if part == "all" else (part,)
        return [entry for one in parts for entry in load_produced(one)]
    return load_gold(Path(os.environ["SAG_REAL_DATA"]))[PARTS[part]]


def predict_labelled(gold: list[Labelled], extractor: EntityExtractor) -> list[list[Span]]:
    """Predict, and leave out kinds for which a produced step has no labels."""
    spans = predict(gold, extractor)
    if gold and "id" in gold[0]:
        spans = [[span for span in found if span[3] in PRODUCED_KINDS] for found in spans]
    return spans


def _print_languages(gold: list[Labelled], predicted: list[list[Span]]) -> None:
    """File, Error and Test together, for each language."""
    print(f"{'language':<14}{'precision':>10}{'recall':>10}{'labelled':>10}{'steps':>10}")
    for language in LANGUAGES:
        rows = [i for i, entry in enumerate(gold) if entry["id"].split("/")[0] == language]
        table = score([gold[i] for i in rows], [predicted[i] for i in rows])
        three = [table[kind] for kind in ("File", "Error", "Test")]
        s = Score(*(sum(column) for column in zip(*three, strict=True)))
        print(f"{language:<14}{s.precision:10.3f}{s.recall:10.3f}{s.gold:10}{len(rows):10}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Score the rules against labelled steps.")
    real = "real" if os.environ.get("SAG_REAL_DATA") else "produced"
    parser.add_argument("--set", choices=("real", "produced"), default=real)
    parser.add_argument("--part", choices=(*sorted(PARTS), "open", "sealed", "fresh"))
    parser.add_argument("--misses", action="store_true")
    arguments = parser.parse_args()
    first = "open" if arguments.set == "produced" else "development"
    arguments.part = arguments.part or (first if arguments.misses else "all")
    return arguments


def main() -> int:
    """Print the table for one part of the labels."""
    arguments = _arguments()
    if arguments.set == "real" and not os.environ.get("SAG_REAL_DATA"):
        print("set SAG_REAL_DATA to the folder of real trajectories", file=sys.stderr)
        return 2
    gold = load(arguments.set, arguments.part)
    extractor = EntityExtractor()
    predicted = predict_labelled(gold, extractor)
    print(f"{extractor.version}, {arguments.set}, {arguments.part}: {len(gold)} steps")
    _print_table(score(gold, predicted))
    (p_low, p_high), (r_low, r_high) = intervals(gold, predicted)
    print(f"95 % over steps: precision {p_low:.3f}-{p_high:.3f}, recall {r_low:.3f}-{r_high:.3f}")
    if arguments.set == "produced":
        _print_languages(gold, predicted)
    if arguments.misses:
        _print_misses(gold, predicted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
