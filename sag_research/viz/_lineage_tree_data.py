"""The forks of a run as plain data: who left whom, after which step, and what was changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sag_research.model import TERMINAL_TYPES
from sag_research.viz._prefix_explorer_data import plain

if TYPE_CHECKING:
    from sag_research.log import SQLiteEventStore
    from sag_research.runtime import Kin, Lineage

__all__ = ["MOST", "Ending", "change_words", "endings", "kept_rows", "lineage_data"]

MOST: Final = 2_000
"""Rows that are drawn at most."""
_SAID: Final = 200
_ABANDONED: Final = "run.abandoned"


class Ending(NamedTuple):
    """How a run ended, and what was changed when it was forked."""

    type: str = ""
    """Of the last event that ended it; empty while it goes on."""
    status: str = ""
    change: str = ""

    @property
    def words(self) -> str:
        """E.g. ``abandoned: dead end predicted``; empty for a run without an end."""
        name = self.type.partition(".")[2]
        return f"{name}: {self.status}" if self.status and self.status != name else name


def change_words(payload: Mapping[str, Any]) -> str:
    """Say what an intervention changed.

    Examples
    --------
    >>> change_words({"experiment": "e", "arm": "colder", "repeat": 1, "seed": 7,
    ...               "change": {"temperature": 0.2}})
    'arm colder, repeat 1: temperature = 0.2'
    >>> change_words({"backtrack": 1, "from": "r", "change": {"avoid": ["ls", "cat a"]}})
    'taken back for the 1st time: told to avoid 2 actions'
    >>> change_words({"model": "other", "prompt": {"hint": "read"}}), change_words({})
    ('model = other; prompt.hint = read', 'nothing')
    """
    change = payload.get("change")
    inner = dict(change) if isinstance(change, Mapping) else {}
    if "arm" in payload:
        repeat = f", repeat {payload['repeat']}" if "repeat" in payload else ""
        head = f"arm {payload['arm']}{repeat}"
    elif isinstance(payload.get("backtrack"), int):
        head = f"taken back for the {_ordinal(payload['backtrack'])} time"
        avoid = inner.pop("avoid", None)
        inner = {k: v for k, v in inner.items() if k not in ("backtrack", "feedback")}
        if isinstance(avoid, Sequence) and not isinstance(avoid, str) and avoid:
            return plain(f"{head}: told to avoid {_many(len(avoid), 'action')}", _SAID)
    else:
        head, inner = "", dict(payload)
    rest = "; ".join(f"{name} = {value}" for name, value in _flat(inner))
    return plain(": ".join(part for part in (head, rest) if part) or "nothing", _SAID)


def _flat(change: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in change.items():
        if isinstance(value, Mapping) and value and before.count(".") < 3:
            found += _flat(value, f"{before}{name}.")
        else:
            simple = isinstance(value, (list, tuple)) and len(value) < 20
            said = ", ".join(plain(one, _SAID) for one in value) if simple else value
            found.append((f"{before}{name}", plain(said, _SAID)))
    return found


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def _many(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def endings(store: SQLiteEventStore, kins: Sequence[Kin]) -> list[Ending]:
    """Read how runs ended and what was changed, each from its own events."""
    return [_ending(store, kin) for kin in kins]


def _ending(store: SQLiteEventStore, kin: Kin) -> Ending:
    own = kin.fork_position + 1
    change = ""
    if kin.parent_id is not None:
        payload = next((e.payload for e in store.read(kin.run_id, own, own, ("run.forked",))), {})
        change = change_words(payload)
    last = None
    for last in store.read(kin.run_id, own, types=TERMINAL_TYPES):  # noqa: B007
        pass
    if last is None:
        return Ending(change=change)
    status = last.payload.get("exit_status") or last.payload.get("reason") or ""
    return Ending(last.type, plain(status, 80), change)


def kept_rows(parents: Sequence[int], asked: int, most: int = MOST) -> list[int]:
    """Choose the runs that are drawn, in order; the forks left out get a row for each parent.

    The way to the run that was asked for always is; then come those of few generations.

    Parameters
    ----------
    parents : sequence of int
        Index of each run's parent, which stands before it; -1 for the root.
    asked : int
    most : int
        Rows, those of the forks left out included.
    """
    if len(parents) <= most:
        return list(range(len(parents)))
    depth = [0] * len(parents)
    for run, parent in enumerate(parents):
        depth[run] = depth[parent] + 1 if parent >= 0 else 0
    way = [asked]
    while parents[way[-1]] >= 0:
        way.append(parents[way[-1]])
    rank = sorted(range(len(parents)), key=lambda run: (run not in way, depth[run], run))
    count = most
    while True:
        kept = set(rank[:count])
        parted = {parents[run] for run in rank[count:] if parents[run] in kept}
        if count + len(parted) <= most or count <= len(way):
            return sorted(kept)
        count = max(len(way), count - (count + len(parted) - most))


def lineage_data(family: Lineage, found: Sequence[Ending], most: int = MOST) -> dict[str, Any]:
    """Collect the rows of a tree as columns, parents before their children.

    A row that stands for forks that are left out has their number in ``others``, and in
    ``counts`` all runs below them by outcome: n, failed, succeeded, unknown. The counts of all
    rows add up to the number of runs.
    """
    place = {kin.run_id: number for number, kin in enumerate(family.runs)}
    parents = [-1 if kin.parent_id is None else place[kin.parent_id] for kin in family.runs]
    kept = kept_rows(parents, place[family.run_id], most)
    left, totals = _left_out(family, parents, kept)
    row_of: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    inside = set(kept)
    children: defaultdict[int, list[int]] = defaultdict(list)
    for run in kept:
        if parents[run] in inside:
            children[parents[run]].append(run)
    waiting: list[tuple[int, bool]] = [(kept[0], False)]
    while waiting:
        run, is_rest = waiting.pop()
        if is_rest:
            depth = family.runs[run].depth + 1
            rows.append(_rest(row_of[run], depth, left[run], totals[run]))
            continue
        row_of[run] = len(rows)
        rows.append(_row(family.runs[run], found[run], row_of.get(parents[run], -1)))
        if left.get(run):
            waiting.append((run, True))
        waiting += [(child, False) for child in reversed(children[run])]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {**columns, "asked": row_of[place[family.run_id]]}


def _left_out(
    family: Lineage, parents: Sequence[int], kept: Sequence[int]
) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Count, for each run that is drawn, its forks that are not, and the runs below those."""
    inside = set(kept)
    forks: dict[int, int] = defaultdict(int)
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    host: dict[int, int] = {}
    for run, parent in enumerate(parents):
        if run in inside:
            continue
        host[run] = parent if parent in inside else host[parent]
        forks[host[run]] += parent in inside
        counts = _counts(family.runs[run].outcome)
        totals[host[run]] = [a + b for a, b in zip(totals[host[run]], counts, strict=True)]
    return dict(forks), dict(totals)


def _counts(outcome: str) -> list[int]:
    return [1, int(outcome == "failure"), int(outcome == "success"), int(outcome == "unknown")]


def _row(kin: Kin, ending: Ending, parent: int) -> dict[str, Any]:
    return {
        "id": plain(kin.run_id, 100),
        "parent": parent,
        "depth": kin.depth,
        "fork_step": kin.fork_step,
        "steps": kin.n_steps,
        "inherited": kin.n_inherited,
        "outcome": kin.outcome,
        "end": ending.words,
        "left": ending.type == _ABANDONED,
        "words": ending.change,
        "others": 0,
        "counts": _counts(kin.outcome),
        "run_id": kin.run_id,
    }


def _rest(parent: int, depth: int, forks: int, counts: list[int]) -> dict[str, Any]:
    blank: dict[str, Any] = {"id": "", "end": "", "words": "", "left": False, "run_id": ""}
    numbers = {"parent": parent, "depth": depth, "steps": 0, "inherited": 0, "fork_step": None}
    return {**blank, **numbers, "outcome": "unknown", "others": forks, "counts": counts}
