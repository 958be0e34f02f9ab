"""InterCode: episodes of an interactive coding environment, with a reward for each turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any, Final, NamedTuple

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import Other, decode, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.model import Call, Outcome, OutcomeName, Step, Trajectory

__all__ = ["InterCode"]


class _Episode(msgspec.Struct):
    environment: Any = None
    dataset: Any = None
    task_id: Any = None
    query_idx: Any = None
    query: Any = None
    turn_history: Any = None
    trajectory: Any = None
    reward: Any = None
    summary: Any = None
    info: Any = None
    gold: Any = None
    hardness: Any = None


class _Turn(NamedTuple):
    action: Any
    observation: Any
    valid: Any = None
    reward: float | None = None


_DECODER: Final = msgspec.json.Decoder(dict[str, _Episode | Other])
_EPISODE: Final = {"environment", "query"}
_NEAR: Final = 1e-6
_STATUS: Final = {True: "ok", False: "error"}


class InterCode:
    """InterCode results: an object of episodes, ``{"0": {environment, query, turn_history, …}}``.

    Traps that are honoured

    * ``turn_history`` holds parallel lists. An episode with more actions than observations, or
      fewer, is refused, since nothing says which belong together. Rewards, or ``valid_action``,
      of another length are left out with a note.
    * Episodes of people have a list ``trajectory`` of turns instead, one ``reward`` for the whole
      and ``query_idx`` for the task.
    * Task numbers restart in each data file: task 0 becomes ``intercode:bash:nl2bash_fs_1:0``,
      or ``intercode:sql:0`` where no data file is named.
    * File and folder names contradict each other about the model, so it is unknown.
    * An episode may go on after its best turn: the outcome is the highest reward, success at 1
      alone and from that turn on; ``partial`` is a failure with a reward between. Where the
      highest of the turns is not the ``max_reward`` of the summary it is unknown (``conflict``);
      so it is where the right answer itself could not be run (``corrupt_gold``, in detail
      ``infra``).
    * ``valid_action`` says whether an action ran without an error: false is a call that erred;
      null, as in Python episodes, is unknown.
    * The agent may not have seen the rewards: each is in the ``state`` of its step. There are no
      thoughts in these files. The right answer (``gold``) is in ``config``; ``info``, which is
      the check of the last action, is not kept.
    """

    name = "intercode"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim objects whose first value is an episode."""
        seen = outline(head)
        first = next(iter(seen.keys.values()), frozenset()) if seen.root == "object" else set()
        if not first >= _EPISODE:
            return 0.0
        return 0.95 if "turn_history" in first or first >= {"query_idx", "trajectory"} else 0.0

    def read(self, source: Source) -> Reading:
        """Read the episodes."""
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        episodes = decode(source.bytes(), _DECODER)
        if not any(isinstance(one, _Episode) and _has_turns(one) for one in episodes.values()):
            raise FormatError("no episodes in it")
        return Reading("1", _trajectories(episodes, notes, refused), notes, refused)


def _has_turns(episode: _Episode) -> bool:
    return isinstance(episode.turn_history, dict) or isinstance(episode.trajectory, list)


def _trajectories(
    episodes: dict[str, _Episode | Other], notes: list[str], refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    for record, episode in episodes.items():
        place = f"episode {record}"
        if not isinstance(episode, _Episode):
            refused.append((place, "no object"))
        elif _number(episode) is None:
            refused.append((place, "names no task"))
        elif not _has_turns(episode):
            refused.append((place, "has no turns"))
        else:
            faults: list[str] = []
            try:
                turns = _turns(episode, faults)
            except FormatError as error:
                refused.append((place, str(error)))
                continue
            notes += [f"{place}: {fault}" for fault in faults]
            yield _trajectory(episode, turns, record)


def _number(episode: _Episode) -> str | None:
    return key(episode.task_id) if key(episode.task_id) is not None else key(episode.query_idx)


def _turns(episode: _Episode, faults: list[str]) -> list[_Turn]:
    if not isinstance(episode.turn_history, dict):
        told = [turn for turn in episode.trajectory if isinstance(turn, dict)]
        if len(told) < len(episode.trajectory):
            faults.append(f"{len(episode.trajectory) - len(told)} turns are no objects")
        return [_Turn(turn.get("action"), turn.get("observation")) for turn in told]
    history = episode.turn_history
    actions, observations = history.get("actions"), history.get("observations")
    if not (isinstance(actions, list) and isinstance(observations, list)):
        raise FormatError("its actions or observations are no list")
    if len(actions) != len(observations):
        raise FormatError(f"{len(actions)} actions, but {len(observations)} observations")
    valid = _parallel(history, "valid_action", len(actions), faults)
    rewards = _parallel(history, "rewards", len(actions), faults)
    scores = map(shared.number, rewards)
    return list(map(_Turn, actions, observations, valid, scores))


def _parallel(history: dict[str, Any], name: str, length: int, faults: list[str]) -> list[Any]:
    found = history.get(name)
    if isinstance(found, list) and len(found) == length:
        return found
    if found is not None:
        faults.append(f"{name} is no list of {length}")
    return [None] * length


def _trajectory(episode: _Episode, turns: list[_Turn], record: str) -> Trajectory:
    environment = (shared.word(episode.environment) or "").removeprefix("ic_")
    data = shared.word(episode.dataset)
    stem = PureWindowsPath(data).stem if data else ""  # takes either kind of slash
    config = {
        "environment": episode.environment,
        "dataset_file": episode.dataset,
        "hardness": episode.hardness,
        "gold": episode.gold,
        "summary": episode.summary,
    }
    return Trajectory(
        task_id=":".join(filter(None, ("intercode", environment, stem, _number(episode)))),
        record=record,
        steps=tuple(map(_step, turns)),
        goal=shared.word(episode.query) or "",
        dataset="intercode",
        outcome=_outcome(episode, turns),
        config={name: value for name, value in config.items() if value not in (None, "", {})},
    )


def _step(turn: _Turn) -> Step:
    action, observation = shared.text_of(turn.action), shared.text_of(turn.observation)
    status = _STATUS[turn.valid] if isinstance(turn.valid, bool) else "unknown"
    call = Call(text=action, observation=observation, status=status)
    return Step(
        action=action,
        observation=observation,
        calls=(call,) if action else (),
        state=None if turn.reward is None else {"reward": turn.reward},
    )


def _outcome(episode: _Episode, turns: list[_Turn]) -> Outcome | None:
    rewards = [-1.0 if turn.reward is None else turn.reward for turn in turns]
    known = [turn.reward for turn in turns if turn.reward is not None]
    whole = shared.number(mapping(episode.summary).get("max_reward"))
    whole = shared.number(episode.reward) if whole is None else whole
    best = whole if whole is not None else max(known, default=None)
    if best is None:
        return None
    source = "intercode reward"
    if mapping(episode.info).get("corrupt_gold") is True:
        return Outcome(outcome="unknown", detail="infra", score=best, source=source)
    if known and abs(max(known) - best) > _NEAR:
        return Outcome(outcome="unknown", detail="conflict", score=best, source=source)
    done: OutcomeName = "success" if abs(best - 1) <= _NEAR else "failure"
    detail = "partial" if _NEAR < best < 1 - _NEAR else None
    first = rewards.index(max(known)) if known and done == "success" else None
    return Outcome(outcome=done, detail=detail, score=best, source=source, known_at_step=first)
