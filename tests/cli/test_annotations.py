"""``sag annotations``."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

import sag_research as sag
from sag_research.cli import sag as command


def test_annotations_are_listed_written_and_compared(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    with sag.open(folder) as ws:
        ws.add({"task_id": "t1", "steps": [{"action": "ls", "observation": "x"}] * 4})
        for who in ("me", "you"):
            ws.annotate("t1", 1, code="loop", note="<b>, \x1b[31m", by=who)
    run = CliRunner().invoke
    told = run(command, ["annotations", "-w", str(folder), "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["annotations"]
    assert [(row["by"], row["step"], row["code"]) for row in rows] == [
        ("me", 1, "loop"),
        ("you", 1, "loop"),
    ]
    assert "\x1b" not in run(command, ["annotations", "t1", "-w", str(folder)]).stdout
    file = tmp_path / "out.csv"
    run(command, ["annotations", "-w", str(folder), "-o", str(file)])
    assert len(file.read_text(encoding="utf-8").splitlines()) == 3
    told = run(command, ["annotations", "-w", str(folder), "--agreement", "me", "you", "--json"])
    assert json.loads(told.stdout)["agreement"][0]["kappa"] == 1
