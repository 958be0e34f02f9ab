"""The extractor: texts in, tables of mentions and relations out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..model import Entity, Mention, Relation
from ._actions import Action, ActionReader, ActionWords
from ._engine import Found, find
from ._model import ModelExtractor
from ._names import Namer
from ._relations import Edge, Mentions, edges
from ._resolve import resolve
from ._rules import Compiled, load_rulebook
from ._tables import Batch, Extraction, StepTexts, Tables, Vocabulary, columns_of, make_batch

__all__ = ["EntityExtractor"]

Ints = NDArray[np.int64]

_PROGRAM_PRIORITY: Final = 75
_LABEL_PRIORITY: Final = 78
_WRITE_PRIORITY: Final = 85
_SCRIPT_PRIORITY: Final = 29
"""A program called by a path with an ending is a File; by a path without one, a Command."""


class EntityExtractor:
    """Finds the things that texts of agents name, by rules.

    Parameters
    ----------
    api_key : str, optional
        Accepted for code that hands one over; it is neither kept nor used. Rules need none, and
        a model is given to :meth:`extract` with recorded calls of its own.
    aliases : Path, optional
        A TOML file of the shape of the shipped ``aliases.toml`` that adds canonical names.

    Raises
    ------
    SagError
        If the alias file cannot be read or understood.

    Examples
    --------
    >>> extractor = EntityExtractor()
    >>> entities, relations = extractor.extract("cannot reach pg at port 5432: timed out")
    >>> [(entity.kind, entity.name) for entity in entities]
    [('System', 'Postgres'), ('Configuration', 'Port 5432'), ('Error', 'TimeoutError')]
    >>> [(r.source.name, r.type, r.target.name) for r in relations]
    [('Postgres', 'CONFIGURED_WITH', 'Port 5432'), ('Postgres', 'ENCOUNTERED', 'TimeoutError')]
    """

    def __init__(self, api_key: str | None = None, aliases: Path | None = None) -> None:
        del api_key
        book = load_rulebook(aliases)
        self._version = book.version
        self._rules = book.rules
        self._namer = Namer(book)
        self._reader = ActionReader(msgspec.convert(book.file.actions, ActionWords))

    @property
    def version(self) -> str:
        """``rules-<n>-<8 hex>``: changes with the rules and with every alias."""
        return self._version

    def extract(
        self,
        text: str,
        scope: str = "",
        *,
        model: ModelExtractor | None = None,
        complement: bool = False,
    ) -> tuple[list[Entity], list[Relation]]:
        """Return the different entities and relations of a text, in order of first mention.

        Parameters
        ----------
        text : str
        scope : str
            The repository; part of the identity of files, modules, symbols and tests.
        model : ModelExtractor, optional
            Asked where the rules find nothing; what it adds comes last, without relations.
        complement : bool
            Ask the model also where the rules find something.
        """
        mentions, relations = self.extract_steps(StepTexts([""], [text], [scope], [None]))
        found = {_entity(row, ""): None for row in mentions.to_pylist()}
        order = {entity: place for place, entity in enumerate(found)}
        edges_ = [
            Relation(
                source=_entity(row, "source_"),
                type=row["type"],
                target=_entity(row, "target_"),
                rule=row["rule"],
            )
            for row in relations.to_pylist()
        ]
        last = len(order)
        edges_.sort(key=lambda r: (order.get(r.source, last), order.get(r.target, last)))
        if model is not None and (complement or not found):
            more = model.extract(text, scope).mentions
            found.update(dict.fromkeys(mention.entity for mention in more))
        return list(found), edges_

    def mentions(self, text: str, scope: str = "", field: str = "observation") -> list[Mention]:
        """Return every mention in one text, by place."""
        action, observation = (text, "") if field == "action" else ("", text)
        table = self.extract_steps(StepTexts([action], [observation], [scope], [None])).mentions
        return [
            Mention(
                entity=_entity(row, ""), field=row["field"], start=row["start"], end=row["end"],
                role=row["role"], rule=row["rule"],
            )
            for row in table.to_pylist()
        ]  # fmt: skip

    def extract_steps(self, steps: StepTexts) -> Extraction:
        """Extract from many steps at once.

        Equal texts are read once. Time is linear in the length of the texts.

        Parameters
        ----------
        steps : StepTexts

        Returns
        -------
        Extraction
            The same input gives the same bytes.
        """
        batch = make_batch(steps)
        words = Vocabulary()
        actions = [self._reader.read(text) for text in batch.texts[: batch.n_actions]]
        found = self._mentions(batch, steps, actions, words)
        related = list(edges(found, batch.texts, words))
        mutated, touched = _touched(found, actions, words)
        related += touched
        return Tables(steps, batch, words, actions, self._namer, self._rules).build(
            found, mutated, related
        )

    def _mentions(
        self, batch: Batch, steps: StepTexts, actions: list[Action], words: Vocabulary
    ) -> Mentions:
        """Match all rules, name what they found, and settle overlaps."""
        columns: list[tuple[Ints, Ints, Ints, Ints, int, bool, bool]] = []
        for compiled, found in self._find(batch, steps.action):
            text, start, end, code = self._named(compiled, found, words)
            rule = compiled.rule
            columns.append((text, start, end, code, rule.priority, not rule.kind, rule.in_mask))
        columns += _action_columns(actions, words)
        columns.append((*self._writes(batch, actions, words), _WRITE_PRIORITY, False, False))
        text, start, end, code = (
            np.concatenate([column[i] for column in columns]) for i in range(4)
        )
        lengths = [len(column[0]) for column in columns]
        priority, mask, immune = (
            np.repeat(np.array([column[i] for column in columns]), lengths) for i in (4, 5, 6)
        )
        keep = resolve(text, start, end, priority, mask, immune)
        return Mentions(text[keep], start[keep], end[keep], code[keep])

    def _writes(
        self, batch: Batch, actions: list[Action], words: Vocabulary
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Paths of files that actions surely change, whatever they look like."""
        rows = [
            (text, start, end, words.code("action-write", "File", name))
            for text, action in enumerate(actions)
            for start, end in action.writes
            if (name := self._namer.name("File", "file", batch.texts[text][start:end]))
        ]
        return columns_of(rows)

    def _find(self, batch: Batch, actions: Sequence[str]) -> Iterator[tuple[Compiled, Found]]:
        """Run each rule over the texts that it is for."""
        groups: dict[tuple[tuple[str, ...], str | None], list[Compiled]] = {}
        for compiled in self._rules:
            rule = compiled.rule
            groups.setdefault((rule.fields, rule.when_action), []).append(compiled)
        for (fields, words), chosen in groups.items():
            low = 0 if "action" in fields else batch.n_actions
            high = len(batch.texts) if "observation" in fields else batch.n_actions
            which = np.arange(low, high)
            if words is not None:
                wanted = chosen[0].rule.is_wanted
                having = [2 * row + 1 for row, action in enumerate(actions) if wanted(action)]
                which = np.intersect1d(which, batch.slots[having])
            found = find([batch.texts[i] for i in which.tolist()], chosen)
            for compiled, matches in zip(chosen, found, strict=True):
                if len(matches.text):
                    yield compiled, matches._replace(text=which[matches.text])

    def _named(
        self, compiled: Compiled, found: Found, words: Vocabulary
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Give each match its code; leave out those that the normaliser refuses."""
        rule = compiled.rule
        if not rule.kind:
            return found.text, found.start, found.end, np.full(len(found.text), -1)
        if compiled.items:
            return self._itemised(compiled, found, words)
        table = np.array([self._code(compiled, name, words) for name in found.names], np.int64)
        code = table[found.code] if len(table) else found.code
        keep = code >= 0
        return found.text[keep], found.start[keep], found.end[keep], code[keep]

    def _code(self, compiled: Compiled, found: str, words: Vocabulary) -> int:
        rule = compiled.rule
        name = self._namer.name(rule.kind, rule.normalise, found)
        return -1 if name is None else words.code(rule.name, rule.kind, name)

    def _itemised(
        self, compiled: Compiled, found: Found, words: Vocabulary
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Split each match into the items of its list."""
        pattern = compiled.items
        parts = [
            [
                (item.start("name"), item.end("name"), code)
                for item in (pattern.finditer(name) if pattern else ())
                if (code := self._code(compiled, item["name"], words)) >= 0
            ]
            for name in found.names
        ]
        rows = [
            (text, start + low, start + high, code)
            for text, start, which in zip(
                found.text.tolist(), found.start.tolist(), found.code.tolist(), strict=True
            )
            for low, high, code in parts[which]
        ]
        return columns_of(rows)


def _entity(row: dict[str, str], prefix: str) -> Entity:
    return Entity(row[f"{prefix}kind"], row[f"{prefix}scope"], row[f"{prefix}name"])


def _action_columns(
    actions: list[Action], words: Vocabulary
) -> Iterator[tuple[Ints, Ints, Ints, Ints, int, bool, bool]]:
    """Programs and test labels as matches beside those of the rules."""
    programs: list[tuple[int, int, int, int]] = []
    scripts: list[tuple[int, int, int, int]] = []
    labels: list[tuple[int, int, int, int]] = []
    for text, action in enumerate(actions):
        for word in action.commands:
            code = words.code("action-program", "Command", word.text)
            (scripts if "/" in word.text else programs).append((text, word.start, word.end, code))
        for word in action.labels:
            code = words.code("action-label", "Test", word.text)
            labels.append((text, word.start, word.end, code))
    yield *columns_of(programs), _PROGRAM_PRIORITY, False, False
    yield *columns_of(scripts), _SCRIPT_PRIORITY, False, False
    yield *columns_of(labels), _LABEL_PRIORITY, False, False


def _touched(
    found: Mentions, actions: list[Action], words: Vocabulary
) -> tuple[NDArray[np.bool_], list[Edge]]:
    """Which mentions are of files that their action changes, and which program touched which."""
    mutated = np.zeros(len(found.text), bool)
    related = []
    last = int(np.searchsorted(found.text, len(actions)))
    for i in range(last):
        code = int(found.code[i])
        if words.kinds[code] != "File":
            continue
        text = int(found.text[i])
        action = actions[text]
        use = _use(action, int(found.start[i]), int(found.end[i]))
        if use is None:
            continue
        command, mutated[i] = use
        if command >= 0:
            program = words.code("action-program", "Command", action.commands[command].text)
            related.append(Edge(text, program, "TOUCHED", code, "action-operand"))
    return mutated, related


def _use(action: Action, start: int, end: int) -> tuple[int, bool] | None:
    """Command that uses the file named at a place, and whether it changes it."""
    if (start, end) in action.writes:
        return action.writes[start, end], True
    at = bisect_right(action.operands, (start + 1,)) - 1
    if at < 0 or action.operands[at][1] < end:
        return None
    return action.operands[at][2:]
