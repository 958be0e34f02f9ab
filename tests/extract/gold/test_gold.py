"""The hand labels fit the real files, and the checker notices when they do not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.extract.gold.check import KINDS, STEPS, check, load_gold

Entries = list[dict[str, Any]]


@pytest.fixture(scope="module")
def gold(real_data: Path) -> Entries:
    return load_gold(real_data)


def test_labels_hold_no_text() -> None:
    entries = [json.loads(line) for line in STEPS.read_text(encoding="utf-8").splitlines()]
    assert {key for entry in entries for key in entry} == {
        "file", "digest", "record", "step", "fields", "mentions", "optional",
    }  # fmt: skip
    mentions = [mention for entry in entries for mention in entry["mentions"] + entry["optional"]]
    assert {kind for _, _, _, kind, _ in mentions} == set(KINDS)
    # Only the id `test_x (pkg.Case)` holds a space, beside `Port 80` and `HTTP 500`.
    assert all(name.count(" ") <= 1 and "\n" not in name for _, _, _, _, name in mentions)


def test_labels_fit_the_real_files(gold: Entries) -> None:
    assert check(gold) == []
    assert len(gold) >= 45
    assert sum(len(entry["mentions"]) for entry in gold) >= 500


def _alter(field: str, **facts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["fields"][field].update(facts)


def _mention(*mention: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["mentions"].append(mention)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda entry: entry.update(digest="0" * 64), "other bytes"),
        (lambda entry: entry.update(texts=None), "without action"),
        (_alter("action", sha256="0" * 64), "another text"),
        (_alter("action", chars=1), "not 1"),
        (_alter("observation", upto=1), "outside the labelled text"),
        (_mention("observation", 0, 10**6, "File", "a.py"), "outside the labelled text"),
        (_mention("action", 7, 7, "File", "a.py"), "outside the labelled text"),
        (_mention("action", 0, 1, "File", "a.py"), "overlaps"),
        (_mention("action", 0, 1, "Colour", "red"), "unknown field or kind"),
    ],
)
def test_damage_is_found(
    gold: Entries, damage: Callable[[dict[str, Any]], None], problem: str
) -> None:
    entries = copy.deepcopy(gold)
    damage(entries[0])
    assert any(problem in line for line in check(entries))


def test_a_step_labelled_twice_is_found(gold: Entries) -> None:
    entries = [*gold, gold[0]]
    assert any("labelled twice" in line for line in check(entries))
