"""The package check itself finds what it is there to find."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.project.source import ROOT, write_tree


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script, loaded as a module."""
    spec = importlib.util.spec_from_file_location(
        "package_check", ROOT / "scripts" / "package_check.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(script: ModuleType, tmp_path: Path) -> object:
    """A place whose environment is the one of these tests."""
    return script.Place(Path(sys.prefix), tmp_path)


def test_marked_examples_are_found_in_order(script: ModuleType) -> None:
    text = (
        "<!-- run -->\n```console\n$ a\n```\n\n```python\nskipped\n```\n"
        "<!-- run -->\n\n```python\nb\n```\n"
    )
    assert script.marked_examples(text) == [("console", "$ a\n"), ("python", "b\n")]


@pytest.mark.parametrize(
    "text", ["```python\nx\n```\n", "<!-- run -->\n\nwords\n", "<!-- run -->\n```bash\nx\n```\n"]
)
def test_a_page_without_proper_examples_fails(script: ModuleType, text: str) -> None:
    with pytest.raises(script.CheckError):
        script.marked_examples(text)


def test_console_steps(script: ModuleType) -> None:
    source = "$ echo a \\\n    b\na b\n$ true\n$ echo c\nc\n"
    assert script.console_steps(source) == [
        ("echo a     b", "a b\n"),
        ("true", ""),
        ("echo c", "c\n"),
    ]


def test_console_examples_are_compared(script: ModuleType, place: object) -> None:
    script.run_console("$ echo one two\none ...\n$ true\n", place)
    with pytest.raises(script.CheckError, match="it prints"):
        script.run_console("$ echo one\ntwo\n", place)
    with pytest.raises(script.CheckError, match="exit code 1"):
        script.run_console("$ false\n", place)
    with pytest.raises(script.CheckError, match="must begin"):
        script.run_console("echo one\n", place)


@pytest.mark.parametrize("source", ["raise SystemExit(2)\n", ">>> 1 + 1\n3\n", "import nothing_\n"])
def test_a_python_example_that_fails_is_found(
    script: ModuleType, place: object, source: str
) -> None:
    script.run_python("print(1)\n", 1, place)
    script.run_python(">>> 1 + 1\n2\n", 2, place)
    with pytest.raises(script.CheckError, match="exit code"):
        script.run_python(source, 3, place)


def test_wheel_contents_are_compared(script: ModuleType, tmp_path: Path) -> None:
    root = write_tree(
        tmp_path, {"sag_research/a.py": "", "sag_research/a.sql": "", "datasets/b/card.md": ""}
    )
    names = ["sag_research/a.py", "sag_research/a.sql", "sag_research/_datasets/b/card.md"]

    def wheel(*held: str) -> Path:
        path = tmp_path / "x.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in (*held, "x.dist-info/METADATA"):
                archive.writestr(name, "")
        return path

    assert script.check_contents(wheel(*names), root) == 3
    with pytest.raises(script.CheckError, match=r"lacks \['sag_research/a\.sql'\]"):
        script.check_contents(wheel(names[0], names[2]), root)
    with pytest.raises(script.CheckError, match=r"tests/x\.py"):
        script.check_contents(wheel(*names, "tests/x.py"), root)
