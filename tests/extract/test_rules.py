"""The rules are sound data: each works, says what it needs, and both engines can read it."""

from __future__ import annotations

import msgspec
import pytest

from sag_research.errors import SagError
from sag_research.extract import EntityExtractor, StepTexts
from sag_research.extract._names import Namer
from sag_research.extract._rules import Compiled, Rulebook, load_rulebook
from sag_research.model import ENTITY_KINDS, FIELDS

BOOK = load_rulebook()
NAMES = [compiled.rule.name for compiled in BOOK.rules]


def altered(**changes: object) -> Rulebook:
    rule = msgspec.structs.replace(BOOK.file.rule[0], **changes)
    return Rulebook(msgspec.structs.replace(BOOK.file, rule=(rule,)), BOOK.aliases, "0" * 64)


def test_names_are_unique_and_kinds_complete() -> None:
    assert len(set(NAMES)) == len(NAMES)
    kinds = {compiled.rule.kind for compiled in BOOK.rules}
    assert kinds - {""} == set(ENTITY_KINDS)
    assert {field for c in BOOK.rules for field in c.rule.fields} == set(FIELDS)
    assert {c.rule.normalise for c in BOOK.rules} == Namer(BOOK).normalisers


@pytest.mark.parametrize("compiled", BOOK.rules, ids=NAMES)
def test_each_rule_finds_its_example(compiled: Compiled) -> None:
    rule = compiled.rule
    assert compiled.python.search(rule.example)
    assert compiled.python.search("") is None, "a rule must not match nothing"
    if rule.kind:
        field = rule.fields[-1]
        action = (rule.when_action or "ls").split("|")[0]
        texts = {"action": action, "observation": "", field: rule.example}
        steps = StepTexts([texts["action"]], [texts["observation"]], [""], [None])
        rows = EntityExtractor().extract_steps(steps).mentions.to_pylist()
        assert rule.kind in {row["kind"] for row in rows if row["field"] == field}


@pytest.mark.parametrize(
    "pattern", [r"a(?=b)", r"(?<!a)b", r"(a)\1", r"a++", r"(?P=name)", r"(?>a)", r"\Aa"]
)
def test_what_one_engine_lacks_is_refused(pattern: str) -> None:
    with pytest.raises(SagError, match="both regex engines"):
        _ = altered(pattern=pattern).rules


def test_mistakes_in_rules_are_refused() -> None:
    with pytest.raises(SagError, match="capturing group"):
        _ = altered(pattern=r"(a)(?P<name>b)").rules
    with pytest.raises(SagError, match="unknown set 'nope'"):
        _ = altered(pattern=r"%{nope}").rules
