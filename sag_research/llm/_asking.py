"""What the adapters have in common: optional packages, retries, prices, hidden keys."""

from __future__ import annotations

import base64
import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec

from sag_research._text import repair
from sag_research.errors import MissingDataError, UsageError
from sag_research.llm._errors import (
    CutStream,
    ModelError,
    ModelTimeout,
    ModelUnreachable,
    RateLimited,
    ServerFailed,
)
from sag_research.llm._records import Chunk, Reply, Request
from sag_research.model import Usage

__all__ = [
    "PriceTable",
    "Retry",
    "arguments_of",
    "checked",
    "find_key",
    "optional",
    "priced",
    "public_url",
    "scrubbed",
    "secrets_in",
]

PriceTable: TypeAlias = Mapping[str, tuple[float, float]]
"""US dollars for a million tokens in and out, by model name."""

_T = TypeVar("_T")
_RETRIED: Final = (RateLimited, ServerFailed, ModelTimeout, ModelUnreachable)
_SHORTEST_KEY: Final = 6


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call is made again when the provider is busy, failing or silent.

    Waits ``base``, 2 ``base``, 4 ``base`` … seconds, never more than ``cap``; at least as long
    as the provider asks for, and not at all where that is longer than ``cap``.
    """

    attempts: int = 4
    """Calls in all; 1 for none but the first."""
    base: float = 1.0
    cap: float = 30.0
    sleep: Callable[[float], None] = time.sleep

    def call(self, once: Callable[[], Reply]) -> Reply:
        """Make a call until it is answered."""
        for attempt in range(1, self.attempts + 1):
            try:
                reply = once()
            except _RETRIED as error:
                self._wait_or_raise(error, attempt)
            else:
                return msgspec.structs.replace(reply, attempts=attempt)
        raise UsageError(f"attempts={self.attempts} makes no call", fix="use 1 or more")

    def stream(self, once: Callable[[], Iterator[Chunk]]) -> Iterator[Chunk]:
        """Open a stream until it begins; one that has begun is never made again."""
        for attempt in range(1, self.attempts + 1):
            begun = False
            try:
                for chunk in once():
                    begun = True
                    yield msgspec.structs.replace(chunk, attempts=attempt)
            except _RETRIED as error:
                if begun:
                    raise CutStream(
                        "the answer broke off", why=str(error), status=error.status
                    ) from error
                self._wait_or_raise(error, attempt)
            else:
                return
        raise UsageError(f"attempts={self.attempts} makes no call", fix="use 1 or more")

    def _wait_or_raise(self, error: ModelError, attempt: int) -> None:
        asked = error.retry_after or 0.0
        if attempt >= self.attempts or asked > self.cap:
            raise error
        self.sleep(max(asked, min(self.cap, self.base * 2 ** (attempt - 1))))


def optional(module: str, package: str, extra: str) -> Any:
    """Import a package that only some users need.

    Raises
    ------
    MissingDataError
        If it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the package is there, and something it needs is not
        raise MissingDataError(
            f"package {package} is not installed",
            fix=f"pip install 'sag-research[{extra}]'",
        ) from None


def find_key(given: str | None, variables: tuple[str, ...]) -> str:
    """Return an API key: the given one, else from the first variable that is set.

    Raises
    ------
    UsageError
        If there is none.
    """
    found = given or next((value for name in variables if (value := os.environ.get(name))), None)
    if not found:
        raise UsageError("no API key", fix=f"give api_key=… or set {' or '.join(variables)}")
    return found


def public_url(url: str) -> str:
    """Return an address without user, password, query and fragment: those may hold secrets.

    Examples
    --------
    >>> public_url("https://me:word@host:8000/v1/?key=abc")
    'https://host:8000/v1'
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def secrets_in(url: str) -> list[str]:
    """Return what an address may hold that is secret: its password, also as it is sent.

    Examples
    --------
    >>> secrets_in("https://me:word@host/v1?key=abc")
    ['word', 'bWU6d29yZA==', 'key=abc']
    """
    parts = urlsplit(url)
    found = [parts.query] if parts.query else []
    if parts.password:
        pair = f"{parts.username or ''}:{parts.password}"
        found = [parts.password, base64.b64encode(pair.encode()).decode(), *found]
    return found


def scrubbed(text: object, *secrets: str | None) -> str:
    """Return a provider's text without the secrets that it may echo.

    Examples
    --------
    >>> scrubbed("bad key sk-123456", "sk-123456")
    'bad key [redacted]'
    """
    clean = repair(str(text))
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_KEY:
            clean = clean.replace(secret, "[redacted]")
    return clean


def priced(
    tokens_in: int | None, tokens_out: int | None, model: str, prices: PriceTable | None
) -> Usage | None:
    """Return usage, with its cost where a price and both counts are known.

    Examples
    --------
    >>> priced(1_000, 500, "m", {"m": (2.0, 8.0)}).cost_usd
    0.006
    >>> priced(None, None, "m", None) is None
    True
    """
    if tokens_in is None and tokens_out is None:
        return None
    cost = None
    if prices and model in prices and tokens_in is not None and tokens_out is not None:
        per_in, per_out = prices[model]
        cost = (tokens_in * per_in + tokens_out * per_out) / 1_000_000
    return Usage(tokens_in=tokens_in, tokens_out=tokens_out, cost_usd=cost)


def arguments_of(text: str) -> Any:
    """Read a tool call's arguments; what is no JSON object stays the text the model wrote.

    Examples
    --------
    >>> arguments_of('{"a": 1}'), arguments_of('{"a":')
    ({'a': 1}, '{"a":')
    """
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def checked(request: Request, reply: Reply) -> Reply:
    """Refuse an answer that should be JSON and is none.

    Raises
    ------
    MalformedReply
    """
    if request.output_schema is not None and not reply.calls:
        reply.data()
    return reply
