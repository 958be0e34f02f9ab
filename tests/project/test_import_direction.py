"""Data flows one way: a room imports only from rooms before it, and only what they offer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.source import PACKAGE, ROOT, Module, modules, walk_scopes, write_tree

# Rooms of one entry stand side by side and may use each other.
LINE = (
    ("errors", "model", "_text"),
    ("log",),
    ("llm",),
    ("extract",),
    ("ingest",),
    ("warehouse",),
    ("bloom",),
    ("deadend",),
    ("runtime",),
    ("lab",),
    ("exchange",),
    ("viz",),
    ("workspace",),
    ("paper", "magics"),
    ("cli",),
    ("__main__",),
)
PLACE = {room: place for place, rooms in enumerate(LINE) for room in rooms}

# The one exception: a result draws itself when it is asked to, and loads `viz` only then.
DRAWS_WHEN_CALLED = {"show", "to_html", "plot", "_repr_html_", "_repr_mimebundle_"}
# The root re-exports every room, so importing it means importing all of them, but for this name.
ROOT_CONSTANTS = {"__version__"}


def imports(module: Module) -> Iterator[tuple[ast.AST, tuple[str, ...], tuple[str, ...]]]:
    """Yield node, dotted target below the package, and enclosing functions, for each import."""
    for node, inside in walk_scopes(module.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
        else:
            continue
        for name in names:
            package, *rest = str(name).split(".")
            if package == PACKAGE:
                yield node, tuple(rest), inside


def for_types_only(tree: ast.Module) -> set[ast.AST]:
    """Collect the nodes under ``if TYPE_CHECKING:``, which never run."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    return {inner for block in blocks for part in block.body for inner in ast.walk(part)}


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name that a ``from`` import starts from, with relative dots resolved."""
    if node.level == 0:
        return node.module or ""
    here = (PACKAGE, *module.parts)
    up = node.level - module.is_package
    base = here[: len(here) - up] if up else here
    return ".".join((*base, node.module) if node.module else base)


def called(node: ast.Call) -> str:
    """Last name of what a call calls."""
    function = node.func
    return getattr(function, "attr", getattr(function, "id", ""))


def problem_of(importer: str, target: tuple[str, ...], inside: tuple[str, ...]) -> str | None:
    """Say what is wrong with `importer` importing `target`, if anything."""
    first = target[0] if target else ""
    if first not in PLACE:
        if first in ROOT_CONSTANTS or PLACE[importer] >= PLACE["cli"]:
            return None
        return f"{importer} imports the package's root, which contains the rooms after it"
    if first == importer:
        return None
    if first == "viz" and DRAWS_WHEN_CALLED & set(inside):
        return None
    if PLACE[first] > PLACE[importer]:
        return f"{importer} imports {first}, which comes after it"
    hidden = [part for part in target[1:] if part.startswith("_") and not part.endswith("__")]
    return f"{importer} reaches into {first}: {hidden[0]} is private" if hidden else None


def check_import_direction(root: Path) -> list[str]:
    """List imports that go against the line of rooms, and modules that have no place in it."""
    found = []
    for module in modules(root):
        if not module.parts:
            continue  # the root's own __init__ gathers all rooms
        room = module.parts[0]
        if room not in PLACE:
            found.append(f"{module.where}: {room} has no place in the line of rooms")
            continue
        typing = for_types_only(module.tree)
        for node, target, inside in imports(module):
            if target[:1] == ("viz",) and node in typing:
                continue  # `show` says what it returns
            if problem := problem_of(room, target, inside):
                found.append(module.at(node, problem))
    return found


def test_rooms_import_only_from_rooms_before_them() -> None:
    assert len(list(modules(ROOT))) > 3
    assert check_import_direction(ROOT) == []


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        ("log/_a.py", "from sag_research.viz import Scene", "log imports viz"),
        ("log/_a.py", "import sag_research.ingest.formats", "log imports ingest"),
        ("log/_a.py", "from sag_research import bloom", "log imports bloom"),
        ("log/_a.py", "from .. import bloom", "log imports bloom"),
        ("log/_a.py", "from ..bloom import graph", "log imports bloom"),
        ("log/__init__.py", "from ..bloom import graph", "log imports bloom"),
        ("ingest/formats/a.py", "from ...cli import main", "ingest imports cli"),
        ("errors.py", "from .log import Store", "errors imports log"),
        ("log/a.py", "def late():\n    from sag_research import lab", "log imports lab"),
        ("log/a.py", "if TYPE_CHECKING:\n    from sag_research import lab", "log imports lab"),
        ("log/a.py", "import_module('sag_research.lab')", "log imports lab"),
        ("log/a.py", "importlib.import_module('sag_research.lab')", "log imports lab"),
        ("log/a.py", "import sag_research", "log imports the package's root"),
        ("log/a.py", "from sag_research import open", "log imports the package's root"),
        ("bloom/a.py", "if OTHER:\n    from sag_research.viz import x", "bloom imports viz"),
        ("bloom/a.py", "def draw():\n    from sag_research.viz import x", "bloom imports viz"),
        ("bloom/a.py", "def show():\n    from sag_research.lab import x", "bloom imports lab"),
        ("bloom/a.py", "from sag_research.log._store import x", "_store is private"),
        ("attic/a.py", "", "attic has no place"),
    ],
)
def test_a_violation_is_found(tmp_path: Path, path: str, text: str, finding: str) -> None:
    found = check_import_direction(write_tree(tmp_path, {f"{PACKAGE}/{path}": text}))
    assert len(found) == 1
    assert finding in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("__init__.py", "from sag_research.cli import main"),
        ("log/__init__.py", "from ._store import x\nfrom . import _store"),
        ("log/a.py", "from sag_research.log import b\nfrom .._text import escape"),
        ("log/a.py", "from sag_research import __version__"),
        ("viz/a.py", "from sag_research.bloom import graph\nimport networkx"),
        ("model.py", "from .errors import SagError"),
        ("cli.py", "import sag_research as sag"),
        ("bloom/a.py", "class G:\n    def show(self):\n        from sag_research.viz import x"),
        ("bloom/a.py", "class G:\n    def _repr_html_(self):\n        from ..viz import x"),
    ],
)
def test_a_proper_import_is_let_through(tmp_path: Path, path: str, text: str) -> None:
    assert check_import_direction(write_tree(tmp_path, {f"{PACKAGE}/{path}": text})) == []
