"""Two ways into the same rows: ours, and that of the package ``agentpile``."""

from __future__ import annotations

import json
import random
from importlib import import_module
from typing import Any

import pyarrow.parquet as pq
import pytest

from sag_research.ingest._source import Source
from sag_research.ingest.formats import by_name
from tests.ingest.formats import rows_make as rows
from tests.ingest.make import tool_call

ROWS = 12


def words(rng: random.Random) -> str:
    return " ".join(rng.choice(("a.py", "é", "x = 1", "<b>", "\x1b[0m", "")) for _ in range(5))


def nebius(rng: random.Random) -> dict[str, Any]:
    turns = []
    for _ in range(rng.randrange(1, 6)):
        turns.append(rows.ai(f"I look {words(rng)}.\n\n```\nls {words(rng)}\n```"))
        turns.append(rows.heard(words(rng) + rows.PROMPT.format("n/a")))
    label = rng.choice((True, False, None))
    return rows.nebius(*turns[: rng.randrange(1, len(turns) + 1)], target=label)


def turns(rng: random.Random) -> list[dict[str, Any]]:
    told = []
    for number in range(rng.randrange(1, 6)):
        calls = [
            tool_call(
                rng.choice(("execute_bash", "think")), {"command": words(rng)}, f"c{number}{n}"
            )
            for n in range(rng.choice((1, 1, 1, 2)))
        ]
        told.append(rows.message("assistant", rng.choice(("", "I look.", None)), tool_calls=calls))
        told += [
            rows.message("tool", f"OBSERVATION:\n{words(rng)}", tool_call_id=call["id"])
            for call in calls
        ]
    return told[: rng.randrange(1, len(told) + 1)]


def rebench(rng: random.Random) -> dict[str, Any]:
    return rows.rebench(*turns(rng), resolved=rng.choice((0, 1)), gen_tests_correct=0.5)


def gym(rng: random.Random) -> dict[str, Any]:
    return rows.gym(*turns(rng), resolved=rng.choice((True, False)))


def smith(rng: random.Random) -> dict[str, Any]:
    return rows.smith("tool", resolved=rng.choice((True, False)))


SETS = {
    "nebius-swe-agent": ("swe_agent_nebius", nebius),
    "nebius-openhands": ("swe_rebench_openhands", rebench),
    "swe-gym": ("swe_gym_openhands", gym),
    "swe-smith": ("swe_smith", smith),
}


@pytest.fixture(params=SETS)
def both(request, tmp_path):
    """The runs of generated rows, as we read them and as the package does."""
    name, make = SETS[request.param]
    rng = random.Random(request.param)
    path = rows.container(tmp_path / "a", [make(rng) for _ in range(ROWS)], "parquet")
    ours = [*by_name(request.param).read(Source(path))]
    convert = import_module(f"agentpile.corpora.{name}").dataset.convert
    table = pq.read_table(path).to_pylist()
    theirs = [convert(str(number), row, {"file": "a"}).record for number, row in enumerate(table)]
    return ours, theirs


def replies(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in record["steps"] if step["source"] == "agent"]


def bare(text: str | None) -> str:
    return (text or "").removeprefix("OBSERVATION:\n")


def test_both_ways_give_the_same_runs(both):
    ours, theirs = both
    assert len(ours) == len(theirs) == ROWS
    for run, record in zip(ours, theirs, strict=True):
        about = record["extra"]["agentpile"]
        assert run.task_id == about["task"]["id"]
        success = None if run.outcome is None else run.outcome.outcome == "success"
        assert success == about["outcome"]["success"]
        if run.model is not None:
            assert run.model == record["agent"]["model_name"]
        assert len(run.steps) == len(replies(record))
        for step, reply in zip(run.steps, replies(record), strict=True):
            check_step(step, reply)


def check_step(step: Any, reply: dict[str, Any]) -> None:
    results = (reply.get("observation") or {}).get("results", [])
    if "tool_calls" not in reply:  # the command is in the text, and the prompt in what came back
        (call,) = step.calls
        assert call.text in reply["message"]
        shown = "".join(result["content"] for result in results)
        assert shown.startswith(step.observation)
        assert "Current directory" not in step.observation
        return
    assert step.thought == (reply["message"] or "").strip()
    assert [(call.id, call.name, call.arguments) for call in step.calls] == [
        (call["tool_call_id"], call["function_name"], call["arguments"])
        for call in reply["tool_calls"]
    ]
    told = {result["source_call_id"]: bare(result["content"]) for result in results}
    assert {call.id: call.observation for call in step.calls if call.id in told} == told
    assert all(not call.observation for call in step.calls if call.id not in told)


def test_the_comparison_can_fail(both):
    ours, theirs = both
    changed = json.loads(json.dumps(theirs))
    reply = replies(changed[0])[0]
    reply["message"], reply["observation"] = "other", {"results": []}
    with pytest.raises(AssertionError):
        test_both_ways_give_the_same_runs((ours, changed))
