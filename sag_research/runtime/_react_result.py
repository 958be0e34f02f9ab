"""What became of an agent's run, read from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sag_research._text import clip, escape, html_table
from sag_research.bloom import TraceItem, trace_items
from sag_research.log import SQLiteEventStore, canonical_digest
from sag_research.model import Event, Step
from sag_research.runtime._experiment_context import ending

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ReactResult"]

_SHOWN: Final = 50
_CLOCKS: Final = ("started", "seconds")


class ReactResult:
    """The run of an agent that reasons and acts, as the log has it.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str

    Attributes
    ----------
    store : SQLiteEventStore
    run_id : str
    """

    def __init__(self, store: SQLiteEventStore, run_id: str) -> None:
        self.store, self.run_id = store, run_id

    def __repr__(self) -> str:
        many = len(self._payloads())
        status = "still running" if self.status == "running" else self.status
        why = self.exit_status
        told = f" ({why})" if why not in ("", self.status) else ""
        return f"ReactResult({self.run_id!r}: {status}{told} after {many} step{'s' * (many != 1)})"

    def _repr_html_(self) -> str:
        steps = self.steps
        rows = [
            (n, clip(s.thought), clip(s.action), clip(s.observation), ", ".join(s.flags))
            for n, s in enumerate(steps[:_SHOWN])
        ]
        names = ["step", "thought", "action", "observation", "flags"]
        return f"<p>{escape(repr(self))}</p>{html_table(names, rows, len(steps))}"

    @property
    def status(self) -> str:
        """``completed``, ``failed``, ``cancelled`` or ``running``."""
        end = self._end()
        return "running" if end is None else end.type.removeprefix("run.")

    @property
    def exit_status(self) -> str:
        """Why the run stopped; empty while it has not.

        ``completed``, ``max-steps``, ``model-error``, ``empty-reply``, ``cancelled`` or ``error``.
        """
        end = self._end()
        return "" if end is None else str(end.payload.get("exit_status", ""))

    @property
    def error(self) -> str:
        """What went wrong, where the run failed for an error."""
        end = self._end()
        told: dict[str, Any] = {} if end is None else end.payload.get("error") or {}
        return str(told.get("message", ""))

    @property
    def answer(self) -> str | None:
        """The answer, ``None`` where there is none."""
        steps = self.steps
        return steps[-1].thought if steps and "final" in steps[-1].flags else None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The turns, those of a fork's ancestors included."""
        return tuple(msgspec.convert(payload, Step) for payload in self._payloads())

    @property
    def step_digests(self) -> tuple[str, ...]:
        """A digest of each step's content, without its clocks.

        Equal for two runs in which the same was thought, done and seen, whatever else is in
        their logs.
        """
        contents = (
            {name: value for name, value in payload.items() if name not in _CLOCKS}
            for payload in self._payloads()
        )
        return tuple(canonical_digest(content) for content in contents)

    @property
    def table_(self) -> pd.DataFrame:
        """One row for each step: ``step, thought, action, observation, n_calls, flags``."""
        import pandas as pd

        names = ["step", "thought", "action", "observation", "n_calls", "flags"]
        rows = [
            (n, s.thought, s.action, s.observation, len(s.calls), ", ".join(s.flags))
            for n, s in enumerate(self.steps)
        ]
        return pd.DataFrame(rows, columns=names)

    @property
    def trace(self) -> tuple[TraceItem, ...]:
        """Thoughts, actions, observations and the final, in order."""
        return tuple(trace_items(self.steps, completed=self.status == "completed"))

    def _payloads(self) -> list[dict[str, Any]]:
        return [event.payload for event in self.store.read(self.run_id, types=("agent.step",))]

    def _end(self) -> Event | None:
        own = self.store.get_run(self.run_id).fork_position + 1
        return ending(self.store, self.run_id, own)
