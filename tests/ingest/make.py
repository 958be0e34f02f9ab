"""Small trajectory files of every shape, written for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(path: Path, value: Any) -> Path:
    """Write bytes as they are, and anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def swe_step(action: str = "ls\n", observation: str = "a.py", **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "observation": observation,
        "response": f"Look around.\n```\n{action}```",
        "thought": "Look around.",
        "state": '{"open_file": "n/a", "working_dir": "/repo"}',
        **more,
    }


def swe_file(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A SWE-agent 0.x file."""
    return {
        "environment": "swe_main",
        "trajectory": list(steps) or [swe_step()],
        "history": [
            {"role": "system", "content": "You are a programmer.", "agent": "primary"},
            {
                "role": "user",
                "content": "ISSUE:\nIt is broken.\n\nINSTRUCTIONS:\n.",
                "agent": "primary",
            },
        ],
        "info": {"exit_status": "submitted", "submission": "diff"},
        **more,
    }


def tool_call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def mini_turn(command: str, **extra: Any) -> dict[str, Any]:
    content = f"THOUGHT: go on\n\n```bash\n{command}\n```"
    return {"role": "assistant", "content": content, "extra": extra}


def mini_seen(output: str, code: int = 0) -> dict[str, Any]:
    text = f"<returncode>{code}</returncode>\n<output>\n{output}\n</output>"
    return {"role": "user", "content": text}


def mini_file(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A mini-swe-agent 1 file that ends in a submission."""
    return {
        "info": {
            "exit_status": "Submitted",
            "submission": "the patch",
            "model_stats": {"instance_cost": 0.5, "api_calls": 2},
            "mini_version": "1.15.0",
            "config": {"model": {"model_name": "some/model"}},
        },
        "messages": [
            {"role": "system", "content": "You have a shell."},
            {"role": "user", "content": "<pr_description>\nIt is broken.\n</pr_description>\nGo."},
            *(messages or (mini_turn("ls"), mini_seen("a.py"))),
            mini_turn("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
            {"role": "user", "content": "the patch"},
        ],
        "trajectory_format": "mini-swe-agent-1",
        "instance_id": "org__repo-1",
        **more,
    }


def tau_result(task_id: Any = 0, trial: int = 0, reward: Any = 1.0, **more: Any) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "reward": reward,
        "info": {"task": {"instruction": "You want a flight."}, "user_cost": 0.1},
        "traj": [
            {"role": "system", "content": "# Airline Agent Policy\n\nBe kind."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Your id?"},
            {"role": "user", "content": "mia"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [tool_call("find", {"id": "mia"})],
            },
            {"role": "tool", "tool_call_id": "c1", "name": "find", "content": "Error: no user"},
        ],
        "trial": trial,
        **more,
    }


def native(task_id: str = "t", **more: Any) -> dict[str, Any]:
    steps = [{"thought": "look", "action": "ls", "observation": "a.py"}]
    return {"task_id": task_id, "steps": steps, **more}
