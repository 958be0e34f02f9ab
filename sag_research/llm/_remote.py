"""A model behind a provider's client library: what is the same for all of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from sag_research._text import clip
from sag_research.llm._asking import (
    PriceTable,
    Retry,
    checked,
    find_key,
    optional,
    priced,
    public_url,
    scrubbed,
    secrets_in,
)
from sag_research.llm._errors import (
    CutStream,
    MalformedReply,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
    RateLimited,
    ServerFailed,
)
from sag_research.llm._records import Chunk, Identity, Reply, Request, ToolCall, join_chunks
from sag_research.model import Usage

__all__ = ["RemoteModel", "ToolCallParts", "http_errors", "status_error", "transport_error"]

_T = TypeVar("_T")
_TEXT_LIMIT: Final = 2_000


class RemoteModel:
    """Base of the adapters; a subclass knows one client library.

    Nothing is imported, no key is looked for and no connection is made before the first call,
    so a replay needs neither.
    """

    provider = ""
    package = ""
    extra = "llm"
    key_variables: tuple[str, ...] = ()
    default_url = ""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        prices: PriceTable | None = None,
        timeout: float = 120.0,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.timeout = model, timeout
        self.prices = prices
        self.retry = retry or Retry()
        self._url = base_url or self.default_url
        self._given_key = api_key
        self._key: str | None = api_key
        self._headers = dict(headers or {})
        self._lock = threading.Lock()
        self._connected: Any = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={public_url(self._url)!r})"

    def identity(self) -> Identity:
        """Return provider, model and address: what the key of a question holds."""
        return Identity(provider=self.provider, model=self.model, base_url=public_url(self._url))

    def complete(self, request: Request) -> Reply:
        """Ask, and wait for the whole answer.

        Raises
        ------
        ModelError
            If there is none, after as many attempts as :class:`Retry` allows.
        MissingDataError, UsageError
            If the client library or the API key is missing.
        """
        return checked(request, self.retry.call(lambda: self._once(request)))

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Ask, and take the answer in parts; raises as :meth:`complete` does."""
        parts = []
        for chunk in self.retry.stream(lambda: self._parts(request)):
            parts.append(chunk)
            yield chunk
        whole = join_chunks(parts)
        if whole.finish is None:
            raise CutStream(
                "the answer broke off", why="the stream ended without saying why the model stopped"
            )
        checked(request, whole)

    def close(self) -> None:
        """Close connections; the next call opens them again."""
        with self._lock:
            client, self._connected = self._connected, None
        if client is not None:
            client.close()

    # ---- what a subclass knows

    def _connect(self, library: Any, key: str) -> Any:
        raise NotImplementedError

    def _send(self, client: Any, request: Request) -> Reply:
        raise NotImplementedError

    def _receive(self, client: Any, request: Request) -> Iterator[Chunk]:
        raise NotImplementedError

    def _translate(self, library: Any, error: Exception) -> ModelError:
        raise NotImplementedError

    def _raised(self, library: Any) -> tuple[type[Exception], ...]:
        """Return the classes in which the library reports trouble."""
        raise NotImplementedError

    # ---- helpers for subclasses

    def _once(self, request: Request) -> Reply:
        library, client = self._client()
        with self._translated(library):
            return self._send(client, request)

    def _parts(self, request: Request) -> Iterator[Chunk]:
        library, client = self._client()
        with self._translated(library):
            yield from self._receive(client, request)

    def _library(self) -> Any:
        return optional(self.package, self.package, self.extra)

    def _client(self) -> tuple[Any, Any]:
        library = self._library()
        with self._lock:
            if self._connected is None:
                self._key = find_key(self._given_key, self.key_variables)
                self._connected = self._connect(library, self._key)
            return library, self._connected

    @contextmanager
    def _translated(self, library: Any) -> Iterator[None]:
        try:
            yield
        except self._raised(library) as error:
            found = self._scrub(self._translate(library, error))
        else:
            return
        raise found  # outside the handler: a printed trace must not show the library's own text

    def _scrub(self, error: ModelError) -> ModelError:
        """Take secrets out of what the provider echoed."""
        secrets = (self._key, *self._headers.values(), *secrets_in(self._url))
        error.what, error.why = scrubbed(error.what, *secrets), scrubbed(error.why, *secrets)
        error.args = (error.what, error.why, error.fix)
        if error.text is not None:
            error.text = scrubbed(error.text, *secrets)[:_TEXT_LIMIT]
        return error

    def _priced(self, tokens_in: int | None, tokens_out: int | None) -> Usage | None:
        return priced(tokens_in, tokens_out, self.model, self.prices)

    def _read(self, data: Any, shape: type[_T]) -> _T:
        """Read an answer into the shape that the provider documents."""
        try:
            return msgspec.convert(data, shape)
        except msgspec.ValidationError as error:
            raise self._scrub(
                MalformedReply(
                    f"{self.provider} sent an answer that cannot be read",
                    why=str(error),
                    text=clip(data, _TEXT_LIMIT),
                )
            ) from None


def status_error(
    provider: str, status: int | None, message: str, retry_after: str | None = None
) -> ModelError:
    """Make the error for an HTTP status; with 200 the failure came inside a stream."""
    classes: dict[int, type[ModelError]] = {
        200: ServerFailed,
        408: ModelTimeout,
        429: RateLimited,
        504: ModelTimeout,
    }
    code = status or 0
    cls = classes.get(code, ServerFailed if code >= 500 else ModelRefused)
    fixes: dict[type[ModelError], str] = {
        RateLimited: "ask more slowly, or let Retry wait longer",
        ModelRefused: "check model name, API key and parameters",
    }
    what = {
        RateLimited: f"{provider} asks to slow down",
        ModelTimeout: f"{provider} did not answer in time",
        ServerFailed: f"{provider} failed",
        ModelRefused: f"{provider} refused the request",
    }[cls]
    why = f"HTTP {code}: {clip(message, 300)}"
    return cls(
        what, why, fixes.get(cls, ""), status=status, text=message, retry_after=_number(retry_after)
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None  # a date, as HTTP allows: the own rhythm is kept


def http_errors(name: str = "HTTPError") -> tuple[type[Exception], ...]:
    """Return the error classes of the HTTP libraries that the client libraries have loaded."""
    loaded = [sys.modules[module] for module in ("httpx", "httpx2") if module in sys.modules]
    return tuple(getattr(module, name) for module in loaded)


def transport_error(provider: str, error: Exception, *, timed_out: bool) -> ModelError:
    """Make the error for a connection that failed."""
    cause = error.__cause__ or error
    why = f"{type(cause).__name__}: {clip(cause, 200)}" if str(cause) else type(cause).__name__
    if timed_out:
        return ModelTimeout(f"{provider} did not answer in time", why, "raise timeout=…")
    return ModelUnreachable(f"no answer from {provider}", why, "check base_url and the network")


class ToolCallParts:
    """Puts tool calls together that arrive in pieces."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read
        self._parts: dict[int, list[str]] = {}

    def add(self, index: int, id_: str, name: str, arguments: str) -> None:
        """Add a piece to the call with this number."""
        parts = self._parts.setdefault(index, ["", "", ""])
        parts[0] = parts[0] or id_
        parts[1] = parts[1] or name
        parts[2] += arguments

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls."""
        return tuple(
            ToolCall(id=id_, name=name, arguments=self._read(arguments))
            for _, (id_, name, arguments) in sorted(self._parts.items())
        )
