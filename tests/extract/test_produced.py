"""Precision and recall on logs of real tools, half of which was sealed before rules were made."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import pytest

from sag_research.extract import EntityExtractor
from tests.extract.produced.load import KINDS, check_seal, load_produced
from tests.extract.score import compare, predict_labelled, score

BAR = {"File": (0.95, 0.9), "Error": (0.95, 0.9), "Test": (0.95, 0.9)}


@pytest.fixture(scope="module")
def extractor() -> EntityExtractor:
    return EntityExtractor()


def test_the_sealed_files_are_as_they_were_sealed() -> None:
    assert check_seal() == []


def test_the_halves_are_drawn_by_case() -> None:
    ids = {part: [entry["id"] for entry in load_produced(part)] for part in ("open", "sealed")}
    assert sum(map(len, ids.values())) >= 300
    assert len({one.split("/")[0] for every in ids.values() for one in every}) >= 5
    for part, sealed in (("open", False), ("sealed", True)):
        for one in ids[part]:
            digest = hashlib.sha256(one.rpartition("/")[0].encode()).digest()
            assert (digest[0] % 2 == 1) is sealed


@pytest.mark.parametrize("part", ["open", "sealed"])
def test_scores(extractor: EntityExtractor, part: str) -> None:
    gold = load_produced(part)
    table = score(gold, predict_labelled(gold, extractor))
    for kind in KINDS:
        row = table[kind]
        print(f"{kind:<8}{row.precision:7.3f}{row.recall:7.3f} n={row.gold:<6}{row.predicted}")
    for kind, (precision, recall) in BAR.items():
        assert table[kind].gold >= 100
        assert table[kind].precision >= precision
        assert table[kind].recall >= recall


def test_labels_stand_where_they_say() -> None:
    for part in ("open", "sealed", "fresh"):
        for entry in load_produced(part):
            spans: dict[str, Any] = {}
            for field, start, end, kind, name in entry["mentions"]:
                text = entry["texts"][field]
                assert 0 <= start < end <= len(text)
                assert kind in KINDS
                assert name
                spans.setdefault(field, []).append((start, end))
            for places in spans.values():
                ordered = sorted(places)
                assert all(a[1] <= b[0] for a, b in pairwise(ordered))


def test_a_wrong_extractor_fails_the_bar() -> None:
    gold = load_produced("open")[:40]
    nothing = [list[Any]() for _ in gold]
    assert score(gold, nothing)["File"].recall == 0.0
    shifted = [[(f, s + 1, e, k, n) for f, s, e, k, n in entry["mentions"]] for entry in gold]
    assert score(gold, shifted)["File"].precision < BAR["File"][0]
    perfect = [list(entry["mentions"]) for entry in gold]
    labels, counted, hits = compare(gold[0], perfect[0])
    assert labels == counted == hits
