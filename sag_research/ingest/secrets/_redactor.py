"""Taking secrets out of texts, values, steps and whole trajectories."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sag_research.ingest.secrets._beside import Echo, as_command, echo_of, name_inside
from sag_research.ingest.secrets._find import Finding, find_in_name, find_secrets
from sag_research.ingest.secrets._second import second_version
from sag_research.model import Call, Outcome, Step, Trajectory

__all__ = ["REDACTED_FLAG", "Place", "Redactor", "redact_text", "redacted_step"]

REDACTED_FLAG: Final = "redacted"
"""The flag of a step of which something was replaced."""
_DEEPEST: Final = 100
_TOO_DEEP: Final = "(nested too deeply)"
_REMEMBERED: Final = 4 * 2**20
"""Characters of texts whose findings are remembered: a step's texts stand in its calls again."""
_LONGEST_NAME: Final = 60
_SAID: Final = ("action", "text")
"""What a step and a call say, in which arguments stand again."""
_TEXTS: Final = (
    "task_id", "goal", "dataset", "repo", "agent", "model", "record", "parent", "exit_status",
    "submission", "relation",
)  # fmt: skip

_IDS: Final = frozenset({"task_id", "record", "parent"})


class Place(NamedTuple):
    """Where in a step or an event something was found."""

    field: str
    """Its path, e.g. ``calls[0].arguments.command``."""
    kind: str
    token: str


class Redactor:
    """Replaces secrets by tokens, and keeps account.

    Parameters
    ----------
    second : bool
        Ask the detectors of detect-secrets too, where that package is installed.

    Attributes
    ----------
    counts : Counter of str
        Replacements so far, by kind.
    places : list of Place
        Where they were, since it was last emptied.

    Examples
    --------
    >>> redactor = Redactor()
    >>> redactor.value({"env": {"DB_PASSWORD": "hunter2"}, "n": 1})
    {'env': {'DB_PASSWORD': '[secret:password]'}, 'n': 1}
    >>> redactor.counts
    Counter({'password': 1})
    """

    def __init__(self, *, second: bool = True) -> None:
        self.counts: Counter[str] = Counter()
        self.places: list[Place] = []
        self._second = second
        self._known: OrderedDict[str, list[Finding]] = OrderedDict()
        self._size = 0
        self._echo: Echo | None = None

    @property
    def detectors(self) -> str:
        """What looks for secrets, e.g. ``sag_research and detect-secrets 1.5.0``."""
        version = second_version() if self._second else None
        return "sag_research" + (f" and detect-secrets {version}" if version else "")

    def text(self, text: str, field: str = "") -> str:
        """Return a text with tokens in the place of secrets."""
        return self._cut(text, self._found(text), field)

    def name(self, text: str, field: str = "") -> str:
        """Return an id or a file's name with tokens in the place of secrets.

        Keys are found there with letters before and behind them, too.
        """
        return self._cut(text, find_in_name(text, second=self._second), field)

    def _cut(self, text: str, found: Sequence[Finding], field: str) -> str:
        if not found:
            return text
        parts: list[str] = []
        at = 0
        for one in found:
            parts += (text[at : one.start], one.token)
            at = one.end
            self._tell(field, one.kind, one.token)
        return "".join((*parts, text[at:]))

    def _tell(self, field: str, kind: str, token: str) -> None:
        self.counts[kind] += 1
        self.places.append(Place(field, kind, token))

    def _found(self, text: str) -> list[Finding]:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = find_secrets(text, second=self._second)
            self._size += len(text)
            while self._size > _REMEMBERED:
                self._size -= len(self._known.popitem(last=False)[0])
        return known

    def value(self, value: Any, field: str = "") -> Any:
        """Return a JSON value with all its texts and keys cleaned; itself where nothing was.

        A short text under a name is also judged by that name, as if it were assigned to it, and
        the items of a list by one another, as arguments of a command.
        """
        return self._value(value, field, "", 0)

    def _value(self, value: Any, field: str, name: str, depth: int) -> Any:
        if isinstance(value, str):
            clean = self._named(value, field, name)
            if self._echo is None:
                return clean
            return self._echo.clean(clean, lambda kind, token: self._tell(field, kind, token))
        if isinstance(value, Mapping):
            return _TOO_DEEP if depth >= _DEEPEST else self._object(value, field, name, depth)
        if isinstance(value, (list, tuple)):
            return _TOO_DEEP if depth >= _DEEPEST else self._list(value, field, name, depth)
        return value

    def _list(self, value: Sequence[Any], field: str, name: str, depth: int) -> Any:
        items = [
            self._value(item, f"{field}[{number}]", name, depth + 1)
            for number, item in enumerate(value)
        ]
        text, starts = as_command(value)
        own = {number for number, item in enumerate(items) if item is not value[number]}
        for one in reversed(self._found(text) if text else []):
            number = bisect_right(starts, one.start) - 1
            start, end = one.start - starts[number], one.end - starts[number]
            if number in own or end > len(value[number]):
                continue
            rest = items[number][end:] if start else ""  # an argument of its own is all secret
            items[number] = items[number][:start] + one.token + rest
            self._tell(f"{field}[{number}]", one.kind, one.token)
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items

    def _object(self, value: Mapping[Any, Any], field: str, outer: str, depth: int) -> Any:
        clean: dict[Any, Any] = {}
        echo, said = self._echo, [value.get(name) for name in _SAID]
        if "arguments" in value or "calls" in value:
            self._listen(*said)
        for key, item in value.items():
            name = self.text(key, f"{field}.key") if isinstance(key, str) else key
            while name in clean:  # two keys were two passwords
                name = f"{name}'"
            path = f"{field}.{name}" if field else str(name)
            inner = name_inside(value, name, outer) if isinstance(name, str) else ""
            clean[name] = self._value(item, path, inner, depth + 1)
        self._echo = echo
        same = len(clean) == len(value) and all(
            clean.get(key, clean) is item for key, item in value.items()
        )
        return value if same else clean

    def _listen(self, *said: Any) -> None:
        """Look, until told otherwise, for what is found in what a call says."""
        texts = [text for text in said if isinstance(text, str) and text]
        heard = echo_of([(text, self._found(text)) for text in texts])
        if heard is not None:
            self._echo = heard if self._echo is None else self._echo.with_more(heard)

    def _named(self, value: str, field: str, name: str) -> str:
        clean = self.text(value, field)
        if clean is not value or not value or not 0 < len(name) <= _LONGEST_NAME:
            return clean
        if "\n" in value or len(value) > 400:
            return clean
        before = f'"{name}": "'
        for one in self._found(f'{before}{value}"'):
            start, end = one.start - len(before), one.end - len(before)
            if start >= 0 and end <= len(value):
                self._tell(field, one.kind, one.token)
                return value[:start] + one.token + value[end:]
        return value

    # ---- records

    def step(self, step: Step) -> Step:
        """Return a step with all texts cleaned and the flag ``redacted``; itself where it was."""
        before = len(self.places)
        told = {name: self.text(getattr(step, name), name) for name in ("thought", "action",
                                                                        "observation")}  # fmt: skip
        if step.calls:
            self._listen(step.action)
        calls = tuple(self._call(call, f"calls[{n}]") for n, call in enumerate(step.calls))
        self._echo = None
        state = self.value(step.state, "state")
        flags = tuple(self.text(flag, "flags") for flag in step.flags)
        if len(self.places) == before:
            return step
        flags = flags if REDACTED_FLAG in flags else (*flags, REDACTED_FLAG)
        return replace(step, **told, calls=calls, state=state, flags=flags)

    def _call(self, call: Call, field: str) -> Call:
        texts = {
            name: self.text(getattr(call, name), f"{field}.{name}")
            for name in ("id", "name", "text", "observation", "status")
        }
        echo = self._echo
        self._listen(call.text)
        arguments = self.value(call.arguments, f"{field}.arguments")
        self._echo = echo
        return replace(call, **texts, arguments=arguments)

    def trajectory(self, trajectory: Trajectory) -> Trajectory:
        """Return a trajectory with all texts of all its parts cleaned."""
        texts = {
            name: None if text is None else (self.name if name in _IDS else self.text)(text, name)
            for name in _TEXTS
            for text in (getattr(trajectory, name),)
        }
        said = trajectory.outcome
        return replace(
            trajectory,
            **texts,
            steps=tuple(self.step(step) for step in trajectory.steps),
            config=self.value(trajectory.config, "config"),
            notes=tuple(self.text(note, "notes") for note in trajectory.notes),
            outcome=None if said is None else self._outcome(said),
        )

    def _outcome(self, said: Outcome) -> Outcome:
        detail = None if said.detail is None else self.text(said.detail, "outcome.detail")
        return replace(said, detail=detail, source=self.text(said.source, "outcome.source"))


def redact_text(text: str) -> str:
    """Return a text with a token in the place of each secret.

    Examples
    --------
    >>> redact_text("PGPASSWORD=hunter2 psql")
    'PGPASSWORD=[secret:password] psql'
    """
    return Redactor().text(text)


def redacted_step(step: Step) -> Step:
    """Return a step with a token in the place of each secret, and the flag ``redacted``.

    Examples
    --------
    >>> clean = redacted_step(Step(action="export DB_PASSWORD=hunter2"))
    >>> clean.action, clean.flags
    ('export DB_PASSWORD=[secret:password]', ('redacted',))
    """
    return Redactor().step(step)
