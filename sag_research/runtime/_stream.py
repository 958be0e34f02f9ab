"""Answers while they are being written: deltas, and what receives them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeAlias

import msgspec

from sag_research._text import said
from sag_research.errors import Caught
from sag_research.llm import Chunk, Reply, join_chunks

__all__ = ["Delta", "Faucet", "Sink", "Source", "TokenLog"]


class Source(msgspec.Struct, frozen=True):
    """Where a delta comes from."""

    dag: str
    node: str


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer, as the model sent it."""

    route_key: str
    """Tells conversations apart that share a sink; default: the run's id."""
    delta: str
    source: Source


Sink: TypeAlias = Callable[[Delta], object]
"""Receives deltas, in their order; of several conversations from several threads."""


class TokenLog:
    """A sink that keeps what it receives, apart by conversation.

    Examples
    --------
    >>> log = TokenLog()
    >>> for word in ("Well ", "said."):
    ...     log(Delta(route_key="r1", delta=word, source=Source("react-agent", "call-model")))
    >>> log.texts, log
    ({'r1': 'Well said.'}, TokenLog(2 deltas, 1 conversation))
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deltas: list[Delta] = []

    def __call__(self, delta: Delta) -> None:
        with self._lock:
            self._deltas.append(delta)

    def __repr__(self) -> str:
        many = len(self.texts)
        return f"TokenLog({len(self.deltas)} deltas, {many} conversation{'s' * (many != 1)})"

    @property
    def deltas(self) -> tuple[Delta, ...]:
        """All that was received, in order."""
        with self._lock:
            return tuple(self._deltas)

    @property
    def texts(self) -> dict[str, str]:
        """The deltas of each conversation, joined."""
        parts: dict[str, list[str]] = {}
        for one in self.deltas:
            parts.setdefault(one.route_key, []).append(one.delta)
        return {route: "".join(texts) for route, texts in parts.items()}


class Faucet:
    """Passes the parts of a model's replies on to a sink.

    Whether a text is an answer or goes with tool calls is known at its end only, for models
    send the calls last. So the parts of a turn in which tools may be called are kept until its
    reply is whole, and are passed on where it calls none.

    Parameters
    ----------
    sink : callable
    route_key : str
    source : Source
    thoughts : bool
        Pass on every text as it comes, those of turns that call tools too.
    """

    def __init__(self, sink: Sink, route_key: str, source: Source, thoughts: bool = False) -> None:
        self._sink, self._route_key, self._source = sink, route_key, source
        self._thoughts = thoughts
        self.error = ""
        """What the sink raised; it is passed nothing after that."""

    def reply(
        self,
        chunks: Generator[Chunk, None, None],
        *,
        may_call: bool,
        is_answer: Callable[[Reply], bool],
        check: Callable[[], object] = lambda: None,
    ) -> Reply:
        """Take a reply in its parts, and return it whole."""
        parts: list[Chunk] = []
        is_live = self._thoughts or not may_call
        try:
            with closing(chunks):  # a stream that is left is written down as cut, here and now
                for chunk in chunks:
                    parts.append(chunk)
                    if is_live:
                        self._pass_on(chunk.text)
                    check()
            reply = join_chunks(parts)
            if not is_live and is_answer(reply):
                for chunk in parts:
                    self._pass_on(chunk.text)
        finally:
            self._flush()
        return reply

    def _pass_on(self, text: str) -> None:
        if not text or self.error:
            return
        with self._guarded():
            self._sink(Delta(route_key=self._route_key, delta=text, source=self._source))

    def _flush(self) -> None:
        flush = getattr(self._sink, "flush", None)
        if callable(flush) and not self.error:
            with self._guarded():
                flush()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with Caught() as caught:
            yield
        if caught.error is not None:
            self.error = said(caught.error)
