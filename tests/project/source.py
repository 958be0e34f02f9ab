"""Reading the project's own source: modules, scopes and findings for the guard tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "sag_research"


@dataclass(frozen=True)
class Module:
    """One parsed module of the package under `root`."""

    root: Path
    path: Path
    tree: ast.Module

    @property
    def where(self) -> str:
        """Path relative to the root, with forward slashes."""
        return self.path.relative_to(self.root).as_posix()

    @property
    def parts(self) -> tuple[str, ...]:
        """Dotted name below the package, ``('log', '_store')``; an init has its folder's name."""
        parts = self.path.relative_to(self.root / PACKAGE).with_suffix("").parts
        return parts[:-1] if parts[-1] == "__init__" else parts

    @property
    def is_package(self) -> bool:
        """Whether this is an ``__init__``."""
        return self.path.name == "__init__.py"

    def at(self, node: ast.AST, problem: str) -> str:
        """One finding: place and problem."""
        return f"{self.where}:{getattr(node, 'lineno', 1)}: {problem}"


def modules(root: Path) -> Iterator[Module]:
    """Every Python module of the package under `root`, in order of its path."""
    for path in sorted((root / PACKAGE).rglob("*.py")):
        yield Module(root, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))


def walk_scopes(
    node: ast.AST, inside: tuple[str, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Every node below `node`, with the names of the functions it stands in."""
    for child in ast.iter_child_nodes(node):
        yield child, inside
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from walk_scopes(child, (*inside, child.name) if is_function else inside)


def docstrings(tree: ast.Module) -> set[int]:
    """Identities of the constant nodes that are docstrings."""
    holders = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, holders)
        and ast.get_docstring(node, clean=False) is not None
        and isinstance(node.body[0], ast.Expr)
    }


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write a small tree for a checker to look at, and return its root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
