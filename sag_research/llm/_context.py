"""Recorded calls: models, tools and effects asked through one mechanism.

What is asked has a key, and the k-th ask of a key gets the k-th recorded answer. Everything
that an agent learns from outside goes through here, so a run can be carried out again without
its models, tools, clock and chance.
"""

from __future__ import annotations

import inspect
import threading
import time
import uuid
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from functools import partial
from os import PathLike, environ, fspath
from pathlib import Path
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError
from sag_research.llm._errors import CutStream, ReplayMiss
from sag_research.llm._questions import (
    effect_question,
    llm_question,
    tool_question,
)
from sag_research.llm._recorder import Mode, Recorder, Ticket
from sag_research.llm._records import (
    Asked,
    Chunk,
    Identity,
    Model,
    Reply,
    Request,
    as_request,
    clean,
    join_chunks,
)
from sag_research.log import CallScope, SQLiteEventStore
from sag_research.model import Event

__all__ = ["Context", "Mode"]

_SECRET_WORDS: Final = frozenset(
    {"APIKEY", "AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSPHRASE", "PASSWD", "PASSWORD"}
    | {"SECRET", "SECRETS", "TOKEN"}
)


class Context:
    """Asks models, tools and the outside world on behalf of a run, and records the answers.

    Parameters
    ----------
    store : SQLiteEventStore
    run : str or None
        The run that asks; its events are written there. ``None`` writes nothing, and is for
        the modes ``off`` and ``replay``.
    model : Model or Identity, optional
        Asked where a call names none.
    mode : {"record", "reuse", "replay", "refresh", "off"}
        See :data:`Mode`. In ``replay`` the context keeps no model, only its identity.
    scope : {"lineage", "family", "store"}
        Whose answers may be used beside those of the lineage: runs with the same root, or all.
        A fork sees its parent's answers up to the fork position, and later ones only in a wider
        scope. Effects and recorded failures never come from outside the lineage.
    source : str, optional
        Another run whose lineage is asked for answers, e.g. the original of a replay that
        writes to a run of its own.
    resume : bool, optional
        Whether the session carries on after what its lineage has asked (default in ``record``),
        or asks from the beginning (default else), as when a program is run again.
    coalesce : bool, optional
        Whether parallel asks with one key share one live call (default in ``reuse``). Each
        still is an ask of its own, so a replay finds them all. Effects and streams never share.
    retry_failures : bool
        In ``reuse``: ask again where the recorded answer is a failure.
    actor, frame : str
        Of the events.
    cause : int, optional
        Position of the event because of which all is asked that names no other cause; see
        :meth:`caused_by`.
    known_errors : iterable of exception classes
        Classes, beside built-in ones and those of this package, in which recorded errors are
        raised again. Others come back as the nearest built-in class above them, or as
        :class:`RecordedFailure`.
    clock : callable
        Seconds since the epoch, for :meth:`now`.
    rng : random.Random, optional
        Where :meth:`uuid`, :meth:`random` and :meth:`rng` take chance from; default: the system.

    Examples
    --------
    >>> from sag_research.llm import Scripted
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1"))
    >>> model = Scripted(["heads", "tails"])
    >>> ctx = Context(store, "r1", model=model)
    >>> [ctx.llm(None, "Toss a coin.").text for _ in range(2)]
    ['heads', 'tails']
    >>> again = Context(store, "r1", model=model.identity(), mode="replay")
    >>> [again.llm(None, "Toss a coin.").text for _ in range(2)]
    ['heads', 'tails']
    """

    def __init__(
        self,
        store: SQLiteEventStore,
        run: str | None,
        *,
        model: Model | Identity | None = None,
        mode: Mode = "record",
        scope: CallScope = "lineage",
        source: str | None = None,
        resume: bool | None = None,
        coalesce: bool | None = None,
        retry_failures: bool = False,
        actor: str = "agent",
        frame: str | None = None,
        cause: int | None = None,
        known_errors: Iterable[type[Exception]] = (),
        clock: Callable[[], float] = time.time,
        rng: Random | None = None,
    ) -> None:
        self._recorder = Recorder(
            store, run, mode=mode, scope=scope, source=source, resume=resume, coalesce=coalesce,
            retry_failures=retry_failures, actor=actor, frame=frame, known_errors=known_errors,
        )  # fmt: skip
        sealed = mode == "replay" and model is not None and not isinstance(model, Identity)
        self._model = model.identity() if sealed else model  # type: ignore[union-attr]
        self._clock = clock
        self._chance = rng or SystemRandom()
        self._because = cause

    def __repr__(self) -> str:
        counts = f"{self.live} live, {self.reused} reused"
        return f"Context(run={self.run!r}, mode={self.mode!r}, {counts})"

    @property
    def store(self) -> SQLiteEventStore:
        """The log."""
        return self._recorder.store

    @property
    def run(self) -> str | None:
        """The run that asks."""
        return self._recorder.run

    @property
    def mode(self) -> Mode:
        """How recorded answers are used."""
        return self._recorder.mode

    @property
    def cause(self) -> int | None:
        """Position of the event because of which is asked what names no other cause."""
        return self._because

    def caused_by(self, position: int | None) -> Context:
        """Return a view of this context whose calls and effects are caused by one event.

        Parameters
        ----------
        position : int or None
            Of the event, in the lineage of the run.

        Returns
        -------
        Context
            It shares everything else, the numbering of the asks and the counts included;
            closing one closes both.

        Examples
        --------
        >>> from sag_research.model import Run
        >>> store = SQLiteEventStore(":memory:")
        >>> _ = store.create_run(Run(run_id="r1"))
        >>> ctx = Context(store, "r1", clock=lambda: 0.0)
        >>> ctx.now(), ctx.caused_by(1).now()
        (0.0, 0.0)
        >>> [event.cause for event in store.read("r1", lo=2)]
        [None, 1]
        """
        view = object.__new__(Context)  # what a subclass adds is not shared, so not offered
        view._recorder, view._model, view._because = self._recorder, self._model, position
        view._clock, view._chance = self._clock, self._chance
        return view

    def when_missed(self, told: Callable[[str, ReplayMiss], object]) -> None:
        """Call a function at each ask that a replay cannot answer, before the error is raised.

        Parameters
        ----------
        told : callable
            Of the question's key and the error; what it raises is raised instead.
        """
        self._recorder.told_of_miss = told

    @property
    def live(self) -> int:
        """Number of asks for which a call was made."""
        return self._recorder.live

    @property
    def reused(self) -> int:
        """Number of asks answered from the log."""
        return self._recorder.reused

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _reason(self, cause: int | None) -> int | None:
        return self._because if cause is None else cause

    def close(self) -> None:
        """Stop the threads that asynchronous calls use; closing twice does nothing."""
        self._recorder.close()

    # ---- models

    def llm(
        self, model: Model | Identity | None, asked: Asked, *, cause: int | None = None
    ) -> Reply:
        """Ask a model.

        Parameters
        ----------
        model : Model, Identity or None
            ``None``: the context's own. An identity is enough where the answer is recorded.
        asked : Request, str, mapping or messages
        cause : int, optional
            Position of the event because of which this is asked; default: the context's.

        Raises
        ------
        ModelError
            If the model gave no usable answer, now or when it was recorded.
        ReplayMiss
            In mode ``replay``, if there is no recorded answer.
        UsageError
            If a live call is needed and there is no model.
        """
        request = as_request(asked)
        identity, alive = self._model_to_ask(model)

        def live() -> dict[str, Any]:
            return _reply_payload(alive.complete(request))

        question = llm_question(identity, request)
        return _reply(self._recorder.ask(question, live, self._reason(cause)).payload)

    async def allm(
        self, model: Model | Identity | None, asked: Asked, *, cause: int | None = None
    ) -> Reply:
        """Ask a model without blocking the event loop; see :meth:`llm`.

        A call that is cancelled while it is under way still ends, and is recorded.
        """
        return await self._recorder.in_thread(partial(self.llm, model, asked, cause=cause))

    def stream(
        self, model: Model | Identity | None, asked: Asked, *, cause: int | None = None
    ) -> Generator[Chunk, None, None]:
        """Ask a model and take the answer in parts; see :meth:`llm`.

        Yields
        ------
        Chunk
            Texts as they come, then one chunk without text that holds calls, usage and why the
            model stopped. A replay yields the same. A stream that is not read to its end is
            recorded as cut at that point.
        """
        request = as_request(asked)
        identity, alive = self._model_to_ask(model)
        ask = self._recorder.new_ask(llm_question(identity, request), self._reason(cause))
        opened = self._recorder.open(ask, share=False)
        if isinstance(opened, Event):
            yield from self._recorded_chunks(opened)
        elif isinstance(opened, Ticket):
            yield from self._live_chunks(opened, alive.stream(request))

    async def astream(
        self, model: Model | Identity | None, asked: Asked, *, cause: int | None = None
    ) -> AsyncIterator[Chunk]:
        """Take an answer in parts without blocking the event loop; see :meth:`stream`."""
        chunks = self.stream(model, asked, cause=cause)
        turn = threading.Lock()  # a cancelled wait leaves its thread inside the generator

        def step() -> Chunk | None:
            with turn:
                return next(chunks, None)

        def close() -> None:
            with turn:
                chunks.close()

        try:
            while (chunk := await self._recorder.in_thread(step)) is not None:
                yield chunk
        finally:
            await self._recorder.in_thread(close)

    def _model_to_ask(self, model: Model | Identity | None) -> tuple[Identity, Model]:
        """Return who is asked, and what can answer; in a replay nothing can."""
        chosen = self._model if model is None else model
        if chosen is None:
            raise UsageError("no model to ask", fix="give one to the call or to the context")
        if isinstance(chosen, str):
            raise UsageError(
                f"{chosen!r} names a model and is none", fix="give an adapter, made with the name"
            )
        if isinstance(chosen, Identity):
            return chosen, _Nobody(chosen)
        identity = chosen.identity()
        return identity, _Nobody(identity) if self.mode == "replay" else chosen

    def _live_chunks(self, ticket: Ticket, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        parts: list[Chunk] = []
        try:
            for chunk in chunks:
                part = msgspec.convert(clean(chunk), Chunk)
                parts.append(part)
                if part.text:
                    yield Chunk(text=part.text)
            payload = _reply_payload(join_chunks(parts)) | {"chunks": _texts(parts)}
            event = self._recorder.finish(ticket, payload)
        except GeneratorExit:
            error = CutStream("the stream was not read to its end", "its reader stopped")
            self._recorder.fail(ticket, error, chunks=_texts(parts))
            raise
        except BaseException as error:
            self._recorder.fail(ticket, error, chunks=_texts(parts))
            raise
        yield _last_chunk(event.payload)

    def _recorded_chunks(self, event: Event) -> Iterator[Chunk]:
        payload = event.payload
        whole = [payload["text"]] if payload.get("text") else []
        for text in payload.get("chunks", whole):
            yield Chunk(text=text)
        self._recorder.raise_if_failed(event)
        yield _last_chunk(payload)

    # ---- tools

    def tool(
        self,
        name: str,
        fn: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str = "",
        cause: int | None = None,
    ) -> Any:
        """Call a tool: ``fn(**arguments)``.

        Parameters
        ----------
        name : str
        fn : callable
            Its result must be JSON; it is returned as a replay returns it (a tuple as a list).
        arguments : mapping, optional
        version : str
            Part of the key: change it when the tool changes.
        cause : int, optional

        Raises
        ------
        BadPayloadError
            If arguments or result have no canonical form.
        ReplayMiss
            In mode ``replay``, if there is no recorded answer.
        Exception
            What the tool raises; a recorded error is raised again in the nearest known class.
        """
        given = dict(arguments or {})
        question, reason = tool_question(name, given, version), self._reason(cause)
        return self._recorder.ask(question, lambda: {"value": fn(**given)}, reason).payload["value"]

    async def atool(
        self,
        name: str,
        fn: Callable[..., Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        version: str = "",
        cause: int | None = None,
    ) -> Any:
        """Call a tool without blocking the event loop; ``fn`` may be a coroutine function."""
        if not (inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)):
            call = partial(self.tool, name, fn, arguments, version=version, cause=cause)
            return await self._recorder.in_thread(call)
        given = dict(arguments or {})

        async def live() -> dict[str, Any]:
            return {"value": await fn(**given)}

        question, reason = tool_question(name, given, version), self._reason(cause)
        event = await self._recorder.aask(question, live, reason)
        return event.payload["value"]

    # ---- effects

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return float(self._effect("now", {}, lambda: {"value": float(self._clock())}))

    def uuid(self) -> str:
        """Return a new random UUID (version 4)."""
        return str(self._effect("uuid", {}, lambda: {"value": self._new_uuid()}))

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def random(self) -> float:
        """Return a random number, 0 <= x < 1."""
        return float(self._effect("random", {}, lambda: {"value": self._chance.random()}))

    def rng(self) -> Random:
        """Return a generator whose seed is recorded: many draws, one event."""
        seed = self._effect("seed", {}, lambda: {"value": f"{self._chance.getrandbits(128):032x}"})
        return Random(str(seed))

    def env(self, name: str) -> str | None:
        """Return an environment variable, ``None`` where it is not set.

        Raises
        ------
        UsageError
            If the name says that it holds a secret, which a log must never hold.
        """
        if _SECRET_WORDS & set(name.upper().replace("-", "_").split("_")):
            raise UsageError(
                f"{name} is not read into the log",
                why="its name says that it holds a secret",
                fix="give secrets to the model's adapter or read them outside the recording",
            )
        value = self._effect("env", {"name": name}, lambda: {"value": environ.get(name)})
        return None if value is None else str(value)

    def read_file(self, path: str | PathLike[str]) -> bytes:
        """Return the bytes of a file, as they were when first read.

        Raises
        ------
        OSError
            If it cannot be read, now or when it was recorded.
        """
        name = fspath(path)

        def live() -> dict[str, Any]:
            data = Path(name).read_bytes()
            return {"value": data} if self.mode == "off" else {"blob": self.store.put_blob(data)}

        data = self._effect("read_file", {"path": name}, live)
        return data if isinstance(data, bytes) else bytes(data)

    def _effect(
        self, name: str, arguments: Mapping[str, Any], live: Callable[[], dict[str, Any]]
    ) -> Any:
        question = effect_question(name, arguments)
        payload = self._recorder.ask(question, live, self._reason(None)).payload
        return self.store.blob(payload["blob"]) if "blob" in payload else payload["value"]


class _Nobody:
    """Stands where a model was, and cannot answer."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def identity(self) -> Identity:
        return self._identity

    def complete(self, request: Request) -> Reply:
        raise self._refusal()

    def stream(self, request: Request) -> Iterator[Chunk]:
        raise self._refusal()

    def _refusal(self) -> UsageError:
        return UsageError(
            f"{self._identity.model} cannot be asked here",
            why="only its identity was given, and no answer is recorded",
            fix="give the model itself",
        )


def _reply_payload(reply: Reply) -> dict[str, Any]:
    payload: dict[str, Any] = msgspec.to_builtins(reply)
    return {"text": reply.text, **payload}


def _reply(payload: Mapping[str, Any]) -> Reply:
    return msgspec.convert(dict(payload), Reply)


def _texts(parts: Iterable[Chunk]) -> list[str]:
    return [part.text for part in parts if part.text]


def _last_chunk(payload: Mapping[str, Any]) -> Chunk:
    return msgspec.convert({**payload, "text": ""}, Chunk)
