"""Rows of data sets in every container, written for the tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from sag_research.ingest._source import Source
from tests.ingest.make import tool_call

CONTAINERS = ("parquet", "jsonl", "jsonl.zst", "jsonl.gz", "json", "parquet.gz")


def container(path: Path, rows: list[dict[str, Any]], kind: str) -> Path:
    """Write rows as Parquet, JSON lines (plain or packed) or one JSON list."""
    path = path.with_name(f"{path.name}.{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if kind == "json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    elif kind.startswith("parquet"):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=2)
        data = sink.getvalue().to_pybytes()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    else:
        pack = {"zst": zstandard.compress, "gz": gzip.compress}.get(kind.rpartition(".")[2], bytes)
        path.write_bytes(pack(lines))
    return path


def read(format_: Any, path: Path) -> tuple[list[Any], Any]:
    """Read a file; also its notes and refusals."""
    reading = format_.read(Source(path))
    return [*reading], reading


def seen(run: Any) -> list[tuple[str, str, str]]:
    """What a person reads of a run's steps."""
    return [(step.thought, step.action, step.observation) for step in run.steps]


# ---- nebius/SWE-agent-trajectories


def ai(text: str) -> dict[str, Any]:
    return _nebius("ai", text, mask=True)


def heard(text: str) -> dict[str, Any]:
    return _nebius("user", text)


def _nebius(role: str, text: str | None, **more: Any) -> dict[str, Any]:
    empty = {"cutoff_date": None, "mask": False, "system_prompt": None}
    return {**empty, "role": role, "text": text, **more}


PROMPT = "\n\n(Open file: {})\n(Current directory: /repo)\nbash-$"


def nebius(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row whose agent looks and submits, unless messages are given."""
    told = messages or (
        ai("Let us look.\n\n```\nls -F\n```"),
        heard("a.py" + PROMPT.format("n/a")),
        ai("Done.\n```\nsubmit\n```"),
    )
    return {
        "instance_id": "org__repo-1",
        "model_name": "swe-agent-llama-70b",
        "target": False,
        "trajectory": [
            _nebius("system", None, system_prompt="SETTING: a shell.", cutoff_date="01.01.2023"),
            heard("Here is it.\nISSUE:\nIt breaks – often.\n\nINSTRUCTIONS:\nMend it."),
            *told,
        ],
        "exit_status": "submitted",
        "generated_patch": "diff --git a/a.py b/a.py\n",
        "eval_logs": "1 failed",
        **more,
    }


# ---- chat messages


def message(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    """A message with the keys of all roles, as rows of Parquet have them."""
    empty = {"name": None, "tool_call_id": None, "tool_calls": None}
    return {"role": role, "content": content, **empty, **more}


def chat(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """A conversation in which OpenHands looks and finishes, unless messages are given."""
    told = messages or (
        message("assistant", "I look.", tool_calls=[tool_call("execute_bash", {"command": "ls"})]),
        message(
            "tool",
            "OBSERVATION:\na.py\n[Command finished with exit code 0]",
            tool_call_id="c1",
            name="execute_bash",
        ),
        message("assistant", None, tool_calls=[tool_call("finish", {}, "c2")]),
    )
    return [
        message("system", "You are a helpful assistant."),
        message("user", "<pr_description>\nIt breaks.\n</pr_description>\nMend it."),
        *told,
    ]


def rebench(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row of nebius/SWE-rebench-openhands-trajectories."""
    return {
        "trajectory_id": "chatcmpl-1",
        "instance_id": "org__repo-1",
        "repo": "org/repo",
        "trajectory": chat(*messages),
        "tools": [{"type": "function", "function": {"name": "execute_bash"}}],
        "model_patch": "diff",
        "exit_status": "submit",
        "resolved": 1,
        "gen_tests_correct": None,
        "pred_passes_gen_tests": 0.0,
        **more,
    }


def gym(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row of SWE-Gym/OpenHands-Sampled-Trajectories."""
    return {
        "instance_id": "org__repo-1",
        "run_id": "gpt-x_maxiter_50_N_v2-run_1",
        "resolved": True,
        "messages": chat(*messages),
        "tools": [{"type": "function", "function": {"name": "execute_bash"}}],
        "test_result": {"git_patch": "diff", "report": {"resolved": True, "error_eval": False}},
        **more,
    }


# ---- SWE-smith, in three spellings

EDIT = {"command": "str_replace", "path": "/a.py", "old_str": "it's\n", "new_str": "\n x"}
LOOK = {"command": "view", "path": "/a.py", "view_range": [1, 9]}
TURNS: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    ("I look.", "bash", {"command": "ls -l"}, "ls -l", "a.py\r\n"),
    ("And in it.", "str_replace_editor", LOOK,
     "str_replace_editor view /a.py  --view_range 1 9", "1\tpass"),
    ("I change it.", "str_replace_editor", EDIT,
     "str_replace_editor str_replace /a.py   --old_str 'it'\"'\"'s\n' --new_str '\n x'", "Done."),
    ("It works.", "submit", {}, "submit", ""),
)  # fmt: skip
"""Thought, tool, arguments, what SWE-agent shows as the action, and what came back."""


def _xml(name: str, arguments: dict[str, Any]) -> str:
    texts = [
        f"<parameter={key}>\n{value}\n</parameter>" if key.endswith("_str")
        else f"<parameter={key}>{value}</parameter>"
        for key, value in arguments.items()
    ]  # fmt: skip
    return "\n".join([f"<function={name}>", *texts, "</function>"])


def _spelt(spelling: str, number: int) -> list[dict[str, Any]]:
    thought, name, arguments, action, observation = TURNS[number]
    shown = f"OBSERVATION:\n{observation}"
    if spelling == "xml":
        said = [{"role": "assistant", "content": f"{thought}\n\n{_xml(name, arguments)}"}]
    elif spelling == "ticks":
        said = [{"role": "assistant", "content": f"{thought}\n\n```\n{action}\n```"}]
    else:
        call = tool_call(name, arguments, f"c{number}")
        said = [{
            "role": "assistant", "content": thought, "thought": thought, "action": action,
            "agent": "main", "message_type": "action", "tool_calls": [call],
        }]  # fmt: skip
        reply = {"role": "tool", "content": [{"type": "text", "text": shown}]}
        return [*said, {**reply, "tool_call_ids": [f"c{number}"]}][: 1 if name == "submit" else 2]
    return said if name == "submit" else [*said, {"role": "user", "content": shown}]


def smith(
    spelling: str, *last: dict[str, Any], as_text: bool = True, **more: Any
) -> dict[str, Any]:
    """A row of SWE-bench/SWE-smith-trajectories; ``last`` stands in for its last turn."""
    turns = range(len(TURNS) - bool(last))
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "<pr_description>\nIt breaks.\n</pr_description>\nMend it."},
        *(one for number in turns for one in _spelt(spelling, number)),
        *last,
    ]
    return {
        "messages": json.dumps(messages) if as_text else messages,
        "instance_id": "org__repo.0123abcd.pr_1",
        "resolved": True,
        "model": "some-model",
        "traj_id": f"org__repo.0123abcd.pr_1.{spelling}",
        "patch": "diff",
        **more,
    }
