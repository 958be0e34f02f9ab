"""What a run did so far as numbers: lengths, files, verbs, results, tests, errors, words.

A reader takes in one step after another and counts; features are sums of these counts, of all
steps or of the last ones, divided by each other. The same reader and the same division serve
whole cohorts and live runs, so both give the same numbers. What is counted is listed in
``behaviour.toml``.
"""

from __future__ import annotations

import re
import tomllib
from hashlib import blake2b
from importlib.resources import files
from math import isfinite, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._prefixes import Floats, Ints, Looks, Prefixes, StepTable
from sag_research.deadend._step import SeenStep

__all__ = ["BehaviourStream", "behaviour", "behaviour_names", "behaviour_version"]

Rows = NDArray[np.float32]

_TEXT = files("sag_research.deadend").joinpath("behaviour.toml").read_text(encoding="utf-8")
_DATA: dict[str, Any] = tomllib.loads(_TEXT)
RECENT: int = _DATA["recent_steps"]
SCAN: int = _DATA["scan_characters"]

WORD = re.compile(r"[\w./~-]++")
ENDINGS = frozenset(_DATA["paths"]["endings"])
TEST_PATH = re.compile(r"(?:^|/)tests?/|(?:^|/)test_|_test\.")
OWN_TEST = re.compile(r"(?:^|/)(?:test|repro|debug|check|verify|demo)[\w-]*\.\w+$")
TROUBLES = ("error", "exception", "traceback", "warning", "no such")


def behaviour_version() -> str:
    """Return a digest of what is counted and how features are made of it."""
    return "behaviour-1-" + blake2b(_TEXT.encode(), digest_size=4).hexdigest()


# --------------------------------------------------------------------------- what is counted


def _counted() -> list[str]:
    """Return the names of all counts, in order of their columns."""
    token = _DATA["token"]
    parts = [f"{part[:-1]} {x}" for part in ("verbs", "objects", "results") for x in token[part]]
    words = [f"{kind} words" for kind in _DATA["words"]]
    return [
        "steps", "characters", "thought", "action", "observation", "lines", *parts,
        *token["groups"], "fine", "exit codes", "paths", "new path", "test paths", "own tests",
        "edited paths", "path clogc", "new token", "same token", "token clogc", "new action",
        "repeats", "repeats thrice", *words, "troubles",
    ]  # fmt: skip


COUNTED = _counted()
_AT = {name: i for i, name in enumerate(COUNTED)}
N_COUNTED = len(COUNTED)
_ERRORS, _EDITS, _FINE = _AT["errors"], _AT["edits"], _AT["fine"]
_EXIT_CODES, _TROUBLES = _AT["exit codes"], _AT["troubles"]
_PATHS, _EDITED = _AT["paths"], _AT["edited paths"]
_NEW_TOKEN, _NEW_ACTION = _AT["new token"], _AT["new action"]
_WORDS = [(_AT[f"{kind} words"], tuple(words)) for kind, words in _DATA["words"].items()]


def token_columns(token: str) -> tuple[int, ...]:
    """Return the counts that a token adds one to."""
    data = _DATA["token"]
    values = [*token.split("|"), "", "", ""][:3]
    columns = []
    for part, value in zip(("verbs", "objects", "results"), values, strict=True):
        columns.append(_AT[f"{part[:-1]} {value if value in data[part] else 'other'}"])
    named = {values[0], values[2]}
    columns += [_AT[group] for group, members in data["groups"].items() if named & set(members)]
    return tuple(columns)


class Reader:
    """Counts in one run's steps, one after another."""

    def __init__(self, columns: dict[str, tuple[int, ...]] | None = None) -> None:
        self._columns = {} if columns is None else columns
        self._tokens: dict[str, int] = {}
        self._actions: dict[str, int] = {}
        self._paths: dict[str, list[int]] = {}  # mentions, whether of tests, of the agent's own
        self._edited: set[str] = set()
        self._last = ""

    def read(self, step: SeenStep) -> list[float]:
        """Return what this step adds to each count."""
        counts = [0.0] * N_COUNTED
        token = step.token
        columns = self._columns.get(token)
        if columns is None:
            columns = self._columns[token] = token_columns(token)
        for column in columns:
            counts[column] = 1.0
        code = step.exit_code
        if isfinite(code) and code:
            counts[_EXIT_CODES] = counts[_ERRORS] = 1.0
        counts[_FINE] = 1.0 - counts[_ERRORS]
        self._lengths(step, counts)
        self._repetition(token, step.action, counts)
        if step.action:
            self._files(step.action[:SCAN], counts)
        if step.thought:
            _words(step.thought[:SCAN].lower(), counts)
        if step.observation:
            end = step.observation[-SCAN // 2 :].lower()
            counts[_TROUBLES] = float(sum(map(end.count, TROUBLES)))
        return counts

    @staticmethod
    def _lengths(step: SeenStep, counts: list[float]) -> None:
        thought, action, seen = len(step.thought), len(step.action), len(step.observation)
        lines = step.observation.count("\n") + 1 if seen else 0
        counts[:6] = 1.0, float(thought + action + seen), thought, action, seen, lines

    def _repetition(self, token: str, action: str, counts: list[float]) -> None:
        n = self._tokens.get(token, 0)
        self._tokens[token] = n + 1
        # columns: new token, same token, token clogc; then new action, repeats, repeats thrice
        counts[_NEW_TOKEN : _NEW_TOKEN + 3] = float(n == 0), float(token == self._last), growth(n)
        self._last = token
        action = action or token
        n = self._actions.get(action, 0)
        self._actions[action] = n + 1
        counts[_NEW_ACTION : _NEW_ACTION + 3] = float(n == 0), float(n > 0), float(n > 1)

    def _files(self, action: str, counts: list[float]) -> None:
        named = [word for word in WORD.findall(action) if is_path(word)]
        if not named:
            return
        paths, new, tests, own, clogc = self._paths, 0, 0, 0, 0.0
        for path in named:
            known = paths.get(path)
            if known is None:
                of_test, is_own = TEST_PATH.search(path), OWN_TEST.search(path)
                known = paths[path] = [0, int(of_test is not None), int(is_own is not None)]
                new += 1
            clogc += growth(known[0])
            known[0] += 1
            tests += known[1]
            own += known[2]
        edited = 0
        if counts[_EDITS] and named[-1] not in self._edited:
            self._edited.add(named[-1])
            edited = 1
        # columns: paths, new path, test paths, own tests, edited paths, path clogc
        counts[_PATHS : _PATHS + 6] = float(len(named)), new, tests, own, edited, clogc


def is_path(word: str) -> bool:
    """Whether a word of an action names a file or a folder.

    Examples
    --------
    >>> [is_path(word) for word in ("src/a", "setup.py", "1.5", "/", "Makefile")]
    [True, True, False, False, False]
    """
    return "/" in word[:-1] or ("." in word and word.rpartition(".")[2] in ENDINGS)


def growth(n: int) -> float:
    """Return what the n + 1st occurrence adds to the sum of c log c over counts c."""
    return (n + 1) * log(n + 1) - (n * log(n) if n else 0.0)


def _words(thought: str, counts: list[float]) -> None:
    for column, words in _WORDS:
        counts[column] = float(sum(map(thought.count, words)))


# --------------------------------------------------------------------------- features of counts


class _Recipe(NamedTuple):
    """How features are made of a row of sums: sums, recent sums, last counts, steps since."""

    names: tuple[str, ...]
    above: Ints
    below: Ints
    logs: slice
    """Columns of which log(1 + x) is taken."""
    entropies: slice
    entropy_of: Ints


_SINCE = np.array([_AT[name] for name in _DATA["features"]["since"]])
_ALL, _RECENT, _LAST, _AGO = 0, N_COUNTED, 2 * N_COUNTED, 3 * N_COUNTED
_ONE = _AGO + len(_SINCE)
_WINDOW = _ONE + 1
WIDTH = _WINDOW + 1


def _expand(names: list[str]) -> list[str]:
    """Replace ``verb *`` by the counts whose name starts with ``verb``."""
    return [
        counted
        for name in names
        for counted in (
            [c for c in COUNTED if c.startswith(name[:-1])] if name.endswith("*") else [name]
        )
    ]


def _recipe() -> _Recipe:
    made: list[tuple[str, int, int, str]] = []
    kinds = _DATA["features"]
    per = {
        "log_sum": ("{} so far", _ALL, _ONE, "log"),
        "log_mean": ("{} per step", _ALL, _AT["steps"], "log"),
        "log_recent": ("recent {}", _RECENT, _WINDOW, "log"),
        "log_last": ("last {}", _LAST, _ONE, "log"),
        "count": ("number of {}", _ALL, _ONE, ""),
        "share": ("share of {}", _ALL, _AT["steps"], ""),
        "recent": ("recent share of {}", _RECENT, _WINDOW, ""),
    }
    for kind, (name, block, below, how) in per.items():
        made += [(name.format(c), block + _AT[c], below, how) for c in _expand(kinds[kind])]
    made += [(f"steps since {c}", _AGO + i, _ONE, "") for i, c in enumerate(kinds["since"])]
    made += [(f"{a} per {b}", _AT[a], _AT[b], "") for a, b in kinds["ratio"]]
    made += [
        (f"entropy of {a.split()[0]}s", _AT[a], _AT[n], "entropy") for a, n in kinds["entropy"]
    ]
    kinds_of = [how for *_, how in made]
    logs, entropies = kinds_of.count("log"), kinds_of.count("entropy")  # at either end
    divided = np.array([below for _, _, below, _ in made], dtype=np.int64)
    return _Recipe(
        tuple(name for name, *_ in made), np.array([above for _, above, _, _ in made]), divided,
        slice(0, logs), slice(-entropies, None), divided[-entropies:],
    )  # fmt: skip


_RECIPE = _recipe()


def behaviour_names() -> tuple[str, ...]:
    """Return the features' names, in order of their columns."""
    return _RECIPE.names


def derive(sums: Floats) -> Rows:
    """Make features of rows of sums, shape (n, WIDTH), to shape (n, n_features)."""
    recipe = _RECIPE
    features = sums.take(recipe.above, axis=1)
    features /= np.maximum(sums.take(recipe.below, axis=1), 1.0)
    logs, entropies = features[:, recipe.logs], features[:, recipe.entropies]
    np.log1p(logs, out=logs)
    np.subtract(
        np.log(np.maximum(sums.take(recipe.entropy_of, axis=1), 1.0)), entropies, out=entropies
    )
    return features.astype(np.float32)


def sum_up(counts: Floats) -> Floats:
    """Return the sums after each step of one run, shape (n, WIDTH), from (n, N_COUNTED) counts."""
    n = len(counts)
    sums = np.empty((n, WIDTH))
    total = sums[:, :N_COUNTED]
    np.cumsum(counts, axis=0, out=total)
    sums[:, _RECENT:_LAST] = total
    sums[RECENT:, _RECENT:_LAST] -= total[:-RECENT]
    sums[:, _LAST:_AGO] = counts
    position = np.arange(n)[:, None]
    did = np.where(counts[:, _SINCE] > 0, position, -1)
    sums[:, _AGO:_ONE] = position - np.maximum.accumulate(did, axis=0)
    sums[:, _ONE] = 1.0
    sums[:, _WINDOW] = np.minimum(position[:, 0] + 1, RECENT)
    return sums


# --------------------------------------------------------------------------- cohorts and streams


class _Known:
    """Features of the rows of a step table that were asked for so far."""

    def __init__(self, n_rows: int) -> None:
        self.features = np.zeros((n_rows, len(_RECIPE.names)), dtype=np.float32)
        self.start = np.full(n_rows, -1, dtype=np.int64)  # where the row's run starts


def behaviour(prefixes: Prefixes, looks: Looks) -> Rows:
    """Return the features at each look.

    Parameters
    ----------
    prefixes : Prefixes
    looks : Looks
        Decision points in `prefixes`.

    Returns
    -------
    ndarray of float32, shape (n_looks, n_features)
        In order of :func:`behaviour_names`. Steps without texts have the features of their tokens.
    """
    table = prefixes.table
    known = table.memo("behaviour", lambda: _Known(len(table)))
    columns: dict[str, tuple[int, ...]] = {}
    for run in np.unique(looks.run).tolist():
        start, stop = int(prefixes.start[run]), int(prefixes.stop[run])
        if (known.start[start:stop] != start).any():
            known.features[start:stop] = derive(sum_up(_counts(table, start, stop, columns)))
            known.start[start:stop] = start
    return known.features[prefixes.rows(looks)]


def _counts(table: StepTable, start: int, stop: int, columns: dict[str, tuple[int, ...]]) -> Floats:
    reader = Reader(columns)
    names = table.names
    tokens = [names[code] for code in table.tokens[start:stop].tolist()]
    texts = (table.text(name)[start:stop] for name in ("thought", "action", "observation"))
    codes = table.number("exit_code")[start:stop].tolist()
    steps = zip(tokens, *texts, codes, strict=True)
    return np.array([reader.read(SeenStep(*step)) for step in steps])


class BehaviourStream:
    """Features of one run, step by step; the same numbers as :func:`behaviour`."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._sums = np.zeros((1, WIDTH))
        self._total = np.zeros((RECENT, N_COUNTED))  # of the last steps, in a ring
        self._step = 0

    def observe(self, step: SeenStep) -> Rows:
        """Take in the next step and return the features after it, shape (1, n_features)."""
        counts = np.array(self._reader.read(step))
        row, old = self._sums[0], self._total[self._step % RECENT]
        total = row[:N_COUNTED]
        total += counts
        row[_RECENT:_LAST] = total - old
        old[:] = total
        row[_LAST:_AGO] = counts
        ago = row[_AGO:_ONE]
        ago += 1.0
        ago *= counts.take(_SINCE) == 0.0
        self._step += 1
        row[_ONE] = 1.0
        row[_WINDOW] = min(self._step, RECENT)
        return derive(self._sums)
