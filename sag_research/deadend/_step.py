"""One step as a live monitor sees it, and one run's steps as a cohort of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sag_research.deadend._prefixes import NUMBERS, TEXTS, Prefixes, StepTable
from sag_research.errors import UsageError
from sag_research.extract import Vocabulary
from sag_research.model import Step

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SeenStep", "prefixes_of_steps", "see"]


class SeenStep(NamedTuple):
    """What an estimator may know of a step."""

    token: str
    thought: str = ""
    action: str = ""
    observation: str = ""
    exit_code: float = float("nan")
    entities: tuple[str, ...] = ()


def see(step: Step | Mapping[str, Any] | SeenStep, vocabulary: Vocabulary) -> SeenStep:
    """Give a step its token.

    Parameters
    ----------
    step : Step or mapping
        With ``thought``, ``action``, ``observation`` and, if known, ``calls`` or ``exit_code``.
    vocabulary : Vocabulary
        What the estimator was fitted with.
    """
    if isinstance(step, SeenStep):
        return step
    if not isinstance(step, Step) and not callable(getattr(step, "get", None)):
        raise UsageError(
            f"a step is no {type(step).__name__}",
            fix="pass a Step, a SeenStep, or a mapping with thought, action and observation",
        )
    token = vocabulary.token(step)
    if isinstance(step, Step):
        code = step.calls[-1].exit_code if step.calls else None
        return SeenStep(token, step.thought, step.action, step.observation, _number(code))
    thought, action, observation = (_text(step.get(name)) for name in TEXTS)
    return SeenStep(token, thought, action, observation, _number(_exit_code(step)))


def _exit_code(step: Mapping[str, Any]) -> Any:
    """The last call's, where there are calls: the token is made of that one, too."""
    calls = step.get("calls")
    if not isinstance(calls, (list, tuple)):
        return step.get("exit_code")
    last = calls[-1] if calls else None
    return last.get("exit_code") if isinstance(last, Mapping) else None


def _text(value: Any) -> str:
    """What is no text is none, as it is for the vocabulary: a missing value has many spellings."""
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    """What is no number is an unknown one."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def prefixes_of_steps(steps: pd.DataFrame, vocabulary: Vocabulary | None = None) -> Prefixes:
    """Make a cohort of one run, of unknown outcome, from the steps that ``ws.steps`` returns.

    Raises
    ------
    UsageError
        If a text column is missing, or the steps have no order.
    """
    import pandas as pd
    import pyarrow as pa

    missing = [name for name in TEXTS if name not in steps]
    if missing:
        raise UsageError(
            f"steps without the columns {', '.join(missing)}", fix="pass what ws.steps(run) returns"
        )
    vocabulary = vocabulary or Vocabulary()
    kept = [c for c in (*TEXTS, *NUMBERS, "tool", "n_calls", "flags") if c in steps]
    columns = pa.Table.from_pandas(steps[kept], preserve_index=False)
    codes, names = vocabulary.tokens(columns)
    table = StepTable(codes, names, columns, vocabulary=vocabulary)
    run = str(steps["run_id"].iloc[-1]) if "run_id" in steps and len(steps) else "run"
    runs = pd.DataFrame({"run_id": [run], "task_id": [""], "outcome": ["unknown"]})
    return Prefixes.of(runs, np.array([0]), np.array([len(steps)]), table)
