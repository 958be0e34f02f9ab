"""A model as a second reader: it may add what the rules do not find, never what the text lacks.

Every call goes through a :class:`~sag_research.llm.Context`, so an extraction is recorded, paid
once and can be carried out again without the model. Two ways of asking are offered. ``names``
lets the model write a list, held to a JSON schema; names that the text does not hold are dropped
and counted. ``spans`` asks of each candidate of the text what it is, so nothing can be made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from .._text import repair
from ..errors import UsageError
from ..llm import Context, MalformedReply, Message, Request
from ..model import ENTITY_KINDS, SCOPED_KINDS, Entity, Mention, Usage
from ._names import Namer
from ._rules import load_rulebook
from ._terminal import has_codes, uncolour

__all__ = ["ModelExtraction", "ModelExtractor", "Way"]

Way: TypeAlias = Literal["names", "spans"]

_MOST: Final = 24
"""Names a model may list for one text."""
_CANDIDATES: Final = 40
"""Different candidates of one text that are asked about, the earliest first."""
_TOKEN: Final = re.compile(r"[^\s'\"`(),;<>\[\]{}|=]+")
_TELLING: Final = re.compile(r"[./_\\]|::|[a-z][A-Z]|[A-Z][a-z]+[A-Z]|[A-Z][0-9]{3}|[A-Z]{4}")
_PLACE: Final = re.compile(r"(?::[0-9]+)+:?$|[.:,!?]+$")
_NORMALISE: Final = {
    "File": "file", "Error": "error", "Symbol": "symbol", "Module": "module", "Host": "host"
}  # fmt: skip
_TASK: Final = (
    "You read the output of programs and name what it mentions. File: a path or file name. "
    "Error: an exception class, error code, signal or compiler error. Test: the id or title of "
    "a test."
)
_SHOWN: Final = (
    ("Wrote out/plan.csv in 3 s", (("File", "out/plan.csv"),)),
    ('  File "lib/mill.py", line 9, in grind\nOverflowError: too big',
     (("File", "lib/mill.py"), ("Error", "OverflowError"))),
    ("--- FAIL: TestGrind (0.00s)\n    mill_test.go:8: got 2",
     (("Test", "TestGrind"), ("File", "mill_test.go"))),
)  # fmt: skip
_NONE: Final = "none"


class ModelExtraction(NamedTuple):
    """What a model found in one text, and what it took.

    Attributes
    ----------
    mentions : list of Mention
        By place; the rule is ``model-names`` or ``model-spans``.
    dropped : list of (kind, name)
        Names that the model gave and the text does not hold: made up.
    asked : int
        Questions that were put.
    malformed : int
        Answers that could not be read.
    usage : Usage
        Summed; a sum with an unknown part is unknown.
    """

    mentions: list[Mention]
    dropped: list[tuple[str, str]]
    asked: int
    malformed: int
    usage: Usage


class ModelExtractor:
    """Extracts with a model, through recorded calls.

    Parameters
    ----------
    context : Context
        Of the run that the calls are recorded in, with a model.
    way : {"names", "spans"}
        See above. ``spans`` needs a model that scores choices, as
        :class:`~sag_research.llm.Local` does.
    kinds : sequence of str
        Kinds that are asked for.
    clip : int
        Characters of a text that the model gets to read.

    Examples
    --------
    >>> from sag_research.llm import Scripted
    >>> from sag_research.log import SQLiteEventStore
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="x", kind="extraction"))
    >>> answer = '{"entities":[{"kind":"File","name":"a.py"},{"kind":"File","name":"b.py"}]}'
    >>> reader = ModelExtractor(Context(store, "x", model=Scripted([answer])))
    >>> found = reader.extract("read a.py twice: a.py")
    >>> [(m.entity.name, m.start, m.end) for m in found.mentions], found.dropped
    ([('a.py', 5, 9), ('a.py', 17, 21)], [('File', 'b.py')])
    """

    def __init__(
        self,
        context: Context,
        way: Way = "names",
        *,
        kinds: Sequence[str] = ("File", "Error", "Test"),
        clip: int = 2_000,
    ) -> None:
        if way not in get_args(Way):
            raise UsageError(f"way {way!r} is not offered", fix="use 'names' or 'spans'")
        if unknown := sorted(set(kinds) - set(ENTITY_KINDS)):
            raise UsageError(f"unknown kind {unknown[0]!r}", fix=f"use {', '.join(ENTITY_KINDS)}")
        self.context, self.way, self.kinds, self.clip = context, way, tuple(kinds), clip
        self._namer = Namer(load_rulebook())

    @property
    def rule(self) -> str:
        """Name of the rule in mentions."""
        return f"model-{self.way}"

    def extract(self, text: str, scope: str = "", field: str = "observation") -> ModelExtraction:
        """Extract from one text.

        Raises
        ------
        ModelError
            If the model cannot be asked; ``ReplayMiss`` where a replay has no answer.
        """
        plain, places = repair(text), None
        if has_codes(plain):
            plain, places = uncolour(plain)
        shown = plain[: self.clip]
        if not shown.strip():
            return ModelExtraction([], [], 0, 0, Usage(tokens_in=0, tokens_out=0))
        ask = self._ask_names if self.way == "names" else self._ask_spans
        named, malformed, usages = ask(shown)
        spans: dict[tuple[int, int], tuple[str, str]] = {}
        dropped = []
        for kind, name in named:
            found = list(_occurrences(shown, name))
            if not found:
                dropped.append((kind, name))
            for span in found:
                spans.setdefault(span, (kind, name))
        mentions = [
            mention
            for (start, end), (kind, name) in sorted(_apart(spans))
            if (mention := self._mention(kind, name, scope, field, start, end, places))
        ]
        return ModelExtraction(mentions, dropped, len(usages), malformed, _sum(usages))

    def _mention(
        self, kind: str, name: str, scope: str, field: str, start: int, end: int, places: Any
    ) -> Mention | None:
        known = self._namer.name(kind, _NORMALISE.get(kind, "same"), name)
        if known is None:
            return None
        if places is not None:
            start, end = int(places[start]), int(places[end - 1]) + 1
        entity = Entity(kind, scope if kind in SCOPED_KINDS else "", known)
        return Mention(entity=entity, field=field, start=start, end=end, rule=self.rule)

    def _ask_names(self, text: str) -> tuple[list[tuple[str, str]], int, list[Usage | None]]:
        """Let the model list what it sees."""
        item = {
            "type": "object",
            "properties": {"kind": {"enum": list(self.kinds)}, "name": {"type": "string"}},
        }
        entities = {"type": "array", "items": item, "maxItems": _MOST}
        schema = {"type": "object", "properties": {"entities": entities}}
        request = Request(
            system=f"{_TASK} Answer with JSON: every entity once, as it is written in the text.",
            messages=(*_examples(self.kinds), Message(role="user", content=text)),
            parameters={"temperature": 0.0, "max_tokens": 40 * _MOST},
            output_schema=schema,
        )
        reply = self.context.llm(None, request)
        try:
            named = _read_names(reply.data(), self.kinds)
        except MalformedReply:
            return [], 1, [reply.usage]
        return named, 0, [reply.usage]

    def _ask_spans(self, text: str) -> tuple[list[tuple[str, str]], int, list[Usage | None]]:
        """Ask of each candidate what it is; what the text does not hold cannot be named."""
        named: list[tuple[str, str]] = []
        usages: list[Usage | None] = []
        for candidate, line in _candidates(text):
            request = Request(
                system=f"{_TASK} Say what the marked words are: {', '.join(self._options)}.",
                messages=(*_marked_examples(), Message(role="user", content=line)),
                choices=self._options,
            )
            reply = self.context.llm(None, request)
            usages.append(reply.usage)
            if reply.text in self.kinds:
                named.append((reply.text, candidate))
        return named, 0, usages

    @property
    def _options(self) -> tuple[str, ...]:
        return (*self.kinds, _NONE)


def _examples(kinds: Sequence[str]) -> Iterator[Message]:
    for text, entities in _SHOWN:
        listed = ",".join(
            f'{{"kind":"{kind}","name":"{name}"}}' for kind, name in entities if kind in kinds
        )
        yield Message(role="user", content=text)
        yield Message(role="assistant", content=f'{{"entities":[{listed}]}}')


def _marked_examples() -> Iterator[Message]:
    for text, entities in _SHOWN:
        for kind, name in entities:
            line = next(line for line in text.splitlines() if name in line)
            yield Message(role="user", content=_mark(line, name))
            yield Message(role="assistant", content=kind)
    for line, name in (("at index.total in 3 s", "index.total"), ("v1.2.3 is out", "v1.2.3")):
        yield Message(role="user", content=_mark(line, name))
        yield Message(role="assistant", content=_NONE)


def _mark(line: str, words: str) -> str:
    before, _, after = line.strip().partition(words)
    return f"{before[-80:]}[[{words}]]{after[:80]}"


def _candidates(text: str) -> Iterator[tuple[str, str]]:
    """Different tokens that may name something, each with its first line."""
    seen: set[str] = set()
    for line in text.splitlines():
        for token in _TOKEN.findall(line):
            word = _PLACE.sub("", token)
            if len(word) > 2 and word not in seen and _TELLING.search(word):
                seen.add(word)
                yield word, _mark(line, word)
                if len(seen) == _CANDIDATES:
                    return


def _read_names(data: Any, kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Read the list; whatever has another shape is left out."""
    entities = data.get("entities") if isinstance(data, dict) else None
    found: dict[tuple[str, str], None] = {}
    for entry in entities if isinstance(entities, list) else ():
        row = entry if isinstance(entry, dict) else {}
        kind, name = row.get("kind"), row.get("name")
        if isinstance(kind, str) and isinstance(name, str) and kind in kinds and name.strip():
            found[kind, name.strip()] = None
    return list(found)


def _occurrences(text: str, name: str) -> Iterator[tuple[int, int]]:
    """Every place of a name that is no part of a longer word."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        inside = (at > 0 and text[at - 1].isalnum() and name[0].isalnum()) or (
            end < len(text) and text[end].isalnum() and name[-1].isalnum()
        )
        if not inside:
            yield at, end
        at = text.find(name, end)


def _apart(
    spans: dict[tuple[int, int], tuple[str, str]],
) -> Iterator[tuple[tuple[int, int], tuple[str, str]]]:
    """Of spans that overlap, keep the longest, then the earliest."""
    last: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda one: (one[0] - one[1], one[0])):
        if not any(span[0] < end and start < span[1] for start, end in last):
            last.append(span)
            yield span, spans[span]


def _sum(usages: Sequence[Usage | None]) -> Usage:
    def total(name: str) -> Any:
        values = [None if usage is None else getattr(usage, name) for usage in usages]
        return None if None in values else sum(values)

    return Usage(
        tokens_in=total("tokens_in"), tokens_out=total("tokens_out"), cost_usd=total("cost_usd")
    )
