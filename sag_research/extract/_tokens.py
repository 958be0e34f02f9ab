"""From steps to tokens: what was done, to what, and how it went, in a small fixed alphabet."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._text import clip
from ..errors import UsageError
from ..model import Step
from ._token_actions import Act, ActionSymbols
from ._token_results import ResultClasses
from ._token_rules import load_token_rules

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Coverage", "Vocabulary"]

_COLUMNS: Final = ("thought", "action", "observation", "n_calls", "tool", "exit_code", "flags")
_OPEN_FILE: Final = "[File: "
_NONE: Final = "none"
_ENORMOUS: Final = 2**31
_UNKNOWN: Final = frozenset({"other", "call"})


class Coverage(NamedTuple):
    """How much of a batch the vocabulary names.

    Attributes
    ----------
    n_steps : int
    n_tokens : int
        Different tokens.
    other : float
        Share of steps with a program (``other``) or a function (``call``) that no rule knows;
        NaN without steps.
    no_action : float
        Share of steps that did nothing (verb ``none``).
    """

    n_steps: int
    n_tokens: int
    other: float
    no_action: float


class _Seen(NamedTuple):
    """What a token depends on."""

    thought: str
    action: str
    observation: str
    n_calls: int | None
    tool: str | None
    exit_code: int | None
    flags: Sequence[str]


class Vocabulary:
    """Turns steps into tokens ``verb|object|result``.

    Each part is one of the symbols that ``tokens.toml`` lists, so nothing of a task's own text can
    stand in a token. One step is enough: no other step and no label is looked at.

    *Verbs*, most consequential first; of several things in one step the first wins:
    ``submit`` (hand in, finish), ``ask`` (hand over to a person or another agent), ``respond``
    (speak to the user), ``undo`` (git checkout, undo_edit, cancel, return), ``edit``,
    ``create``, ``test`` (a test runner), ``run`` (a program), ``install``, ``commit``,
    ``delete``, ``browse`` (network), ``search`` (grep, find), ``git`` (status, diff, log),
    ``look`` (read a file or record), ``call`` (a function whose name says nothing), ``other`` (a
    program no rule knows), ``think``, ``none``.

    *Objects*: ``src``, ``test`` (the project's tests), ``repro`` (programs the agent wrote to see
    something), ``script`` (those it wrote to change files), ``config``, ``doc``, ``data``,
    ``folder``, ``inline`` (a program in the action itself), ``page``; for functions of a service
    ``user record item extra money place``; for what is said to a user ``refusal report confirm
    offer question statement`` (by English words); ``none``.

    *Results*: ``ok``, ``long`` (much, or cut short), ``empty`` (nothing found or printed),
    ``error``, ``traceback``, ``syntax``, ``import``, ``not-found`` (no such file or command),
    ``timeout``, ``unavailable``, ``mismatch``, ``forbidden`` (what a service says it cannot do),
    ``test-pass``, ``test-fail``, ``reply`` and ``reply-yes reply-no reply-question
    reply-end`` (what a person answered), ``refused`` (the turn was rejected), ``none``.

    Shell, SWE-agent's commands (0.x and 1.x), str_replace_editor and function calls of any agent
    give the same symbols. A known exit code decides between success and failure; words are used
    where it is unknown, and never in the content of a file that was read. Of an action the first
    8,192 characters are read, of an observation 4,096 from each end.

    Parameters
    ----------
    rules : Path, optional
        A TOML file of the shape of the shipped ``tokens.toml``, in its place.
    function : callable, optional
        A user's own rule: takes a dict with the keys ``thought action observation n_calls tool
        exit_code flags`` and returns a token, in which ``|`` parts levels.

    Raises
    ------
    SagError
        If the rules cannot be read.
    UsageError
        If both `rules` and `function` are given.

    Examples
    --------
    >>> vocabulary = Vocabulary()
    >>> vocabulary.token({"action": "cd src && sed -i 's/a/b/' core.py", "observation": ""})
    'edit|src|ok'
    >>> vocabulary.token({"action": "pytest tests/test_x.py", "observation": "1 failed, 2 passed"})
    'test|test|test-fail'
    >>> vocabulary.token({"action": 'get_user({"id": 7})', "observation": "Error: user not found"})
    'look|user|not-found'
    >>> vocabulary.coarser("edit|src|ok", level=1)
    'edit|src'
    """

    def __init__(
        self,
        rules: Path | None = None,
        function: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        if rules is not None and function is not None:
            raise UsageError("a vocabulary of rules and of a function", fix="give one of the two")
        self._function = function
        self._rules, words, self._version = load_token_rules(rules)
        if function is not None:
            self._version = f"custom-{_digest_of(function)}"
        self._symbols = ActionSymbols(self._rules, words)
        self._results = ResultClasses(self._rules.observed, self._rules.replies, self._rules.limits)
        self._table: pd.DataFrame | None = None

    def __repr__(self) -> str:
        return f"Vocabulary({self._version})"

    @property
    def version(self) -> str:
        """``tokens-<n>-<8 hex>``, number and digest of the rules; ``custom-…`` for a function."""
        return self._version

    @property
    def alphabet(self) -> dict[str, tuple[str, ...]]:
        """The symbols of each part: ``verb``, ``object``, ``result``; empty for a function."""
        if self._function is not None:
            return {}
        rules = self._rules
        return {"verb": rules.verbs, "object": rules.objects, "result": rules.results}

    def token(self, step: Step | Mapping[str, Any]) -> str:
        """Return the token of one step.

        Parameters
        ----------
        step : Step or mapping
            A mapping has ``action`` and ``observation``, and as far as known ``thought``,
            ``n_calls``, ``tool``, ``exit_code`` and ``flags`` (a row of the view ``steps``), or
            ``calls`` (the payload of ``agent.step``).

        Raises
        ------
        UsageError
            If a user's own function returns no text.
        """
        seen = _of_step(step) if isinstance(step, Step) else _of_mapping(step)
        if self._function is not None:
            return _own(self._function, seen)
        if seen.action or seen.tool:
            act = self._symbols.read(seen.action, seen.tool, seen.n_calls)
        else:
            act = None
        return self._token(act, seen)

    def tokens(self, columns: pa.Table) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """Return the tokens of many steps; equal actions are read once.

        Parameters
        ----------
        columns : pyarrow.Table
            One row a step, with the columns ``action`` and ``observation`` and any of
            ``thought n_calls tool exit_code flags run_id``, as in the view ``steps``.

        Returns
        -------
        codes : ndarray of int32, shape (n_steps,)
            Indices into `names`.
        names : tuple of str
            The different tokens, sorted.

        Raises
        ------
        UsageError
            If a text column is missing, or a user's own function returns no text.
        """
        rows = _rows(columns)
        if self._function is not None:
            found = [_own(self._function, seen) for seen in rows]
        else:
            found = self._batch(rows)
        names = tuple(sorted(set(found)))
        place = {name: code for code, name in enumerate(names)}
        codes = np.fromiter((place[name] for name in found), dtype=np.int32, count=len(found))
        self._table = _table(rows, codes, names, columns)
        return codes, names

    def parts(self, name: str) -> tuple[str, str, str]:
        """Return verb, object and result of a token; parts it does not have are ``none``.

        Examples
        --------
        >>> Vocabulary().parts("look|src")
        ('look', 'src', 'none')
        """
        parts = [*name.split("|", 2), _NONE, _NONE]
        return parts[0], parts[1], parts[2]

    def coarser(self, name: str, level: int) -> str:
        """Return the token at a level: 2 is the token itself, 1 ``verb|object``, 0 ``verb``.

        ``RARE`` and other names without parts stay as they are.
        """
        if level not in (0, 1, 2):
            raise UsageError(f"no level {level!r} of tokens", fix="say 0, 1 or 2")
        return "|".join(name.split("|", 2)[: level + 1])

    @property
    def table_(self) -> pd.DataFrame:
        """Tokens of the last batch, most frequent first.

        Columns ``token n_steps n_runs share example_action example_observation``; the examples
        are the first step of each token, shortened; ``n_runs`` is NA without ``run_id``.
        """
        return self._last().copy()

    @property
    def coverage_(self) -> Coverage:
        """How much of the last batch is named."""
        table = self._last()
        n = int(table["n_steps"].sum())
        verbs = [self.parts(name)[0] for name in table["token"]]
        count = dict.fromkeys((*_UNKNOWN, _NONE), 0)
        for verb, steps in zip(verbs, table["n_steps"], strict=True):
            count[verb] = count.get(verb, 0) + int(steps)
        unknown = sum(count[verb] for verb in _UNKNOWN)
        share = (unknown / n, count[_NONE] / n) if n else (float("nan"), float("nan"))
        return Coverage(n, len(table), *share)

    def _last(self) -> pd.DataFrame:
        if self._table is None:
            raise UsageError("no batch yet", fix="call tokens(columns) first")
        return self._table

    def _batch(self, rows: Sequence[_Seen]) -> list[str]:
        known: dict[tuple[str, str | None, int | None], Act] = {}
        found = []
        for seen in rows:
            act = None
            if seen.action or seen.tool:
                key = (seen.action, seen.tool, seen.n_calls)
                act = known.get(key)
                if act is None:
                    act = known[key] = self._symbols.read(*key)
            found.append(self._token(act, seen))
        return found

    def _token(self, act: Act | None, seen: _Seen) -> str:
        """Join the parts."""
        if "rejected" in seen.flags:
            return f"{act.verb if act else _NONE}|{act.object if act else _NONE}|refused"
        if act is None:
            if not seen.thought.strip():
                return f"{_NONE}|{_NONE}|{self._results.of_reply(seen.observation)}"
            said = self._results.said(seen.thought)
            return f"respond|{said}|{self._results.of_reply(seen.observation)}"
        verb, about, on_open_file = act
        if verb == "respond":
            result = self._results.of_reply(seen.observation)
        elif verb == "think":
            result = _NONE
        else:
            result = self._results.of(verb, seen.observation, seen.exit_code)
        if on_open_file and (shown := _shown_file(seen.observation)):
            about = self._symbols.path(shown) or about
        return f"{verb}|{about}|{result}"


def _own(function: Callable[[dict[str, Any]], str], seen: _Seen) -> str:
    """Return the token that a user's own function gives."""
    token: object = function({**seen._asdict(), "flags": list(seen.flags)})
    if not isinstance(token, str) or not token:
        raise UsageError(
            f"the function of this vocabulary returned {clip(repr(token), 40)}",
            fix="return a text, e.g. 'edit|src|ok'",
        )
    return token


def _shown_file(observation: str) -> str:
    """Return the path of the file that an editor shows."""
    at = observation.find(_OPEN_FILE, 0, 1000)
    if at < 0:
        return ""
    start = at + len(_OPEN_FILE)
    return observation[start : start + 300].partition(" (")[0]


def _of_step(step: Step) -> _Seen:
    last = step.calls[-1] if step.calls else None
    return _Seen(
        step.thought, step.action, step.observation, len(step.calls),
        (last.name or None) if last else None, last.exit_code if last else None, step.flags,
    )  # fmt: skip


def _of_mapping(step: Mapping[str, Any]) -> _Seen:
    calls = step.get("calls")
    n_calls, tool, exit_code = step.get("n_calls"), step.get("tool"), step.get("exit_code")
    if isinstance(calls, (list, tuple)):
        last = calls[-1] if calls and isinstance(calls[-1], Mapping) else {}
        n_calls, tool, exit_code = len(calls), last.get("name"), last.get("exit_code")
    return _Seen(
        _text(step.get("thought")), _text(step.get("action")), _text(step.get("observation")),
        _whole(n_calls), _text(tool) or None, _whole(exit_code), _flags(step.get("flags")),
    )  # fmt: skip


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    """Return a whole number; None for unknown, NaN, enormous, and what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    return int(value) if -_ENORMOUS < value < _ENORMOUS else None


def _flags(value: Any) -> Sequence[str]:
    return tuple(value) if isinstance(value, (list, tuple, np.ndarray)) else ()


def _rows(columns: pa.Table) -> list[_Seen]:
    """Return the rows, with the same defaults as one step alone."""
    present = set(columns.column_names)
    missing = {"action", "observation"} - present
    if missing:
        raise UsageError(
            f"no column {min(missing)!r} to make tokens of",
            fix="pass the columns of the view steps: " + ", ".join(_COLUMNS),
        )
    values: list[Iterable[Any]] = []
    for name in _COLUMNS:
        known = columns.column(name).to_pylist() if name in present else [None] * len(columns)
        values.append(map(_CLEAN[name], known))
    return list(map(_Seen, *values))


_CLEAN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "thought": _text, "action": _text, "observation": _text, "n_calls": _whole,
    "tool": lambda value: _text(value) or None, "exit_code": _whole, "flags": _flags,
}  # fmt: skip


def _table(
    rows: Sequence[_Seen], codes: NDArray[np.int32], names: Sequence[str], columns: pa.Table
) -> pd.DataFrame:
    import pandas as pd

    n_steps = np.bincount(codes, minlength=len(names))
    first = np.unique(codes, return_index=True)[1]
    n_runs: Any = [pd.NA] * len(names)
    if "run_id" in columns.column_names:
        runs = pd.Series(columns.column("run_id").to_pylist(), dtype=object)
        n_runs = runs.groupby(codes).nunique().reindex(range(len(names)), fill_value=0).to_numpy()
    table = pd.DataFrame(
        {
            "token": pd.Series(list(names), dtype=object),
            "n_steps": n_steps,
            "n_runs": pd.array(n_runs, dtype="Int64"),
            "share": n_steps / max(len(rows), 1),
            "example_action": [
                clip((rows[row].action or rows[row].thought)[:500], 80) for row in first
            ],
            "example_observation": [clip(rows[row].observation[:500], 80) for row in first],
        }
    )
    return table.sort_values(["n_steps", "token"], ascending=[False, True], ignore_index=True)


def _digest_of(function: Callable[..., Any]) -> str:
    """Return 8 hex digits of a function's name and source."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = "" if code is None else f"{code.co_code.hex()} {code.co_consts!r} {code.co_names!r}"
    return hashlib.sha256(f"{name}\0{text}".encode("utf-8", "replace")).hexdigest()[:8]
