"""Tokens and traces while an agent is at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.bloom import TraceItem, item_kind
from sag_research.errors import RunNotFoundError, UsageError
from sag_research.llm import Chunk, CutStream, Identity, Reply, Request, Scripted
from sag_research.log import SQLiteEventStore
from sag_research.model import Event, Run
from sag_research.runtime import (
    CancelToken,
    Delta,
    Documents,
    NodeSpec,
    ReactResult,
    Source,
    TokenLog,
    bundled_document,
    execute,
    live_trace,
    react,
    start_react,
)
from tests.project.source import ROOT
from tests.runtime.agents import WORDS, asks, lookup, scripted

PATIENCE = 30


# ---- tokens


def test_d13_an_answer_comes_in_thirteen_deltas_with_their_spaces() -> None:
    sink = TokenLog()
    result = react(scripted(text=None), [lookup], "g", run="r1", sink=sink)
    assert len(sink.deltas) == WORDS == 13
    assert all(one.delta.endswith(" ") for one in sink.deltas)
    assert "".join(one.delta for one in sink.deltas) == result.answer == sink.texts["r1"]
    assert {(one.route_key, one.source) for one in sink.deltas} == {
        ("r1", Source(dag="react-agent", node="call-model"))
    }
    responded = list(result.store.read("r1", types=["llm.responded"]))
    assert len(responded[-1].payload["chunks"]) == 13


def test_turns_that_call_tools_stream_nothing() -> None:
    sink = TokenLog()
    written = 'First {"tool_calls": [{"name": "lookup", "arguments": {"query": "q"}}]}'
    model = Scripted([asks(text="let me see what there is"), written, "the answer"])
    result = react(model, [lookup], "g", sink=sink)
    assert [one.delta for one in sink.deltas] == ["the ", "answer"]
    assert [len(step.calls) for step in result.steps] == [1, 1, 0]


def test_thoughts_are_streamed_where_they_are_wanted() -> None:
    sink = TokenLog()
    react(Scripted([asks(text="let me see"), "yes"]), [lookup], "g", sink=sink, thoughts=True)
    assert [one.delta for one in sink.deltas] == ["let ", "me ", "see", "yes"]


class Halting:
    """A model that sends a word only when it is told to."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self.sent: list[threading.Event] = [threading.Event() for _ in words]
        self.go: list[threading.Event] = [threading.Event() for _ in words]

    def identity(self) -> Identity:
        return Identity("test", "halting")

    def complete(self, request: Request) -> Reply:
        raise NotImplementedError

    def stream(self, request: Request) -> Iterator[Chunk]:
        for word, go in zip(self._words, self.go, strict=True):
            assert go.wait(PATIENCE)
            yield Chunk(text=word)
        yield Chunk(finish="stop")


@pytest.mark.parametrize("options", [{}, {"thoughts": True}])
def test_a_word_is_there_before_the_next_one_is_sent(options: dict[str, Any]) -> None:
    model, seen, came = Halting(["a ", "b ", "c"]), [], threading.Semaphore(0)

    def sink(delta: Delta) -> None:
        seen.append(delta.delta)
        came.release()

    tools = [lookup] if options else []  # without tools there is nothing but an answer
    handle = start_react(model, tools, "g", sink=sink, **options)
    for number, go in enumerate(model.go, 1):
        go.set()
        assert came.acquire(timeout=PATIENCE)
        assert len(seen) == number
    assert handle.result(PATIENCE).answer == "a b c"


def test_a_stream_is_stopped_between_two_words() -> None:
    model, token = Halting(["a ", "b ", "c"]), CancelToken()
    for go in model.go:
        go.set()
    result = react(model, [], "g", sink=lambda _: token.cancel("enough"), cancel=token)
    assert (result.status, result.answer) == ("cancelled", None)
    failed = [e.payload for e in result.store.read(result.run_id, types=["llm.failed"])]
    assert failed[0]["chunks"] == ["a "]


def test_an_adapter_that_sends_all_at_once_gives_one_delta() -> None:
    class Buffered(Scripted):
        def stream(self, request: Request) -> Iterator[Chunk]:
            reply = self.complete(request)
            yield Chunk(text=reply.text or "", finish=reply.finish)

    sink = TokenLog()
    result = react(Buffered(["all at once "]), [], "g", sink=sink)
    assert [one.delta for one in sink.deltas] == ["all at once "] == [result.answer]


def test_a_broken_stream_ends_the_run_as_a_failure_of_the_model() -> None:
    class Broken(Scripted):
        def stream(self, request: Request) -> Iterator[Chunk]:
            yield Chunk(text="half a ")
            raise CutStream("the answer broke off")

    result = react(Broken([]), [], "g", sink=TokenLog())
    assert (result.status, result.exit_status) == ("failed", "model-error")


def test_conversations_share_a_sink() -> None:
    sink = TokenLog()
    answers = {f"run-{n}": f"answer of number {n} " * 5 for n in range(6)}
    handles = [
        start_react(scripted(answer=text), [lookup], "g", run=run, sink=sink, route_key=f"at {run}")
        for run, text in answers.items()
    ]
    for handle in handles:
        handle.result(PATIENCE)
    assert sink.texts == {f"at {run}": text for run, text in answers.items()}


def test_with_and_without_a_sink_the_steps_are_the_same() -> None:
    quiet = react(scripted(), [lookup], "g")
    heard = react(scripted(), [lookup], "g", sink=TokenLog())
    assert quiet.step_digests == heard.step_digests


def test_a_sink_that_raises_does_not_end_the_run() -> None:
    seen = []

    def sink(delta: Delta) -> None:
        seen.append(delta)
        raise RuntimeError("the page is gone")

    with pytest.warns(UserWarning, match="the page is gone"):
        result = react(scripted(), [lookup], "g", sink=sink)
    assert result.status == "completed"
    assert len(seen) == 1


def test_a_replay_streams_the_same() -> None:
    store, live, again = SQLiteEventStore(":memory:"), TokenLog(), TokenLog()
    react(scripted(), [lookup], "g", store=store, run="r1", sink=live)
    asking = {"mode": "reuse", "source": "r1"}
    model = scripted().identity()
    react(model, [lookup], "g", store=store, run="r2", sink=again, route_key="r1", asking=asking)
    assert again.deltas == live.deltas


@settings(max_examples=25)
@given(st.lists(st.text(), min_size=1))
def test_the_answer_is_the_join_of_its_deltas(words: list[str]) -> None:
    class Words(Scripted):
        def stream(self, request: Request) -> Iterator[Chunk]:
            yield from (Chunk(text=word) for word in words)

    sink = TokenLog()
    result = react(Words([]), [], "g", run="r1", sink=sink)
    text = sink.texts.get("r1", "")
    assert result.answer == (text if text.strip() else None)


# ---- the trace


def test_steps_are_in_the_trace_while_the_model_is_still_at_work() -> None:
    store, release = SQLiteEventStore(":memory:"), threading.Event()

    def think(request: Request) -> Any:
        if len(request.messages) == 1:
            return asks(text="I look")
        assert release.wait(PATIENCE)
        return "done"

    handle = start_react(Scripted(think), [lookup], "g", store=store, run="r1")
    trace = live_trace(store, "r1", interval=0.01)
    kinds = [item_kind(next(trace)) for _ in range(3)]
    assert kinds == ["thought", "action", "observation"]
    assert not handle.done
    release.set()
    assert [item_kind(item) for item in trace] == ["thought", "final"]
    assert handle.result(PATIENCE).status == "completed"


def test_a_slow_reader_holds_up_nobody_and_misses_nothing() -> None:
    store = SQLiteEventStore(":memory:")
    answers = [asks(text=f"turn {n}") for n in range(8)]
    trace = live_trace(store, _begun(store), capacity=2, interval=0.01)
    first = _write(store, "r0", "before")
    assert item_kind(next(trace)) == "thought"
    result = react(Scripted([*answers, "done"]), [lookup], "g", store=store, run="r1")
    assert result.status == "completed"  # though nobody took more than one item
    _write(store, "r0", *(f"t{n}" for n in range(20)), end=True)
    rest = [item.ordinal for item in trace]
    assert rest == [*range(1, 22)]  # 20 thoughts, and the final made of the last
    assert first == 2


def _begun(store: SQLiteEventStore) -> str:
    store.create_run(Run(run_id="r0", goal="g"))
    return "r0"


def _write(store: SQLiteEventStore, run: str, *thoughts: str, end: bool = False) -> int:
    for thought in thoughts:
        store.append(Event(run_id=run, type="agent.step", payload={"thought": thought}))
    if end:
        store.append(Event(run_id=run, type="run.completed"))
    return store.head(run).position


def test_the_live_trace_is_the_trace() -> None:
    model = Scripted([asks(text="a"), asks("nothing"), asks(), "done"])
    result = react(model, [lookup], "g", run="r1")
    assert tuple(live_trace(result.store, "r1")) == result.trace
    assert [item.ordinal for item in result.trace] == [*range(len(result.trace))]


def test_a_reader_may_leave_and_may_be_told_to() -> None:
    store = SQLiteEventStore(":memory:")
    _write(store, _begun(store), *"abcdef")
    trace = live_trace(store, "r0", capacity=1)
    next(trace)
    before = threading.active_count()
    trace.close()
    assert threading.active_count() < before
    token = CancelToken()
    trace = live_trace(store, "r0", cancel=token)
    assert next(trace).ordinal == 0
    token.cancel()
    assert list(trace) == []


def test_a_run_that_is_not_there_cannot_be_followed() -> None:
    store = SQLiteEventStore(":memory:")
    with pytest.raises(RunNotFoundError):
        live_trace(store, "r9")
    with pytest.raises(UsageError):
        live_trace(store, _begun(store), interval=0)


KILLED = """
    import sys, time
    from sag_research.log import SQLiteEventStore
    from sag_research.llm import Scripted
    from sag_research.runtime import react
    from tests.runtime.agents import asks, lookup

    def think(request):
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn == int(sys.argv[2]):
            print("now", flush=True)
            time.sleep(60)
        return asks(text=f"turn {turn}")

    react(Scripted(think), [lookup], "g", store=SQLiteEventStore(sys.argv[1]), run="r1")
"""


@pytest.mark.parametrize("turns", [0, 3])
def test_a_killed_agent_leaves_a_valid_beginning(tmp_path: Path, turns: int) -> None:
    path = tmp_path / "log.sqlite"
    SQLiteEventStore(path).close()
    command = [sys.executable, "-c", dedent(KILLED), str(path), str(turns)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        with SQLiteEventStore(path) as store:
            token = CancelToken()
            trace = live_trace(store, "r1", cancel=token)
            seen = [next(trace) for _ in range(3 * turns)]  # while its process lives
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
            token.cancel("its process was killed")
            assert list(trace) == []
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()
    with SQLiteEventStore(path) as store:
        result = ReactResult(store, "r1")
        assert store.verify().ok
        assert (result.status, len(result.steps)) == ("running", turns)
        assert tuple(seen) == result.trace
        whole = react(Scripted(_same), [lookup], "g", max_steps=max(turns, 1))
        assert result.step_digests == whole.step_digests[:turns]


def _same(request: Request) -> Reply:
    turn = sum(message.role == "assistant" for message in request.messages)
    return asks(text=f"turn {turn}")


def test_the_recorder_is_a_document_that_follows_the_run_while_it_goes_on() -> None:
    store, release, seen = SQLiteEventStore(":memory:"), threading.Event(), []

    def think(request: Request) -> Any:
        if len(request.messages) > 1:
            assert release.wait(PATIENCE)
            return "done"
        return asks(text="I look")

    def record(state: Any, context: Any) -> tuple[str, TraceItem]:
        item = state["reasoning-step-item"]
        seen.append(item_kind(item))
        if len(seen) == 3:  # the model is still at work on its second turn
            assert not handle.done
            release.set()
        return "success", item

    document = bundled_document("react-agent-memory-trace")
    handle = start_react(Scripted(think), [lookup], "g", store=store, run="r1")
    recorder = Documents([NodeSpec("record-step", ("success", "error"), record)])
    state = {"source": live_trace(store, "r1", capacity=1, interval=0.01)}
    summary = execute(recorder.register(document), document, state).summary()
    assert summary.complete
    assert seen == ["thought", "action", "observation", "thought", "final"]
    assert tuple(summary.state["steps"]) == handle.result(PATIENCE).trace
