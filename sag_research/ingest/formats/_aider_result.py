"""The result of a benchmark beside an aider chat, and which session it speaks of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sag_research.errors import FormatError
from sag_research.ingest._json import loads
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.model import Outcome

__all__ = ["Result", "result_beside"]

_ENDS: Final = re.compile(r"(?:\.(?:md|gz|zst|zstd))+$")
_OTHERS: Final = (".json", ".json.gz", ".json.zst")
_LARGEST: Final = 64 * 2**20
_ROUNDED: Final = 5e-5
"""US dollars by which the sum of a session's rounded lines may be off."""
_KEPT: Final = (
    "try", "edit_outcome", "lint_outcome", "test_outcome", "added_files", "edited_files",
    "gold_files",
)  # fmt: skip


class Result(NamedTuple):
    """What a benchmark says of one instance."""

    value: dict[str, Any]
    attempts: list[dict[str, Any]]

    @property
    def task_id(self) -> str:
        """The instance."""
        return shared.word(self.value.get("instance_id")) or "unnamed"

    def by_session(
        self, costs: Sequence[float], models: Sequence[str | None]
    ) -> dict[int, dict[str, Any]]:
        """Find the attempt of each session: in order, of the same model and the same cost.

        Sessions that were broken off have none.
        """
        if len(costs) == len(self.attempts) == 1:
            return {0: self.attempts[0]}
        found: dict[int, dict[str, Any]] = {}
        start = 0
        for attempt in self.attempts:
            cost, model = shared.number(attempt.get("cost")), shared.word(attempt.get("model"))
            for number in range(start, len(costs)):
                named = model is None or models[number] in (None, model)
                if cost is not None and named and abs(costs[number] - cost) < _ROUNDED:
                    found[number] = attempt
                    start = number + 1
                    break
        return found

    def is_chosen(self, attempt: dict[str, Any]) -> bool:
        """Tell whether an attempt is the one that was handed in and judged."""
        same = ("model_patch", "try", "model")
        fitting = [
            one
            for one in self.attempts
            if all(one.get(name) == self.value.get(name, one.get(name)) for name in same)
        ]
        return len(fitting) == 1 and fitting[0] is attempt

    @property
    def outcome(self) -> Outcome | None:
        """The verdict; none where ``resolved`` is no truth value."""
        resolved = self.value.get("resolved")
        if not isinstance(resolved, bool):
            return None
        done: Any = "success" if resolved else "failure"
        return Outcome(outcome=done, source="aider resolved")

    def about(self, attempt: dict[str, Any]) -> dict[str, Any]:
        """Return what is kept of an attempt."""
        return {name: attempt[name] for name in _KEPT if attempt.get(name) is not None}


def result_beside(path: Path) -> Result | None:
    """Read the JSON of the same name beside a chat; None if there is none that can be read."""
    stem = _ENDS.sub("", path.name)
    for end in _OTHERS:
        beside = path.absolute().with_name(f"{stem}{end}") if stem else None
        if beside is None or not beside.is_file():
            continue
        try:
            if beside.stat().st_size > _LARGEST:
                continue
            value = loads(Source(beside).bytes())
        except (FormatError, OSError):
            continue
        if isinstance(value, dict) and shared.word(value.get("instance_id")):
            listed = value.get("all_results")
            tried = listed if isinstance(listed, list) else [value]
            return Result(value, [one for one in tried if isinstance(one, dict)])
    return None
