"""Reflexion: what became of each environment, and what the agent wrote about its failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.model import Outcome, Trajectory

__all__ = ["Reflexion"]


class _Environment(msgspec.Struct, gc=False):
    name: Any = None
    memory: Any = None
    is_success: Any = None
    skip: Any = None


_DECODER: Final = msgspec.json.Decoder(list[_Environment | Other])
_KEYS: Final = {"name", "memory", "is_success"}
_TRIAL: Final = re.compile(r"_trial_(\d{1,6})\.")


class Reflexion:
    """Reflexion results: a JSON list of ``{name, memory, is_success}``, one an environment.

    Traps that are honoured

    * These files hold outcomes and reflections, and no steps: each environment is a run without
      steps, whose end is not known.
    * An environment that was solved is not tried again and stays a success in the files of later
      trials: ``is_success`` says whether it was solved up to this trial, not in it. Runs of
      several trials are no independent attempts.
    * The number of the trial, from 0, stands in the file's name alone; it is the attempt.
    * ``env_3`` is the third line of a list that is elsewhere: it is ``reflexion:env_3`` in each
      benchmark and in each experiment.
    * An environment with ``skip`` was left out: unknown. So is one whose ``is_success`` is
      neither true nor false.
    * ``memory`` is what the agent wrote after its failures: ``reflections`` in ``config``.
    """

    name = "reflexion"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim lists whose first object is an environment and nothing else."""
        seen = outline(head)
        keys = set(seen.keys)
        return 0.9 if seen.root == "list" and _KEYS <= keys <= {*_KEYS, "skip"} else 0.0

    def read(self, source: Source) -> Reading:
        """Read the environments."""
        refused: list[tuple[str, str]] = []
        found = decode(source.bytes(), _DECODER)
        if not any(isinstance(one, _Environment) and shared.word(one.name) for one in found):
            raise FormatError("no environments in it")
        trial = _TRIAL.search(source.path.name)
        attempt = int(trial[1]) if trial else None
        return Reading("1", _trajectories(found, attempt, refused), refused=refused)


def _trajectories(
    found: list[_Environment | Other], attempt: int | None, refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    for number, one in enumerate(found):
        if not isinstance(one, _Environment):
            refused.append((f"environment {number}", "no object"))
        elif (name := shared.word(one.name)) is None:
            refused.append((f"environment {number}", "has no name"))
        else:
            yield Trajectory(
                task_id=f"reflexion:{name}",
                record=str(number),
                dataset="reflexion",
                attempt=attempt,
                end=None,
                outcome=_outcome(one),
                config={"reflections": one.memory} if one.memory else {},
            )


def _outcome(one: _Environment) -> Outcome | None:
    source = "reflexion is_success"
    if one.skip is True:
        return Outcome(outcome="unknown", detail="skipped", source=source)
    if not isinstance(one.is_success, bool):
        return None
    return Outcome(outcome="success" if one.is_success else "failure", source=source)
