"""`sag deadend` and `sag export xes|csv`: the room's verbs on the command line."""

from __future__ import annotations

import csv
import json
import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sag_research.cli import sag as commands
from sag_research.errors import NotEnoughDataError, RunNotFoundError, UsageError
from tests.cli.test_cli import sag, sag_json

HOSTILE = "\x1b[31m<img src=x onerror=alert(1)>"


def run_of(task: int, attempt: int, rng: random.Random) -> dict[str, Any]:
    """A run that fails more often the more of its tests fail late."""
    bad = rng.random() < 0.5
    steps = []
    for _ in range(rng.randint(6, 12)):
        fails = rng.random() < (0.7 if bad else 0.2)
        said = f"{HOSTILE} 1 failed in 1s" if fails else "1 passed in 1s"
        steps.append({"thought": "t", "action": "pytest -q", "observation": said})
        steps.append({"thought": "t", "action": f"cat src/m{task}.py", "observation": "x = 1"})
    outcome = "failure" if bad else "success"
    return {"task_id": f"task-{task:02d}", "attempt": attempt, "model": "m", "repo": "acme/a",
            "steps": steps, "outcome": outcome}  # fmt: skip


def call(study: Path, *arguments: str) -> str:
    """Run a command in this process; what it prints."""
    done = CliRunner().invoke(
        commands,
        [*arguments, "-w", str(study / "w")],
        standalone_mode=False,
        catch_exceptions=False,
    )
    return done.stdout


def answer(study: Path, *arguments: str) -> Any:
    """Run a command with --json; the one object that it prints."""
    printed = call(study, *arguments, "--json")
    assert printed.count("\n") == 1
    return json.loads(printed)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of 120 runs of 30 tasks, and two of unknown outcome."""
    folder, rng = tmp_path_factory.mktemp("deadend"), random.Random(5)
    records = [run_of(task, attempt, rng) for task in range(30) for attempt in range(4)]
    records += [run_of(40 + i, 0, rng) | {"outcome": "unknown"} for i in range(2)]
    lines = "\n".join(json.dumps(record) for record in records)
    (folder / "runs.jsonl").write_text(lines, encoding="utf-8")
    call(folder, "ingest", str(folder / "runs.jsonl"))
    return folder


@pytest.fixture(scope="module")
def fitted(study: Path) -> Any:
    """What fitting the default model said."""
    return sag_json("deadend", "fit", "--no-text", "-w", "w", "-o", "models/first", cwd=study)


def a_run(study: Path, condition: str) -> str:
    query = f"SELECT run_id FROM runs WHERE {condition} ORDER BY run_id LIMIT 1"
    return str(answer(study, "sql", query)["rows"][0][0])


def test_fit_saves_model_and_alarm_without_pickle(study: Path, fitted: Any) -> None:
    assert (fitted["model"], fitted["runs"], fitted["tasks"]) == ("stack", 120, 30)
    assert fitted["failed"] + fitted["succeeded"] == 120
    assert fitted["alarm"]["alpha"] == 0.05
    assert fitted["alarm"]["n_success"] == fitted["succeeded"]
    assert fitted["alarm"]["acts"] is False
    models = sorted(p.name for p in (study / "w" / "models").iterdir())
    assert models == ["first.json", "first.npz"]


def test_check_a_run_of_unknown_outcome(study: Path, fitted: Any) -> None:
    told = answer(study, "deadend", "check", "task-40")
    assert (told["model"], told["seen_in_training"]) == ("first", False)
    steps = told["steps"]
    assert [row["step"] for row in steps] == list(range(len(steps)))
    assert all(0 <= row["risk"] <= 1 for row in steps)
    raised = [row["step"] for row in steps if row["alarm"]]
    assert told["alarm_step"] == (raised[0] if raised else None)
    over = [row["step"] for row in steps if row["risk"] > told["threshold"]]
    assert not raised or raised[0] in over
    printed = call(study, "deadend", "check", "task-40")
    assert "\x1b" not in printed
    assert len(printed.splitlines()) == 1 + len(steps) + 1
    assert "alpha 0.05, shadow mode" in printed


def test_check_says_when_the_model_has_seen_the_run(study: Path, fitted: Any) -> None:
    run = a_run(study, "task_id = 'task-03'")
    assert answer(study, "deadend", "check", run)["seen_in_training"] is True
    assert "had not seen its task" in call(study, "deadend", "check", run)


def test_where_a_run_was_lost(study: Path, fitted: Any) -> None:
    run = a_run(study, "outcome = 'failure'")
    told = answer(study, "deadend", "where", run)
    assert told["run_id"] == run
    assert told["text"].splitlines() == told["evidence"]
    assert len(told["steps"]) >= 12
    if told["fork_step"] is not None:
        assert told["fork_step"] < told["change_step"]
    first, *evidence = call(study, "deadend", "where", run).splitlines()
    change = "none" if told["change_step"] is None else told["change_step"]
    assert first.startswith(f"{run}: lost at step {change}, fork point ")
    assert len(evidence) == len(told["evidence"])
    good = a_run(study, "outcome = 'success'")
    assert "outcome success; its risk rises most" in call(study, "deadend", "where", good)


def test_where_a_fork_was_lost(study: Path, fitted: Any) -> None:
    run = a_run(study, "outcome = 'failure'")
    child = answer(study, "fork", run, "--step", "5")["run_id"]
    told = answer(study, "deadend", "where", child)
    assert [row["step"] for row in told["steps"]] == [0, 1, 2, 3, 4, 5]


def test_report_as_text_json_and_page(study: Path) -> None:
    arguments = ("deadend", "report", "--model", "backoff", "--no-text", "--folds", "3")
    page = study / "dead.html"
    values = answer(study, *arguments, "-o", str(page))
    rows = {row["model"]: row for row in values["models"]}
    assert {"backoff", "hazard", "majority", "sag-entity-rule"} <= set(rows)
    assert all(row["n"] == 120 for row in rows.values())
    assert "text-tfidf" not in rows
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html
    assert html.count("<img ") == html.count("<img alt=")
    printed = call(study, *arguments)
    assert f"{rows['backoff']['auroc']:.3f} [" in printed
    assert "120 runs of 30 tasks" in printed


def test_texts_in_a_report_are_escaped(study: Path) -> None:
    page = study / "where.html"
    call(study, "deadend", "report", "--model", "hazard", "--folds", "2", "-o", str(page))
    html = page.read_text(encoding="utf-8")
    assert "Its action there was" in html or "successful run" in html
    assert "<img src=x" not in html


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ("deadend check task-40 -m nope", UsageError, "no model 'nope'"),
        ("deadend check task-99", RunNotFoundError, "no run"),
        ("deadend fit --model nope -o x", UsageError, "no model 'nope'"),
        ("deadend fit --where task_id='task-40' -o x", NotEnoughDataError, "both are needed"),
        ("deadend fit -o ../x", UsageError, "no name for a model"),
        ("deadend fit -o models/.hidden", UsageError, "no name for a model"),
        ("deadend report --where task_id='task-01'", NotEnoughDataError, "task"),
        ("deadend report --where false", NotEnoughDataError, "no run in this cohort"),
        ("export xes --run task-99 -o x.xes", RunNotFoundError, "no run"),
        ("export csv --where false --run task-40 -o x.csv", UsageError, "one of the two"),
        ("export csv --where false -o x.csv", NotEnoughDataError, "no run to export"),
    ],
)
def test_refusals(
    study: Path, fitted: Any, arguments: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(study, *arguments.split())
    assert sorted(p.name for p in (study / "w" / "models").iterdir()) == ["first.json", "first.npz"]


def test_without_a_model_the_way_to_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps(run_of(0, 0, random.Random(0))), encoding="utf-8")
    call(tmp_path, "ingest", str(tmp_path / "r.jsonl"))
    done = sag("deadend", "check", "task-00", "-w", "w", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "sag deadend fit" in done.stderr


def test_exports(study: Path) -> None:
    told = answer(
        study, "export", "xes", "-o", str(study / "log.xes"), "--where", "NOT n_steps = 0"
    )
    assert (told["runs"], told["replaced"]) == (122, 0)
    assert len(ET.fromstring((study / "log.xes").read_bytes()).findall("trace")) == 122
    one = answer(study, "export", "csv", "--run", "task-40", "--texts", "-o", str(study / "1.csv"))
    with (study / "1.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert one["runs"] == 1
    assert len(rows) == one["steps"]
    assert {row["task_id"] for row in rows} == {"task-40"}
    assert rows[1]["observation"] == "x = 1"
    assert "122 runs" in call(study, "export", "xes", "-o", str(study / "log.xes.gz"))


@pytest.mark.slow
def test_demo_ends_with_dead_ends(tmp_path: Path) -> None:
    first, again = (sag("demo", "-o", name, cwd=tmp_path) for name in ("a", "b"))
    assert first.returncode == 0, first.stderr
    told = first.stdout.split("\nDead ends\n")[1].splitlines()
    assert "310 runs of 32 tasks" in told[0]
    assert "AUROC" in told[1]
    assert any(": lost at step " in line for line in told)
    assert again.stdout.split("\nDead ends\n")[1].splitlines()[:5] == told[:5]
    page, copy = ((tmp_path / n / "report.html").read_text(encoding="utf-8") for n in ("a", "b"))
    assert page == copy
    assert page.count('src="data:image/svg+xml;base64,') >= 5
