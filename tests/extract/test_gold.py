"""Precision and recall on the hand-labelled steps do not fall below what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extract.gold.check import load_gold
from tests.extract.score import PARTS, compare, predict, score


# A little below the figures of the shipped rules: see RESEARCH.md for those.
@pytest.mark.parametrize(
    ("part", "precision", "recall", "name_recall"),
    [("all", 0.95, 0.93, 0.94), ("held-out", 0.92, 0.87, 0.90)],
)
def test_scores(
    real_data: Path, part: str, precision: float, recall: float, name_recall: float
) -> None:
    gold = load_gold(real_data)[PARTS[part]]
    table = score(gold, predict(gold))
    for kind, row in table.items():
        print(f"{kind:<14}{row.precision:7.3f}{row.recall:7.3f} n={row.gold:<5}{row.predicted}")
    assert table["all"].gold >= 200
    assert table["all"].precision >= precision
    assert table["all"].recall >= recall
    assert table["all"].name_recall >= name_recall


def test_the_score_counts_as_it_says() -> None:
    entry = {
        "fields": {"action": {"chars": 50, "upto": 40}, "observation": {"chars": 5}},
        "mentions": [("action", 0, 4, "File", "a.py"), ("action", 5, 9, "File", "b.py")],
        "optional": [("action", 10, 14, "Commit", "c")],
    }
    predicted = [
        ("action", 0, 4, "File", "wrong name"),  # hit: span and kind
        ("action", 5, 9, "Error", "b.py"),  # false: other kind
        ("action", 9, 12, "File", "c.py"),  # dropped: touches an optional span
        ("action", 39, 43, "File", "d.py"),  # dropped: ends behind the labelled text
    ]
    labels, counted, hits = compare(entry, predicted)
    assert (len(labels), len(counted), hits) == (2, 2, {("action", 0, 4, "File", "a.py")})
    table = score([entry], [predicted])
    assert table["File"][:3] == (2, 1, 1)
    assert table["Error"][:3] == (0, 1, 0)
    assert table["all"].precision == 0.5
    assert table["all"].recall == 0.5
    assert table["all"].name_hits == 0
