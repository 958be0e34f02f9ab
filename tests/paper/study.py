"""A small study of runs that we write, for tests of the paper kit."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

TOML = """
[study]
title = "A small study"
seed = 3

[data.runs]
path = "data"

[[table]]
name = "datasets"
analysis = "datasets"

[[table]]
name = "success"
title = "Success by model"
analysis = "success"

[backtest.main]
models = ["backoff", "hazard"]
options = { folds = 3, at = [2], draws = 50 }

[[table]]
name = "models"
analysis = "backtest"
backtest = "main"
options = { numbers = ["auroc", "brier"] }

[[figure]]
name = "reliability"
analysis = "reliability"
backtest = "main"

[[table]]
name = "own"
function = "analysis:drawn"

[[figure]]
name = "own"
function = "analysis:picture"
"""

OWN = """
import pandas as pd
from matplotlib.figure import Figure


def drawn(cohort, rng):
    runs = cohort.runs()
    return pd.DataFrame({"n": [len(runs)], "drawn": [rng.random()]})


def picture(ws, seed):
    figure = Figure()
    figure.subplots().plot([0, seed], label="a")
    return figure
"""


def records(tasks: int = 9, attempts: int = 3) -> list[dict[str, Any]]:
    """Write runs: those that look before they edit succeed more often."""
    rng = random.Random(0)
    return [_record(rng, task, attempt) for task in range(tasks) for attempt in range(attempts)]


def _record(rng: random.Random, task: int, attempt: int) -> dict[str, Any]:
    looks = rng.random() < 0.5
    first = "cat setup.py" if looks else "sed -i s/a/b/ setup.py"
    actions = [first, *rng.choices(["ls", "pytest -q", "cat README.md"], k=rng.randint(2, 4))]
    good = rng.random() < (0.8 if looks else 0.3)
    return {
        "task_id": f"task-{task}", "attempt": attempt, "agent": "a", "model": f"m{attempt}",
        "steps": [{"action": one, "observation": f"ok {task}.{attempt}"} for one in actions],
        "outcome": "success" if good else "failure",
    }  # fmt: skip


def write_data(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write runs as native JSONL."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "runs.jsonl").write_text(lines, encoding="utf-8")


def write_study(folder: Path, toml: str = TOML, own: str = OWN, **data: Any) -> Path:
    """Write a study folder with its data; returns it."""
    write_data(folder / "data", data.get("rows") or records())
    (folder / "study.toml").write_text(toml, encoding="utf-8")
    (folder / "analysis.py").write_text(own, encoding="utf-8")
    return folder


def change(folder: Path, name: str, old: str, new: str) -> None:
    """Replace text in a file of a study; it must be there."""
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def outputs(folder: Path) -> dict[str, bytes]:
    """Read every result but the manifest, by its path."""
    results = folder / "results"
    return {
        path.relative_to(results).as_posix(): path.read_bytes()
        for path in sorted(results.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
