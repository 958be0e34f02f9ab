"""Agents and behaviours named as text, and replays with them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from sag_research._text import said
from sag_research.errors import Caught, SagError, UsageError
from sag_research.log import CALL_TYPES, SQLiteEventStore
from sag_research.model import Run
from sag_research.runtime._experiment_context import RunContext
from sag_research.runtime._replay import ReplayReport, replay

__all__ = ["ENTRY_POINT", "imported", "replay_named"]

ENTRY_POINT: Final = "entry_point"
"""Key of a run's configuration that names its agent, e.g. ``my_agents:solve``."""

_GIVEN: Final = ("budget.exhausted", "world.snapshot")


@contextmanager
def imported(entry: str) -> Iterator[Any]:
    """Import what ``module:name`` or ``path/to/file.py:name`` names.

    Modules beside the file, or in the current folder, can be imported inside the block. A file
    is executed anew each time.

    Raises
    ------
    UsageError
        If it is not written so, cannot be imported, or has no such name.

    Examples
    --------
    >>> with imported("math:sqrt") as root:
    ...     root(9.0)
    3.0
    """
    place, _, name = entry.rpartition(":")
    if not place or not name or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{entry!r} names no function", fix="write module:function or path/to/file.py:function"
        )
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise UsageError(f"no file {place!r}", fix="check the path")
    folder = str(Path(place).resolve().parent if is_file else Path.cwd())
    sys.path.insert(0, folder)
    try:
        found: Any = _module(place, is_file)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            raise UsageError(f"{place} has no {name!r}", fix="check the name after the colon")
        yield found
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _module(place: str, is_file: bool) -> ModuleType:
    """Import a module or file; whatever its code raises is the fault of who named it."""
    stopped = False
    with Caught() as caught:
        try:
            return _load(Path(place)) if is_file else importlib.import_module(place)
        except SystemExit:
            stopped = True
    why = "it ends the program" if stopped or caught.error is None else said(caught.error)
    fix = 'guard what it does as a program by `if __name__ == "__main__":`' if stopped else ""
    raise UsageError(f"{place} cannot be imported", why=why, fix=fix) from caught.error


def _load(path: Path) -> ModuleType:
    where = str(path.resolve())
    # a name of its own: the file's may be that of another module
    name = f"sag_entry_{blake2b(where.encode(), digest_size=6).hexdigest()}"
    spec = spec_from_file_location(name, where)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def replay_named(
    store: SQLiteEventStore,
    run_id: str,
    entry: str | None = None,
    *,
    factory: bool = False,
    **options: Any,
) -> ReplayReport:
    """Replay a run with the agent, or the behaviours, that a text names.

    Parameters
    ----------
    store : SQLiteEventStore
    run_id : str
    entry : str, optional
        See :func:`imported`. An agent ``agent(ctx)`` is given a :class:`RunContext` with the seed
        and change of the run's fork, and no world; instead it may be a runtime or a list of
        behaviours. Default: what the run's configuration says under ``entry_point``.
    factory : bool
        Whether it is a function of ``(change, seed)`` that makes the agent, as in an experiment.
    **options
        As for :func:`replay`.

    Raises
    ------
    UsageError
        If neither names an agent, or it cannot be imported.
    SagError
        If the agent ends the program.
    ReplayDivergence
        If ``strict`` and the two part.
    """
    run = store.get_run(run_id)
    with imported(entry or _entry_of(store, run)) as found:
        about = _forked(store, run)
        agents_own: dict[str, Any] = {"context": _context(store, run, about), "given": _GIVEN}
        try:
            what = _made(found, about) if factory else found
            return replay(store, run_id, what, **(agents_own | options))
        except SystemExit as error:  # else a command would end as if all were equal
            raise SagError(
                f"the replay of run {run_id!r} was ended by its agent",
                why=f"it called sys.exit({error.code!r})",
                fix="return from the agent instead",
            ) from error


def _made(factory: Any, about: dict[str, Any]) -> Any:
    with Caught() as caught:
        return factory(about.get("change", {}), about.get("seed", 0))
    why = said(caught.error) if caught.error else ""
    fix = "a factory is a function of (change, seed); an agent is named without --factory"
    raise UsageError("the factory made no agent", why=why, fix=fix) from caught.error


def _entry_of(store: SQLiteEventStore, run: Run) -> str:
    """Return what a run says of its agent, where a program that lived it said so.

    The configuration of a run that was read from a file is text of a stranger, which must not
    decide what is imported; and a file is named by the user alone.
    """
    fix = "name it: --agent module:function, --agent file.py:function"
    entry = run.config.get(ENTRY_POINT)
    if not isinstance(entry, str) or not entry:
        raise UsageError(
            f"nothing says which agent made run {run.run_id!r}",
            fix=f"{fix}; or record it in the run's config as {ENTRY_POINT!r}",
        )
    why = "it names a file" if ".py:" in entry else ""
    if store.family(run.run_id)[0].source_id is not None:
        why = "it was read from a file"
    elif next(store.read(run.run_id, types=tuple(CALL_TYPES)), None) is None:
        why = "it has no recorded calls, so it was not lived here"
    if why:
        raise UsageError(
            f"the agent that run {run.run_id!r} names is not imported unasked", why=why, fix=fix
        )
    return entry


def _forked(store: SQLiteEventStore, run: Run) -> dict[str, Any]:
    """Return a run's own intervention, with only such values as a context can be made of."""
    own = run.fork_position + 1
    event = next(store.read(run.run_id, own, own, types=("run.forked",)), None)
    about = event.payload if event is not None else {}
    types: dict[str, type] = {"seed": int, "change": dict, "arm": str, "repeat": int}
    return {name: about[name] for name, kind in types.items() if type(about.get(name)) is kind}


def _context(store: SQLiteEventStore, run: Run, about: dict[str, Any]) -> Callable[..., RunContext]:
    """Make contexts as the run had them, with the limit of steps that it came to."""
    limits = [
        event.payload.get("limit")
        for event in store.read(run.run_id, run.fork_position + 1, types=("budget.exhausted",))
        if event.payload.get("budget") == "steps"
    ]
    limit = limits[-1] if limits and type(limits[-1]) is int else None
    return partial(RunContext, max_steps=limit, **about)
