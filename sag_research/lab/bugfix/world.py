"""A world of small repositories with bugs, in which an agent's actions are really executed."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict

import msgspec

from sag_research.errors import SagError, UsageError
from sag_research.lab.bugfix import _git
from sag_research.lab.bugfix._editor import edit
from sag_research.lab.bugfix._process import Finished, run_known, run_python
from sag_research.lab.bugfix._sandbox import Sandbox
from sag_research.lab.bugfix._shell import Shell
from sag_research.lab.bugfix._tasks import Task, load_task

__all__ = ["BugfixWorld", "Observation", "Snapshot", "Verdict", "parse", "render"]

TOOLS = json.loads((Path(__file__).parent / "tools.json").read_text(encoding="utf-8"))
OFFICIAL = "tests/test_official.py"
_ORDER = ("command", "path", "file_text", "old_str", "new_str", "insert_line", "view_range")


class Observation(msgspec.Struct, frozen=True):
    """What the agent is told after an action.

    Attributes
    ----------
    text : str
        Output of the command or tool, normalised.
    exit_code : int
        0 when it went well, 124 after a time-out, 126 when it was refused.
    done : bool
        Whether the agent has submitted.
    """

    text: str
    exit_code: int
    done: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """Result of the held-out test in the tree as it stands.

    Attributes
    ----------
    success : bool
        The held-out test and all tests of the repository pass.
    detail : str
        ``resolved``; else ``empty`` (nothing was changed), ``tests_failed`` (the held-out test),
        ``regression`` (only tests of the repository) or ``error`` (tests could not be run).
    text : str
        Output of pytest.
    """

    success: bool
    detail: str
    text: str


class Snapshot(TypedDict):
    """State of a world as plain JSON; ``digest`` is the SHA-256 of everything else."""

    digest: str
    task_id: str
    files: dict[str, str]
    working_dir: str
    open_file: str
    submitted: bool


class BugfixWorld:
    """One task, materialised in a temporary folder.

    Use it as a context manager; the folder is removed at the end.

    Parameters
    ----------
    task : Task or str
        A task or its id, see :func:`~sag_research.lab.bugfix.task_ids`.
    timeout : float
        Seconds after which a program of the agent is killed.
    remember : bool
        Run equal programs on equal trees once in this process, and say again what they said.
        Many runs of one task take a fraction of the time; only for programs that depend on
        nothing but the checkout.

    Examples
    --------
    >>> with BugfixWorld("lumen__confkit-3") as world:
    ...     print(world.act("grep -n PREFIX /repo/confkit/env.py").text.splitlines()[0])
    3:PREFIX = "CONFIKIT_"
    """

    tools: tuple[dict[str, Any], ...] = tuple(TOOLS)

    def __init__(self, task: Task | str, *, timeout: float = 20.0, remember: bool = False) -> None:
        self.task = load_task(task) if isinstance(task, str) else task
        self.base = self.task.files()
        self.open_file = "n/a"
        self.submitted = False
        self._box = Sandbox()
        self._box.write(self.base)
        self._shell = Shell(self._box, self.base, timeout, remember=remember)

    def __enter__(self) -> BugfixWorld:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"BugfixWorld({self.task.task_id!r}, changed={len(self.diff()) > 0})"

    def close(self) -> None:
        """Remove the temporary folder; may be called twice."""
        self._box.close()

    @property
    def state(self) -> dict[str, str]:
        """Working folder and open file, as SWE-agent records them with each step."""
        return {"working_dir": self._shell.cwd, "open_file": self.open_file}

    def act(self, action: str) -> Observation:
        """Execute an action given as text; see :func:`parse`."""
        try:
            name, arguments = parse(action)
        except ValueError as error:
            return Observation(f"bash: syntax error: {error}\n", 2)
        return self.call(name, arguments)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Execute a tool call: ``bash``, ``str_replace_editor`` or ``submit``."""
        if self.submitted:
            return Observation("The change was handed in already.\n", 1, done=True)
        if name == "submit":
            self.submitted = True
            return Observation(self.diff(), 0, done=True)
        if name == "bash":
            return _seen(self._shell.run(str(arguments.get("command", ""))))
        if name == "str_replace_editor":
            done = edit(self._box, self._shell.cwd, arguments)
            if done.code == 0:
                path = self._box.resolve(str(arguments.get("path", "")), self._shell.cwd)
                self.open_file = self._box.spoken(path)
            return _seen(done)
        known = ", ".join(tool["name"] for tool in self.tools)
        return Observation(f"There is no tool {name!r}; there are {known}.\n", 127)

    def diff(self) -> str:
        """Everything changed so far, as a patch in git's spelling."""
        return _git.diff(self.base, self._box.files())

    def snapshot(self) -> Snapshot:
        """The whole state as JSON-serialisable data, for :meth:`restore` here or elsewhere.

        File modes and times are not part of it.
        """
        state = Snapshot(
            digest="",
            task_id=self.task.task_id,
            files=self._box.files(),
            working_dir=self._shell.cwd,
            open_file=self.open_file,
            submitted=self.submitted,
        )
        state["digest"] = _digest(state)
        return state

    def restore(self, snapshot: Snapshot) -> None:
        """Make the world exactly what it was: changed, added and deleted files included.

        Raises
        ------
        SagError
            If the snapshot was altered since it was taken.
        UsageError
            If it was taken in another task.
        """
        if _digest(snapshot) != snapshot["digest"]:
            raise SagError("snapshot refused", why="its content does not match its digest")
        if snapshot["task_id"] != self.task.task_id:
            raise UsageError(
                f"snapshot of {snapshot['task_id']} given to {self.task.task_id}",
                fix="restore it in a world of its own task",
            )
        self._box.write(snapshot["files"])
        self._shell.cwd = snapshot["working_dir"]
        self.open_file = snapshot["open_file"]
        self.submitted = snapshot["submitted"]

    def evaluate(self) -> Verdict:
        """Run the held-out test and the repository's own tests on a copy of the tree.

        The folder ``tests`` is replaced by the original one, so changing tests is no way out.
        """
        files = self._box.files()
        tree, shell = held_out(self.task, files), self._shell
        done = run_tests(tree, shell.timeout, remember=shell.remember)
        detail = "empty" if files == self.base else _detail(done)
        return Verdict(done.code == 0, "resolved" if done.code == 0 else detail, done.text)


def parse(action: str) -> tuple[str, dict[str, Any]]:
    """Split the text of an action into tool name and arguments, the inverse of :func:`render`.

    Raises
    ------
    ValueError
        If quotes do not match, or an editor option has no value.

    Examples
    --------
    >>> parse("str_replace_editor view /repo/a.py --view_range 1 9")
    ('str_replace_editor', {'command': 'view', 'path': '/repo/a.py', 'view_range': [1, 9]})
    >>> parse("ls -a")
    ('bash', {'command': 'ls -a'})
    """
    if action.strip() == "submit":
        return "submit", {}
    if not action.lstrip().startswith("str_replace_editor "):
        return "bash", {"command": action}
    words = shlex.split(action)[1:]
    arguments: dict[str, Any] = dict(zip(("command", "path"), words, strict=False))
    rest = iter(words[2:])
    for option in rest:
        name = option.removeprefix("--")
        values = [next(rest, None) for _ in range(2 if name == "view_range" else 1)]
        if not option.startswith("--") or None in values:
            raise ValueError(f"unexpected {option!r}")
        numbers = [int(str(value)) for value in values if name in {"view_range", "insert_line"}]
        arguments[name] = numbers if name == "view_range" else (numbers or values)[0]
    return "str_replace_editor", arguments


def render(name: str, arguments: Mapping[str, Any]) -> str:
    """Spell a tool call as the text of an action, as SWE-agent does.

    Examples
    --------
    >>> render("str_replace_editor", {"command": "view", "path": "/repo/a.py"})
    'str_replace_editor view /repo/a.py'
    """
    if name == "bash":
        return str(arguments.get("command", ""))
    words = [name]
    for key, value in sorted(arguments.items(), key=lambda one: _place(one[0])):
        if key not in {"command", "path"}:
            words.append(f"--{key}")
        parts = value if isinstance(value, list) else [value]
        words += [shlex.quote(str(part)) for part in parts]
    return " ".join(words)


def held_out(task: Task, files: Mapping[str, str]) -> dict[str, str]:
    """Return the tree that is judged: the tests as they were, and the held-out one."""
    kept = {name: text for name, text in files.items() if not name.startswith("tests/")}
    tests = {name: text for name, text in task.files().items() if name.startswith("tests/")}
    return {**kept, **tests, OFFICIAL: task.official()}


def run_tests(tree: dict[str, str], timeout: float = 20.0, *, remember: bool = False) -> Finished:
    """Run all tests of a tree, in a folder of its own."""
    run, box = run_known if remember else run_python, Sandbox()
    try:
        box.write(tree)
        return run(box, ["-m", "pytest", "-q", "--tb=line", "tests"], box.repo, timeout)
    finally:
        box.close()


def _place(key: str) -> int:
    """Where an argument stands in an action; what came back from a log is in another order."""
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def _seen(done: Finished) -> Observation:
    return Observation(done.text, done.code)


def _digest(snapshot: Snapshot) -> str:
    state = {key: value for key, value in snapshot.items() if key != "digest"}
    text = json.dumps(state, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _detail(done: Finished) -> str:
    if done.code != 1:
        return "error"
    return "tests_failed" if f"FAILED {OFFICIAL}" in done.text else "regression"
