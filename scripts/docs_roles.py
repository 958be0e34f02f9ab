"""Docstrings name things as Sphinx does (``:class:`~a.b.C```); the site makes links of that."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:py:)?(class|meth|func|mod|attr|data|obj|exc):`([^`]+)`")
NAME = re.compile(r"(~?)([\w.]+)")


class Roles(griffe.Extension):
    """Turn roles into references, which stay plain where the site does not have the target."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None and not obj.is_alias:
            scope = obj if obj.is_module or obj.is_class else obj.parent
            obj.docstring.value = ROLE.sub(
                lambda match: reference(match[1], match[2], scope), obj.docstring.value
            )


def reference(role: str, text: str, scope: griffe.Object | griffe.Alias | None) -> str:
    """Return the Markdown of one role."""
    match = NAME.fullmatch(text)
    if match is None:  # `title <target>`
        return f"`{text.partition('<')[0].strip()}`"
    shown = match[2].rpartition(".")[2] if match[1] else match[2]
    target = full_name(match[2], scope)
    call = "()" if role in {"meth", "func"} else ""
    return f'<autoref identifier="{target}" optional><code>{shown}{call}</code></autoref>'


def full_name(name: str, scope: griffe.Object | griffe.Alias | None) -> str:
    """Return the dotted name that the module or class says it is, or the name as it is."""
    if name.startswith("sag_research.") or scope is None:
        return name
    try:
        return scope.resolve(name)
    except griffe.NameResolutionError:
        return f"{scope.path}.{name}"
