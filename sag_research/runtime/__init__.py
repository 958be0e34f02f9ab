"""Agents that run: behaviours on events, loops of graphs, replay, experiments."""

from sag_research.runtime._arms import Arm
from sag_research.runtime._budget import Budget, DispatchReport
from sag_research.runtime._diff import DiffRow, RunDiff, diff
from sag_research.runtime._entry import replay_named
from sag_research.runtime._experiment import Experiment, Plan
from sag_research.runtime._experiment_context import RunContext, RunEndedError, StepsSpentError
from sag_research.runtime._experiment_result import Continuation, ExperimentResult
from sag_research.runtime._handle import RunHandle
from sag_research.runtime._lineage import Kin, Lineage, lineage
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import (
    BudgetExceededError,
    CheckpointMismatchError,
    GraphBindingError,
    LoopCancelledError,
    NodeFailedError,
    ObserverError,
    PlanError,
    ReentryError,
    RuntimeClosedError,
    StepCancelledError,
    StepTimeoutError,
    WorkerBusyError,
)
from sag_research.runtime._loop_graph import (
    Graph,
    GraphEvent,
    GraphNode,
    GraphStep,
    NodeResult,
    Outputs,
    graph,
    graph_step,
    unwrap,
)
from sag_research.runtime._loop_handle import LoopHandle
from sag_research.runtime._loop_node import NodeContext, Worker, this_node
from sag_research.runtime._loop_runtime import LoopOptions, Runtime
from sag_research.runtime._object_graph import GraphObject
from sag_research.runtime._plan import Checkpoint, LogCheckpoint, LoopPlan, StateLoop, Steps, plan
from sag_research.runtime._protocols import (
    ActingWorld,
    Agent,
    AgentFactory,
    OutcomeOf,
    World,
    WorldFactory,
)
from sag_research.runtime._reactive import Projection, ReactiveRuntime
from sag_research.runtime._reactive_listeners import Listener, ListenerCounts
from sag_research.runtime._replay import ReplayReport, replay
from sag_research.runtime._replay_diff import Change, Divergence, ReplayDivergence
from sag_research.runtime._triggers import Behavior, Trigger, fingerprint

__all__ = [  # noqa: RUF022
    # behaviours
    "Behavior",
    "Budget",
    "DispatchReport",
    "GraphObject",
    "Listener",
    "ListenerCounts",
    "Projection",
    "ReactiveRuntime",
    "RunHandle",
    "Trigger",
    "fingerprint",
    # strict replay
    "Change",
    "Divergence",
    "ReplayDivergence",
    "ReplayReport",
    "replay",
    "replay_named",
    # loops: plans of graphs
    "CancelToken",
    "Checkpoint",
    "Graph",
    "GraphEvent",
    "GraphNode",
    "GraphStep",
    "LogCheckpoint",
    "LoopHandle",
    "LoopOptions",
    "LoopPlan",
    "NodeContext",
    "NodeResult",
    "Outputs",
    "Runtime",
    "StateLoop",
    "Steps",
    "Worker",
    "graph",
    "graph_step",
    "plan",
    "this_node",
    "unwrap",
    # how loops fail
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
    "WorkerBusyError",
    # agents and worlds
    "ActingWorld",
    "Agent",
    "AgentFactory",
    "OutcomeOf",
    "RunContext",
    "RunEndedError",
    "StepsSpentError",
    "World",
    "WorldFactory",
    # forks compared
    "DiffRow",
    "Kin",
    "Lineage",
    "RunDiff",
    "diff",
    "lineage",
    # experiments
    "Arm",
    "Continuation",
    "Experiment",
    "ExperimentResult",
    "Plan",
]
