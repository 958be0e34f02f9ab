"""What the README points at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.source import ROOT, write_tree

FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|<(?:a|img)\b[^>]*?(?:href|src)=\"([^\"]+)\""
)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
MAKE = re.compile(
    r"(?:^|[`$;&|]\s*|^\s+)make((?:[ \t]+[A-Z_]+=\S+)*)[ \t]+([a-z][\w-]*)", re.MULTILINE
)
TARGET = re.compile(r"^([a-zA-Z][\w-]*)\s*:(?!=)", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get on the usual hosts."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain}


def check_links(root: Path) -> list[str]:
    """List relative links of the README that lead nowhere."""
    text = FENCE.sub("", (root / "README.md").read_text(encoding="utf-8"))
    found = []
    for match in LINK.finditer(text):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z][a-z0-9+.-]*:|//", target):
            continue
        path, _, anchor = target.partition("#")
        if path and not (root / path).exists():
            found.append(f"no such file: {target}")
        elif anchor and not path and anchor not in anchors(text):
            found.append(f"no such heading: {target}")
    return found


def check_make_targets(root: Path) -> list[str]:
    """List commands ``make X`` of the README that the Makefile does not know."""
    known = set(TARGET.findall((root / "Makefile").read_text(encoding="utf-8")))
    named = MAKE.findall((root / "README.md").read_text(encoding="utf-8"))
    return [f"no such target: make {name}" for _, name in named if name not in known]


def test_relative_links_lead_somewhere() -> None:
    assert check_links(ROOT) == []


def test_make_commands_exist() -> None:
    assert check_make_targets(ROOT) == []


def test_readme_shows_the_two_commands() -> None:
    named = {name for _, name in MAKE.findall((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {"demo", "test"} <= named


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("See [it](docs/a.md).", "no such file: docs/a.md"),
        ("![a](a.png 'title')", "no such file: a.png"),
        ('<img alt="x" src="a.png">', "no such file: a.png"),
        ("See [below](#missing).", "no such heading: #missing"),
        ("Run `make nothing`.", "no such target: make nothing"),
        ("```console\n$ make nothing\n```", "no such target: make nothing"),
        ("```\nmake PYTHON=python3.12 nothing\n```", "no such target: make nothing"),
    ],
)
def test_a_dead_pointer_is_found(tmp_path: Path, line: str, finding: str) -> None:
    root = write_tree(tmp_path, {"README.md": line, "Makefile": "test: lint\n"})
    assert check_links(root) + check_make_targets(root) == [finding]


@pytest.mark.parametrize(
    "line",
    [
        "[a](LICENSE) [b](https://example.org/x) [c](mailto:a@b.c) <https://example.org>",
        "# The `log`, in short\n[a](#the-log-in-short)",
        "Run `make test` to make sure.",
        "```python\nx = f[0](missing)\n```",
    ],
)
def test_a_live_pointer_is_let_through(tmp_path: Path, line: str) -> None:
    root = write_tree(tmp_path, {"README.md": line, "LICENSE": "", "Makefile": "test: lint\n"})
    assert check_links(root) + check_make_targets(root) == []
