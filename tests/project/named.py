"""Tests that are named in documents and data: whether they exist."""

from __future__ import annotations

import ast
from functools import cache

from tests.project.source import ROOT

__all__ = ["missing"]


@cache
def defined_in(path: str) -> frozenset[str]:
    """Names of the tests of a file, as in ``Class::test``; of a class, its name as well."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            inside = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            found |= {node.name, *(f"{node.name}::{name}" for name in inside)}
    return frozenset(name for name in found if name.split("::")[-1].startswith(("test_", "Test")))


def missing(node: str) -> str:
    """Say what is wrong with the name of a test; empty if it exists."""
    path, _, name = node.partition("::")
    if not (ROOT / path).is_file():
        return f"{node}: no such file"
    return "" if name in defined_in(path) else f"{node}: no such test"
