"""``make audit`` tells what is known from what could not be asked."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.project.source import ROOT

BUG = {"id": "PYSEC-1", "fix_versions": ["1.2"], "aliases": []}
SOUND = {"name": "b", "version": "2", "vulns": []}
BAD = {"name": "a", "version": "1", "vulns": [BUG]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts/audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(packages: list[dict[str, Any]] | None, said: str = "") -> Callable[..., Any]:
    """A pip-audit that writes this, or nothing."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        out = Path(command[command.index("--output") + 1])
        if packages is not None:
            out.write_text(json.dumps({"dependencies": packages, "fixes": []}), encoding="utf-8")
        return subprocess.CompletedProcess(command, 1, "", said)

    return run


def run(
    audit: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    packages: list[dict[str, Any]] | None,
    said: str = "",
) -> tuple[int, str]:
    monkeypatch.setattr(audit.subprocess, "run", answers(packages, said))
    code = audit.main([ROOT / "requirements/core.txt"])
    return code, "".join(capsys.readouterr())


def test_a_known_vulnerability_fails(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = run(audit, monkeypatch, capsys, [BAD, SOUND])
    assert code == 1
    assert "2 packages audited, 0 not known to pypi, 1 known faults" in told
    assert "a 1: PYSEC-1 (mended in 1.2)" in told


def test_nothing_known_passes_and_says_who_was_not_asked(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = run(audit, monkeypatch, capsys, [SOUND, SOUND, SKIPPED])
    assert code == 0
    assert "2 packages audited, 1 not known to pypi, 0 known faults" in told
    assert "NOT AUDITED" not in told


@pytest.mark.parametrize("packages", [None, [], [SKIPPED, SKIPPED, SOUND]])
def test_offline_is_said_and_no_failure(
    audit: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    packages: list[dict[str, Any]] | None,
) -> None:
    code, told = run(audit, monkeypatch, capsys, packages, "...\nConnectionError: no such host")
    assert code == 0
    assert "core.txt: NOT AUDITED, because no advisory data can be reached" in told
    assert "pypi cannot be asked" in told
    assert "osv cannot be asked" in told
    assert ("no such host" in told) == (packages is None)


def test_it_is_offline_without_a_network(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real tool behind a proxy that is not there."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setattr(audit, "SECONDS", 60)
    answer = audit.ask(ROOT / "requirements/weights.txt", "osv")
    assert answer.problem
    assert not answer.known


def test_the_makefile_and_the_pipeline_run_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\t$(PY) scripts/audit.py\n" in makefile
    assert "\nmake audit" in (ROOT / ".ci/run").read_text(encoding="utf-8")
