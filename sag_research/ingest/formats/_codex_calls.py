"""Calls of Codex's tools, and what came back from them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._cli_turns import call_of
from sag_research.ingest.formats._codex_lines import Line
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.ingest.formats._shared import Result
from sag_research.model import Call

__all__ = ["CALLS", "OUTPUTS", "Told", "call_in", "is_refused", "result_of", "told_in"]

CALLS: Final = frozenset({
    "custom_tool_call", "function_call", "image_generation_call", "local_shell_call",
    "tool_search_call", "web_search_call",
})  # fmt: skip
OUTPUTS: Final = frozenset({
    "custom_tool_call_output", "function_call_output", "local_shell_call_output",
    "mcp_tool_call_output", "tool_search_output",
})  # fmt: skip
_SHELL: Final = re.compile(r"(?:/\S*/)?(?:ba|z|da)?sh")
_HEAD: Final = 400
"""Characters in front of the output proper, which may tell of the exit code."""
_CODE: Final = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,9})\s*$", re.MULTILINE)
_TIME: Final = re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds\s*$", re.MULTILINE)
_OUTPUT: Final = re.compile(r"^Output:\s*$", re.MULTILINE)
_REFUSED: Final = re.compile(r"[\s\S]{0,60}\brejected by (?:the )?user\b", re.IGNORECASE)
_ENDED: Final = frozenset({"exec_command_end", "mcp_tool_call_end", "patch_apply_end"})


class Told(NamedTuple):
    """What the harness tells of a call, beside what the model was told."""

    code: int | None = None
    status: str = "unknown"
    seconds: float | None = None


def told_in(lines: Iterable[Line]) -> dict[str, Told]:
    """Return what events tell of calls, by the calls' ids."""
    found: dict[str, Told] = {}
    for line in lines:
        call_id = shared.word(line.body.get("call_id"))
        if line.kind == "event" and line.type in _ENDED and call_id is not None:
            found[call_id] = _told(line.body)
    return found


def _told(body: dict[str, Any]) -> Told:
    code, done, result = (body.get(key) for key in ("exit_code", "success", "result"))
    found = shared.integer(code)
    if found is not None:
        status = "error" if found else "ok"
    elif isinstance(done, bool):
        status = "ok" if done else "error"
    else:
        keys = mapping(result).keys()
        failed = "Err" in keys or mapping(mapping(result).get("Ok")).get("isError") is True
        status = "error" if failed else "ok" if "Ok" in keys else "unknown"
    return Told(found, status, _seconds(body.get("duration")))


def _seconds(value: Any) -> float | None:
    whole, rest = (shared.number(mapping(value).get(name)) for name in ("secs", "nanos"))
    return None if whole is None else whole + (rest or 0) / 1e9


def call_in(body: dict[str, Any]) -> Call:
    """Return the call that an item holds."""
    kind, name = body.get("type"), shared.word(body.get("name"))
    call_id = shared.word(body.get("call_id")) or body.get("id")
    if kind == "local_shell_call":
        return _typed(call_of(call_id, "local_shell", body.get("action")))
    if kind == "custom_tool_call":
        call = call_of(call_id, name, None)
        given = shared.text_of(body.get("input"))
        return replace(call, arguments=given, text=f"{call.name}({given})")
    if kind == "web_search_call":
        done = "ok" if body.get("status") == "completed" else "unknown"
        return replace(call_of(call_id, "web_search", body.get("action")), status=done)
    if kind == "tool_search_call":
        return call_of(call_id, "tool_search", body.get("arguments"))
    if kind == "image_generation_call":
        return call_of(call_id, "image_generation", {"prompt": body.get("revised_prompt")})
    space = shared.word(body.get("namespace")) or ""
    if space.startswith("mcp__"):
        name = f"{space.removesuffix('__')}__{name}"
    return _typed(call_of(call_id, name, body.get("arguments")))


def _typed(call: Call) -> Call:
    """Show a call of a shell as the command that was typed."""
    given = mapping(call.arguments)
    command = given.get("command", given.get("cmd"))
    if isinstance(command, str):
        return replace(call, text=command)
    if not isinstance(command, list) or not all(isinstance(one, str) for one in command):
        return call
    is_script = len(command) == 3 and _SHELL.fullmatch(command[0]) and command[1].startswith("-")
    return replace(call, text=command[2] if is_script else shlex.join(command))


def result_of(body: dict[str, Any], told: Told) -> tuple[Result, float | None]:
    """Return what came back, with the seconds that it took if that is known.

    The exit code stands inside the text: of an object that was written as text, or of lines in
    front of the output.
    """
    output = body.get("output", body.get("tools"))
    text, code, done, seconds = _unpacked(output)
    if code is None:
        code = told.code
    status = "error" if code else "ok" if code == 0 else told.status
    if status == "unknown" and isinstance(done, bool):
        status = "ok" if done else "error"
    call_id = shared.word(body.get("call_id")) or shared.word(body.get("id"))
    return Result(call_id, text, code, status), told.seconds if seconds is None else seconds


def _unpacked(output: Any) -> tuple[str, int | None, Any, float | None]:
    if isinstance(output, dict) and "content" in output:
        text, code, _, seconds = _unpacked(output["content"])
        return text, code, output.get("success"), seconds
    text = output if isinstance(output, str) else _listed(output)
    if text.startswith("{") and '"metadata"' in text:
        found = _object(text)
        about, inner = mapping(found.get("metadata")), found.get("output")
        if about and isinstance(inner, str):
            seconds = shared.number(about.get("duration_seconds"))
            return inner, shared.integer(about.get("exit_code")), None, seconds
    head = text[:_HEAD]
    begins = _OUTPUT.search(head)
    head = head[: begins.start()] if begins else head if _CODE.match(head) else ""
    code_in, time_in = _CODE.search(head), _TIME.search(head)
    return text, int(code_in[1]) if code_in else None, None, float(time_in[1]) if time_in else None


def _listed(output: Any) -> str:
    blocks = output if isinstance(output, list) else [output]
    if all(isinstance(one, str) or "text" in mapping(one) or one is None for one in blocks):
        return shared.text_of(output)
    kinds = (mapping(one).get("type") for one in blocks)
    if all(isinstance(kind, str) and kind.startswith("input_") for kind in kinds):
        return shared.text_of(output)
    return json.dumps(output, ensure_ascii=False)


def _object(text: str) -> dict[str, Any]:
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def is_refused(text: str) -> bool:
    """Tell whether the user refused a call.

    Examples
    --------
    >>> is_refused("exec command rejected by user"), is_refused("a.py")
    (True, False)
    """
    return _REFUSED.match(text) is not None
