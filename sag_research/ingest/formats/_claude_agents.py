"""Sub-agents with a file of their own, and the session that began them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sag_research.errors import FormatError
from sag_research.ingest._events import run_id_of
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._claude_lines import read_lines
from sag_research.ingest.formats._claude_runs import Caller, callers_in
from sag_research.ingest.formats._claude_siblings import copied_replies
from sag_research.model import Trajectory

__all__ = ["with_callers"]

_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_FOLDER: Final = "subagents"
"""Where newer versions keep such files, in a folder that is named after the session."""


class _Session(NamedTuple):
    digest: str
    caller: Callable[[str, str], Caller | None]


def with_callers(runs: Iterable[Trajectory], path: Path) -> list[Trajectory]:
    """Say of sub-agents which step of which session's run called them.

    The session is looked for beside their file, whether or not it was ingested: its run has the
    id that is named here whenever it is.

    Parameters
    ----------
    runs : iterable of Trajectory
        Of one file.
    path : Path
        The file.
    """
    return [_called(run, path) if _is_alone(run) else run for run in runs]


def _is_alone(run: Trajectory) -> bool:
    return run.parent is None and (run.agent or "").endswith("/subagent")


def _called(run: Trajectory, path: Path) -> Trajectory:
    name, side = (shared.word(run.config.get(key)) for key in ("session_id", "agent_id"))
    session = None if name is None or Path(name).name != name else _session(name, path)
    caller = None if session is None else session.caller(side or "", run.goal)
    if session is None or caller is None:
        return run
    called: dict[str, Any] = {
        "run": run_id_of(Trajectory(task_id=caller.task_id, record=caller.record), session.digest),
        "step": caller.step,
    }
    about = {"called_by": called} | ({"subagent_type": caller.kind} if caller.kind else {})
    return replace(run, config=run.config | about, goal=run.goal or caller.prompt)


def _session(name: str, path: Path) -> _Session | None:
    """Find the file of a session: in the folder, or above one of sub-agents."""
    folder = path.absolute().parent
    folders = (folder, folder.parent.parent) if folder.name == _FOLDER else (folder,)
    for place in (one / f"{name}{suffix}" for one in folders for suffix in _SUFFIXES):
        try:
            about = place.stat()
            if place.is_file() and not (path.exists() and path.samefile(place)):
                return _read(place, about.st_size, about.st_mtime_ns)
        except (OSError, ValueError):  # no name that a file could have
            continue
    return None


@lru_cache(maxsize=8)
def _read(path: Path, size: int, changed: int) -> _Session | None:
    """Read a session, which is read again when its size or time differs."""
    source = Source(path)
    try:
        lines = read_lines(source)
        return _Session(
            source.digest, callers_in(lines, shared.bare_id(path), copied_replies(path))
        )
    except FormatError:
        return None
