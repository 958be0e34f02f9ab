"""The agent's side of the wire: what a request came to, said in one of three words."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import BadPayloadError, MissingDataError, UsageError
from sag_research.log import canonical_digest

__all__ = ["JobClient", "Reply", "check_origin"]

TIMEOUT_SECONDS = 0.4
"""After so long without an answer a request is given up."""

LARGEST_REPLY = 20_000
"""Bytes; a longer reply is not read to its end."""

_ERROR_CHARACTERS = 200
_LONGEST_KEY = 100
_SLOWEST = 3  # time-outs that a whole reply may take


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a request came to.

    Attributes
    ----------
    status : {'success', 'failed', 'unknown'}
        ``unknown``: it may have had its effect, and nobody here can tell.
    data : object
        What the service said; plain JSON data.
    code, message : str
        Of a failure.
    retryable : bool
    """

    status: Literal["success", "failed", "unknown"]
    data: Any = None
    code: str = ""
    message: str = ""
    retryable: bool = False


def check_origin(origin: str) -> str:
    """Return a bare origin that may be spoken to; anything else raises.

    Raises
    ------
    UsageError
        Unless it is ``https://host[:port]``, or ``http://127.0.0.1[:port]``, and nothing more.

    Examples
    --------
    >>> check_origin("http://127.0.0.1:8080")
    'http://127.0.0.1:8080'
    """
    fix = "give https://HOST or http://127.0.0.1:PORT, without path, user or query"
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{clip(origin, 80)!r} is no origin", why=str(error), fix=fix) from None
    bare = f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port is not None else "")
    named = re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", parts.hostname or "")
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname == "127.0.0.1")
    if origin != bare or named is None or not safe or port == 0:
        raise UsageError(f"{clip(origin, 80)!r} is no origin to speak to", fix=fix)
    return origin


class JobClient:
    """Speaks with the export service as one tenant.

    Redirects are not followed, replies are capped, and a request that was sent and not answered
    is ``unknown`` where it may have had an effect, else ``failed``.

    Parameters
    ----------
    origin : str
        See :func:`check_origin`.
    tenant : str
    timeout : float
        Seconds.
    """

    def __init__(self, origin: str, tenant: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingDataError(
                "speaking HTTP needs the package httpx", fix="pip install 'sag-research[worlds]'"
            ) from None
        self._httpx, self._timeout = httpx, timeout
        self._client = httpx.Client(
            base_url=check_origin(origin), timeout=timeout, follow_redirects=False,
            headers={"x-tenant": tenant, "accept-encoding": "identity"}, trust_env=False,
        )  # fmt: skip
        self._line = _Line(_SLOWEST * timeout)

    def __enter__(self) -> JobClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def status(self, job_id: str) -> Reply:
        """State of a job, and the key of its retry operation."""
        return self._ask("GET", _path(job_id))

    def logs(self, job_id: str) -> Reply:
        """Lines of a job's log."""
        return self._ask("GET", _path(job_id, "logs"))

    def operation(self, job_id: str, key: str) -> Reply:
        """Receipt of what was done under a key; code ``NO_RECEIPT`` where nothing was."""
        if not (key.isascii() and key.isalnum() and len(key) <= _LONGEST_KEY):
            return _failed("BAD_REPLY", "the service named no operation")
        return self._ask("GET", _path(job_id, "operations", key))

    def retry(self, job_id: str, key: str, error: str) -> Reply:
        """Ask for the one effect."""
        body = {"key": key, "mode": "recover", "error": error}
        return self._ask("POST", _path(job_id, "retry"), body)

    def result(self, job_id: str) -> Reply:
        """Totals of a completed job, and its file."""
        return self._ask("GET", _path(job_id, "result"))

    def download(self, job_id: str) -> Reply:
        """The file of a completed job, as text."""
        return self._ask("GET", _path(job_id, "download"), text=True)

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, text: bool = False
    ) -> Reply:
        watched = {"trace": self._line.opened}
        try:
            with (
                self._line,
                self._client.stream(method, path, json=body, extensions=watched) as response,
            ):
                read = bytearray()
                for part in response.iter_raw():
                    read += part
                    if len(read) > LARGEST_REPLY:
                        return _lost(method, "REPLY_TOO_LARGE", f"over {LARGEST_REPLY:,} bytes")
                return _said(method, response.status_code, bytes(read), text)
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
            # nothing was sent, so nothing was done
            return _failed("UNREACHABLE", str(error), retryable=True)
        except self._httpx.HTTPError as error:
            why = f"{type(error).__name__} {error}".strip()
            return _lost(method, "NO_REPLY", "the reply came too slowly" if self._line.cut else why)


class _Line:
    """Cuts a line on which a reply takes too long as a whole, its first line included.

    A time-out counts between two parts only: a service that sends a byte now and then would hold
    the client for ever.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self.cut = seconds, False
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None

    def opened(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the connection; the HTTP client calls this at every stage."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")

    def __enter__(self) -> None:
        self.cut = False
        self._timer = threading.Timer(self._seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        self.cut = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it was closed in this moment
                self._socket.shutdown(socket.SHUT_RDWR)


def _path(*parts: str) -> str:
    if strange := [part for part in parts if re.fullmatch(r"[A-Za-z0-9-]+", part) is None]:
        raise UsageError(f"{clip(strange[0], 40)!r} cannot be part of an address")
    return "/jobs/" + "/".join(parts)


def _failed(code: str, message: str, *, retryable: bool = False, data: Any = None) -> Reply:
    message = clip(message, _ERROR_CHARACTERS)
    return Reply(status="failed", code=code, message=message, retryable=retryable, data=data)


def _lost(method: str, code: str, message: str) -> Reply:
    """Say what became of a request whose answer is lost."""
    if method == "GET":
        return _failed(code, message, retryable=True)
    why = clip(f"{message}; it may have been carried out: query the status", _ERROR_CHARACTERS)
    return Reply(status="unknown", code="OUTCOME_UNKNOWN", message=why)


def _said(method: str, status: int, read: bytes, text: bool) -> Reply:
    """Understand a whole reply."""
    if status == 200 and text:
        with_errors = read.decode("utf-8", "replace")
        return Reply(status="success", data=with_errors)
    try:
        data = _repaired(json.loads(read))
        canonical_digest(data)  # evidence is named by it: no infinities, nothing nested too deeply
    except (ValueError, RecursionError, BadPayloadError):
        return _lost(method, "BAD_REPLY", f"status {status} with something that is no JSON")
    if not isinstance(data, dict):
        return _lost(method, "BAD_REPLY", f"status {status} with JSON that is no object")
    if status == 200:
        return Reply(status="success", data=data)
    error = data.get("error")
    if status < 400 or not isinstance(error, dict):
        return _lost(method, "BAD_REPLY", f"status {status}")
    code, message = clip(error.get("code", ""), 80), str(error.get("message", ""))
    return _failed(code, message, retryable=error.get("retryable") is True)


def _repaired(value: Any) -> Any:
    """Replace half characters, which no log can hold, in all texts."""
    if isinstance(value, str):
        return repair(value)
    if isinstance(value, list):
        return [_repaired(item) for item in value]
    if isinstance(value, dict):
        return {repair(name): _repaired(item) for name, item in value.items()}
    return value
