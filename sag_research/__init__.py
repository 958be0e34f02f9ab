"""Study AI agents: one clean store of trajectories, a bloomed graph, and honest numbers.

Examples
--------
>>> import sag_research as sag
>>> ws = sag.open(":memory:")
>>> run = ws.add(
...     {
...         "task_id": "t1",
...         "steps": [{"thought": "look", "action": "cat setup.py", "observation": "..."}],
...         "outcome": "success",
...     }
... )
>>> ws.sql("SELECT task_id, outcome, n_steps FROM runs").rows()
[('t1', 'success', 1)]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sag_research.bloom import (
        BloomGraph,
        MemoryTool,
        Recall,
        Recorder,
        RunProvenance,
        evaluate_recall,
        trace_items,
    )
    from sag_research.deadend import (
        Alarm,
        Backtest,
        DeadEndMonitor,
        Prefixes,
        PrefixRisk,
        backtest,
        locate,
    )
    from sag_research.errors import SagError
    from sag_research.extract import EntityExtractor, Vocabulary
    from sag_research.ingest import IngestReport
    from sag_research.log import SQLiteEventStore, VerifyReport
    from sag_research.model import (
        Call,
        Entity,
        Event,
        Mention,
        Outcome,
        Relation,
        Run,
        Step,
        Trajectory,
        Usage,
    )
    from sag_research.runtime import (
        Arm,
        BacktrackPolicy,
        Experiment,
        ReactiveRuntime,
        RunContext,
        Tool,
        backtrack,
        react,
        replay,
        tool,
    )
    from sag_research.warehouse import QueryResult
    from sag_research.warehouse.corpus import Corpus, engine
    from sag_research.workspace import Workspace, bundled, open, provenance

__all__ = [  # noqa: RUF022
    # the front door
    "Workspace",
    "bundled",
    "open",
    "provenance",
    # records
    "Call",
    "Entity",
    "Event",
    "Mention",
    "Outcome",
    "Relation",
    "Run",
    "Step",
    "Trajectory",
    "Usage",
    # the log
    "SQLiteEventStore",
    "VerifyReport",
    # rooms
    "BloomGraph",
    "EntityExtractor",
    "IngestReport",
    "QueryResult",
    "Vocabulary",
    # where a run was lost
    "Alarm",
    "Backtest",
    "DeadEndMonitor",
    "PrefixRisk",
    "Prefixes",
    "backtest",
    "locate",
    # all runs at once, here or on Spark
    "Corpus",
    "engine",
    # what past runs say
    "MemoryTool",
    "Recall",
    "evaluate_recall",
    # running and comparing
    "Arm",
    "BacktrackPolicy",
    "Experiment",
    "ReactiveRuntime",
    "RunContext",
    "backtrack",
    "replay",
    # agents that reason and act
    "Tool",
    "react",
    "tool",
    # where it comes from
    "Recorder",
    "RunProvenance",
    "trace_items",
    # errors
    "SagError",
]

_ROOM_OF = {
    "Workspace": "workspace",
    "bundled": "workspace",
    "open": "workspace",
    "provenance": "workspace",
    "Call": "model",
    "Entity": "model",
    "Event": "model",
    "Mention": "model",
    "Outcome": "model",
    "Relation": "model",
    "Run": "model",
    "Step": "model",
    "Trajectory": "model",
    "Usage": "model",
    "SQLiteEventStore": "log",
    "VerifyReport": "log",
    "BloomGraph": "bloom",
    "MemoryTool": "bloom",
    "Recall": "bloom",
    "evaluate_recall": "bloom",
    "Recorder": "bloom",
    "RunProvenance": "bloom",
    "trace_items": "bloom",
    "EntityExtractor": "extract",
    "IngestReport": "ingest",
    "QueryResult": "warehouse",
    "Vocabulary": "extract",
    "Corpus": "warehouse.corpus",
    "engine": "warehouse.corpus",
    "Alarm": "deadend",
    "Backtest": "deadend",
    "DeadEndMonitor": "deadend",
    "PrefixRisk": "deadend",
    "Prefixes": "deadend",
    "backtest": "deadend",
    "locate": "deadend",
    "Arm": "runtime",
    "BacktrackPolicy": "runtime",
    "backtrack": "runtime",
    "Experiment": "runtime",
    "ReactiveRuntime": "runtime",
    "RunContext": "runtime",
    "replay": "runtime",
    "Tool": "runtime",
    "react": "runtime",
    "tool": "runtime",
    "SagError": "errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name's room when the name is first used."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Make ``%load_ext sag_research`` bring the ``%sag`` magics."""
    import_module(f"{__name__}.magics").load(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Take the magics out again."""
    import_module(f"{__name__}.magics").unload(ipython)
