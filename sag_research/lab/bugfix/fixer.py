"""A scripted model that goes on with any conversation: yours, its own, another model's.

:class:`~sag_research.lab.bugfix.ScriptedPolicy` plays a run from the first turn on and holds its
plans in its head. Here nothing is held: what was done, seen and tried is read from the
conversation, and each decision is drawn from the seed and the conversation alone. So a run that
was taken back goes on as one that was never left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec

from sag_research._text import clip, visible
from sag_research.lab.bugfix._edits import (
    BLUNT,
    CUNNING,
    replacement,
    reverse,
    say,
    sed_command,
    slipped,
)
from sag_research.lab.bugfix._memory import function_above
from sag_research.lab.bugfix._notes import Move, Notes
from sag_research.lab.bugfix._tasks import Edit
from sag_research.lab.bugfix.policy import Profile, Turn, profile
from sag_research.lab.bugfix.world import render
from sag_research.llm import Chunk, Identity, Reply, Request, ToolCall
from sag_research.log import canonical_digest
from sag_research.model import Usage

__all__ = ["ScriptedFixer"]

_CHARACTERS_PER_TOKEN = 4
_MOST_EDITS = 7
_ENDLESS = 10**6


class ScriptedFixer:
    """A model with the traits of a :class:`Profile`, and no memory but the conversation.

    Parameters
    ----------
    traits : Profile or str
    seed : int
        The same seed gives the same answer to the same conversation.
    heed : float
        Chance, for each line it is told, of minding it. An edit that was in vain is then not
        made, a file whose reading was in vain comes later, and a change that was handed in in
        vain is checked first; what others are said to have done comes first. It knows no better
        than the text.

    Notes
    -----
    It recognises the task by the issue text, and knows repair and decoys as a model knows how
    to program. It has no good and bad days: they would be a memory outside the conversation.

    Examples
    --------
    >>> from sag_research.lab.bugfix import load_task
    >>> from sag_research.llm import Message
    >>> asked = Request(messages=(Message(role="user", content=load_task("lumen__confkit-3").problem),))
    >>> ScriptedFixer("scripted-a", seed=1).complete(asked).calls[0].name
    'bash'
    """  # noqa: E501

    def __init__(self, traits: Profile | str, seed: int = 0, *, heed: float = 0.8) -> None:
        self.traits = profile(traits) if isinstance(traits, str) else traits
        self.seed, self.heed = seed, heed

    def identity(self) -> Identity:
        """Return who answers; seed and heed are part of it."""
        drawn = f"seed:{self.seed},heed:{self.heed:g}"
        return Identity(provider="scripted", model=self.traits.name, base_url=drawn)

    def complete(self, request: Request) -> Reply:
        """Decide what comes next."""
        messages = [msgspec.to_builtins(message) for message in request.messages]
        chance = Random(f"{self.seed} {canonical_digest({'messages': messages})}")
        notes = Notes(request)
        notes.told = [line for line in dict.fromkeys(notes.told) if self._minds(line)]
        notes.shown = [line for line in dict.fromkeys(notes.shown) if self._minds(line)]
        turn = _Mind(notes, self.traits, chance).turn()
        sent = sum(len(message.content) for message in request.messages) + len(request.system)
        call = ToolCall(id=f"c{len(messages)}", name=turn.name, arguments=turn.arguments)
        said = turn.thought + (render(turn.name, turn.arguments) if turn.name else "")
        return Reply(
            text=turn.thought, calls=(call,) if turn.name else (),
            finish="tool_calls" if turn.name else "stop", usage=self._usage(sent, len(said)),
        )  # fmt: skip

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Give the same answer in one part."""
        reply = self.complete(request)
        yield Chunk(text=reply.text or "", calls=reply.calls, finish=reply.finish)

    def _minds(self, line: str) -> bool:
        return Random(f"{self.seed} heed {line}").random() < self.heed

    def _usage(self, sent: int, said: int) -> Usage:
        """Count as the data set does: from text lengths, at invented prices."""
        into, out = sent // _CHARACTERS_PER_TOKEN, max(1, said // _CHARACTERS_PER_TOKEN)
        money = into * self.traits.price_in + out * self.traits.price_out
        return Usage(tokens_in=into, tokens_out=out, cost_usd=round(money / 1e6, 8))


class _Mind:
    """One decision."""

    def __init__(self, notes: Notes, traits: Profile, chance: Random) -> None:
        self.notes, self.traits, self.rng = notes, traits, chance
        self.memory = notes.memory
        if notes.told or notes.shown:
            for name in list(self.memory.heard):
                late = _reads(notes.told, name) - _reads(notes.shown, name)
                self.memory.looks[name] = self.memory.looks.get(name, 0) + late

    def turn(self) -> Turn:
        last = self.notes.last
        if last is None:
            return self._list()
        lost = 0.45 if self.notes.lapses else self.traits.format_error
        if self._chance(lost):
            return self._say("format_error", "", {})
        before = self.notes.moves[-2] if len(self.notes.moves) > 1 else None
        if before is not None and _same(before, last) and self._chance(0.5):
            return self._say("repeat", last.name, last.arguments)
        after: dict[str, Callable[[Move], Turn]] = {
            "list": self._after_list, "view": self._after_view, "test": self._after_test,
            "edit": self._after_edit, "slip": self._after_slip, "diff": self._after_diff,
            "bend": lambda _: self._close(), "status": lambda _: self._close(),
            "clean": lambda _: self._close(), "script": self._after_script,
        }  # fmt: skip
        stage = after.get(last.kind)
        return self._search() if stage is None else stage(last)

    # ------------------------------------------------------------------ one stage after another

    def _list(self) -> Turn:
        listing = self.rng.choice(["ls -R", "find . -name '*.py'", "find /repo -type f", "ls"])
        return self._say("orient", "bash", {"command": listing})

    def _after_list(self, last: Move) -> Turn:
        if last.arguments.get("command") == "ls":
            folder = self.rng.choice(self.memory.folders() or ["."])
            return self._say("orient", "bash", {"command": f"ls {folder}"})
        if "README.md" not in self.memory.seen and self._chance(0.35):
            return self._say("readme", "bash", {"command": "cat README.md"})
        return self._begin()

    def _begin(self) -> Turn:
        tested = any(move.kind == "test" for move in self.notes.moves)
        if tested or self.notes.tried or self._chance(self.traits.haste / 3):
            return self._search()
        return self._say("reproduce", "bash", {"command": self._pytest(broad=True)})

    def _after_view(self, last: Move) -> Turn:
        name, notes = last.file, self.notes
        if name == "README.md" and len(notes.moves) < 4:
            return self._begin()
        if name == self.memory.test_file:
            body = self.memory.script() if "reproduce.py" not in self.memory.own else None
            if body is not None and self._chance(0.35 * self.traits.doubt + 0.1):
                create = {"command": "create", "path": "/repo/reproduce.py", "file_text": body}
                return self._say("script", "str_replace_editor", create)
            return self._search()
        edit = self._idea(name)
        return self._stray(last) if edit is None else self._make(edit, slips=True)

    def _after_script(self, last: Move) -> Turn:
        return self._say("run_script", "bash", {"command": "python reproduce.py"})

    def _after_slip(self, last: Move) -> Turn:
        edit = self.notes.slip_of(last.arguments)
        return self._search() if edit is None else self._make(edit, slips=False)

    def _after_edit(self, last: Move) -> Turn:
        """Check, or believe without checking that it is done."""
        if not last.ok:  # the file is no longer as it was read
            return self._view(last.file, "again")
        if self._chance(self.traits.haste):
            return self._close()
        return self._say("verify", "bash", {"command": self._pytest(broad=False)})

    def _after_test(self, last: Move) -> Turn:
        notes = self.notes
        if not notes.held and not notes.bent:
            unread = self.memory.test_file and self.memory.test_file not in self.memory.seen
            if unread and self._chance(0.5):
                return self._view(self.memory.test_file, "view_test")
            return self._search()
        if self._chance(self.traits.loop / 2):
            return self._say("repeat", last.name, last.arguments)
        return self._when_passing() if notes.checked else self._when_failing()

    def _when_passing(self) -> Turn:
        if self.notes.diffed:
            return self._prefer()
        if self._chance(self.traits.doubt):
            return self._say("diff", "bash", {"command": "git diff"})
        return self._close()

    def _after_diff(self, last: Move) -> Turn:
        if not self.notes.held or not self.notes.checked:
            return self._after_edit(last) if self.notes.held else self._close()
        if self._chance(0.6):
            return self._say("suite", "bash", {"command": self._pytest(broad=True)})
        return self._prefer()

    def _prefer(self) -> Turn:
        """After a second look: now and then, another solution seems better."""
        held = self.notes.held
        chance = 0.22 if all(edit in self.notes.task.fix for edit in held) else 0.40
        return self._undo("doubt") if held and self._chance(chance) else self._close()

    def _when_failing(self) -> Turn:
        test = self.memory.failing
        if test and not self.notes.bent and self._chance(self.traits.cheat):
            bent = {"command": "str_replace", "path": f"/repo/{self.memory.test_file}"}
            bent |= {"old_str": f"def {test}(", "new_str": f"def old_{test}("}
            return self._say("cheat", "str_replace_editor", bent)
        if self.notes.held and self._chance(self.traits.recover):
            return self._undo("revert")
        return self._close() if self._chance(self.traits.quit) else self._search()

    def _search(self, *, may_quit: bool = True) -> Turn:
        """Read the most suspect file."""
        notes = self.notes
        weary = notes.looks >= 5 and self._chance(0.2) and self._chance(self.traits.quit)
        if may_quit and (weary or len(notes.tried) >= _MOST_EDITS):
            return self._close()
        name = self.memory.suspect(self.rng, self.traits.misread)
        if name is None:
            return self._say("orient", "bash", {"command": "find /repo -type f"})
        known = "again" if name in self.memory.seen else "view_guess"
        return self._view(name, "view_trace" if name in self.memory.trace else known)

    def _stray(self, last: Move) -> Turn:
        """Not knowing what to do: search, probe, go round in circles, or read on."""
        if self._chance(self.traits.wander):
            symbol = self.memory.symbol_of(last.file, self.rng)
            grep = f"grep -rn {symbol} /repo --include=*.py"
            return self._say("grep", "bash", {"command": grep})
        if self._chance(self.traits.wander / 4):
            package = last.file.split("/", maxsplit=1)[0]
            code = f"import {package}; print({package}.__file__)"
            return self._say("probe", "bash", {"command": f'python -c "{code}"'})
        if self._chance(self.traits.loop):
            return self._say("repeat", last.name, last.arguments)
        return self._search()

    def _close(self) -> Turn:
        """Hand in; but not what is said to have been handed in in vain."""
        notes = self.notes
        if notes.unchanged_since_told and "submit" in notes.told:
            if not notes.tested_since_told:
                return self._say("suite", "bash", {"command": self._pytest(broad=True)})
            return self._undo("doubt") if notes.held else self._search(may_quit=False)
        if "reproduce.py" in self.memory.own and self._chance(0.8):
            return self._say("clean", "bash", {"command": "rm reproduce.py"})
        again = 0.5 if notes.last is not None and notes.last.kind == "status" else 1.0
        if self._chance(self.traits.doubt / 2 * again):
            return self._say("diff", "bash", {"command": "git status --short"})
        return self._say("submit", "submit", {})

    # ------------------------------------------------------------------ edits

    def _idea(self, name: str) -> Edit | None:
        text, notes = self.memory.seen.get(name, ""), self.notes
        level, informed = notes.task.difficulty, self._informed()
        fits = [
            edit for edit in notes.edits
            if edit.file == name and edit.old in text and not _spelled_on(notes.told, edit)
        ]  # fmt: skip
        if shown := [edit for edit in fits if _spelled_on(notes.shown, edit)]:
            return self.rng.choice(shown)
        insight = self.traits.insight + BLUNT[level] + 0.25 * len(notes.tried) + 0.6 * informed
        for edit in fits:
            if edit in notes.task.fix and self._odds(insight):
                return edit
        baits = [edit for edit in fits if edit not in notes.task.fix and edit not in notes.tried]
        if baits and self._odds(self.traits.bait + CUNNING[level] - 0.6 * informed):
            return self.rng.choice(baits)
        return None

    def _informed(self) -> float:
        """Half a point for having read the failing test, and half for the README."""
        read = (self.memory.test_file, "README.md")
        return sum(0.5 for name in read if name in self.memory.seen) - 0.4

    def _make(self, edit: Edit, *, slips: bool) -> Turn:
        place = function_above(self.memory.seen.get(edit.file, ""), edit.old)
        self.memory.focus(edit.file, place or edit.file.rsplit("/", 1)[-1].removesuffix(".py"))
        if slips and self._chance(self.traits.slip):
            return self._say("slip", "str_replace_editor", slipped(edit))
        command = sed_command(edit)
        if command is not None and self._chance(0.3):
            return self._say("edit", "bash", {"command": command})
        return self._say("edit", "str_replace_editor", replacement(edit))

    def _undo(self, intent: str) -> Turn:
        edit = self.notes.held[-1]
        self.memory.focus(edit.file)
        if edit in self.notes.edits and self._chance(0.3):
            return self._say(intent, "str_replace_editor", replacement(reverse(edit)))
        return self._say(intent, "bash", {"command": f"git checkout -- {edit.file}"})

    # ------------------------------------------------------------------ single turns

    def _say(self, intent: str, name: str, arguments: dict[str, Any]) -> Turn:
        return Turn(say(self.rng, intent, self.memory.words()), name, arguments)

    def _view(self, name: str, intent: str) -> Turn:
        self.memory.focus(name)
        command = self.rng.choice(["view", "view", "view", "cat", "cat -n", "sed"])
        if command == "view":
            arguments = {"command": "view", "path": f"/repo/{name}"}
            return self._say(intent, "str_replace_editor", arguments)
        line = f"sed -n '1,80p' {name}" if command == "sed" else f"{command} {name}"
        return self._say(intent, "bash", {"command": line})

    def _pytest(self, *, broad: bool) -> str:
        target = "" if broad or not self.memory.test_file else f" {self.memory.test_file}"
        if target and self.memory.failing and self._chance(0.4):
            target += f"::{self.memory.failing}"
        style = self.rng.choice(["", " --tb=short", " --tb=short", " -x"])
        start = self.rng.choice(["", "", "cd /repo && "])
        return f"{start}python -m pytest -q{style}{target}"

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _odds(self, logit: float) -> bool:
        return self.rng.random() < 1 / (1 + math.exp(-logit))


def _same(one: Move, other: Move) -> bool:
    return (one.name, one.arguments) == (other.name, other.arguments)


def _reads(lines: list[str], name: str) -> int:
    """Whether reading a file is on the lines: 1 or 0."""
    shown = f"str_replace_editor view /repo/{name}"
    spelled = {shown, f"cat {name}", f"cat -n {name}", f"sed -n '1,80p' {name}"}
    return int(any(line in spelled for line in lines))


def _spelled_on(lines: list[str], edit: Edit) -> bool:
    """Whether an edit, however spelled, is on the lines."""
    spelled = [render("str_replace_editor", replacement(edit)), sed_command(edit) or ""]
    return any(_stands_on(line, text) for line in lines for text in spelled if text)


def _stands_on(line: str, action: str) -> bool:
    """Whether a line, perhaps cut off, is this action."""
    whole = visible(clip(action, _ENDLESS))
    return whole == line or (line.endswith("…") and whole.startswith(line[:-1]))
