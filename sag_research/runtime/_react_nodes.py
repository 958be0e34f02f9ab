"""The nodes of the agent that reasons and acts; its plan and its document share them.

Each is a function of the conversation's state, which is plain JSON data, and of the bench, which
holds what the conversation needs from outside. It returns the port that it leaves by.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import BadPayloadError
from sag_research.llm import Identity, Model, ModelError, Reply, Request
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import Call, Usage
from sag_research.runtime._experiment_context import RunContext
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import BudgetExceededError, LoopCancelledError
from sag_research.runtime._react_messages import exchange, plain, refused
from sag_research.runtime._react_text import calls_in_text
from sag_research.runtime._stream import Faucet
from sag_research.runtime._tool import Tool, ToolResult

__all__ = ["PORTS", "TOOL", "Bench", "Node", "State", "call_tool", "dispatch_tools"]

State: TypeAlias = MutableMapping[str, Any]
Node: TypeAlias = "Callable[[State, Bench], str]"

TOOL: Final = "tool:"
_ANSWERS: Final = ("llm.responded", "llm.failed", "call.reused")


class Bench(msgspec.Struct, kw_only=True):
    """What a conversation needs beside its state."""

    ctx: RunContext
    model: Model | Identity | None
    tools: Mapping[str, Tool]
    parameters: Mapping[str, Any] = {}
    in_text: bool = False
    """Whether calls and their results are written as text."""
    faucet: Faucet | None = None
    token: CancelToken = msgspec.field(default_factory=CancelToken)
    last_turn: int | None = None
    """Number of the last turn that may be begun."""

    def check(self) -> None:
        """Raise where the conversation should come to its end."""
        if self.token.cancelled:
            raise LoopCancelledError("the agent was cancelled", self.token.reason)


# ---- asking


def build_request(state: State, bench: Bench) -> str:
    """Begin a turn: what the model is asked."""
    bench.check()
    if bench.last_turn is not None and state["turn"] >= bench.last_turn:
        raise BudgetExceededError("the agent has no turn left", why="it has not answered yet")
    if not any(message["role"] == "user" for message in state["messages"]):
        return _failed(state, "no-goal", "the agent has no goal")
    offered = () if bench.in_text else bench.tools.values()
    state["request"] = {
        "messages": list(state["messages"]),
        "tools": [plain(tool.offered) for tool in offered],
        "parameters": dict(bench.parameters),
    }
    state.update(turn=state["turn"] + 1, started=time.time(), seconds=None)
    state.update(calls=[], problems=[], feedback="", safeWorkset=[], toolOutputs=[])
    return "ready"


def call_model(state: State, bench: Bench) -> str:
    """Ask the model; a failure of it ends the conversation."""
    request = msgspec.convert(state["request"], Request)
    store, run = bench.ctx.store, bench.ctx.run_id
    before = store.head(run).position
    try:
        reply = _asked(request, bench, before)
    except (ModelError, BadPayloadError) as error:  # NaN, for one, cannot be recorded
        return _failed(state, "model-error", str(error))
    state["reply"] = plain(reply)
    state["cause"] = _answer_after(store, run, before)
    if reply.calls:
        return "mixed" if reply.text else "tools"
    return "text"


def _asked(request: Request, bench: Bench, cause: int) -> Reply:
    if bench.faucet is None:
        return bench.ctx.llm(bench.model, request, cause=cause)
    return bench.faucet.reply(
        bench.ctx.stream(bench.model, request, cause=cause),
        may_call=bool(bench.tools),
        is_answer=lambda reply: not reply.calls and calls_in_text(reply.text or "") is None,
        check=bench.check,
    )


def _answer_after(store: SQLiteEventStore, run: str, before: int) -> int | None:
    """Return the position of the decision: the last answer of a model since a position."""
    found = None
    for event in store.read(run, before + 1, types=_ANSWERS):
        found = event.position
    return found


def normalize_response(state: State, bench: Bench) -> str:
    """Bring a reply into one shape: what was said, and the calls, also those in its text."""
    reply = msgspec.convert(state["reply"], Reply)
    text = reply.text or ""
    calls = [{"name": c.name, "arguments": c.arguments, "id": c.id} for c in reply.calls]
    if not calls and bench.tools and (written := calls_in_text(text)) is not None:
        text, calls = written.prose, list(written.calls)
        state["problems"] = [f"{written.dropped} entries are no calls"] if written.dropped else []
        if not calls:
            state["problems"] = ["nothing in tool_calls is a call with a name"]
    state.update(thought=text, asked=calls)
    if calls or state["problems"]:
        return "mixed" if text.strip() else "tools"
    if text.strip():
        return "text"
    _write(state, bench, flags=("rejected",))
    return _failed(state, "empty-reply", "the model said nothing and called nothing", "empty")


# ---- answering


def append_assistant(state: State, bench: Bench) -> str:
    """End with the model's text as the answer."""
    text = state["thought"]
    _write(state, bench, flags=("final",))
    state["messages"] = [*state["messages"], {"role": "assistant", "content": text}]
    state["final"] = text
    return "done"


# ---- acting


def decode_tools(state: State, bench: Bench) -> str:
    """Read the calls of a decision; each has an id from here on."""
    calls = []
    for number, asked in enumerate(state["asked"]):
        given = asked["id"] or f"call-{state['turn']}-{number + 1}"
        arguments = _recordable(asked["arguments"])
        calls.append({"id": given, "name": asked["name"], "arguments": arguments})
    state["calls"] = calls
    return "decoded" if calls or state["problems"] else "empty"


def _recordable(arguments: Any) -> Any:
    """Return arguments as the log takes them, if need be as a text, which no tool takes."""
    try:
        canonical_digest({"arguments": arguments})
    except BadPayloadError:
        return clip(repair(json.dumps(arguments)), 1_000)
    return arguments


def normalize_tools(state: State, bench: Bench) -> str:
    """Check a decision as a whole: all its calls are carried out, or none."""
    calls = state["calls"]
    if not calls and not state["problems"]:
        return "empty"
    found = list(state["problems"])
    found += _doubled([call["id"] for call in calls])
    for call in calls:
        if (tool := bench.tools.get(call["name"])) is None:
            known = ", ".join(bench.tools) or "none"
            found.append(f"there is no tool {clip(call['name'])!r}; there are: {known}")
        elif (error := tool.refusal(call["arguments"])) is not None:
            about = "; ".join(error.problems) or error.message
            found.append(f"{call['name']}: {about}")
    if found:
        listed = "\n".join(f"- {one}" for one in found)
        state["feedback"] = f"Nothing of this was carried out:\n{listed}\nCorrect it and go on."
    return "valid"


def _doubled(ids: list[str]) -> list[str]:
    return [
        f"two calls have the id {clip(one)!r}" for one in {i: 0 for i in ids if ids.count(i) > 1}
    ]


def build_worksets(state: State, bench: Bench) -> str:
    """Lay out the calls that will be carried out; none of a decision that was refused."""
    if not state["calls"] and not state["feedback"]:
        return "empty"
    accepted = [] if state["feedback"] else state["calls"]
    state["safeWorkset"] = [
        {"dagIri": f"{TOOL}{call['name']}", "call": call, "cause": state["cause"]}
        for call in accepted
    ]
    return "ready"


def call_tool(state: State, bench: Bench) -> str:
    """Carry out one call, ``state["currentItem"]``, and leave what came of it as ``output``."""
    bench.check()
    item = state["currentItem"]
    call, began = item["call"], time.perf_counter()
    tool = bench.tools[call["name"]]
    result: ToolResult = tool.call(call["arguments"], bench.ctx, cause=item["cause"])
    state["output"] = {
        "id": call["id"], "status": result.status, "observation": result.text,
        "seconds": time.perf_counter() - began,
    }  # fmt: skip
    return "success" if result.error is None else "error"


def dispatch_tools(state: State, bench: Bench) -> str:
    """Carry out the calls one after the other."""
    outputs, ports = [], []
    for item in state["safeWorkset"]:
        own: State = {"currentItem": item}
        ports.append(call_tool(own, bench))
        outputs.append(own["output"])
    state["toolOutputs"] = outputs
    if not ports:
        return "empty"
    good = ports.count("success")
    return "all-success" if good == len(ports) else "partial" if good else "all-error"


def collect_results(state: State, bench: Bench) -> str:
    """End the turn: write it down, and tell the model what came back."""
    said, calls = state["thought"], state["calls"]
    if state["feedback"]:
        _write(state, bench, calls, flags=("rejected",), feedback=state["feedback"])
        state["messages"] = [*state["messages"], *refused(said, state["feedback"])]
        return "empty"
    outputs = {output["id"]: output for output in state["toolOutputs"]}
    seconds = [output["seconds"] for output in outputs.values()]
    state["seconds"] = sum(seconds) if seconds else None
    done = [call | outputs.get(call["id"], _NOTHING | {"id": call["id"]}) for call in calls]
    _write(state, bench, done)
    state["messages"] = [*state["messages"], *exchange(said, done, bench.in_text)]
    return "done"


_NOTHING: Final = {"status": "unknown", "observation": "", "seconds": None}


# ---- what is written down


def _write(
    state: State,
    bench: Bench,
    calls: Iterable[Mapping[str, Any]] = (),
    flags: tuple[str, ...] = (),
    **more: Any,
) -> None:
    """Write the one event ``agent.step`` of a turn."""
    made = [_call(call) for call in calls]
    used = state["reply"].get("usage")
    if state["seconds"] is not None:
        more["seconds"] = state["seconds"]
    bench.ctx.step(
        state["thought"],
        "\n".join(call.text for call in made),
        "\n".join(call.observation for call in made if call.status != "unknown"),
        calls=made,
        flags=flags,
        usage=msgspec.convert(used, Usage) if used else None,
        started=state["started"],
        **more,
    )


def _call(call: Mapping[str, Any]) -> Call:
    arguments = call["arguments"]
    told = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return Call(
        id=call["id"], name=call["name"], arguments=arguments, text=f"{call['name']}({told})",
        observation=call.get("observation", ""), status=call.get("status", "unknown"),
    )  # fmt: skip


def _failed(state: State, code: str, message: str, port: str = "error") -> str:
    state["error"] = {"code": code, "message": clip(message, 500)}
    return port


PORTS: Final[dict[str, tuple[Node, tuple[str, ...]]]] = {
    "build-request": (build_request, ("ready", "error")),
    "call-model": (call_model, ("text", "tools", "mixed", "error")),
    "normalize-response": (normalize_response, ("text", "tools", "mixed", "empty", "error")),
    "append-assistant": (append_assistant, ("done", "error")),
    "decode-tools": (decode_tools, ("decoded", "empty", "error")),
    "normalize-tools": (normalize_tools, ("valid", "empty", "error")),
    "build-worksets": (build_worksets, ("ready", "empty", "error")),
    "collect-results": (collect_results, ("done", "empty", "error")),
}
"""The nodes by the names that documents use, each with all the ports it may leave by."""
