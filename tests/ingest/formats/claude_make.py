"""Lines of Claude Code as it writes them, in the smallest form that shows a trap."""

import json
from datetime import UTC, datetime

SESSION = "5e55-main"


def clock(seconds):
    return datetime.fromtimestamp(1_750_000_000 + seconds, UTC).isoformat().replace("+00:00", "Z")


def line(kind, uuid, parent, message, at=0, **more):
    """Return a line of a session file."""
    envelope = {
        "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/repo",
        "sessionId": SESSION, "version": "2.1.0", "gitBranch": "main", "type": kind,
        "message": message, "uuid": uuid, "timestamp": clock(at),
    }  # fmt: skip
    return {**envelope, **more}


def user(uuid, parent, content, at=0, **more):
    return line("user", uuid, parent, {"role": "user", "content": content}, at, **more)


def reply(uuid, parent, blocks, message_id, at=0, usage=(100, 10), **more):
    """Return one line of a reply; `usage` is what it says of tokens read and written."""
    content = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
    message = {
        "id": message_id, "type": "message", "role": "assistant", "model": "claude-x",
        "content": content, "stop_reason": None,
        "usage": {"input_tokens": usage[0], "output_tokens": usage[1]},
    }  # fmt: skip
    return line("assistant", uuid, parent, message, at, requestId=f"req-{message_id}", **more)


def text(words):
    return {"type": "text", "text": words}


def call(call_id, name="Bash", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(uuid, parent, call_id, content, at=0, told=None, **more):
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    block |= {name: more.pop(name) for name in ("is_error",) if name in more}
    extra = {} if told is None else {"toolUseResult": told}
    return user(uuid, parent, [block], at, **extra, **more)


def lines(*entries):
    r"""Return JSON lines; half a character is written as an escape, like ``\ud835``."""
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()


def simple():
    """Return a session of two steps, with a call in the first."""
    return [
        user("u1", None, "Mend the parser."),
        reply("a1", "u1", [text("I look."), call("t1", command="ls")], "m1", 2),
        result("r1", "a1", "t1", "parser.py", 5),
        reply("a2", "r1", "Mended.", "m2", 7),
    ]


def family():
    """Return a session with a fork, a compaction, a sub-agent and a branch without a reply."""
    side = {"isSidechain": True, "agentId": "ag1"}
    return [
        *simple(),
        user("u2", "a2", "Now test it.", 10),
        reply("a3", "u2", [call("t3", "Task", prompt="Run all tests.", subagent_type="Tester")],
              "m3", 11),
        user("s1", None, "Run all tests.", 12, **side),
        reply("s2", "s1", [call("t9", command="pytest")], "m9", 13, **side),
        result("s3", "s2", "t9", "3 passed", 14, **side),
        reply("s4", "s3", "All pass.", "m10", 15, **side),
        result("r3", "a3", "t3", "All pass.", 16, {"agentId": "ag1", "totalTokens": 5}),
        reply("a4", "r3", "Tested.", "m4", 17),
        user("u3", "a2", "No, document it.", 20),
        reply("a5", "u3", "Documented.", "m5", 21),
        user("u4", "a5", "Never answered.", 22),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": None,
         "logicalParentUuid": "a5", "sessionId": SESSION, "timestamp": clock(30),
         "compactMetadata": {"trigger": "auto", "preTokens": 9}},
        user("k1", "b1", "They mended and documented a parser.", 31, isCompactSummary=True),
        user("u5", "k1", "Go on.", 32),
        reply("a6", "u5", "Going on.", "m6", 33),
    ]  # fmt: skip


def stream(kind, **more):
    """Return a line of what the program prints as stream-json."""
    return {"type": kind, "session_id": SESSION, **more}


def streamed():
    """Return a run of two steps with a sub-agent, as it is printed."""

    def said(message_id, blocks, caller=None):
        message = {
            "id": message_id, "role": "assistant", "model": "claude-x", "content": blocks,
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 1},
        }  # fmt: skip
        return stream("assistant", message=message, parent_tool_use_id=caller)

    def came(call_id, content, caller=None):
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        return stream("user", message={"role": "user", "content": [block]},
                      parent_tool_use_id=caller)  # fmt: skip

    return [
        stream("system", subtype="init", cwd="/repo", model="claude-x", tools=["Bash", "Task"],
               claude_code_version="2.1.0"),
        said("m1", [call("t1", "Task", prompt="Look.", subagent_type="Explore")]),
        said("m9", [call("t9", command="ls")], "t1"),
        came("t9", "a.py", "t1"),
        came("t1", "There is a.py."),
        said("m2", [text("One file: a.py.")]),
        stream("result", subtype="success", is_error=False, num_turns=2, total_cost_usd=0.25,
               result="One file: a.py.",
               usage={"input_tokens": 6, "cache_read_input_tokens": 80, "output_tokens": 30}),
    ]  # fmt: skip
