"""The stages of the loop; each ends with what it did in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from sag_research.errors import SagError
from sag_research.lab.export_job._desk import Desk, observed_text
from sag_research.lab.export_job._feedback import call_text
from sag_research.lab.export_job._progress import Done, Move, final_of, next_move
from sag_research.lab.export_job._verify import recheck, verify
from sag_research.model import Call
from sag_research.runtime import Graph, graph

__all__ = ["LOOK", "STAGES"]

_STATUS: Final = {"success": "ok", "failed": "error", "unknown": "unknown"}


def _look(desk: Desk) -> Move | Done:
    return next_move(desk.progress(), desk.limits, desk.clock())


def _begin(desk: Desk, move: Move) -> None:
    desk.authorise()
    desk.append("job.started", {"at": desk.clock()})


def _decide(desk: Desk, move: Move) -> None:
    desk.authorise()
    desk.calls.llm(desk.model, desk.question())


def _act(desk: Desk, move: Move) -> None:
    """Carry out the next call of the batch; its intent is in the log before it."""
    desk.authorise()
    progress = desk.progress()
    turn = progress.turns[-1]
    call = turn.reply.calls[len(turn.observations)]
    seen = progress.observed

    def carried_out(**arguments: Any) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(desk.toolbox.run(call.name, arguments, seen))
        desk.world_acted()
        return plain

    desk.calls.caused_by(turn.decided).tool(call.name, carried_out, call.arguments)


def _close(desk: Desk, move: Move) -> None:
    """End the turn with the one event that every turn has."""
    turn = desk.progress().turns[-1]
    observed = dict(enumerate(turn.observations))
    calls = [
        Call(
            id=call.id, name=call.name, arguments=call.arguments, text=call_text(call),
            observation=observed_text(observed[place]) if place in observed else "",
            status=_STATUS[observed[place].status] if place in observed else "error",
        )
        for place, call in enumerate(turn.reply.calls)
    ]  # fmt: skip
    payload: dict[str, Any] = {
        "thought": turn.reply.text or "",
        "action": "\n".join(call.text for call in calls),
        "observation": "\n".join(call.observation for call in calls if call.observation),
        "calls": [msgspec.structs.asdict(call) for call in calls],
        "flags": list(move.flags),
    }
    if turn.reply.usage is not None:
        payload["usage"] = msgspec.to_builtins(turn.reply.usage)
    desk.close_turn(payload, turn.decided)


def _verify(desk: Desk, move: Move) -> None:
    desk.authorise()
    progress = desk.progress()
    turn = progress.turns[-1]
    answer = final_of(turn.reply)
    if isinstance(answer, str):
        raise SagError("a malformed answer cannot be verified", why=answer)
    saved = desk.download if desk.request.delivery == "browser" else None
    verdict = verify(answer, desk.request, progress, desk.evidence, desk.toolbox.client, saved)
    desk.world_acted()
    desk.append("job.verified", msgspec.to_builtins(verdict), turn.decided)


def _stop(desk: Desk, move: Move) -> None:
    desk.append("job.stopped", {"reason": move.reason})


def _publish(desk: Desk, move: Move) -> None:
    """Check everything once more, hand the report over, end the run."""
    desk.authorise()
    recheck(desk.progress(), desk.request, desk.evidence)
    desk.publish()


def _stage(name: str, work: Callable[[Desk, Move], None]) -> Graph:
    return graph(name).node(name, lambda given: work(*given))


LOOK: Final = graph("look").node("look", _look)
STAGES: Final = {
    name: _stage(name, work)
    for name, work in (
        ("begin", _begin), ("decide", _decide), ("act", _act), ("close", _close),
        ("verify", _verify), ("stop", _stop), ("publish", _publish),
    )
}  # fmt: skip
