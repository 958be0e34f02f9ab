"""What label sources say of runs, read from the log."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sag_research.log import SQLiteEventStore
from sag_research.model import WORKSPACE_RUN, Outcome, OutcomeName

__all__ = ["UNKNOWN", "read_outcomes"]

UNKNOWN: Final = Outcome(outcome="unknown")


def read_outcomes(store: SQLiteEventStore, run_ids: Collection[str]) -> dict[str, Outcome]:
    """Return the one known outcome of each run; unknown where sources are silent or disagree.

    The last word of each source counts, as in the view ``runs``.
    """
    wanted = frozenset(run_ids)
    said: dict[str, dict[str, dict[str, Any]]] = {}
    if store.has_run(WORKSPACE_RUN):
        for event in store.read(WORKSPACE_RUN, types=("outcome.recorded",)):
            about = event.payload
            if about.get("run") in wanted:
                sources = said.setdefault(about["run"], {})
                source = str(about.get("source", ""))
                sources.pop(source, None)  # so that the last word stands last
                sources[source] = about
    return {run_id: _agreed(list(said.get(run_id, {}).values())) for run_id in wanted}


def _agreed(said: list[dict[str, Any]]) -> Outcome:
    known = {about.get("outcome") for about in said} & {"success", "failure"}
    if len(known) > 1:
        return Outcome(outcome="unknown", detail="conflict")
    if not known:
        return _outcome("unknown", said[-1]) if said else UNKNOWN
    name: OutcomeName = "success" if "success" in known else "failure"
    return _outcome(name, next(about for about in reversed(said) if about["outcome"] == name))


def _outcome(name: OutcomeName, about: dict[str, Any]) -> Outcome:
    return Outcome(
        outcome=name,
        detail=about.get("detail"),
        score=about.get("score"),
        source=str(about.get("source", "")),
        known_at_step=about.get("known_at_step"),
    )
