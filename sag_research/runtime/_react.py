"""``react``: a model and tools at work on a goal, every turn written down."""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec.structs import replace

from sag_research._text import clip, repair, said
from sag_research.bloom import Hint
from sag_research.errors import RunExistsError, UsageError
from sag_research.llm import Identity, Model
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime._experiment_context import RunContext, RunEndedError, ending
from sag_research.runtime._loop_cancel import CancelToken
from sag_research.runtime._loop_errors import (
    BudgetExceededError,
    LoopCancelledError,
    NodeFailedError,
)
from sag_research.runtime._loop_graph import GraphEvent, positive
from sag_research.runtime._loop_handle import LoopHandle
from sag_research.runtime._loop_node import is_async
from sag_research.runtime._loop_runtime import Runtime
from sag_research.runtime._react_messages import first_state, tools_in_text
from sag_research.runtime._react_nodes import Bench
from sag_research.runtime._react_plan import GRAPHS_A_TURN, Talk, react_plan
from sag_research.runtime._react_result import ReactResult
from sag_research.runtime._stream import Faucet, Sink, Source
from sag_research.runtime._tool import Tool, tools_by_name

if TYPE_CHECKING:
    from sag_research.runtime._dag_document import Document

__all__ = ["ReactAgent", "areact", "react", "start_react"]

DOCUMENT: Final = "react-agent"
_FOR_MODEL: Final = ("feedback", "prompt")
_STOPS: Final = (LoopCancelledError, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)


class _HasStore(Protocol):
    @property
    def store(self) -> SQLiteEventStore: ...


class ReactAgent:
    """A model with tools that thinks and acts until it answers; an agent for runs and experiments.

    Parameters
    ----------
    model : Model or Identity
    tools : iterable of Tool or callable
        Typed functions become tools.
    system : str
        What the model is told first.
    hint : str
        What earlier runs have to say, e.g. :meth:`Recall.prompt`; stands before everything
        else, as a system message of its own, where it is not empty.
    max_steps : int
        Turns that it may take.
    parameters : mapping
        Of the model, e.g. ``temperature``.
    sink : callable, optional
        Receives answers while they are written; see :class:`Delta`.
    route_key : str, optional
        Of the deltas; default: the run's id.
    calls : {"native", "text"}
        How tools are called: through the provider, or in JSON that the model writes into its
        text, for models that are offered no tools, such as local ones. JSON of that form is
        understood either way.
    thoughts : bool
        Stream everything as it comes, texts of turns that call tools too. Default: answers
        only. Whether a text is one is known at its end, so where tools are offered its parts
        are passed on then, as they came.
    document : Document, optional
        Carry the agent out as this document, instead of the plan.

    Notes
    -----
    Called with a run's context, it goes on after the steps that the run has, those of the
    ancestors of a fork included. What a fork's intervention holds as text under ``feedback`` or
    ``prompt`` is told to the model there. A :class:`~sag_research.bloom.Hint` stands in the run's
    provenance.
    """

    context = RunContext
    """What it is called with; :func:`replay` makes one."""

    def __init__(
        self,
        model: Model | Identity | None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        system: str = "",
        hint: str = "",
        max_steps: int = 20,
        parameters: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
        route_key: str = "",
        thoughts: bool = False,
        calls: Literal["native", "text"] = "native",
        document: Document | None = None,
    ) -> None:
        if not (model is None or isinstance(model, (Identity, Model))):
            raise UsageError(f"{clip(repr(model))} is no model", fix="give an adapter")
        given: Any = sink
        if given is not None and (not callable(given) or is_async(given)):
            raise UsageError(f"{clip(repr(sink))} is no sink", fix="give a plain function")
        if calls not in ("native", "text"):
            raise UsageError(f"tools cannot be called by {calls!r}", fix="use native or text")
        self.model, self.tools, self.calls = model, tools_by_name(tools), calls
        self.system, self.hint = _text(system, "system"), _text(hint, "hint")
        self._recalled = hint if isinstance(hint, Hint) else None
        self.max_steps = positive(max_steps, "max_steps")
        self.parameters = dict(parameters or {})
        self.sink, self.route_key, self.thoughts = sink, route_key, thoughts
        self.document = document

    def __repr__(self) -> str:
        return f"ReactAgent({', '.join(self.tools)})"

    @property
    def config(self) -> dict[str, Any]:
        """What a run's configuration says of it."""
        about = {"tools": list(self.tools), "max_steps": self.max_steps}
        told = {"system": self.system, "hint": self.hint, "parameters": self.parameters}
        told |= {"calls": self.calls if self.calls == "text" else ""}
        return about | {name: value for name, value in told.items() if value}

    def __call__(
        self,
        ctx: RunContext,
        *,
        cancel: CancelToken | None = None,
        on_graph: Callable[[GraphEvent], object] | None = None,
    ) -> None:
        """Work on the goal of the context's run.

        Raises
        ------
        BudgetExceededError
            If there is no answer after ``max_steps`` turns.
        LoopCancelledError
        NodeFailedError
            If the model failed, or said nothing.
        """
        goal, steps = ctx.store.get_run(ctx.run_id).goal, [event.payload for event in ctx.steps()]
        token = CancelToken(parent=cancel)
        bench = Bench(
            ctx=ctx, model=self.model, tools=self.tools, parameters=self.parameters, token=token,
            faucet=self._faucet(ctx.run_id), last_turn=len(steps) + self.max_steps,
            in_text=self.calls == "text",
        )  # fmt: skip
        about = tools_in_text(self.tools.values()) if bench.in_text else ""
        system = "\n\n".join(text for text in (self.system, about) if text)
        if self._recalled and not steps:
            ctx.append(self._recalled.event(ctx.run_id))
        state = first_state(
            goal, system=system, hint=self.hint, in_text=bench.in_text, steps=steps, told=_told(ctx)
        )
        talk = Talk(state, bench)
        options: Any = {"cancel": token} | ({"on_graph": on_graph} if on_graph else {})
        try:
            if self.document is not None:
                from sag_research.runtime._react_document import carry_out

                carry_out(self.document, talk, **options)
            else:
                with Runtime(max_iterations=GRAPHS_A_TURN * self.max_steps) as rt:
                    rt.loop(react_plan, talk, **options)
        finally:
            if bench.faucet is not None and bench.faucet.error:
                about = f"the sink raised {bench.faucet.error} and was passed nothing after that"
                warnings.warn(about, stacklevel=2)

    def _faucet(self, run_id: str) -> Faucet | None:
        if self.sink is None:
            return None
        source = Source(DOCUMENT, "call-model")
        return Faucet(self.sink, self.route_key or run_id, source, self.thoughts)


def react(
    model: Model | Identity | None,
    tools: Iterable[Tool | Callable[..., Any]],
    goal: str = "",
    *,
    store: SQLiteEventStore | _HasStore | None = None,
    run: Run | str | None = None,
    cancel: CancelToken | None = None,
    on_graph: Callable[[GraphEvent], object] | None = None,
    asking: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ReactResult:
    """Let a model think and act with tools until it answers.

    Parameters
    ----------
    model : Model
    tools : iterable of Tool or callable
        Typed functions become tools.
    goal : str
    store : SQLiteEventStore or Workspace, optional
        Where the run is written; default: in memory.
    run : Run or str, optional
        Describes the run, or names it. A fork, or another run that is in the log and has not
        ended, is carried on; its goal is its own, so give the same or none.
    cancel : CancelToken, optional
        Ends it between two turns, calls or deltas. An asynchronous tool is cut off, a plain one
        is waited for; a plain one that takes long may look: ``this_node().check()``.
    on_graph : callable, optional
        Told of each stage that begins or ends.
    asking : mapping, optional
        Options of the recorded calls, e.g. ``{"mode": "reuse"}``; see
        :class:`~sag_research.llm.Context`.
    **settings
        ``system hint max_steps parameters sink route_key thoughts calls document``, as for
        :class:`ReactAgent`.

    Returns
    -------
    ReactResult
        Also where the model failed, the turns were spent or it was cancelled.

    Raises
    ------
    UsageError
        If the goal is blank or not the run's, or the model, a tool or a setting cannot be used.
    RunExistsError
        If the log has a run of that name that has ended.
    ObserverError
        If ``on_graph`` raised; the run has ended then.

    Notes
    -----
    A turn ends with one event ``agent.step``. A decision with a call that cannot be carried out,
    e.g. of a tool that is not there, is carried out not at all: its step is flagged
    ``rejected``, and the model is told why. The answering turn is flagged ``final``.

    Examples
    --------
    >>> from sag_research.llm import Reply, Scripted, ToolCall
    >>> def lookup(query: str) -> str:
    ...     return f"{query} is a small harbour town"
    >>> call = ToolCall(name="lookup", arguments={"query": "Port Ellis"})
    >>> model = Scripted([Reply(text="I look it up.", calls=(call,)), "A harbour town."])
    >>> result = react(model, [lookup], "What is Port Ellis?")
    >>> result.answer, result
    ('A harbour town.', ReactResult('react-...': completed after 2 steps))
    >>> result.steps[0].calls[0].observation
    'Port Ellis is a small harbour town'
    """
    agent = ReactAgent(model, tools, **settings)
    log, begun = _begin(agent, goal, store, run)
    with suppress(LoopCancelledError):
        _live(agent, log, begun, asking, cancel, on_graph)
    return ReactResult(log, begun)


async def areact(
    model: Model | Identity | None,
    tools: Iterable[Tool | Callable[..., Any]],
    goal: str,
    *,
    cancel: CancelToken | None = None,
    **options: Any,
) -> ReactResult:
    """Do as :func:`react` does, on a thread; cancelling the task that awaits this ends the run."""
    token = CancelToken(parent=cancel)
    work = asyncio.ensure_future(
        asyncio.to_thread(partial(react, model, tools, goal, cancel=token, **options))
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        token.cancel("the task that awaited it was cancelled")
        await asyncio.wait([work])
        raise


def start_react(
    model: Model | Identity | None,
    tools: Iterable[Tool | Callable[..., Any]],
    goal: str,
    *,
    store: SQLiteEventStore | _HasStore | None = None,
    run: Run | str | None = None,
    cancel: CancelToken | None = None,
    asking: Mapping[str, Any] | None = None,
    **settings: Any,
) -> LoopHandle[ReactResult]:
    """Begin what :func:`react` does on a thread of its own.

    Returns
    -------
    LoopHandle
        Its id is the run's. ``handle.show()`` has a Stop button; ``handle.result()`` waits, and
        raises :class:`LoopCancelledError` where the run was stopped.
    """
    agent = ReactAgent(model, tools, **settings)
    log, begun = _begin(agent, goal, store, run)
    token = CancelToken(parent=cancel)
    handle: LoopHandle[ReactResult] = LoopHandle(begun, token)
    handle._begin(
        partial(_live, agent, log, begun, asking, token, lambda event: handle._note(event, None))
    )
    return handle


def _live(
    agent: ReactAgent,
    log: SQLiteEventStore,
    run_id: str,
    asking: Mapping[str, Any] | None,
    cancel: CancelToken | None,
    on_graph: Callable[[GraphEvent], object] | None,
) -> ReactResult:
    """Carry a run out to its end, which is written down however it comes."""
    with (
        suppress(BudgetExceededError, NodeFailedError),
        _context(log, run_id, asking) as ctx,
        _ended(ctx, agent),
    ):
        agent(ctx, cancel=cancel, on_graph=on_graph)
    return ReactResult(log, run_id)


def _context(log: SQLiteEventStore, run_id: str, asking: Mapping[str, Any] | None) -> RunContext:
    """Return what the agent is given; where that cannot be made, the run has ended."""
    try:
        return RunContext(log, run_id, **(asking or {}))
    except BaseException as error:
        payload = {"exit_status": "error", "error": {"code": "asking", "message": _about(error)}}
        log.append(Event(run_id=run_id, type="run.failed", payload=payload, actor="runtime"))
        raise


def _begin(
    agent: ReactAgent,
    goal: str,
    store: SQLiteEventStore | _HasStore | None,
    run: Run | str | None,
) -> tuple[SQLiteEventStore, str]:
    goal, log = _text(goal, "goal"), _log(store)
    named = run if isinstance(run, str) else f"react-{secrets.token_hex(4)}"
    about = run if isinstance(run, Run) else Run(run_id=named)
    if _goes_on(log, about.run_id, goal):
        return log, about.run_id
    if not goal.strip():
        raise UsageError("the agent has no goal")
    identity = agent.model.identity() if isinstance(agent.model, Model) else agent.model
    about = replace(
        about, goal=repair(goal), agent=about.agent or "react",
        model=about.model or (identity.model if identity else None),
        config={**agent.config, **about.config},
    )  # fmt: skip
    return log, log.create_run(about).run_id


def _goes_on(log: SQLiteEventStore, run_id: str, goal: str) -> bool:
    """Whether a run of this name is to be carried on."""
    if not log.has_run(run_id):
        return False
    kept = log.get_run(run_id)
    if ending(log, run_id, kept.fork_position + 1) is not None:
        raise RunExistsError(f"run {run_id!r} has ended", fix="fork it, or choose another run id")
    if goal.strip() and goal != kept.goal:
        raise UsageError(
            f"run {run_id!r} has another goal", why=clip(kept.goal), fix="leave the goal out"
        )
    return True


def _told(ctx: RunContext) -> tuple[int, str]:
    """Return what the run's fork was told for its model, and after how many steps."""
    run = ctx.store.get_run(ctx.run_id)
    if run.parent_id is None:
        return 0, ""
    own = run.fork_position + 1
    forked: dict[str, Any] = {}
    for event in ctx.store.read(ctx.run_id, own, own, types=("run.forked",)):
        forked = event.payload
    said = [*(ctx.change.get(name) for name in _FOR_MODEL), *(forked.get(n) for n in _FOR_MODEL)]
    texts = [text for text in said if isinstance(text, str) and text.strip()]
    return ctx.store.count_steps(ctx.run_id, own), repair(texts[0]) if texts else ""


def _log(store: SQLiteEventStore | _HasStore | None) -> SQLiteEventStore:
    if store is None:
        return SQLiteEventStore(":memory:")
    log = store if isinstance(store, SQLiteEventStore) else getattr(store, "store", None)
    if not isinstance(log, SQLiteEventStore):
        raise UsageError(
            f"nothing can be written to {clip(repr(store))}",
            fix="give a workspace, as of sag.open(…), or a SQLiteEventStore",
        )
    return log


def _text(given: object, what: str) -> str:
    if not isinstance(given, str):
        raise UsageError(f"the {what} cannot be {clip(repr(given))}", fix="give a text")
    return repair(given)


@contextmanager
def _ended(ctx: RunContext, agent: ReactAgent) -> Iterator[None]:
    """Write why a run stopped, unless the process itself is ended."""
    try:
        yield
    except BudgetExceededError:
        told = {"budget": "steps", "limit": agent.max_steps}
        _write(ctx, "budget.exhausted", told)
        _write(ctx, "run.failed", {"exit_status": "max-steps"})
        raise
    except NodeFailedError as error:
        told = {"code": error.code, "message": error.message}
        _write(ctx, "run.failed", {"exit_status": error.code, "error": told})
        raise
    except _STOPS as error:
        why = error.why if isinstance(error, LoopCancelledError) else type(error).__name__
        _write(ctx, "run.cancelled", {"exit_status": "cancelled", "reason": repair(why)})
        raise
    except BaseException as error:
        if not isinstance(error, RunEndedError):
            told = {"code": type(error).__qualname__, "message": _about(error)}
            _write(ctx, "run.failed", {"exit_status": "error", "error": told})
        raise
    _write(ctx, "run.completed", {"exit_status": "completed"})


def _about(error: BaseException) -> str:
    return repair(said(error) if isinstance(error, Exception) else type(error).__qualname__)


def _write(ctx: RunContext, type_: str, payload: dict[str, Any]) -> None:
    ctx.append(Event(run_id=ctx.run_id, type=type_, payload=payload, actor="runtime"))
