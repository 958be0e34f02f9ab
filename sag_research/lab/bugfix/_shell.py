"""The shell of the world: a short list of commands, parsed with shlex, never a real shell.

Commands that only read or change files are done here, on the sandbox; only Python is started
as a program. A command line may join commands with ``&&``; pipes and redirections are refused.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from sag_research.lab.bugfix import _git, _text_commands
from sag_research.lab.bugfix._process import Finished, run_known, run_python
from sag_research.lab.bugfix._sandbox import Refused, Sandbox

__all__ = ["Shell"]

_TOKEN = re.compile(
    r"""[ \t]+
    | (?P<join>&&(?!&))
    | (?P<operator>[|&;<>()\n]+)
    | (?P<word>(?:[^\s|&;<>()'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|.)+?(?=[\s|&;<>()]|$))""",
    re.VERBOSE | re.DOTALL,
)
_PYTEST_FLAGS = {"-q", "-x", "-v", "-vv", "-s", "-l", "--co", "--collect-only"}
_PYTEST_VALUES = ("--tb=", "--maxfail=", "-k", "-r")


class Shell(msgspec.Struct):
    """State of the agent's shell: the sandbox, the tree it started from, the working folder."""

    box: Sandbox
    base: dict[str, str]
    timeout: float = 20.0
    cwd: str = "/repo"
    remember: bool = False

    def run(self, line: str) -> Finished:
        """Execute one command line; a refusal is a result with exit code 126 or 127."""
        try:
            commands = _split(line)
        except ValueError as error:
            return Finished(f"bash: syntax error: {error}\n", 2)
        text, code = "", 0
        for words in commands:
            done = self._one(words)
            text, code = text + done.text, done.code
            if code:
                break
        return Finished(text, code)

    def _one(self, words: list[str]) -> Finished:
        name, arguments = words[0], words[1:]
        command = _COMMANDS.get(name)
        if command is None:
            known = " ".join(sorted(_COMMANDS))
            return Finished(f"bash: {name}: command not available (there are: {known})\n", 127)
        try:
            return command(self, arguments)
        except Refused as error:
            return Finished(f"{name}: {error}\n", 126)
        except OSError as error:
            return Finished(f"{name}: {error.strerror}\n", 1)

    def path(self, text: str) -> Path:
        """Real path of what the agent wrote, seen from its working folder."""
        return self.box.resolve(text, self.cwd)


def _split(line: str) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for found in _TOKEN.finditer(line.strip()):
        if found.lastgroup == "join":
            commands.append([])
        elif found.lastgroup == "operator":
            raise ValueError(f"{found[0]!r} is not supported here, join commands with && only")
        elif found.lastgroup == "word":
            commands[-1] += shlex.split(found[0])
    if not all(commands):
        raise ValueError("a command is missing")
    return commands


def _cd(shell: Shell, arguments: list[str]) -> Finished:
    target = shell.path(arguments[0] if arguments else "/repo")
    if not target.is_dir():
        return Finished(f"bash: cd: {arguments[0]}: No such file or directory\n", 1)
    shell.cwd = shell.box.spoken(target)
    return Finished("", 0)


def _pwd(shell: Shell, _arguments: list[str]) -> Finished:
    return Finished(shell.cwd + "\n", 0)


def _git_command(shell: Shell, arguments: list[str]) -> Finished:
    verb, rest = (arguments or [""])[0], [word for word in arguments[1:] if word != "--"]
    now = shell.box.files()
    chosen = {shell.path(word) for word in rest if not word.startswith("-")}

    def meant(name: str) -> bool:
        path = shell.box.repo / name
        return not chosen or any(path.is_relative_to(one) for one in chosen)

    if verb in {"diff", "status"}:
        before = {name: text for name, text in shell.base.items() if meant(name)}
        after = {name: text for name, text in now.items() if meant(name)}
        return Finished((_git.diff if verb == "diff" else _git.status)(before, after), 0)
    if verb in {"checkout", "restore"} and chosen:
        old = {name: text for name, text in shell.base.items() if meant(name)}
        if not old:
            return Finished(f"error: pathspec '{rest[0]}' did not match any file\n", 1)
        shell.box.write({**now, **old})
        return Finished(f"Updated {len(old)} path{'s' * (len(old) > 1)} from the index\n", 0)
    return Finished(f"git: '{verb}' is not available (diff, status, checkout, restore are)\n", 1)


def _python(shell: Shell, arguments: list[str]) -> Finished:
    if arguments[:2] == ["-m", "pytest"]:
        return _pytest(shell, arguments[2:])
    if arguments[:1] == ["-c"] and len(arguments) > 1:
        return _start(shell, arguments)
    if arguments and arguments[0].endswith(".py"):
        return _start(shell, [str(shell.path(arguments[0])), *arguments[1:]])
    raise Refused("not allowed", why="use `python -m pytest`, `python FILE.py` or `python -c CODE`")


def _pytest(shell: Shell, arguments: list[str]) -> Finished:
    allowed, value = ["-m", "pytest"], False
    for word in arguments:
        if value or word in _PYTEST_FLAGS or word.startswith(_PYTEST_VALUES):
            allowed.append(word)
            value = word == "-k" and not value
        elif word.startswith("-"):
            raise Refused(f"pytest option {word} is not allowed")
        else:
            place, colons, test = word.partition("::")
            allowed.append(str(shell.path(place)) + colons + test)
    return _start(shell, allowed)


def _start(shell: Shell, arguments: list[str]) -> Finished:
    run = run_known if shell.remember else run_python
    return run(shell.box, arguments, shell.path("."), shell.timeout)


def _mkdir(shell: Shell, arguments: list[str]) -> Finished:
    for word in _operands(arguments):
        shell.path(word).mkdir(parents="-p" in arguments, exist_ok="-p" in arguments)
    return Finished("", 0)


def _rm(shell: Shell, arguments: list[str]) -> Finished:
    force = any(word.startswith("-") and "f" in word for word in arguments)
    for word in _operands(arguments):
        path = shell.path(word)
        if path == shell.box.repo:
            raise Refused("the checkout itself cannot be removed")
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=force)
    return Finished("", 0)


def _cp(shell: Shell, arguments: list[str]) -> Finished:
    source, target = _two(shell, arguments)
    shutil.copyfile(source, target)
    return Finished("", 0)


def _mv(shell: Shell, arguments: list[str]) -> Finished:
    source, target = _two(shell, arguments)
    source.rename(target)
    return Finished("", 0)


def _two(shell: Shell, arguments: list[str]) -> tuple[Path, Path]:
    words = _operands(arguments)
    if len(words) != 2:
        raise Refused("expected a source and a target")
    source, target = shell.path(words[0]), shell.path(words[1])
    if target.is_dir():  # what lies there may be a link, so look where it leads
        target = shell.path(shell.box.spoken(target / source.name))
    return source, target


def _operands(arguments: list[str]) -> list[str]:
    return [word for word in arguments if not word.startswith("-")]


def _reader(name: str) -> Callable[[Shell, list[str]], Finished]:
    function = getattr(_text_commands, name)

    def command(shell: Shell, arguments: list[str]) -> Finished:
        text, code = function(shell.box, shell.path, arguments)
        return Finished(text, code)

    return command


_COMMANDS: dict[str, Callable[[Shell, list[str]], Finished]] = {
    "cd": _cd,
    "pwd": _pwd,
    "git": _git_command,
    "python": _python,
    "python3": _python,
    "pytest": _pytest,
    "mkdir": _mkdir,
    "rm": _rm,
    "cp": _cp,
    "mv": _mv,
    **{name: _reader(name) for name in _text_commands.__all__},
}
