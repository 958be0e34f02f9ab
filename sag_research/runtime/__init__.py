"""Agents that run: behaviours on events, replay, experiments."""

from sag_research.runtime._arms import Arm
from sag_research.runtime._budget import Budget, DispatchReport
from sag_research.runtime._diff import DiffRow, RunDiff, diff
from sag_research.runtime._entry import replay_named
from sag_research.runtime._experiment import Experiment, Plan
from sag_research.runtime._experiment_context import RunContext, RunEndedError, StepsSpentError
from sag_research.runtime._experiment_result import Continuation, ExperimentResult
from sag_research.runtime._handle import RunHandle
from sag_research.runtime._lineage import Kin, Lineage, lineage
from sag_research.runtime._object_graph import GraphObject
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
