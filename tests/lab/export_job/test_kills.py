"""A task that is killed at any write ends as if it had not been (R11, R23)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
LIMIT = 12


def killed(kills: int, seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.lab.export_job.kills", str(kills), str(seed)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout))


def check(found: dict[str, Any], least: int) -> None:
    died = [one for one in found["kills"] if one["ended"] == -signal.SIGKILL]
    assert len(died) >= least
    for one in found["kills"]:
        whole = found["whole"][one["scenario"]]
        assert one["again"] == 0, one
        assert one["report"] == whole["report"], one
        assert one["retries"] == whole["retries"] <= 1, one
        assert one["steps"] == whole["steps"], one
        assert one["ends"] == 1, one
        assert one["verified"], one
        for name in ("model_calls", "action_calls"):
            reported, real = one[name]
            assert real <= reported <= LIMIT, one
            assert whole[name][0] == whole[name][1]


@pytest.mark.timeout(900)  # as long as its process is given
def test_r11_r23_kills_at_random_writes() -> None:
    check(killed(120, seed=20), least=100)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_r11_r23_kills_at_many_random_writes() -> None:
    check(killed(1000, seed=21), least=800)
