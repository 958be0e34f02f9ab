"""DAG documents as JSON text, which is JSON-LD too.

Routes and entries are nodes there, so nothing of them is lost in RDF: a plain map from ports
to targets would be, because ports are no terms of any vocabulary.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args

import msgspec

from sag_research._text import clip, open_text
from sag_research.runtime._dag_document import (
    Document,
    DocumentError,
    Fault,
    Placement,
    Terminal,
    kind_of,
    routes_of,
)
from sag_research.runtime._dag_validate import value_fault

__all__ = [
    "KINDS", "SAID", "Reading", "bundled_document", "context", "document_json", "document_text",
    "load_document",
]  # fmt: skip

KINDS: Final[Mapping[str, type]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(Placement)
}
SAID: Final = ("node", "dag", "outcome", "when")
"""What stands beside a placement's name; all else is in its settings."""
_WIDTH: Final = 96
_KEYS: Final = ("@context", "@id", "@type", "name", "version", "entrypoints", "nodes")


@cache
def context() -> dict[str, Any]:
    """Return what the words of a document mean in RDF."""
    text = files(__package__).joinpath("documents", "context.jsonld").read_text(encoding="utf-8")
    meant: dict[str, Any] = json.loads(text)["@context"]
    return meant


def bundled_document(name: str) -> Document:
    """Return a document that comes with the package.

    Parameters
    ----------
    name : str
        ``react-agent``, an agent that calls tools, or ``react-agent-memory-trace``, which
        records what such an agent does.

    Raises
    ------
    DocumentError
        If there is no such document.

    Examples
    --------
    >>> bundled_document("react-agent")
    Document('react-agent' 1, 12 placements, 32 routes)
    """
    bundled = {path.name: path for path in files(__package__).joinpath("documents").iterdir()}
    path = bundled.get(f"{name}.json")
    if path is None:
        known = ", ".join(sorted(n.removesuffix(".json") for n in bundled if n.endswith(".json")))
        raise DocumentError(f"no document {clip(name)!r} comes with the package, there is {known}")
    return load_document(path.read_text(encoding="utf-8"))


# ---- writing


def document_json(document: Document) -> dict[str, Any]:
    """Return a document as JSON-LD, with the context it needs inside.

    Notes
    -----
    Settings that are as they would be anyway are left out.
    """
    return {
        "@context": deepcopy(context()),
        "@id": document.id,
        "@type": "DAG",
        "name": document.name,
        "version": document.version,
        "entrypoints": [
            {"label": label, "target": target} for label, target in document.entrypoints.items()
        ],
        "nodes": [_placement_json(placement) for placement in document.placements],
    }


def _placement_json(placement: Placement) -> dict[str, Any]:
    plain = msgspec.to_builtins(placement)
    written = {"@id": placement.id, "@type": kind_of(placement), "name": placement.name}
    written |= {key: plain[key] for key in SAID if key in plain}
    routes = [{"port": port, "target": target} for port, target in routes_of(placement).items()]
    settings = {
        field.encode_name: _settled(plain[field.encode_name])
        for field in msgspec.structs.fields(type(placement))
        if field.encode_name not in {*written, "outputs"}
        and plain[field.encode_name] != _default(field)
    }
    return written | ({"routes": routes} if routes else {}) | (
        {"settings": settings} if settings else {}
    )  # fmt: skip


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """Return a field's default as JSON has it."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.required else msgspec.to_builtins(field.default)


def _settled(value: Any) -> Any:
    """Return a setting as it is written: a whole number has no point, a list is a list."""
    if isinstance(value, Mapping):
        return {key: _settled(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_settled(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def document_text(document: Document) -> str:
    """Write a document as JSON text; reading that and writing it again gives the same text.

    Raises
    ------
    DocumentError
        If something of it cannot be written, such as half a character.

    Examples
    --------
    >>> document = bundled_document("react-agent-memory-trace")
    >>> load_document(document_text(document)) == document
    True
    """
    try:
        text = _laid_out(document_json(document))
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        what = f"document {clip(document.name)!r} cannot be written as JSON: {clip(error, 200)}"
        raise DocumentError(what) from error
    return text + "\n"


def _laid_out(value: Any, indent: int = 0) -> str:
    """Write JSON so that people can read it: what fits on a line stands on one."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + indent <= _WIDTH or not isinstance(value, (dict, list)) or not value:
        return line
    inner, margin = indent + 2, " " * indent
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {_laid_out(part, inner)}"
            for key, part in value.items()
        ]
    else:
        parts = [_laid_out(part, inner) for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    rows = ",\n".join(f"{margin}  {part}" for part in parts)
    return f"{opening}\n{rows}\n{margin}{closing}"


# ---- reading


Source: TypeAlias = str | bytes | Path | Mapping[str, Any]


def load_document(source: Source) -> Document:
    """Read a document.

    Parameters
    ----------
    source : str, bytes, pathlib.Path or mapping
        JSON text, a file of it, or what it says. Besides the form that is written here, plain
        maps are taken: ``outputs`` from port to target, ``entrypoints`` from label to target,
        and settings beside the name.

    Raises
    ------
    DocumentError
        If this is no document. Its ``faults`` are all there are of this kind; what else is
        wrong is for :func:`validate_document` to say.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> load_document(
    ...     {
    ...         "@id": "urn:sag:dag:stop",
    ...         "@type": "DAG",
    ...         "name": "stop",
    ...         "version": "1",
    ...         "entrypoints": {"main": "urn:sag:dag:stop:end"},
    ...         "nodes": [
    ...             {
    ...                 "@id": "urn:sag:dag:stop:end",
    ...                 "@type": "TerminalNode",
    ...                 "name": "end",
    ...                 "outcome": "completed",
    ...             }
    ...         ],
    ...     }
    ... )
    Document('stop' 1, 1 placement, 0 routes)
    """
    reading = Reading()
    raw = source if isinstance(source, Mapping) else reading.json(_text(source))
    return reading.document(raw)


def _text(source: object) -> str:
    if isinstance(source, Path):
        with open_text(source) as file:
            return file.read()
    if isinstance(source, bytes):
        return source.decode("utf-8", "surrogateescape")
    if not isinstance(source, str):
        raise DocumentError(f"a document cannot be read from {clip(repr(source))}")
    return source


class Reading:
    """One document being read, and what was found wrong with it."""

    def __init__(self) -> None:
        self.id, self.placement = "", ""
        self.faults: list[Fault] = []

    def fault(self, code: str, what: str, fix: str = "", port: str = "") -> None:
        self.faults.append(Fault(self.id, self.placement, port, code, what, fix))

    def json(self, text: str) -> Any:
        """Return what a JSON text says; a key that stands twice in an object is a fault."""
        try:
            text.encode("utf-8")
            return json.loads(
                text.removeprefix("\ufeff"), object_pairs_hook=self._object, parse_constant=_refuse
            )
        except UnicodeEncodeError as error:
            raise DocumentError("a document must be UTF-8 text") from error
        except (ValueError, RecursionError) as error:
            hint = "" if text.lstrip()[:1] in "{[" else "; give a pathlib.Path to read a file"
            raise DocumentError(f"no JSON document: {clip(error, 120)}{hint}") from error

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        read = dict(pairs)
        if len(read) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            shown = ", ".join(clip(key, 40) for key, count in counts.items() if count > 1)
            self.fault("duplicate-key", f"an object has the key {shown} twice", "keep one")
        return read

    def document(self, raw: Any) -> Document:
        """Return the document that plain data is."""
        if not isinstance(raw, Mapping) or raw.get("@type") != "DAG":
            raise DocumentError('this is no DAG document: its "@type" is not "DAG"')
        self.id = str(raw.get("@id", ""))
        values: dict[str, Any] = {
            name: self.value(raw, key, str)
            for name, key in (("id", "@id"), ("name", "name"), ("version", "version"))
        }
        for key in raw.keys() - {*_KEYS}:
            self.fault("unknown-key", f"there is no {clip(key)!r} in a document")
        values["entrypoints"] = self.map(raw, "entrypoints", "label")
        nodes = self.value(raw, "nodes", list[Any]) or []
        names = {n.get("name"): n.get("@id") for n in nodes if _has_texts(n)}
        placements = [self._one(node, names) for node in nodes]
        self.placement = ""
        if self.faults:
            count = len(self.faults)
            what = f"document {clip(self.id, 120)!r} cannot be read, there are {count} faults"
            raise DocumentError(what, tuple(self.faults))
        return Document(placements=tuple(p for p in placements if p is not None), **values)

    def _one(self, raw: Any, names: Mapping[Any, Any]) -> Placement | None:
        """Return a placement; of one that cannot be read all fields with a fault are told."""
        self.placement = ""
        if not isinstance(raw, Mapping):
            self.fault("bad-value", f"{clip(repr(raw))} is no placement")
            return None
        self.placement = str(raw.get("@id", ""))
        kind = KINDS.get(raw["@type"]) if isinstance(raw.get("@type"), str) else None
        if kind is None:
            what = f"there is no kind {clip(repr(raw.get('@type')))}"
            self.fault("unknown-kind", what, f"give one of {', '.join(KINDS)}")
            return None
        flat, before = self._flat(raw, kind, names), len(self.faults)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        values = {
            field.name: self.value(flat, key, field.type)
            for key, field in fields.items()
            if key in flat or field.required
        }
        for key in flat.keys() - fields.keys() - {"@type"}:
            self.fault("unknown-key", f"there is no {clip(key)!r} in a {raw['@type']}")
        if len(self.faults) > before:
            return None
        made: Placement = kind(**values)
        return made

    def value(self, raw: Mapping[str, Any], key: str, wanted: Any) -> Any:
        """Return a value of a type, or tell why there is none."""
        if key not in raw:
            self.fault("missing-key", f"{key} is missing")
        elif why := value_fault(raw[key], wanted):
            self.fault("bad-value", f"{key}: {why}")
        elif wanted != list[Any] and not _is_unicode(raw[key]):
            self.fault("bad-value", f"{key}: there is half a character in it")
        else:
            return msgspec.convert(msgspec.to_builtins(raw[key]), wanted)
        return None

    def map(self, raw: Mapping[str, Any], key: str, by: str) -> dict[str, str]:
        """Return targets by port or label, from a list of such nodes or a plain map."""
        given = raw.get(key)
        if isinstance(given, Mapping):
            return self.value(raw, key, dict[str, str]) or {}
        rows = self.value(raw, key, list[dict[str, str]]) or []
        found: dict[str, str] = {}
        for row in rows:
            if row.keys() - {"@type", "@id"} != {by, "target"}:
                self.fault("bad-value", f"{key}: {clip(repr(row))} must have {by} and target")
            elif row[by] in found:
                what = f"{key}: {clip(row[by])!r} stands there twice"
                self.fault("duplicate-route", what, "keep one", row[by])
            else:
                found[row[by]] = row["target"]
        return found

    def _flat(self, raw: Mapping[str, Any], kind: type, names: Mapping[Any, Any]) -> dict[str, Any]:
        """Return a placement with all it says side by side, whatever form it is in."""
        flat = {key: value for key, value in raw.items() if key not in {"routes", "settings"}}
        for key in ("settings", "gather"):
            nested = raw.get(key, {})
            if not isinstance(nested, Mapping):
                self.fault("bad-value", f"{key}: expected an object")
                nested = {}
            if key == "gather":
                flat.pop("gather", None)
            for twice in nested.keys() & flat.keys():
                self.fault("duplicate-key", f"{clip(twice)} stands there twice", "keep one")
            flat.update(nested)
        if "routes" in raw:
            if "outputs" in flat:
                self.fault("duplicate-key", "there are both routes and outputs", "keep one")
            flat["outputs"] = self.map(raw, "routes", "port")
        if kind is Terminal and not flat.get("outputs", True):
            del flat["outputs"]
        self._bend(flat, names)
        return flat

    def _bend(self, flat: dict[str, Any], names: Mapping[Any, Any]) -> None:
        """Bring settings of the other form into this one."""
        sources = flat.get("sources")
        if isinstance(sources, Mapping):
            if any(sources.values()):
                self.fault("unknown-key", "sources: options of a source are not known")
            flat["sources"] = [names.get(source, source) for source in sources]
        body = flat.get("body")
        dag = body.get("dag") if isinstance(body, Mapping) else None
        if isinstance(dag, Mapping) and dag.get("@type") == "DagReference":
            plain = _without(dag, "@type")
            flat["body"] = {"dag": plain, **_without(body, "dag")}


def _without(raw: Any, key: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name != key}


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _has_texts(node: Any) -> bool:
    return isinstance(node, Mapping) and all(
        isinstance(node.get(key), str) for key in ("name", "@id")
    )


def _is_unicode(value: Any) -> bool:
    """Tell whether all texts in a value, which has passed for one, are whole."""
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, Mapping):
        return all(_is_unicode(key) and _is_unicode(inner) for key, inner in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_is_unicode, value))
