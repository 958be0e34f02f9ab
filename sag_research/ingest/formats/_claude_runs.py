"""Runs of a Claude Code session: paths of its tree with their turns, and who began whom."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._claude_lines import (
    Line,
    Lines,
    blocks,
    is_result,
    mapping,
    spoken,
)
from sag_research.ingest.formats._claude_siblings import Reply
from sag_research.ingest.formats._claude_tree import (
    CLEAR,
    FORK,
    SUBAGENT,
    Path,
    in_order,
    paths,
)
from sag_research.ingest.formats._claude_turns import Answer, Turn, Turns, answers_in, usage_in
from sag_research.ingest.formats._shared import Result
from sag_research.model import Step, Trajectory, Usage

__all__ = ["Caller", "callers_in", "runs_of"]

_MOST_COPIES: Final = 1_000_000
"""Parts of turns that are copied for branches which leave behind them."""
_INTERRUPTED: Final = "[Request interrupted by user"
_SHARED: Final = "shared-reply"


def runs_of(
    lines: Lines, stem: str, copied: Collection[Reply] = ()
) -> tuple[list[Trajectory], list[str]]:
    """Make runs of the lines of a source.

    Parameters
    ----------
    lines : Lines
    stem : str
        Name of the file: the task, and its session if a session has this name.
    copied : collection
        Replies that were taken over from another source.

    Returns
    -------
    runs : list of Trajectory
        Each behind the one that it left, or that called it.
    notes : list of str
        What became no part of a step, and what is wrong with the tree.
    """
    reader, problems = _read(lines, stem, copied)
    runs = reader.trajectories(stem)
    return runs, [*lines.notes(), *problems, *reader.notes()]


class Caller(NamedTuple):
    """The call that began a sub-agent, which has a file of its own."""

    task_id: str
    record: str | None
    """Of the run that called."""
    step: int | None
    """Number of the step with the call; None if only the session is known."""
    kind: str | None = None
    """What the caller calls such a sub-agent."""
    prompt: str = ""


def callers_in(
    lines: Lines, stem: str, copied: Collection[Reply] = ()
) -> Callable[[str, str], Caller | None]:
    """Read a session, to tell which of its calls began a sub-agent.

    Returns
    -------
    callable
        Takes the sub-agent's id and its prompt. None if the session holds no run.
    """
    reader, _ = _read(lines, stem, copied)
    reader.trajectories(stem)
    return reader.caller


def _read(lines: Lines, stem: str, copied: Collection[Reply]) -> tuple[_Reader, list[str]]:
    own = stem if any(line.session == stem for line in lines.found) else None
    found, problems = paths(lines.found, own)
    reader = _Reader(lines, found, own, copied)
    reader.read()
    return reader, problems


@dataclass
class _Run:
    """A path that is a run, or may become one."""

    path: Path
    parent: _Run | None = None
    """The run that it left."""
    branch: int | None = None
    """Number of the turn of that run in which it was left; None before the first."""
    first: int = 0
    """Number of its first turn here, counted from the start of the whole run."""
    copied: bool = False
    """Its first turn is the one that it shares with the run that it left."""
    turns: Turns = field(default_factory=Turns)
    starts: list[int] = field(default_factory=list)
    """Places in the path at which turns begin."""
    goal: list[str] = field(default_factory=list)
    preamble: list[str] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    ended: str | None = None
    caller: _Run | None = None
    call_step: int | None = None
    kind: str | None = None
    """What the caller calls such a sub-agent."""

    @property
    def root(self) -> _Run:
        """The run from which all that it inherits comes."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    def turn_before(self, place: int) -> int | None:
        """Return the number of the turn in which a place stands; None before the first."""
        found = bisect_right(self.starts, place) - 1
        return found if found >= 0 else None

    @property
    def repeats_shared(self) -> bool:
        """The turn that it shares is the same in the run that it left."""
        if not self.copied or self.parent is None or self.branch is None:
            return False
        return self.turns.all[0].step() == self.parent.turns.all[self.branch].step()

    def steps(self) -> tuple[tuple[Step, ...], int]:
        """Return its own steps, and the number of the last step that it shares."""
        steps = tuple(turn.step() for turn in self.turns.all)
        if self.copied and self.repeats_shared:
            return steps[1:], self.first
        if self.copied:
            flags = tuple(dict.fromkeys((*steps[0].flags, "inherited", _SHARED)))
            steps = (replace(steps[0], usage=None, flags=flags), *steps[1:])
        return steps, self.first - 1


class _Reader:
    """Reads the paths of a source, each behind the one that it left."""

    def __init__(
        self, lines: Lines, found: list[Path], own: str | None, copied: Collection[Reply]
    ) -> None:
        self._lines = lines
        self._copied = copied
        self._paths = found
        self._copied_sessions = _copied_sessions(found, own)
        self._runs: list[_Run | None] = [None] * len(found)
        self._anchors: list[tuple[int, int] | None] = [None] * len(found)
        self._copies = _MOST_COPIES
        self._unasked = 0
        self._asides: list[tuple[Path, str]] = []
        self._again = 0
        self.kept: list[_Run] = []
        self._names: dict[int, tuple[str, str | None]] = {}

    # ---- paths

    def read(self) -> None:
        """Read all paths; those without a reply add what came back to the run beside them."""
        self._find_anchors()
        beside: dict[int, list[int]] = {}
        alone = []
        for number, path in enumerate(self._paths):
            anchor = self._anchors[number]
            if not path.replies and anchor is not None:
                beside.setdefault(anchor[0], []).append(number)
            elif not path.replies:
                alone.append(number)
        for number, path in enumerate(self._paths):
            if path.replies:
                self._runs[number] = run = self._read_path(number)
                self.kept.append(run)
                for other in beside.get(number, ()):
                    self._read_beside(other, run)
        if not self.kept and self._paths:
            run = self._read_path(alone.pop(0))
            self.kept.append(run)
        for number in alone:
            self._read_beside(number, None)
        self._find_callers()

    def _find_anchors(self) -> None:
        """Find the path with replies that each path left, and the place in it."""
        for number, path in enumerate(self._paths):
            if path.parent is None or path.relation in (CLEAR, SUBAGENT):
                continue
            bare = not self._paths[path.parent].replies
            self._anchors[number] = self._anchors[path.parent] if bare else (path.parent, path.at)

    def _begin(self, number: int) -> _Run:
        path, anchor = self._paths[number], self._anchors[number]
        run = _Run(path)
        parent = None if anchor is None else self._runs[anchor[0]]
        if anchor is None or parent is None:
            return run
        run.parent, run.branch = parent, parent.turn_before(anchor[1])
        if run.branch is None:
            run.parent, run.first = parent, parent.first
            return run
        run.first = parent.first + run.branch
        turn = parent.turns.all[run.branch]
        self._copies -= turn.weight
        if path.relation == FORK and self._copies >= 0:
            run.turns.add(turn.before(anchor[1]))
            run.starts.append(-1)
            run.copied = True
        else:
            run.first += 1
        return run

    def _read_path(self, number: int) -> _Run:
        run = self._begin(number)
        for place, node in enumerate(run.path.nodes):
            line = node[0]
            if line.kind == "assistant":
                self._reply(run, node, place)
            elif line.kind == "user":
                self._user(run, line, place)
            elif line.kind == "notice":
                self._notice(run, line, place)
        return run

    def _reply(self, run: _Run, node: list[Line], place: int) -> None:
        turn = Turn(inherited=self._is_copied(node[0]))
        for line in node:
            turn.add(line)
        run.turns.add(turn)
        run.starts.append(place)
        run.ended = None
        for line in node:  # tools of the service answer in the reply itself
            for answer in answers_in(line, place):
                self._answer(run, answer)

    def _user(self, run: _Run, line: Line, place: int) -> None:
        answers = answers_in(line, place)
        for answer in answers:
            self._answer(run, answer)
        said = spoken(line)
        if not answers and not said.text and line.told:
            result = Result(None, line.told)
            answer = Answer(place, line.number, result, line.at, refused=False)
            if not run.turns.answer_open(answer):
                self._hear(run, line.told, place)
        elif said.text:
            self._say(run, line, said.text, place, aside=said.is_command)

    def _say(self, run: _Run, line: Line, text: str, place: int, *, aside: bool) -> None:
        run.ended = "interrupted" if text.startswith(_INTERRUPTED) else None
        begun = len(run.starts) > run.copied
        if line.is_summary and not begun:
            run.summary.append(text)
        elif begun or run.copied:
            self._hear(run, text, place)
            run.goal += [] if begun or aside else [text]
        else:
            (run.preamble if aside else run.goal).append(text)

    def _hear(self, run: _Run, text: str, place: int) -> None:
        if run.turns.all:
            run.turns.all[-1].heard.append((place, text))
        else:
            run.preamble.append(text)

    def _notice(self, run: _Run, line: Line, place: int) -> None:
        text = spoken(line).text
        run.ended = "api_error"
        if run.turns.all:
            run.turns.all[-1].notices.append((place, text))
        else:
            run.preamble.append(text)

    def _answer(self, run: _Run, answer: Answer) -> None:
        if run.turns.answer(answer):
            return
        if run.parent is not None and run.branch is not None and not run.copied:
            beside = answer._replace(place=-1)
            if run.parent.turns.answer(beside, run.branch):
                return
        self._unasked += 1
        self._hear(run, answer.result.text, answer.place)

    def _read_beside(self, number: int, run: _Run | None) -> None:
        """Give what came back in a path without a reply to its calls; keep what was said."""
        anchor = self._anchors[number]
        last = None if run is None or anchor is None else run.turn_before(anchor[1])
        for node in self._paths[number].nodes:
            for line in node:
                if line.kind not in ("user", "notice"):
                    continue
                for answer in answers_in(line, -1):
                    if run is None or last is None or not run.turns.answer(answer, last):
                        self._unasked += 1
                        self._asides.append((self._paths[number], answer.result.text))
                if text := spoken(line).text:
                    self._asides.append((self._paths[number], text))

    def _is_copied(self, line: Line) -> bool:
        copied = line.is_copy or line.reply in self._copied
        return copied or line.session in self._copied_sessions

    # ---- who called whom

    def _find_callers(self) -> None:
        """Find the call that began each sub-agent: by its id, the agent's, or the prompt."""
        calls = _Calls(self.kept, self._lines.found)
        first: dict[str | None, _Run] = {}
        for run in self.kept:
            if run.path.lane[1] is None:
                first.setdefault(run.path.lane[0], run)
        for run in self.kept:
            session, side = run.path.lane
            if run.path.relation == SUBAGENT:
                called = calls.of(side or "", "\n".join(run.goal))
                if called is None or called.run is run:
                    run.caller = first.get(session)
                else:
                    run.caller, run.call_step, run.kind = called.run, called.step, called.kind
                    run.goal = run.goal or [called.prompt]

    def caller(self, side: str, prompt: str) -> Caller | None:
        """Return the call that began a sub-agent with a file of its own, or the first run."""
        calls = _Calls(self.kept, self._lines.found)
        called = calls.only(side, prompt)
        if called is not None:
            names = self._names[id(called.run)]
            return Caller(*names, called.step, called.kind, called.prompt)
        mains = (run for run in self.kept if run.path.lane[1] is None and run.parent is None)
        main = next(mains, None)
        return None if main is None else Caller(*self._names[id(main)], None)

    # ---- trajectories

    def trajectories(self, stem: str) -> list[Trajectory]:
        """Return the runs as trajectories, each behind the one that it left or serves."""
        numbers = {id(run): number for number, run in enumerate(self.kept)}
        above = [run.parent or run.caller for run in self.kept]
        parents = [None if one is None else numbers[id(one)] for one in above]
        order = list(in_order(parents))
        place_of = {number: place for place, number in enumerate(order)}
        several = len({run.path.lane[0] for run in self.kept}) > 1
        last = self._last_of_sessions()
        made = []
        for place, number in enumerate(order):
            run, parent = self.kept[number], parents[number]
            known = parent is not None and place_of[parent] < place
            one = _trajectory(run, self._lines, last.get(id(run), 0))
            task_id = (run.root.path.lane[0] or stem) if several else stem
            record = str(place) if len(order) > 1 else None
            self._names[id(run)] = task_id, record
            made.append(
                replace(
                    one,
                    task_id=task_id,
                    record=record,
                    parent=str(place_of[parent]) if known and parent is not None else None,
                    parent_step=one.parent_step if known else None,
                )
            )
        if made:
            made[0] = replace(made[0], config={**made[0].config, **self._of_the_source()})
        return made

    def _last_of_sessions(self) -> dict[int, int]:
        """Of the last run of each session: how many runs the session has."""
        by_session: dict[str | None, list[_Run]] = {}
        for run in self.kept:
            if run.path.lane[1] is None:
                by_session.setdefault(run.path.lane[0], []).append(run)
        return {
            id(max(runs, key=lambda run: run.path.nodes[-1][-1].number)): len(runs)
            for runs in by_session.values()
        }

    def _of_the_source(self) -> dict[str, Any]:
        """Return what belongs to no run: kept with the first."""
        runs = self.kept if self._asides else []
        said = {_words(text) for run in runs for text in _said_in(run)}
        left = [text for _, text in self._asides if _words(text) not in said]
        self._again = len(self._asides) - len(left)
        found = {
            "unanswered": left,
            "summaries": self._lines.summaries,
            "opaque_lines": self._lines.opaque,
        }
        return {name: value for name, value in found.items() if value}

    def notes(self) -> list[str]:
        """Say what is in no step of a run."""
        left = len(self._asides) - self._again
        counts = (
            (self._unasked, "results name a call that is not in their run"),
            (left, "texts stand in branches without a reply, and are kept aside"),
            (self._again, "texts in branches without a reply repeat others"),
        )
        return [f"{count} {what}" for count, what in counts if count]


# ---- the calls of all runs


class _Called(NamedTuple):
    run: _Run
    step: int
    kind: str | None
    prompt: str


class _Calls:
    """The calls of a source: by id, by the agent that answered, by the prompt in them."""

    def __init__(self, runs: list[_Run], lines: list[Line]) -> None:
        self._places: dict[str, _Called] = {}
        self._prompts: dict[str, list[_Called]] = {}
        self._agents: dict[str, str] = {}
        for run in runs:
            for number, turn in enumerate(run.turns.all):
                if number or not run.copied:
                    self._add(run, run.first + number, turn)
        for waiting in self._prompts.values():
            waiting.reverse()
        for line in lines:
            if line.agent is not None:
                for block in filter(is_result, blocks(line.content)):
                    self._agents.setdefault(line.agent, shared.text_of(block.get("tool_use_id")))

    def _add(self, run: _Run, step: int, turn: Turn) -> None:
        for call in turn.calls:
            given = mapping(call.arguments)
            prompt = shared.word(given.get("prompt")) or ""
            called = _Called(run, step, shared.word(given.get("subagent_type")), prompt)
            self._places.setdefault(call.id, called)
            if prompt:
                self._prompts.setdefault(_words(prompt), []).append(called)

    def of(self, side: str, prompt: str) -> _Called | None:
        """Return the call that began a sub-agent; each prompt serves as often as it was given."""
        for call_id in (side, self._agents.get(side, "")):
            if call_id and call_id in self._places:
                return self._places[call_id]
        waiting = self._prompts.get(_words(prompt))
        return waiting.pop() if waiting else None

    def only(self, side: str, prompt: str) -> _Called | None:
        """Return the call that began a sub-agent; a prompt tells only if it was given once."""
        called = self._places.get(self._agents.get(side, ""))
        waiting = self._prompts.get(_words(prompt), [])
        return waiting[0] if called is None and len(waiting) == 1 else called


def _words(text: str) -> str:
    return " ".join(text.split())


def _said_in(run: _Run) -> Iterator[str]:
    yield from (*run.goal, *run.preamble, *run.summary)
    for turn in run.turns.all:
        yield from (text for _, text in turn.heard)
        yield from (one.result.text for got in turn.answers for one in got)


def _copied_sessions(found: list[Path], own: str | None) -> set[str]:
    """Return the sessions whose lines stand in one tree with lines of the source's own."""
    if own is None:
        return set()
    roots: list[int] = []
    sessions: dict[int, set[str]] = {}
    for number, path in enumerate(found):
        root = number if path.parent is None else roots[path.parent]
        roots.append(root)
        lines = (line for node in path.nodes for line in node)
        sessions.setdefault(root, set()).update(line.session for line in lines if line.session)
    return {one for tree in sessions.values() if own in tree for one in tree} - {own}


# ---- a run as a trajectory


def _trajectory(run: _Run, lines: Lines, runs_of_session: int) -> Trajectory:
    """Return a run without its names; of the last run of a session, with how it ended."""
    steps, shared_step = run.steps()
    served = run.parent is None and run.path.relation == SUBAGENT
    session, side = run.path.lane
    results = lines.ended.get(session, []) if runs_of_session else []
    end, exit_status = _end(run, results)
    models = list(dict.fromkeys(line.model for line in _lines(run) if line.model))
    return Trajectory(
        task_id="",
        goal="\n\n".join(shared.problem_text(text) for text in run.goal),
        steps=steps,
        agent="claude-code" if side is None else "claude-code/subagent",
        model=models[0] if models else None,
        end=end,
        exit_status=exit_status,
        usage=_total(results) if runs_of_session == 1 else None,
        parent_step=run.call_step if served else shared_step,
        relation=run.path.relation or FORK,
        config=_config(run, lines, models, results),
    )


def _lines(run: _Run) -> Iterator[Line]:
    return (line for node in run.path.nodes for line in node)


def _end(run: _Run, results: list[dict[str, Any]]) -> tuple[str | None, str | None]:
    if results:
        status = shared.word(results[-1].get("subtype"))
        failed = results[-1].get("is_error") is True or status != "success"
        return "run.failed" if failed else "run.completed", status
    ends = {"interrupted": "run.cancelled", "api_error": "run.failed"}
    return ends.get(run.ended or ""), run.ended


def _total(results: list[dict[str, Any]]) -> Usage | None:
    """Return what a session used by its own account, in which the cost adds up over results."""
    if not results:
        return None
    used = mapping(results[-1].get("usage")) if len(results) == 1 else {}
    return usage_in(used, results[-1].get("total_cost_usd"))


def _config(
    run: _Run, lines: Lines, models: list[str], results: list[dict[str, Any]]
) -> dict[str, Any]:
    session, side = run.path.lane
    config: dict[str, Any] = {"session_id": session}
    for line in _lines(run):
        for name, text in line.about.items():
            config.setdefault(name, text)
    found = {
        "models": models if len(models) > 1 else None,
        "subagent_type": run.kind,
        "preamble": run.preamble,
        "compaction_summary": "\n\n".join(run.summary),
        "setup": lines.begun.get(session) if run.parent is None and side is None else None,
        "results": results,
    }
    config.update(found)
    return {name: value for name, value in config.items() if value}
