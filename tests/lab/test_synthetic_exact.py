"""P(fail | prefix) of each world against the sum over everything that can happen."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sag_research.lab.synthetic._length import Length
from sag_research.lab.synthetic._memory import Memory
from sag_research.lab.synthetic._traps import Traps
from sag_research.lab.synthetic._world import SUBMIT, World

Run = tuple[str, ...]
Happened = tuple[Run, float, float]  # tokens, probability, of that: ending in failure
SHARE = [0.3, 0.7]
OTHER = "look|src|ok"

TRAPS: dict[str, Any] = {
    "budget": 4,
    "states": ["exploring", "progress", "ready", "trapped"],
    "moves": {
        "exploring": {"progress": 0.4, "trapped": 0.2},
        "progress": {"exploring": 0.1, "ready": 0.5, "trapped": 0.15},
        "ready": {"progress": 0.2, "trapped": 0.1},
        "trapped": {"exploring": 0.25},
    },
    "submit": {"ready": 0.5, "trapped": 0.3},
    "repeats": {"exploring": 0.1, "progress": 0.2, "ready": 0.0, "trapped": 0.55},
    "hard": {"into": [0.5, 1.5], "out_of": [1.4, 0.6], "pace": [1.2, 0.7]},
    "habits": {
        "names": ["careful", "hasty"],
        "share": [0.4, 0.6],
        "into": [0.8, 1.3],
        "verbs": {"careful": {"look": 1.5}, "hasty": {"edit": 1.6}},
    },
    "tokens": {
        "exploring": {OTHER: 3, "edit|src|ok": 1},
        "progress": {OTHER: 1, "edit|src|ok": 3, "edit|src|error": 1},
        "ready": {OTHER: 1, "edit|src|ok": 1},
        "trapped": {OTHER: 1, "edit|src|ok": 1, "edit|src|error": 4},
    },
    "families": {
        "into": [0.6, 1.5],
        "repeats": [0.5, 2.0],
        "pace": [1.2, 0.8],
        "noise": [0.5, 2.5],
    },
}
MEMORY: dict[str, Any] = {
    "budget": 6,
    "window": [2, 3],
    "shown": 0.8,
    "right": "edit|src|ok",
    "wrong": "edit|config|ok",
    "earliest_end": 4,
    "end": 0.3,
    "hard": {
        "choose_wrong": [0.2, 0.6],
        "fail_if_right": [0.1, 0.3],
        "fail_if_wrong": [0.7, 0.9],
    },
    "tokens": {
        "opening": {OTHER: 2, "search|src|ok": 1},
        "later": {OTHER: 1, "edit|src|ok": 2, "edit|config|ok": 3},
    },
}
LENGTH: dict[str, Any] = {
    "budget": 5,
    "earliest_end": 2,
    "end": [0.4, 0.2],
    "fail_half": 3,
    "fail_scale": 1.5,
    "tokens": {"any": {OTHER: 2, "edit|src|ok": 1}},
}


def scaled(table: dict[str, float]) -> dict[str, float]:
    """Weights as probabilities."""
    return {name: w / sum(table.values()) for name, w in table.items()}


def trap_rows(f: int, d: int, h: int) -> dict[str, dict[str, float]]:
    """Moves from each state for one family, difficulty and habit."""
    p = TRAPS
    into = p["families"]["into"][f] * p["hard"]["into"][d] * p["habits"]["into"][h]
    rows: dict[str, dict[str, float]] = {}
    for state, moves in p["moves"].items():
        row = {}
        for to, rate in moves.items():
            if to == "trapped":
                row[to] = rate * into
            elif state == "trapped":
                row[to] = rate * p["hard"]["out_of"][d]
            elif to == "ready":
                row[to] = rate * p["families"]["pace"][f] * p["hard"]["pace"][d]
            else:
                row[to] = rate
        leaving = sum(row.values())
        if leaving > 0.9:
            row = {to: rate * 0.9 / leaving for to, rate in row.items()}
        rows[state] = {**row, state: 1 - sum(row.values())}
    return rows


def trap_tokens(f: int, h: int, state: str) -> dict[str, float]:
    """Probabilities of tokens that do not repeat."""
    liked = TRAPS["habits"]["verbs"][TRAPS["habits"]["names"][h]]
    noise = TRAPS["families"]["noise"][f] if state != "trapped" else 1.0
    return scaled(
        {
            name: w * liked.get(name.split("|")[0], 1) * (noise if "error" in name else 1)
            for name, w in scaled(TRAPS["tokens"][state]).items()
        }
    )


def all_traps() -> Iterator[Happened]:
    """Every run of the world of traps: every class, path of states and sequence of tokens."""
    for f, d, h in itertools.product(range(2), repeat=3):
        rows = trap_rows(f, d, h)
        tables = {s: trap_tokens(f, h, s) for s in TRAPS["states"]}
        factor = TRAPS["families"]["repeats"][f]
        repeats = {
            s: min(0.6, p * (1 if s == "trapped" else factor)) for s, p in TRAPS["repeats"].items()
        }
        start = 0.5 * SHARE[d] * TRAPS["habits"]["share"][h]
        open_runs = [((), "exploring", start)]
        while open_runs:
            run, before, p = open_runs.pop()
            if len(run) == TRAPS["budget"]:
                yield run, p, p
                continue
            for state, move in rows[before].items():
                submit = TRAPS["submit"].get(state, 0.0)
                if submit:
                    ends = p * move * submit
                    yield (*run, SUBMIT), ends, ends * (state == "trapped")
                for name in (OTHER, "edit|src|ok", "edit|src|error"):
                    q = tables[state].get(name, 0.0)
                    if run:
                        q = (1 - repeats[state]) * q + repeats[state] * (run[-1] == name)
                    if q:
                        open_runs.append(((*run, name), state, p * move * (1 - submit) * q))


def all_memory() -> Iterator[Happened]:
    """Every run of the world of memory."""
    p, hard = MEMORY, MEMORY["hard"]
    opening, later = scaled(p["tokens"]["opening"]), scaled(p["tokens"]["later"])
    for d, wrong, at, honest in itertools.product(range(2), range(2), p["window"], range(2)):
        chosen = hard["choose_wrong"][d] if wrong else 1 - hard["choose_wrong"][d]
        weight = SHARE[d] * chosen / 2 * (p["shown"] if honest else 1 - p["shown"])
        shown = p["wrong"] if wrong == honest else p["right"]
        fails = hard["fail_if_wrong" if wrong else "fail_if_right"][d]
        for n in range(4, 7):
            ends = p["end"] * (1 - p["end"]) ** (n - 4) if n < 6 else (1 - p["end"]) ** 2
            tables = [opening if t <= max(p["window"]) else later for t in range(1, n)]
            tables[at - 1] = {shown: 1.0}
            for run in itertools.product(*tables):
                q = weight * ends * float(np.prod([t[x] for t, x in zip(tables, run, strict=True)]))
                yield (*run, SUBMIT), q, q * fails


def all_length() -> Iterator[Happened]:
    """Every run of the world of length."""
    table = scaled(LENGTH["tokens"]["any"])
    for d, n in itertools.product(range(2), range(2, 6)):
        end = LENGTH["end"][d]
        ends = end * (1 - end) ** (n - 2) if n < 5 else (1 - end) ** 3
        fails = 1 / (1 + np.exp(-(n - 3) / 1.5))
        for run in itertools.product(table, repeat=n - 1):
            q = SHARE[d] * ends * float(np.prod([table[x] for x in run]))
            yield (*run, SUBMIT), q, q * fails


@pytest.mark.parametrize(
    ("world", "happened"),
    [
        (Traps(TRAPS, SHARE, shift=1.0), all_traps()),
        (Memory(MEMORY, SHARE), all_memory()),
        (Length(LENGTH, SHARE), all_length()),
    ],
    ids=["traps", "memory", "length"],
)
def test_truth_is_the_sum_over_all_that_can_happen(
    world: World, happened: Iterator[Happened]
) -> None:
    going: dict[Run, list[float]] = defaultdict(lambda: [0.0, 0.0])
    ended: dict[Run, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for run, p, fails in happened:
        for table, prefixes in ((going, (run[:k] for k in range(1, len(run)))), (ended, [run])):
            for prefix in prefixes:
                table[prefix][0] += p
                table[prefix][1] += fails
    assert sum(p for p, _ in ended.values()) == pytest.approx(1, abs=1e-12)
    code = {name: i for i, name in enumerate(world.names)}
    runs = sorted(ended)
    tokens = np.full((len(runs), world.budget), -1, dtype=np.int64)
    for i, run in enumerate(runs):
        tokens[i, : len(run)] = [code[name] for name in run]
    truth = world.truth(tokens)
    expected = np.full(truth.shape, np.nan)
    for i, run in enumerate(runs):
        for k in range(1, len(run) + 1):
            p, fails = (ended if k == len(run) else going)[run[:k]]
            expected[i, k - 1] = fails / p
    np.testing.assert_allclose(truth, expected, atol=1e-12)
    assert np.nanstd(truth) > 0.05  # the worlds are not trivial


def test_a_run_is_lost_where_it_entered_the_trap_for_good() -> None:
    # a token of its own for each state shows the path
    tables = {state: {f"{state}|src|ok": 1.0} for state in TRAPS["states"]}
    repeats = dict.fromkeys(TRAPS["states"], 0.0)
    seen = Traps({**TRAPS, "budget": 12, "tokens": tables, "repeats": repeats}, SHARE)
    from sag_research.lab.synthetic._world import Draw

    drawn = Draw(np.zeros(400, dtype=np.int64), np.zeros(400, dtype=np.int64))
    made = seen.simulate(np.random.default_rng(3), drawn)
    came_back = 0
    for tokens, failed, lost_at in zip(made.tokens, made.failed, made.lost_at, strict=True):
        path = [seen.names[k].split("|")[0] for k in tokens if k >= 0]
        states = path[:-1] if path[-1] == "submit" else path
        if not failed:
            assert lost_at == -1
        elif lost_at == len(path) - 1:  # entered by the step that submitted, or by the last one
            assert not states[lost_at:] or states[lost_at] == "trapped"
        elif lost_at >= 0:
            assert set(states[lost_at:]) == {"trapped"}
            assert lost_at == 0 or states[lost_at - 1] != "trapped"
            came_back += "trapped" in states[:lost_at]
        else:
            assert states[-1] != "trapped"
    assert came_back > 0
