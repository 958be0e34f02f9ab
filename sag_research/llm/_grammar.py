"""Holding a small model to a form: grammars (GBNF) and choices."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError

__all__ = ["grammar_of_choices", "grammar_of_schema", "sample"]

_BASE: Final = r"""
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
number ::= integer ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,3})?
boolean ::= "true" | "false"
null ::= "null"
"""


def grammar_of_choices(options: Sequence[str]) -> str:
    r"""Return a grammar that allows exactly the given texts.

    Examples
    --------
    >>> grammar_of_choices(["yes", "no"])
    'root ::= "yes" | "no"\n'
    """
    if not options:
        raise UsageError("nothing to choose from", fix="give at least one option")
    return "root ::= " + " | ".join(_literal(option) for option in options) + "\n"


def grammar_of_schema(schema: Mapping[str, Any]) -> str:
    r"""Return a grammar for JSON of a schema, without any white space between its parts.

    White space is what small models lose themselves in. Understood are ``type`` (object, array,
    string, integer, number, boolean, null, or a list of these), ``properties`` (all of them, in
    their order), ``items``, ``minItems``, ``maxItems``, ``enum``, ``const`` and ``anyOf``.

    Raises
    ------
    UsageError
        For anything else: a form that is not kept would be worse than none.

    Examples
    --------
    >>> schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    >>> print(grammar_of_schema(schema).splitlines()[0])
    root ::= "{" "\"ok\":" boolean "}"
    """
    return f"root ::= {_rule(schema, '$')}{_BASE}"


_SCALARS: Final = frozenset({"string", "integer", "number", "boolean", "null"})
_SILENT: Final = frozenset(
    {"title", "description", "default", "examples", "required", "additionalProperties", "$schema"}
)
_KNOWN: Final = frozenset(
    {"type", "properties", "items", "minItems", "maxItems", "enum", "const", "anyOf"}
)


def _rule(schema: Mapping[str, Any], path: str) -> str:
    if unknown := sorted(set(schema) - _KNOWN - _SILENT):
        raise UsageError(
            f"no grammar for {unknown[0]!r} at {path}", fix="simplify the schema or give a grammar"
        )
    if "const" in schema:
        return _json_literal(schema["const"])
    if "enum" in schema:
        return "(" + " | ".join(_json_literal(value) for value in schema["enum"]) + ")"
    if "anyOf" in schema:
        return _either(_rule(one, f"{path}.anyOf[{n}]") for n, one in enumerate(schema["anyOf"]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return _either(_rule({**schema, "type": one}, path) for one in kind)
    if kind in _SCALARS:
        return str(kind)
    if kind == "array":
        return _array(schema, path)
    if kind == "object":
        return _object(schema.get("properties") or {}, path)
    raise UsageError(f"no grammar for type {kind!r} at {path}", fix="give type, enum or anyOf")


def _either(rules: Any) -> str:
    return "(" + " | ".join(rules) + ")"


def _object(properties: Mapping[str, Any], path: str) -> str:
    parts = []
    for number, (name, schema) in enumerate(properties.items()):
        key = _literal(("," if number else "") + msgspec.json.encode(name).decode() + ":")
        parts.append(f"{key} {_rule(schema, f'{path}.{name}')}")
    return " ".join(['"{"', *parts, '"}"'])


def _array(schema: Mapping[str, Any], path: str) -> str:
    item = _rule(schema.get("items") or {}, f"{path}[]")
    least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
    if most is not None and int(most) == 0:
        return '"[]"'
    rest = f"{{{max(least - 1, 0)},{'' if most is None else int(most) - 1}}}"
    filled = f'{item} ("," {item}){rest}'
    return f'"[" {filled} "]"' if least else f'"[" ({filled})? "]"'


def _json_literal(value: Any) -> str:
    return _literal(msgspec.json.encode(value).decode())


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


def sample(scores: Mapping[str, float], rng: random.Random, temperature: float = 1.0) -> str:
    """Draw one of several options.

    Parameters
    ----------
    scores : mapping
        Probability of each option, as in :attr:`Reply.scores`.
    rng : random.Random
        E.g. from :meth:`Context.rng`, so that a replay draws the same.
    temperature : float
        0 takes the most probable (of equals, the first in the alphabet); 1
        draws as the model would.

    Examples
    --------
    >>> sample({"yes": 0.9, "no": 0.1}, random.Random(1), temperature=0)
    'yes'
    """
    if not scores:
        raise UsageError("nothing to choose from", fix="ask with Request.choices first")
    if temperature <= 0:
        return max(sorted(scores), key=lambda option: scores[option])
    options = sorted(scores)  # a draw must not depend on the order they were given in
    best = max(scores.values()) or 1.0
    weights = [(scores[option] / best) ** (1 / temperature) for option in options]
    return rng.choices(options, weights)[0]
