"""How loops and their graphs fail, each in a class of its own so that plans can choose."""

from __future__ import annotations

from collections.abc import Iterable

from sag_research.errors import SagError, UsageError

__all__ = [
    "BudgetExceededError",
    "CheckpointMismatchError",
    "GraphBindingError",
    "LoopCancelledError",
    "NodeFailedError",
    "ObserverError",
    "PlanError",
    "ReentryError",
    "RuntimeClosedError",
    "StepCancelledError",
    "StepTimeoutError",
    "UncertainError",
    "WorkerBusyError",
]


class BudgetExceededError(SagError):
    """A loop asked for one graph more than it may run. It is not delivered to the plan."""


class LoopCancelledError(SagError):
    """A loop was cancelled as a whole. It is not delivered to the plan."""


class StepCancelledError(SagError):
    """One graph of a loop was cancelled; the plan may catch this and go on."""


class StepTimeoutError(StepCancelledError):
    """One graph of a loop took longer than it may; the plan may catch this and go on."""


class NodeFailedError(SagError):
    """The output of a node was read that has none, because the node reported a failure.

    Attributes
    ----------
    code : str
        The node's own name for the failure.
    """

    def __init__(self, code: str, message: str = "") -> None:
        self.code, self.message = code, message
        super().__init__(f"the node failed with {code!r}", message)
        self.args = (code, message)


class PlanError(SagError):
    """A plan did what plans may not do, e.g. yield something that is no step."""


class GraphBindingError(UsageError):
    """A graph names work that no worker does, or is bound to a worker that cannot do it."""


class WorkerBusyError(SagError):
    """A worker was given more nodes at a time than it takes; nothing waits unseen."""


class ObserverError(SagError):
    """An observer of a loop raised, which ends the loop; its error is the ``__cause__``.

    Attributes
    ----------
    graph_error : BaseException or None
        What the graph had failed with, where the observer was being told of that.
    """

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        super().__init__(what, why, fix)
        self.graph_error: BaseException | None = None


class ReentryError(UsageError):
    """A plan tried to run a loop itself instead of yielding steps."""


class RuntimeClosedError(UsageError):
    """The runtime is closing and takes no new loop."""


class CheckpointMismatchError(SagError):
    """A checkpoint was written by another loop, version or input than the one that resumes."""


class UncertainError(CheckpointMismatchError):
    """A graph cannot go on, because nobody knows what became of nodes that had begun.

    Attributes
    ----------
    graph_id : str
    uncertain : tuple of str
        Ids of the nodes.
    """

    def __init__(self, graph_id: str, uncertain: Iterable[str]) -> None:
        self.graph_id, self.uncertain = graph_id, tuple(uncertain)
        super().__init__(
            f"graph {graph_id!r} cannot go on from its checkpoint",
            why=f"it is not known what became of {', '.join(map(repr, self.uncertain))}",
            fix="find out, and say it: settled={node: its NodeResult, or None to run it again}",
        )
        self.args = (graph_id, self.uncertain)
