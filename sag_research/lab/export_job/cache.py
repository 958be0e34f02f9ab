"""The working context: messages ready to be sent. A cache, and never the truth.

What has expired is made again from the log. A store that cannot be reached is an error: going on
without it, unseen, would hide that it is down.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from sag_research.errors import MissingDataError, SagError

__all__ = ["ContextUnavailableError", "RedisContext", "SQLiteContext", "WorkingContext"]

TTL_SECONDS = 600.0
_TABLE = "CREATE TABLE IF NOT EXISTS contexts(key TEXT PRIMARY KEY, value BLOB, until REAL)"


class ContextUnavailableError(SagError):
    """The store of working contexts is down or answers nonsense; nothing was asked of a model."""


class WorkingContext(Protocol):
    """Where contexts are kept for a while."""

    def get(self, key: str) -> bytes | None:
        """Return what was put, ``None`` once it has expired."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Keep a value for a while."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...


class SQLiteContext:
    """Contexts in a SQLite file.

    Parameters
    ----------
    path : pathlib.Path
    ttl : float
        Seconds after which a context has expired.
    clock : callable
        Seconds since the epoch.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = SQLiteContext(Path(folder, "c.sqlite"))
    ...     kept.put("a", b"1")
    ...     kept.get("a"), kept.get("b")
    (b'1', None)
    """

    def __init__(
        self, path: Path, *, ttl: float = TTL_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self.path, self._ttl, self._clock = path, ttl, clock

    def get(self, key: str) -> bytes | None:
        """Return what was put, ``None`` once it has expired."""
        rows = self._run("SELECT value, until FROM contexts WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows and rows[0][1] > self._clock() else None

    def put(self, key: str, value: bytes) -> None:
        """Keep a value for a while."""
        self._run("DELETE FROM contexts WHERE until <= ?", (self._clock(),))
        until = self._clock() + self._ttl
        self._run("INSERT OR REPLACE INTO contexts VALUES(?,?,?)", (key, value, until))

    def close(self) -> None:
        """Nothing is held between two calls."""

    def _run(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        try:
            with closing(sqlite3.connect(self.path, timeout=5, isolation_level=None)) as db:
                db.execute(_TABLE)
                return db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise ContextUnavailableError(
                f"{self.path} cannot keep the working context", why=str(error)
            ) from error


class RedisContext:
    """Contexts in a Redis server.

    Parameters
    ----------
    url : str
        E.g. ``redis://127.0.0.1:6379/0``.
    ttl : float
        Seconds.
    """

    def __init__(self, url: str, *, ttl: float = TTL_SECONDS) -> None:
        try:
            import redis
        except ImportError:
            raise MissingDataError(
                "a Redis context needs the package redis", fix="pip install 'sag-research[redis]'"
            ) from None
        self._ttl, self._errors = ttl, (redis.RedisError, OSError)
        self._client = redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)

    def __enter__(self) -> RedisContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def get(self, key: str) -> bytes | None:
        """Return what was put, ``None`` once it has expired."""
        value = self._run(lambda: self._client.get(key))
        return None if value is None else bytes(value)

    def put(self, key: str, value: bytes) -> None:
        """Keep a value for a while."""
        self._run(lambda: self._client.set(key, value, px=max(1, int(self._ttl * 1000))))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _run(self, what: Callable[[], Any]) -> Any:
        try:
            return what()
        except self._errors as error:
            raise ContextUnavailableError(
                "the Redis server cannot keep the working context", why=str(error)
            ) from error
