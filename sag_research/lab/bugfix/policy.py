"""Scripted models: seeded, stochastic bug fixers with vices that can be tuned.

A scripted model knows its task's true repair and some decoys, as a real model knows how to
program; but it can only make an edit whose place it has *seen* in an observation, goes where
tracebacks, listings and imports lead it, and learns from test output whether it is done. All
chance comes from one seed, so the same observations give the same turns.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Generator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from sag_research.errors import MissingDataError
from sag_research.lab.bugfix._edits import (
    BLUNT,
    CUNNING,
    replacement,
    reverse,
    say,
    sed_command,
    slipped,
)
from sag_research.lab.bugfix._memory import Memory, function_above
from sag_research.lab.bugfix._tasks import Edit, Task
from sag_research.lab.bugfix.world import Observation

__all__ = ["Profile", "ScriptedPolicy", "Turn", "profile", "profile_names"]

HERE = Path(__file__).parent


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Traits of one scripted model.

    Attributes
    ----------
    name : str
    style : {'function_calling', 'thought_action'}
        How its replies are written down.
    insight, bait : float
        Log-odds, per look at the place, of seeing the true repair, and of falling for a decoy.
    misread : float
        Standard deviation of the noise on the evidence for which file to read next.
    haste, loop, recover, doubt, quit, wander, cheat, slip, format_error : float
        Chances, per occasion, of skipping a check, repeating an action, taking back an edit that
        did not help, checking again after success, giving up, looking elsewhere, bending a test,
        mistyping an edit, and replying without an action.
    cost_limit : float
        US dollars after which a run is stopped.
    price_in, price_out : float
        US dollars per million tokens.
    """

    name: str
    style: Literal["function_calling", "thought_action"]
    insight: float
    bait: float
    misread: float
    haste: float
    loop: float
    recover: float
    doubt: float
    quit: float
    wander: float
    cheat: float
    slip: float
    format_error: float
    cost_limit: float
    price_in: float
    price_out: float


class Turn(msgspec.Struct, frozen=True):
    """One reply of a model: a thought and at most one tool call.

    Attributes
    ----------
    thought : str
    name : str
        Tool to call; empty when the reply holds no action.
    arguments : dict
    """

    thought: str
    name: str
    arguments: dict[str, Any]


Play = Generator[Turn, Observation, None]
Check = Generator[Turn, Observation, bool]


def profile_names() -> tuple[str, ...]:
    """Names of the shipped profiles.

    Examples
    --------
    >>> profile_names()
    ('scripted-a', 'scripted-b', 'scripted-c')
    """
    return tuple(_profiles())


def profile(name: str) -> Profile:
    """Return one shipped profile by name.

    Examples
    --------
    >>> profile("scripted-c").style
    'thought_action'
    """
    if name not in _profiles():
        raise MissingDataError(f"no profile {name!r}", fix=f"choose of {', '.join(_profiles())}")
    return _profiles()[name]


class ScriptedPolicy:
    """One scripted model at work on one task.

    Parameters
    ----------
    task : Task
    traits : Profile or str
    seed : int

    Notes
    -----
    A policy is resumed by giving a new one of the same seed the observations made so far;
    :meth:`reseed` then lets it take another way from there.

    Examples
    --------
    >>> from sag_research.lab.bugfix import load_task
    >>> policy = ScriptedPolicy(load_task("lumen__confkit-3"), "scripted-a", seed=1)
    >>> policy.act(None).name
    'bash'
    """

    def __init__(self, task: Task, traits: Profile | str, seed: int) -> None:
        self.task = task
        self.traits = profile(traits) if isinstance(traits, str) else traits
        self.rng = Random(seed)
        self.memory = Memory(task.problem)
        self.form = self.rng.gauss(0.0, 1.0)  # a good or a bad day, the same for the whole run
        self._tried: list[Edit] = []
        self._play = self._work()

    def act(self, observation: Observation | None) -> Turn | None:
        """Next turn after an observation (None at the start); None when the model stops."""
        try:
            return next(self._play) if observation is None else self._play.send(observation)
        except StopIteration:
            return None

    def reseed(self, seed: int) -> None:
        """Take all further chance from another seed."""
        self.rng = Random(seed)

    # ------------------------------------------------------------------ the work, top to bottom

    def _work(self) -> Play:
        yield from self._orient()
        yield from self._reproduce()
        for _ in range(7):
            edit = yield from self._localise()
            if edit is None:
                if self._vice(self.traits.quit):
                    break
                continue
            yield from self._make(edit)
            passed = yield from self._verify()
            if passed and not (yield from self._second_thoughts(edit)):
                break
            if not passed and not (yield from self._after_failure(edit)):
                break
        yield from self._tidy()
        if self._chance(0.97):
            yield self._say("submit", "submit", {})
        else:
            yield self._say("diff", "bash", {"command": "git diff"})

    def _orient(self) -> Play:
        listing = self.rng.choice(["ls -R", "find . -name '*.py'", "find /repo -type f", "ls"])
        yield from self._do("orient", "bash", {"command": listing})
        if listing == "ls":
            folder = self.rng.choice(self.memory.folders() or ["."])
            yield from self._do("orient", "bash", {"command": f"ls {folder}"})
        if self._virtue(0.35):
            yield from self._do("readme", "bash", {"command": "cat README.md"})

    def _reproduce(self) -> Play:
        if self._vice(self.traits.haste / 3):
            return
        yield from self._do("reproduce", "bash", {"command": self._pytest(broad=True)})
        if self._virtue(0.5) and self.memory.test_file:
            yield from self._view(self.memory.test_file, "view_test")
            if self._chance(0.35 * self.traits.doubt + 0.1):
                yield from self._script()

    def _localise(self) -> Generator[Turn, Observation, Edit | None]:
        """Read files, the most suspect first, until one of the ideas at hand seems right."""
        patience = self.rng.randint(5, 11)
        for _ in range(patience):
            name = self.memory.suspect(self.rng, self.traits.misread)
            if name is None:
                yield from self._do("orient", "bash", {"command": "find /repo -type f"})
                continue
            known = "again" if name in self.memory.seen else "view_guess"
            yield from self._view(name, "view_trace" if name in self.memory.trace else known)
            edit = self._idea(name)
            if edit is not None:
                return edit
            yield from self._stray(name)
        return None

    def _idea(self, name: str) -> Edit | None:
        text = self.memory.seen.get(name, "")
        level = self.task.difficulty
        for edit in self.task.fix:
            odds = self.traits.insight + self.form + BLUNT[level] + 0.25 * len(self._tried)
            odds += 0.6 * self._informed()
            if edit.file == name and edit.old in text and self._odds(odds):
                return edit
        baits = [
            edit
            for edit in self.task.decoy
            if edit.file == name and edit.old in text and edit not in self._tried
        ]
        if baits and self._odds(
            self.traits.bait + CUNNING[level] - self.form / 2 - 0.6 * self._informed()
        ):
            return self.rng.choice(baits)
        return None

    def _informed(self) -> float:
        """Half a point for having read the failing test, and half for the README."""
        read = (self.memory.test_file, "README.md")
        return sum(0.5 for name in read if name in self.memory.seen) - 0.4

    def _stray(self, name: str) -> Play:
        """What a model does when it does not know: search, probe, or go round in circles."""
        if self._vice(self.traits.wander):
            yield from self._do("grep", "bash", {"command": self._grep(name)})
        if self._chance(self.traits.wander / 4):
            package = name.split("/", maxsplit=1)[0]
            code = f"import {package}; print({package}.__file__)"
            yield from self._do("probe", "bash", {"command": f'python -c "{code}"'})
        if self._vice(self.traits.loop):
            yield from self._circle()

    def _circle(self) -> Play:
        last = self.memory.last
        for _ in range(self.rng.choice([1, 1, 2, 2, 3, 5])):
            if last is not None:
                yield from self._do("repeat", last.name, last.arguments)

    # ------------------------------------------------------------------ editing

    def _make(self, edit: Edit) -> Play:
        self._tried.append(edit)
        place = function_above(self.memory.seen.get(edit.file, ""), edit.old)
        self.memory.focus(edit.file, place or Path(edit.file).stem)
        if self._vice(self.traits.slip):
            yield from self._do("slip", "str_replace_editor", slipped(edit))
        command = sed_command(edit)
        if command is not None and self._chance(0.3):
            yield from self._do("edit", "bash", {"command": command})
        else:
            yield from self._do("edit", "str_replace_editor", replacement(edit))
        if not self.memory.worked:  # the file is no longer as it was read
            yield from self._view(edit.file, "again")

    def _verify(self) -> Check:
        """Whether the model believes that it is done, on the tests' word or without asking."""
        if self._vice(self.traits.haste):
            return True
        yield from self._do("verify", "bash", {"command": self._pytest(broad=False)})
        if self._chance(self.traits.loop / 2):
            yield from self._circle()
        return self.memory.passing

    def _second_thoughts(self, edit: Edit) -> Check:
        """After success: look again, and now and then prefer another solution."""
        if not self._virtue(self.traits.doubt):
            return False
        yield from self._do("diff", "bash", {"command": "git diff"})
        if self._chance(0.6):
            yield from self._do("suite", "bash", {"command": self._pytest(broad=True)})
            if not self.memory.passing:
                return (yield from self._after_failure(edit))
        chance = 0.22 if edit in self.task.fix else 0.40
        if not self._chance(chance):
            return False
        yield from self._undo(edit, "doubt")
        return True

    def _after_failure(self, edit: Edit) -> Check:
        """Whether to go on after the tests failed."""
        test = self.memory.failing
        if test and self._chance(self.traits.cheat):
            old = f"def {test}("
            bent = {"command": "str_replace", "path": f"/repo/{self.memory.test_file}"}
            bent |= {"old_str": old, "new_str": f"def old_{test}("}
            yield from self._do("cheat", "str_replace_editor", bent)
            return False
        if self._virtue(self.traits.recover):
            yield from self._undo(edit, "revert")
        elif self._chance(self.traits.loop):
            yield from self._circle()
        return not self._chance(self.traits.quit)

    def _undo(self, edit: Edit, intent: str) -> Play:
        self.memory.focus(edit.file)
        if self._chance(0.3):
            back = replacement(reverse(edit))
            yield from self._do(intent, "str_replace_editor", back)
        else:
            yield from self._do(intent, "bash", {"command": f"git checkout -- {edit.file}"})

    def _tidy(self) -> Play:
        if "reproduce.py" in self.memory.own:
            if self._chance(self.traits.doubt):
                yield from self._do("run_script", "bash", {"command": "python reproduce.py"})
            if self._chance(0.8):
                yield from self._do("clean", "bash", {"command": "rm reproduce.py"})
        extra = self.rng.randint(1, 5) if self._chance(self.traits.doubt / 2) else 0
        for _ in range(extra):
            command = self.rng.choice(["git diff", "git status --short", "python -m pytest -q"])
            yield from self._do("diff" if "git" in command else "suite", "bash",
                                {"command": command})  # fmt: skip

    def _script(self) -> Play:
        body = self.memory.script()
        if body is None:
            return
        create = {"command": "create", "path": "/repo/reproduce.py", "file_text": body}
        yield from self._do("script", "str_replace_editor", create)
        self.memory.own.add("reproduce.py")
        yield from self._do("run_script", "bash", {"command": "python reproduce.py"})

    # ------------------------------------------------------------------ single turns

    def _do(self, intent: str, name: str, arguments: dict[str, Any]) -> Play:
        """One action, its observation read into memory; now and then a reply without an action."""
        lost = self.traits.format_error if self.memory.last else 0.0
        while self._chance(lost):
            yield self._say("format_error", "", {})
            lost = max(lost, 0.45)  # who lost the format once tends to lose it again
        turn = self._say(intent, name, arguments)
        self.memory.read(turn.name, turn.arguments, (yield turn))
        self.memory.last = turn

    def _say(self, intent: str, name: str, arguments: dict[str, Any]) -> Turn:
        return Turn(say(self.rng, intent, self.memory.words()), name, arguments)

    def _view(self, name: str, intent: str) -> Play:
        self.memory.focus(name)
        command = self.rng.choice(["view", "view", "view", "cat", "cat -n", "sed"])
        if command == "view":
            arguments: dict[str, Any] = {"command": "view", "path": f"/repo/{name}"}
            yield from self._do(intent, "str_replace_editor", arguments)
        else:
            line = f"sed -n '1,80p' {name}" if command == "sed" else f"{command} {name}"
            yield from self._do(intent, "bash", {"command": line})

    def _pytest(self, *, broad: bool) -> str:
        target = "" if broad or not self.memory.test_file else f" {self.memory.test_file}"
        if target and self.memory.failing and self._chance(0.4):
            target += f"::{self.memory.failing}"
        style = self.rng.choice(["", " --tb=short", " --tb=short", " -x"])
        start = self.rng.choice(["", "", "cd /repo && "])
        return f"{start}python -m pytest -q{style}{target}"

    def _grep(self, name: str) -> str:
        symbol = self.memory.symbol_of(name, self.rng)
        return f"grep -rn {symbol} /repo --include=*.py"

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _vice(self, probability: float) -> bool:
        return self._odds(math.log(probability / (1 - probability)) - self.form)

    def _virtue(self, probability: float) -> bool:
        return self._odds(math.log(probability / (1 - probability)) + self.form)

    def _odds(self, logit: float) -> bool:
        return self.rng.random() < 1 / (1 + math.exp(-logit))


@cache
def _profiles() -> dict[str, Profile]:
    data = tomllib.loads((HERE / "profiles.toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **row}, Profile) for name, row in data.items()}
