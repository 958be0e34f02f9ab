"""Grammars for small models, and drawing from scored choices."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sag_research.errors import UsageError
from sag_research.llm import grammar_of_choices, grammar_of_schema, sample


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "(string | null)"),
        ({"enum": ["a b", 1, None]}, r'("\"a b\"" | "1" | "null")'),
        ({"const": 'say "x"'}, r'"\"say \\\"x\\\"\""'),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "(integer | boolean)"),
        ({"type": "array", "items": {"type": "number"}}, '"[" (number ("," number){0,})? "]"'),
        (
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 3},
            '"[" number ("," number){1,2} "]"',
        ),
        ({"type": "array", "items": {"type": "null"}, "maxItems": 0}, '"[]"'),
        ({"type": "object"}, '"{" "}"'),
        (
            {
                "type": "object",
                "title": "said nothing of",
                "properties": {"a": {"type": "string"}, 'b"': {"type": "integer"}},
                "required": ["a"],
            },
            r'"{" "\"a\":" string ",\"b\\\"\":" integer "}"',
        ),
    ],
)
def test_schemas_become_rules(schema: dict[str, Any], rule: str) -> None:
    assert grammar_of_schema(schema).splitlines()[0] == f"root ::= {rule}"


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "string", "pattern": "a+"}, r"'pattern' at \$"),
        ({"type": "object", "properties": {"a": {"$ref": "#/x"}}}, r"'\$ref' at \$\.a"),
        ({"type": "array"}, r"type None at \$\[\]"),
        ({"type": "date"}, "type 'date'"),
        ({}, "type None"),
    ],
)
def test_what_cannot_be_held_is_refused(schema: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError, match=where):
        grammar_of_schema(schema)


def test_choices_become_literals() -> None:
    assert grammar_of_choices(['a"b', "c\n"]) == 'root ::= "a\\"b" | "c\\n"\n'
    with pytest.raises(UsageError, match="choose"):
        grammar_of_choices([])


def test_samples_follow_the_scores() -> None:
    scores = {"a": 0.7, "b": 0.3, "c": 0.0}
    rng = random.Random(1)
    drawn = [sample(scores, rng) for _ in range(4_000)]
    assert 0.66 < drawn.count("a") / 4_000 < 0.74
    assert "c" not in drawn
    flat = [sample(scores, rng, temperature=100.0) for _ in range(4_000)]
    assert 0.45 < flat.count("a") / 4_000 < 0.55
    assert {sample(scores, rng, temperature=0.0) for _ in range(50)} == {"a"}
    assert {sample(scores, rng, temperature=0.01) for _ in range(50)} == {"a"}
    with pytest.raises(UsageError, match="choose"):
        sample({}, rng)
