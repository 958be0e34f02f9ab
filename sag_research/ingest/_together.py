"""What several readers found in one source, put together as if one had read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest._reading import Read, no_run_in
from sag_research.ingest._reasons import reason_of

__all__ = ["put_together"]


def put_together(readers: Sequence[Callable[[], Read]]) -> Iterator[Read]:
    """Yield the parts of a shared source in the order of its rows.

    Parameters
    ----------
    readers : sequence of callable
        Each gives the next part of what one reader found, in the order of their shares.

    Yields
    ------
    Read
        All but the last have runs. The last one says what became of the source; nothing of it
        may be kept where that is a refusal.
    """
    waiting = deque(readers)
    ends: list[Read] = []
    notes, told, refused = list[str](), list[str](), list[tuple[str, str]]()
    warnings: dict[str, None] = {}
    ids: set[str] = set()
    while waiting:
        part = waiting[0]()
        notes += part.notes
        told += part.told
        refused += part.refused
        warnings |= dict.fromkeys(part.warnings)
        if part.turn:
            waiting.rotate(-1)
        elif not part.more:
            waiting.popleft()
            ends.append(part)
        if part.runs and not any(end.reason for end in ends):
            if fault := _fault(part, ids):
                ends.append(replace(part, reason=fault, runs=[]))
                continue
            yield _of_many(part, runs=part.runs, warnings=[*warnings], more=True)
            warnings.clear()
    last = _last(ends, not ids, [*notes, *told], refused)
    yield replace(last, warnings=[*warnings])


def _fault(part: Read, ids: set[str]) -> str:
    """See that no two runs have one id; those of a share are told apart where they are read."""
    for run_id in (one.run.run_id for one in part.runs):
        if run_id in ids:
            return reason_of(FormatError(f"two runs of the id {run_id!r}"))
        ids.add(run_id)
    return ""


def _of_many(part: Read, **more: Any) -> Read:
    alone = {"runs": [], "notes": [], "told": [], "refused": [], "more": False, "turn": False}
    return replace(part, **(alone | more))


def _last(
    ends: Sequence[Read], is_empty: bool, notes: list[str], refused: list[tuple[str, str]]
) -> Read:
    bad = next((end for end in ends if end.reason), None)
    if bad is not None:
        return _of_many(bad)
    end = next((end for end in ends if end.digest), ends[0])
    if end.known:
        return end
    if is_empty:
        return _of_many(end, reason=reason_of(no_run_in(notes, refused)), version="")
    return _of_many(end, notes=notes, refused=refused)
