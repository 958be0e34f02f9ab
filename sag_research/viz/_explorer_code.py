"""The code that does what an explorer's buttons offer, ready to run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from sag_research.errors import UsageError

if TYPE_CHECKING:
    from sag_research.viz._explorer_data import Study

__all__ = ["ACTIONS", "code_for", "name_of"]

ACTIONS: Final = {
    "fork": "Fork here",
    "recall": "Recall from here",
    "risk": "Risk here",
    "export": "Export annotations",
}

_FORK: Final = """\
# a new run that sees {run} up to {place}; the intervention says what you change
child = {ws}.fork({run}, {argument}, intervention={{"note": "what I change"}})
{ws}.steps(child.run_id)"""

_RECALL: Final = """\
# past runs that met what {run} had met up to step {step}
recalled = {ws}.recall(run={run}, step={step}, k=5, outcomes="any")
recalled.table_"""

_RISK: Final = """\
# how likely such a beginning fails, learnt from runs of other tasks
prefixes = {ws}.prefixes("{column} IS DISTINCT FROM ?", [{value}])
risk = sag.PrefixRisk().fit(prefixes)
steps = {ws}.steps({run})
risk.predict(steps[steps["step"] <= {step}])[-1]"""

_EXPORT: Final = """\
annotations = {ws}.annotations()
annotations.to_csv("annotations.csv", index=False)
annotations"""


def code_for(
    action: str, study: Study, run: str, step: int | None = None, position: int = 1
) -> str:
    """Write the code of an action.

    Parameters
    ----------
    action : {"fork", "recall", "risk", "export"}
    study : Study
    run : str
    step : int, optional
        0-based; where the place is no step, only ``fork`` knows what to do.
    position : int
        Of the event.

    Raises
    ------
    UsageError
        The action needs a step.
    """
    if action not in ACTIONS:
        raise UsageError(f"no action {action!r}", fix=f"use one of {', '.join(ACTIONS)}")
    if step is None and action in ("recall", "risk"):
        raise UsageError(f"{ACTIONS[action]!r} needs a step", fix="choose one of the run's steps")
    name, head = name_of(study), []
    if name is None:
        path = ":memory:" if study.path is None else str(study.path)
        name, head = "ws", [f"ws = sag.open({path!a})"]
    if head or action == "risk":
        head.insert(0, "import sag_research as sag\n")
    fields: dict[str, Any] = {"ws": name, "run": ascii(run), "step": step}
    if action == "fork":
        fields["argument"] = f"at={position}" if step is None else f"step={step}"
        fields["place"] = f"position {position}" if step is None else f"step {step}"
    if action == "risk":
        task = study.store.get_run(run).task_id
        fields["column"], value = ("run_id", run) if task is None else ("task_id", task)
        fields["value"] = ascii(value)
    template = {"fork": _FORK, "recall": _RECALL, "risk": _RISK, "export": _EXPORT}[action]
    return "\n".join([*head, template.format(**fields)])


def name_of(study: Study) -> str | None:
    """Return the name that a workspace has in the notebook, if it has one there."""
    shell = notebook_shell()
    names = {} if shell is None else shell.user_ns
    found = [name for name, value in list(names.items())
             if value is study and not name.startswith("_")]  # fmt: skip
    return min(found, default=None)


def notebook_shell() -> Any:
    """Return IPython's shell, ``None`` outside of a notebook."""
    module = sys.modules.get("IPython")  # a notebook has loaded it
    return None if module is None else module.get_ipython()
