"""SWE-agent 1.x ``.traj`` files of episodes."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

import zstandard

from sag_research.lab.bugfix._episode import MAX_STEPS, SYSTEM, Episode, Step
from sag_research.lab.bugfix._tasks import load_task
from sag_research.lab.bugfix.policy import Profile

__all__ = ["compress", "document", "to_bytes"]


def document(episode: Episode, traits: Profile, seed: int) -> dict[str, Any]:
    """The content of a ``.traj`` file.

    Notes
    -----
    ``execution_time`` is null: real durations would differ from run to run. Messages stand in
    ``history`` once; they are not repeated with each step.
    """
    return {
        "trajectory": [_step(step, traits) for step in episode.steps],
        "history": _history(episode, traits, seed),
        "info": {
            "exit_status": episode.exit_status,
            "submission": episode.submission,
            "model_stats": episode.stats,
        },
        "replay_config": json.dumps(_config(episode, traits, seed), separators=(",", ":")),
        "environment": episode.task_id,
    }


def to_bytes(content: dict[str, Any]) -> bytes:
    """JSON as UTF-8, ending in a line feed."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8") + b"\n"


def compress(data: bytes, suffix: str) -> bytes:
    """Compress as ``.gz`` or ``.zst``, with headers that hold no time and no name."""
    if suffix == ".gz":
        return gzip.compress(data, compresslevel=9, mtime=0)
    return zstandard.ZstdCompressor(level=19).compress(data)


def _step(step: Step, traits: Profile) -> dict[str, Any]:
    return {
        "action": step.action,
        "observation": step.observation,
        "response": _response(step, traits),
        "thought": step.turn.thought,
        "execution_time": None,
        "state": step.state,
        "extra_info": {},
    }


def _response(step: Step, traits: Profile) -> str:
    if traits.style == "function_calling" or not step.action:
        return step.turn.thought
    return f"{step.turn.thought}\n\n```\n{step.action}\n```"


def _history(episode: Episode, traits: Profile, seed: int) -> list[dict[str, Any]]:
    problem = f"Repair this bug in /repo:\n\n{load_task(episode.task_id).problem}"
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM, "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": problem, "agent": "main", "message_type": "observation"},
    ]
    for number, step in enumerate(episode.steps):
        messages += _exchange(step, traits, _call_id(episode, seed, number))
    return messages


def _exchange(step: Step, traits: Profile, call_id: str) -> list[dict[str, Any]]:
    said: dict[str, Any] = {
        "role": "assistant",
        "content": _response(step, traits),
        "thought": step.turn.thought,
        "action": step.action,
        "agent": "main",
        "message_type": "action",
    }
    heard: dict[str, Any] = {
        "role": "user",
        "content": step.observation,
        "agent": "main",
        "message_type": "observation",
    }
    if traits.style == "function_calling" and step.turn.name:
        arguments = json.dumps(step.turn.arguments, ensure_ascii=False)
        function = {"name": step.turn.name, "arguments": arguments}
        said["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        heard |= {"role": "tool", "tool_call_ids": [call_id]}
        heard["content"] = [{"type": "text", "text": step.observation}]
    return [said, heard]


def _call_id(episode: Episode, seed: int, number: int) -> str:
    text = f"{episode.task_id} {episode.model} {seed} {number}"
    return "call_" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _config(episode: Episode, traits: Profile, seed: int) -> dict[str, Any]:
    model = {
        "name": traits.name,
        "seed": seed,
        "per_instance_cost_limit": traits.cost_limit,
        "per_instance_call_limit": MAX_STEPS,
    }
    return {
        "agent": {
            "name": "main",
            "model": model,
            "tools": {"parse_function": {"type": traits.style}},
        },
        "env": {"repo": {"type": "preexisting", "repo_name": "repo"}},
        "problem_statement": {"type": "text", "id": episode.task_id},
    }
