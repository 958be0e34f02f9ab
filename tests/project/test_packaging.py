"""The lock files, the metadata and the Makefile agree with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import sag_research
from tests.project.source import ROOT

PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: ; ([^\\\n]+?))?(?: \\)?$", re.MULTILINE)


def pins(text: str) -> set[tuple[str, str, str]]:
    """Name, version and marker of every pin of a lock file."""
    return {(name.lower(), version, marker.strip()) for name, version, marker in PIN.findall(text)}


def lock(name: str) -> str:
    """Text of one lock file."""
    return (ROOT / "requirements" / name).read_text(encoding="utf-8")


def unlocked(requirements: list[str], locked: set[str]) -> list[str]:
    """Requirements that a lock file does not hold."""
    names = (re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0].lower() for line in requirements)
    return [name for name in names if name not in locked and name != "sag-research"]


def test_locks_hold_every_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {name for name, _, _ in pins(lock("core.txt"))}
    dev = {name for name, _, _ in pins(lock("dev.txt"))}
    assert unlocked(project["dependencies"], core) == []
    assert unlocked(project["optional-dependencies"]["dev"], dev) == []
    assert unlocked(["click>=8", "missing[x]>=1"], core) == ["missing"]


def test_core_lock_is_part_of_the_development_lock() -> None:
    core, dev = pins(lock("core.txt")), pins(lock("dev.txt"))
    assert len(core) > 20
    assert {pin[:2] for pin in core} <= {pin[:2] for pin in dev}


@pytest.mark.parametrize("name", ["core.txt", "dev.txt"])
def test_locks_are_hashed_and_name_no_registry(name: str) -> None:
    text = lock(name)
    assert not re.search(r"https?://|file:|^--(?!hash)|^-[a-z]\b", text, re.MULTILINE)
    assert text.count("--hash=sha256:") >= len(pins(text))


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert sag_research.__version__ == project["version"]
    assert f"\nversion: {project['version']}\n" in citation


def test_typed_marker_is_there() -> None:
    assert Path(sag_research.__file__).with_name("py.typed").is_file()
