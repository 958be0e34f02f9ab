"""A small model on this machine repairs bugs, with the same tools and no knowledge of the task.

A model of some hundred million parameters cannot write tool calls. It draws what to do, which
file, and which line by the probabilities it gives to the options; the line that is put in place
of another it writes itself. It seldom succeeds, and then the held-out test says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from sag_research._text import clip
from sag_research.lab.bugfix._notes import Move, Notes
from sag_research.llm import Chunk, Identity, Message, Model, Reply, Request, ToolCall, sample
from sag_research.log import canonical_digest
from sag_research.model import Usage

__all__ = ["LocalFixer"]

_LETTERS: Final = "ABCDEFGHIJKLMNOP"
_WINDOW: Final = 16
"""Lines of a file that can be chosen from at once."""
_RECENT: Final = 8
"""Moves that are shown."""
_LINE: Final = 90


@cache
def _examples() -> str:
    return (Path(__file__).parent / "local_examples.txt").read_text(encoding="utf-8").rstrip()


class LocalFixer:
    """Lets a model that can score options and write a line repair bugs.

    Parameters
    ----------
    model : Model
        Answers :attr:`Request.choices <sag_research.llm.Request>` with scores, and keeps to a
        grammar, e.g. :class:`sag_research.llm.Local`.
    seed : int
        Of the draws.
    temperature : float
        Above 1 the draws are more even, below 1 less.
    """

    def __init__(self, model: Model, *, seed: int = 0, temperature: float = 1.0) -> None:
        self.model, self.seed, self.temperature = model, seed, temperature

    def identity(self) -> Identity:
        """Return who answers; seed and temperature are part of it."""
        inner = self.model.identity()
        drawn = f"seed:{self.seed},temperature:{self.temperature:g}"
        return Identity(provider="local-fixer", model=inner.model, base_url=drawn)

    def complete(self, request: Request) -> Reply:
        """Choose what comes next, and write it."""
        messages = [msgspec.to_builtins(message) for message in request.messages]
        chance = Random(f"{self.seed} {canonical_digest({'messages': messages})}")
        turn = _Choosing(self.model, Notes(request), chance, self.temperature)
        word = turn.draw(turn.transcript(), turn.options())
        name, arguments = turn.carried_out(word)
        call = ToolCall(id=f"c{len(messages)}", name=name, arguments=arguments)
        return Reply(text=word, calls=(call,), finish="tool_calls", usage=turn.usage)

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Give the same answer in one part."""
        reply = self.complete(request)
        yield Chunk(text=reply.text or "", calls=reply.calls, usage=reply.usage)


class _Choosing:
    """One turn: a few small questions to the model."""

    def __init__(self, model: Model, notes: Notes, chance: Random, temperature: float) -> None:
        self.model, self.notes, self.chance, self.temperature = model, notes, chance, temperature
        self.usage: Usage | None = None

    def options(self) -> list[str]:
        """Words that can be said now; the same question twice in a row has the same answer."""
        last = self.notes.last.kind if self.notes.last is not None else ""
        words = {
            "list": last != "list", "test": last != "test",
            "read": bool(self._files()), "edit": bool(self._read()),
        }  # fmt: skip
        return [*(word for word, can in words.items() if can), "submit"]

    def carried_out(self, word: str) -> tuple[str, dict[str, Any]]:
        """Make a whole call of a word."""
        if word == "submit":
            return "submit", {}
        if word == "list":
            return "bash", {"command": "find /repo -type f"}
        if word == "test":
            return "bash", {"command": "python -m pytest -q --tb=short"}
        if word == "read":
            name = self._pick("Which file to read?", self._files())
            return "str_replace_editor", {"command": "view", "path": f"/repo/{name}"}
        return "str_replace_editor", self._edit()

    def _edit(self) -> dict[str, Any]:
        """Choose a file and a line, and write another one in its place."""
        name = self._pick("Which file to change?", self._read())
        lines = self.notes.memory.seen[name].splitlines()
        places = [
            number
            for number, line in enumerate(lines)
            if len(line.strip()) > 4 and not line.startswith("/repo/")
        ]
        if not places:
            return {"command": "view", "path": f"/repo/{name}"}
        while len(places) > _WINDOW:  # first which part, then which line
            size = -(-len(places) // _WINDOW)
            parts = [places[start : start + size] for start in range(0, len(places), size)]
            heads = [clip(lines[part[0]], _LINE) for part in parts]
            places = parts[self._index("Where is the bug? From which line on?", heads)]
        shown = [clip(lines[number], _LINE) for number in places]
        number = places[self._index("Which line is wrong?", shown)]
        old = lines[number]
        stem = old[: len(old) - len(old.lstrip())]
        return {"command": "str_replace", "path": f"/repo/{name}", "old_str": old,
                "new_str": stem + self._written(name, old.strip())}  # fmt: skip

    def _written(self, name: str, old: str) -> str:
        prompt = f"{self.transcript()} edit\nIn {name} the line\n{old}\nis wrong. Right is\n"
        grammar = r"root ::= [^\n\x00-\x1f]+"
        parameters = {"max_tokens": 40, "temperature": 0.8, "grammar": grammar,
                      "seed": self.chance.randrange(2**31)}  # fmt: skip
        reply = self._ask(prompt, parameters=parameters)
        return (reply.text or "").split("\n")[0].strip()

    def _files(self) -> list[str]:
        return self._sources(self.notes.memory.heard)

    def _read(self) -> list[str]:
        seen = self._sources(self.notes.memory.seen)
        return [name for name in seen if not name.startswith("tests/")]

    @staticmethod
    def _sources(names: Any) -> list[str]:
        kept = [name for name in names if name.endswith(".py") and not name.endswith("__init__.py")]
        return kept[: len(_LETTERS)]

    def _pick(self, what: str, names: Sequence[str]) -> str:
        return names[self._index(what, names)]

    def _index(self, what: str, names: Sequence[str]) -> int:
        """Let the model choose by letters, since names may begin alike."""
        menu = "\n".join(f"{letter} {name}" for letter, name in zip(_LETTERS, names, strict=False))
        prompt = f"{self._now()}\n{what}\n{menu}\nAnswer:"
        return _LETTERS.index(self.draw(prompt, list(_LETTERS[: len(names)])))

    def draw(self, prompt: str, words: Sequence[str]) -> str:
        """Draw one of the words by the model's probabilities."""
        reply = self._ask(prompt, choices=tuple(f" {word}" for word in words))
        return sample(reply.scores, self.chance, temperature=self.temperature).strip()

    def _ask(self, prompt: str, **more: Any) -> Reply:
        asked = Request(messages=(Message(role="user", content=prompt),), **more)
        reply = self.model.complete(asked)
        self.usage = _sum(self.usage, reply.usage)
        return reply

    def transcript(self) -> str:
        """Write the conversation as the examples are written."""
        return f"{_examples()}\n\n{self._now()}\n>"

    def _now(self) -> str:
        lines = [f"Report: {clip(self.notes.task.problem, 300)}"]
        for move in self.notes.moves[-_RECENT:]:
            lines += [f"> {_WORDS.get(move.kind, 'other')}", self._seen(move)]
        vain = [clip(line, _LINE) for line in self.notes.told[-6:]]
        lines += ["this was in vain: " + "; ".join(vain)] if vain else []
        return "\n".join(lines)

    def _seen(self, move: Move) -> str:
        """Say an observation in a line; what strangers wrote stays in it, as data."""
        memory = self.notes.memory
        if move.kind == "list":
            return " ".join(self._files())
        if move.kind == "test":
            told = f"{memory.test_file}: {memory.error} in {' '.join(memory.trace)}"
            return "all tests pass" if move.ok else told
        if move.kind in ("edit", "slip", "bend", "undo"):
            new = clip(move.arguments.get("new_str", ""), _LINE)
            return f"changed {move.file}: {new}" if move.ok else f"could not change {move.file}"
        return move.file


_WORDS: Final = {
    "list": "list", "test": "test", "view": "read", "edit": "edit", "slip": "edit",
    "bend": "edit", "undo": "edit", "submit": "submit",
}  # fmt: skip


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return Usage(
        tokens_in=(one.tokens_in or 0) + (other.tokens_in or 0),
        tokens_out=(one.tokens_out or 0) + (other.tokens_out or 0),
        cost_usd=other.cost_usd,
    )
