"""What a scripted model remembers, gathered from observations only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from sag_research.lab.bugfix.world import Observation

if TYPE_CHECKING:
    from sag_research.lab.bugfix.policy import Turn

__all__ = ["Memory", "function_above"]

_PLACE = re.compile(r"^([\w/]+\.py):\d+: ", re.MULTILINE)
_FAILED = re.compile(r"^FAILED ([\w/]+\.py)::(\w+)", re.MULTILINE)
_BROKEN = re.compile(r"^(?:ERROR |_+ ERROR collecting )([\w/]+\.py)", re.MULTILINE)
_ERROR = re.compile(r"^E\s+(?:\w+\.)*([A-Z]\w+Error)\b", re.MULTILINE)
_FILE = re.compile(r"(?:(?<=/repo/)|(?<=\./)|(?<![\w/.]))(\w[\w/]*\.(?:py|json|md|toml))\b")
_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)(?: import ([\w, ]+))?", re.MULTILINE)
_NAMED = re.compile(r"\"(\w+\.json)\"")
_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)
_HEADER = re.compile(r"^(?:/repo/?|\./)?([\w/]*):$", re.MULTILINE)


class Memory:
    """Files heard of and read, the last test result, and words to speak about them.

    Attributes
    ----------
    seen : dict
        Text of every file read, as it was shown.
    trace : list of str
        Files of the last traceback, innermost last, without tests.
    failing, test_file : str
        Name and file of the first failing test; empty before any was seen.
    passing : bool
        Whether the last test run passed.
    worked : bool
        Whether the last action exited with 0.
    own : set of str
        Files the model created itself.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.heard: dict[str, None] = {}
        self.seen: dict[str, str] = {}
        self.trace: list[str] = []
        self.imported: set[str] = set()
        self.looks: dict[str, int] = {}
        self.failing = self.test_file = self.error = ""
        self.passing = False
        self.worked = True
        self.own: set[str] = set()
        self.last: Turn | None = None
        self._file, self._symbol = "", ""

    def read(self, name: str, arguments: Mapping[str, Any], observation: Observation) -> None:
        """Take in the observation of one action."""
        command = str(arguments.get("command", ""))
        text = observation.text
        self.worked = observation.exit_code == 0
        if "pytest" in command:
            self._read_tests(text, observation.exit_code)
        elif name == "str_replace_editor" and command == "view":
            self._read_file(str(arguments["path"]).removeprefix("/repo/"), text)
        elif re.match(r"(cat|sed -n)\b", command):
            self._read_file(command.rsplit(" ", 1)[-1], text)
        elif command.startswith(("ls", "find", "grep")):
            self._read_listing(command, text)

    def _read_tests(self, text: str, code: int) -> None:
        self.passing = code == 0
        places = [place for place in _PLACE.findall(text) if not place.startswith("/")]
        self.trace = [place for place in places if not place.startswith("tests/")][-4:]
        for place in places:
            self.heard.setdefault(place)
        failed, broken = _FAILED.search(text), _BROKEN.search(text)
        if failed:
            self.test_file, self.failing = failed[1], failed[2]
        elif broken:
            self.test_file, self.failing = broken[1], ""
        error = _ERROR.search(text)
        self.error = error[1] if error else "AssertionError" if failed else self.error

    def _read_file(self, name: str, text: str) -> None:
        body = _NUMBER.sub("", text)
        self.seen[name] = body
        self.looks[name] = self.looks.get(name, 0) + 1
        folder = name.rpartition("/")[0]
        for module, names in _IMPORT.findall(body):
            words = [word.strip() for word in names.split(",") if "." not in module]
            parts = [module, *(f"{module}.{word}" for word in words if word.islower())]
            self.imported.update(part.replace(".", "/") + ".py" for part in parts)
        for file in _NAMED.findall(body):
            self.heard.setdefault(f"{folder}/{file}")
            self.imported.add(f"{folder}/{file}")

    def _read_listing(self, command: str, text: str) -> None:
        folder = "" if command in {"ls", "ls -R"} else command.rsplit(" ", 1)[-1].strip("./")
        for line in text.splitlines():
            header = _HEADER.match(line)
            if header:
                folder = header[1].strip("/")
            elif command.startswith("ls") and "." in line:
                self.heard.setdefault(f"{folder}/{line}".lstrip("/"))
            for name in _FILE.findall(line) if not command.startswith("ls") else ():
                self.heard.setdefault(name)
            if command == "ls" and "." not in line:
                self.heard.setdefault(f"{line}/")

    def folders(self) -> list[str]:
        """Folders heard of that may hold the package."""
        return [name.rstrip("/") for name in self.heard if name.endswith("/") and name != "tests/"]

    def suspect(self, rng: Random, noise: float) -> str | None:
        """File to read next: evidence plus noise; None when no source file is known."""
        known = {*self.heard, *(name for name in self.imported if self._plausible(name))}
        names = sorted(name for name in known if self._source(name))
        if not names:
            return None
        return max(names, key=lambda name: self._evidence(name) + rng.gauss(0.0, noise))

    def _plausible(self, name: str) -> bool:
        return name in self.heard or any(
            name.split("/")[0] == other.split("/")[0] for other in self.seen if "/" in other
        )

    def _source(self, name: str) -> bool:
        top, slash, rest = name.partition("/")
        dull = rest == "__init__.py" or (name not in self.heard and name in self.looks)
        return bool(slash) and bool(rest) and top != "tests" and not dull

    def _evidence(self, name: str) -> float:
        score = 0.0
        if name in self.trace:
            score += 2.0 + (self.trace[-1] == name)
        stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        score += 1.5 * (stem in self.problem) + 1.0 * (name in self.imported)
        return score - 1.6 * self.looks.get(name, 0)

    def focus(self, name: str, symbol: str = "") -> None:
        """Set what the next thoughts speak about."""
        self._file = name
        if symbol:
            self._symbol = symbol

    def words(self) -> dict[str, str]:
        """Fields for the sentences."""
        return {
            "file": self._file or "the code",
            "symbol": f"`{self._symbol}`" if self._symbol else "this part",
            "test": f"`{self.failing}`" if self.failing else "the test",
            "error": self.error or "failure",
        }

    def symbol_of(self, name: str, rng: Random) -> str:
        """Some function or constant defined in a file that was read."""
        found = re.findall(r"^(?:    )?(?:def |class )?([A-Za-z]\w{3,})(?:\(| = )",
                           self.seen.get(name, ""), re.MULTILINE)  # fmt: skip
        self._symbol = rng.choice(found) if found else name.rsplit("/", 1)[-1].split(".")[0]
        return self._symbol

    def script(self) -> str | None:
        """A script that calls the failing test, if it can be called without a fixture."""
        text = self.seen.get(self.test_file, "")
        if not self.failing or f"def {self.failing}():" not in text:
            return None
        module = self.test_file.removesuffix(".py").replace("/", ".")
        return f'from {module} import {self.failing}\n\n{self.failing}()\nprint("fine")\n'


def function_above(text: str, part: str) -> str:
    r"""Name of the function or class that ``part`` of ``text`` stands in, else empty.

    Examples
    --------
    >>> function_above("def f():\n    return 1\n", "return 1")
    'f'
    """
    before, found, _ = text.partition(part)
    names = re.findall(r"^\s*(?:def|class) (\w+)", before + part if found else before, re.MULTILINE)
    return names[-1] if names else ""
