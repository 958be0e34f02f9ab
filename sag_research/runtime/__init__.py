"""Agents that run: behaviours on events, loops of graphs, replay, experiments."""

from sag_research.runtime._arms import Arm
from sag_research.runtime._backtrack import backtrack
from sag_research.runtime._backtrack_context import HaltedError
from sag_research.runtime._backtrack_feedback import Situation
from sag_research.runtime._backtrack_policy import BacktrackPolicy, Watch
from sag_research.runtime._backtrack_result import BacktrackResult
from sag_research.runtime._backtrack_watches import RandomWatch, RuleWatch
from sag_research.runtime._budget import Budget, DispatchReport
from sag_research.runtime._dag_acks import Acks, LogAcks, MemoryAcks
from sag_research.runtime._dag_channel import Channel, ChannelClosedError, Producer
from sag_research.runtime._dag_document import (
    Body,
    DagReference,
    Document,
    DocumentError,
    EmbeddedDag,
    Fault,
    Gather,
    ItemExecution,
    Phase,
    Placement,
    ReservoirExecution,
    Route,
    Scatter,
    SingleNode,
    Terminal,
)
from sag_research.runtime._dag_draw import mermaid
from sag_research.runtime._dag_flow import NodeDone
from sag_research.runtime._dag_gather import ItemRecord
from sag_research.runtime._dag_jsonld import bundled_document, document_text, load_document
from sag_research.runtime._dag_life import (
    AwaitingInputError,
    Cursor,
    LifecycleError,
    RoutingError,
)
from sag_research.runtime._dag_rdf import document_from_rdf, document_graph, document_triples
from sag_research.runtime._dag_registered import Documents, NodeSpec
from sag_research.runtime._dag_run import Execution, ExecutionOptions, Summary, execute
from sag_research.runtime._dag_validate import validate_document
from sag_research.runtime._diff import DiffRow, RunDiff, diff
from sag_research.runtime._entry import replay_named
from sag_research.runtime._experiment import Experiment, Plan
from sag_research.runtime._experiment_context import (
    RunContext,
    RunEndedError,
    StepsSpentError,
    usage_of,
)
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
    UncertainError,
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
from sag_research.runtime._loop_runtime import LoopOptions, RunOptions, Runtime
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
from sag_research.runtime._react import ReactAgent, areact, react, start_react
from sag_research.runtime._react_document import react_document
from sag_research.runtime._react_plan import react_plan
from sag_research.runtime._react_result import ReactResult
from sag_research.runtime._reactive import Projection, ReactiveRuntime
from sag_research.runtime._reactive_listeners import Listener, ListenerCounts
from sag_research.runtime._replay import ReplayReport, replay
from sag_research.runtime._replay_diff import Change, Divergence, ReplayDivergence
from sag_research.runtime._stream import Delta, Sink, Source, TokenLog
from sag_research.runtime._stream_trace import live_trace
from sag_research.runtime._tool import Tool, ToolResult, tool
from sag_research.runtime._tool_errors import ToolError
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
    "RunOptions",
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
    "UncertainError",
    "WorkerBusyError",
    # documents that run
    "Acks",
    "AwaitingInputError",
    "Channel",
    "ChannelClosedError",
    "Cursor",
    "Execution",
    "ExecutionOptions",
    "ItemRecord",
    "LifecycleError",
    "LogAcks",
    "MemoryAcks",
    "NodeDone",
    "Producer",
    "RoutingError",
    "Summary",
    "execute",
    # documents
    "Body",
    "DagReference",
    "Document",
    "DocumentError",
    "Documents",
    "EmbeddedDag",
    "Fault",
    "Gather",
    "ItemExecution",
    "NodeSpec",
    "Phase",
    "Placement",
    "ReservoirExecution",
    "Route",
    "Scatter",
    "SingleNode",
    "Terminal",
    "bundled_document",
    "document_from_rdf",
    "document_graph",
    "document_text",
    "document_triples",
    "load_document",
    "mermaid",
    "validate_document",
    # agents that reason and act
    "Delta",
    "ReactAgent",
    "ReactResult",
    "Sink",
    "Source",
    "TokenLog",
    "Tool",
    "ToolError",
    "ToolResult",
    "areact",
    "live_trace",
    "react",
    "react_document",
    "react_plan",
    "start_react",
    "tool",
    # going back
    "BacktrackPolicy",
    "BacktrackResult",
    "HaltedError",
    "RandomWatch",
    "RuleWatch",
    "Situation",
    "Watch",
    "backtrack",
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
    "usage_of",
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
