"""JSON schemas of tools: checked, derived from a function's types, and held against values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import UsageError

if TYPE_CHECKING:
    from jsonschema import ValidationError

__all__ = ["Signature", "annotated", "checked_schema", "problems", "signature_of"]

_SHOWN: Final = 5
_LONGEST: Final = 200
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_REST: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""Parameters that are not offered to a model."""


def checked_schema(schema: object, what: str) -> dict[str, Any]:
    """Return a schema that is one.

    Raises
    ------
    UsageError
        If it is no JSON schema, or refers to something outside itself.
    """
    from jsonschema import SchemaError  # takes a second to import, and few runs need it
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        raise UsageError(f"{what} is no JSON schema", why=f"it is a {type(schema).__name__}")
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"{what} is no JSON schema", why=clip(error.message, _LONGEST)) from None
    if outside := [one for one in _references(schema) if not one.startswith("#")]:
        raise UsageError(
            f"{what} refers to {clip(outside[0])}", why="nothing is fetched",
            fix="write the schema in one piece",
        )  # fmt: skip
    return schema


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in ("$ref", "$dynamicRef") and isinstance(item, str):
                yield item
            else:
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def problems(schema: Mapping[str, Any], value: Any) -> tuple[str, ...]:
    """Say where a value does not fit a schema; the first five places.

    Examples
    --------
    >>> problems({"type": "array", "items": {"type": "integer"}}, [1, "two"])
    ("$[1]: 'two' is not of type 'integer'",)
    """
    from jsonschema.validators import validator_for

    validator = validator_for(schema)(schema, registry=_offline())
    try:
        found = sorted(validator.iter_errors(value), key=_place)
    except RecursionError:
        return ("$: it is nested too deeply to be checked",)
    return tuple(f"{_place(e)}: {clip(repair(e.message), _LONGEST)}" for e in found[:_SHOWN])


@cache
def _offline() -> Any:
    """Return a registry that finds nothing; the validator's own would fetch over the network."""
    from referencing import Registry

    return Registry()


def _place(error: ValidationError) -> str:
    return repair(error.json_path)


class Signature(NamedTuple):
    """What a function takes and returns."""

    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    record: type[msgspec.Struct]

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the types that the function is annotated with."""
        made = msgspec.convert(dict(given), self.record)
        return {name: getattr(made, name) for name in given}


def signature_of(function: Callable[..., Any], name: str) -> Signature:
    """Derive schemas from a function's types.

    Raises
    ------
    UsageError
    """
    try:
        hints = get_type_hints(annotated(function), include_extras=True)
    except NameError as error:
        raise UsageError(
            f"the types of tool {name!r} cannot be read", why=str(error),
            fix="define the types outside of functions",
        ) from None  # fmt: skip
    parameters = inspect.signature(function).parameters.values()
    fields = [_field(name, one, hints) for one in parameters if one.kind not in _REST]
    record = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    schema = _schema(record, f"the parameters of tool {name!r}")
    components = schema.pop("$defs")
    own = components.pop("Arguments")
    own.pop("title", None)
    input_schema = own | ({"$defs": components} if components else {})
    return Signature(input_schema, _output(hints, name), record)


def annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what has the types and the docstring of something that can be called."""
    if isinstance(function, partial):
        return annotated(function.func)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    called: Callable[..., Any] = type(function).__call__
    return called


def _field(
    name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]
) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.kind not in _NAMED:
        raise UsageError(
            f"parameter {parameter.name!r} of tool {name!r} cannot be given by name",
            fix="write out the parameters, or make a Tool with a schema of your own",
        )
    if parameter.name not in hints:
        raise UsageError(
            f"parameter {parameter.name!r} of tool {name!r} has no type",
            fix=f"annotate it, e.g. {parameter.name}: str",
        )
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, hints[parameter.name]
    if isinstance(parameter.default, (list, dict, set)):
        kept = parameter.default
        return parameter.name, hints[parameter.name], msgspec.field(default_factory=kept.copy)
    return parameter.name, hints[parameter.name], parameter.default


def _output(hints: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    kind = hints.get("return", Any)
    return None if kind is Any else _schema(kind, f"what tool {name!r} returns")


def _schema(kind: Any, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{what} cannot be written as JSON", why=clip(str(error).splitlines()[-1], _LONGEST),
            fix="annotate it with plain types, dataclasses or msgspec structs",
        ) from None  # fmt: skip
