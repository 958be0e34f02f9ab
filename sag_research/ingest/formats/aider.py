"""Aider: chat histories in Markdown, and the results of a benchmark beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._aider_chat import START, Session, sessions_in
from sag_research.ingest.formats._aider_result import Result, result_beside
from sag_research.model import Trajectory

__all__ = ["Aider", "looks_like_aider"]

_GLANCE: Final = 200
_HISTORY: Final = ".aider.chat.history"
_ENDS: Final = re.compile(r"(?:\.(?:md|gz|zst|zstd))+$")
_VERSION: Final = re.compile(r"^Aider v(\S{1,60})", re.MULTILINE)
_MODEL: Final = re.compile(
    r"^(?:Main model|Models?): (?P<model>\S{1,200}) with (?:(?P<format>[\w-]{1,40}) edit format)?",
    re.MULTILINE,
)


def looks_like_aider(head: bytes) -> bool:
    """Tell whether a text begins as aider's chat histories do."""
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:_GLANCE]
    line = begin.split(b"\n", 1)[0].decode("utf-8", "surrogateescape")
    return START.fullmatch(line) is not None


class Aider:
    """Aider chat histories: Markdown with a heading ``# aider chat started at …`` a session.

    Traps that are honoured

    * One file may hold several sessions: each with a reply of the model is a run, known by its
      number in the file. In a benchmark they are the tries of one task.
    * A model may write a heading of its own: behind the first one, only those count which stand
      behind an empty line and before a line of the console, or before nothing at all.
    * ``#### `` before a line is the user's, ``> `` the console's; all else is the model's. But
      models write such lines, too: only lines that end in two spaces, which is how aider ends
      them, are taken for the user's or the console's.
    * A step is a reply of the model. What the console and the user say up to the next reply is
      the observation; the first request that is no command (``/add``) is the goal.
    * Edits are the calls: SEARCH/REPLACE blocks, or in other forms what aider says it applied. A
      call is ``ok`` where its file was edited, ``error`` where the block did not match, unknown
      where some of one file did and some did not.
    * Tokens and cost stand in a line before the reply, in later versions behind it and rounded
      (``3.1k``). A line without a reply is an empty one that was paid for.
    * A JSON file of the same name beside the chat says what a benchmark found. Its ``resolved``
      judges the one try that was handed in: the session of that attempt has the outcome and
      ``config`` has ``chosen``. The attempts (``all_results``) are found again by their model and
      cost; sessions that were broken off are in none. The others' ``test_outcome`` is that of
      the tests aider could see, and no verdict. Where the JSON is absent there is no outcome.
    * The name ``.aider.chat.history.md`` is hidden, so a folder does not give it: name the file.
      Its task is then the name of its folder; else that of the JSON, or the file's own.
    * Session starts have no time zone; they are in ``config`` as they stand.
    """

    name = "aider"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim texts that begin with the heading of a session."""
        return 0.97 if looks_like_aider(head) else 0.0

    def read(self, source: Source) -> Reading:
        """Read the sessions."""
        text = source.bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        sessions = list(sessions_in(text))
        spoken = [one for one in sessions if one.replies]
        if not sessions:
            raise FormatError("no session in it", fix="it should begin '# aider chat started at'")
        if not spoken:
            raise FormatError("the model says nothing in it")
        silent = [f"session {one.number}: no reply" for one in sessions if not one.replies]
        version = next(filter(None, (_said(_VERSION, one) for one in spoken)), "unknown")
        runs = _trajectories(spoken, result_beside(source.path), source.path)
        return Reading(version, runs, shared.first_of(silent))


def _said(pattern: re.Pattern[str], session: Session) -> str | None:
    found = pattern.search(session.banner)
    return found[1] if found else None


def _trajectories(
    sessions: list[Session], result: Result | None, path: Path
) -> Iterator[Trajectory]:
    models = [_said(_MODEL, one) for one in sessions]
    attempts: dict[int, dict[str, Any]] = {}
    if result is not None:
        attempts = result.by_session([one.cost for one in sessions], models)
    task_id = result.task_id if result is not None else _named(path)
    for number, (session, model) in enumerate(zip(sessions, models, strict=True)):
        yield _trajectory(session, model, task_id, attempts.get(number), result)


def _trajectory(
    session: Session,
    model: str | None,
    task_id: str,
    attempt: dict[str, Any] | None,
    result: Result | None,
) -> Trajectory:
    found = _MODEL.search(session.banner)
    config: dict[str, Any] = {"started": session.when, "banner": session.banner}
    config |= {"edit_format": found["format"]} if found and found["format"] else {}
    config |= result.about(attempt) if result and attempt else {}
    chosen = bool(result and attempt and result.is_chosen(attempt))
    return Trajectory(
        task_id=task_id,
        record=str(session.number),
        steps=session.steps(),
        goal=session.goal,
        repo=shared.repo_of(task_id),
        agent="aider",
        model=model or (shared.word(attempt.get("model")) if attempt else None),
        attempt=session.number + 1,
        submission=shared.text_of(attempt.get("model_patch")) or None if attempt else None,
        outcome=result.outcome if result and chosen else None,
        config=config | ({"chosen": True} if chosen else {}),
    )


def _named(path: Path) -> str:
    stem = _ENDS.sub("", path.name)
    if stem == _HISTORY:
        return path.absolute().parent.name or "unnamed"
    return stem or "unnamed"
