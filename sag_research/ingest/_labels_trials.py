"""Results of trials, each in a folder of its own: Harbor and Terminal-Bench.

Neither names the run it judges, so a trial's label goes to what was read from its folder. The
outcome is the tests' alone: an agent that ran out of time may have solved its task before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sag_research.ingest._labels_model import (
    ERROR,
    FAILURE,
    INFRA,
    SUCCESS,
    UNKNOWN,
    Label,
    Verdict,
    as_id,
)
from sag_research.ingest.formats._shared import number, word
from sag_research.model import Outcome

__all__ = ["is_trial", "of_trial", "of_trials"]

_INFRA_MODES: Final = frozenset({"parse_error", "test_timeout", "unknown_harness_error"})
"""Terminal-Bench's words for tests that gave no answer."""
_UNSAID: Final = frozenset({"", "unset", "none"})
_INFRA_WORDS: Final = ("Environment", "Verifier", "RewardFile", "Docker", "Sandbox", "Build")
"""What Harbor's exceptions that are not the agent's begin with."""


def is_trial(value: Mapping[str, Any]) -> bool:
    """Tell whether an object is the result of one trial."""
    named = any(as_id(value.get(key)) for key in ("trial_name", "task_name", "task_id"))
    return named and ("verifier_result" in value or _is_terminal_bench(value))


def _is_terminal_bench(value: Mapping[str, Any]) -> bool:
    return "is_resolved" in value and (
        value["is_resolved"] is None or isinstance(value["is_resolved"], bool)
    )


def of_trial(value: Mapping[str, Any], name: str, folder: Path) -> Label:
    """Read one trial; ``folder`` is where it wrote all it has."""
    harbor = "verifier_result" in value
    verdict, score = _of_harbor(value) if harbor else (_of_terminal_bench(value), None)
    names = [as_id(value.get(key)) for key in ("trial_name", "task_name", "task_id")]
    trial, task_name, task_id = names
    outcome = Outcome(outcome=verdict.outcome, detail=verdict.detail, score=score, source=name)
    return Label(
        "trial",
        trial or task_name or task_id or folder.name,
        outcome,
        task_id=task_name or task_id,
        model=_model(value),
        folder=str(folder.resolve()),
        trial=as_id(value.get("id")) or as_id(value.get("uuid")),
    )


def of_trials(value: Mapping[str, Any], name: str, folder: Path) -> list[Label] | None:
    """Read Terminal-Bench's results of a whole batch; None if it is none."""
    trials = value.get("results")
    if not isinstance(trials, list) or not trials:
        return None
    if not all(isinstance(one, dict) and is_trial(one) for one in trials):
        return None
    return [of_trial(one, name, _folder_of(one, folder)) for one in trials]


def _folder_of(trial: Mapping[str, Any], batch: Path) -> Path:
    """Find the folder of a trial below that of its batch; the file's word is no path elsewhere."""
    names = [as_id(trial.get(key)) or "" for key in ("task_id", "trial_name")]
    plain = [name for name in names if name and Path(name).name == name and name != ".."]
    for part in (Path(*plain), *(Path(name) for name in reversed(plain))):
        if plain and (batch / part).is_dir():
            return batch / part
    return batch / "/".join(plain)


def _of_terminal_bench(value: Mapping[str, Any]) -> Verdict:
    mode = (word(value.get("failure_mode")) or "").casefold()
    resolved = value["is_resolved"]
    if resolved is None:
        return INFRA if mode in _INFRA_MODES else UNKNOWN if mode in _UNSAID else ERROR
    if resolved:
        return SUCCESS
    return FAILURE if mode in _UNSAID else Verdict("failure", mode)


def _of_harbor(value: Mapping[str, Any]) -> tuple[Verdict, float | None]:
    reward = _reward(value["verifier_result"])
    if reward is not None:
        if reward >= 1:
            return SUCCESS, reward
        return (Verdict("failure", "partial") if reward > 0 else FAILURE), reward
    exception = value.get("exception_info")
    if not isinstance(exception, dict):
        return UNKNOWN, None
    kind = word(exception.get("exception_type")) or ""
    return (INFRA if kind.startswith(_INFRA_WORDS) else ERROR), None


def _reward(result: Any) -> float | None:
    """Return the reward; of several numbers without that name, none is guessed."""
    rewards = result.get("rewards") if isinstance(result, dict) else None
    if not isinstance(rewards, dict):
        return number(rewards)
    if "reward" in rewards:
        return number(rewards["reward"])
    return number(next(iter(rewards.values()))) if len(rewards) == 1 else None


def _model(value: Mapping[str, Any]) -> str | None:
    agent = value.get("agent_info")
    about = agent.get("model_info") if isinstance(agent, dict) else None
    return word(about.get("name")) if isinstance(about, dict) else None
