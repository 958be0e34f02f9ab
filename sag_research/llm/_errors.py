"""Errors of models and of recorded calls, and how an error is written down and raised again."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sag_research._text import clip, repair
from sag_research.errors import SagError

__all__ = [
    "CutStream",
    "MalformedReply",
    "ModelError",
    "ModelRefused",
    "ModelTimeout",
    "ModelUnreachable",
    "RateLimited",
    "RecordedFailure",
    "ReplayMiss",
    "ServerFailed",
    "describe_error",
    "revive_error",
]

_MESSAGE_LIMIT: Final = 4_000


class ModelError(SagError):
    """A model gave no usable answer.

    Attributes
    ----------
    status : int or None
        The HTTP status, where there was one.
    text : str or None
        What the provider sent, as far as it came.
    retry_after : float or None
        Seconds that the provider asks to wait.
    """

    def __init__(
        self,
        what: str,
        why: str = "",
        fix: str = "",
        *,
        status: int | None = None,
        text: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(what, why, fix)
        self.status, self.text, self.retry_after = status, text, retry_after


class RateLimited(ModelError):
    """The provider asks to slow down (HTTP 429)."""


class ServerFailed(ModelError):
    """The provider failed (HTTP 5xx)."""


class ModelTimeout(ModelError):
    """No answer came in time."""


class ModelUnreachable(ModelError):
    """No connection could be made, or it was lost before an answer began."""


class ModelRefused(ModelError):
    """The provider refused the request (other HTTP 4xx): a wrong key, name or parameter."""


class CutStream(ModelError):
    """The answer broke off before its end."""


class MalformedReply(ModelError):
    """The answer is not in the form that was agreed."""


class RecordedFailure(SagError):
    """A recorded error whose class is not known here.

    Attributes
    ----------
    kind : str
        Qualified name of the class that was raised.
    """

    kind: str = ""


class ReplayMiss(SagError):
    """A replay was asked something that has no recorded answer.

    Attributes
    ----------
    question : dict
        What was asked.
    nearest : dict or None
        The recorded question most like it.
    position : int or None
        Where that one stands.
    diff : str
        Unified diff from the nearest recorded question to what was asked.
    """

    def __init__(
        self,
        what: str,
        why: str = "",
        fix: str = "",
        *,
        question: Mapping[str, Any] | None = None,
        nearest: Mapping[str, Any] | None = None,
        position: int | None = None,
        diff: str = "",
    ) -> None:
        super().__init__(what, why, fix)
        self.question = dict(question or {})
        self.nearest = None if nearest is None else dict(nearest)
        self.position, self.diff = position, diff


def describe_error(error: BaseException) -> dict[str, Any]:
    """Write an error down as plain data: its class, the classes above it, its arguments."""
    classes = [
        cls for cls in type(error).__mro__ if issubclass(cls, BaseException) and cls not in _TOP
    ]
    about: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "classes": [cls.__qualname__ for cls in classes],
        "message": repair(str(error))[:_MESSAGE_LIMIT],
    }
    if all(arg is None or isinstance(arg, (str, int, bool)) for arg in error.args):
        about["args"] = [
            repair(arg)[:_MESSAGE_LIMIT] if isinstance(arg, str) else arg for arg in error.args
        ]
    if isinstance(error, ModelError):
        fields = {"status": error.status, "text": error.text, "retry_after": error.retry_after}
        about |= {
            name: repair(value) if isinstance(value, str) else value
            for name, value in fields.items()
            if value is not None
        }
    return about


_TOP: Final = (BaseException, object)


def revive_error(about: Mapping[str, Any], known: Iterable[type[Exception]] = ()) -> Exception:
    """Make the error again, in the nearest class that is known here.

    Only built-in errors, errors of this package and the ``known`` ones are made; a name in a
    log never imports anything.

    Examples
    --------
    >>> try:
    ...     {}["x"]
    ... except KeyError as error:
    ...     about = describe_error(error)
    >>> revive_error(about)
    KeyError('x')
    """
    message = str(about.get("message", ""))
    for cls in _candidates(about, known):
        error = _make(cls, about.get("args"), message)
        if error is not None:
            for name in ("status", "text", "retry_after"):
                if isinstance(error, ModelError) and name in about:
                    setattr(error, name, about[name])
            return error
    failure = RecordedFailure(clip(message, 500) or "a recorded call failed without a message")
    failure.kind = str(about.get("type", ""))
    return failure


def _candidates(
    about: Mapping[str, Any], known: Iterable[type[Exception]]
) -> Iterator[type[Exception]]:
    by_name = {cls.__qualname__: cls for cls in (*_below(SagError), *known)}
    for name in about.get("classes") or []:
        cls = by_name.get(name) or getattr(builtins, str(name), None)
        if isinstance(cls, type) and issubclass(cls, Exception) and cls is not Exception:
            yield cls


def _below(cls: type[SagError]) -> Iterator[type[SagError]]:
    """Walk the errors of this package; subclasses that others made are not ours to call."""
    if cls.__module__.startswith("sag_research."):
        yield cls
    for child in cls.__subclasses__():
        yield from _below(child)


def _make(cls: type[Exception], args: Any, message: str) -> Exception | None:
    """Call a class with the recorded arguments, else with the message alone."""
    for given in ([args] if isinstance(args, list) else []) + [[message]]:
        try:
            error = cls(*given)
        except (TypeError, ValueError, AttributeError, LookupError):
            continue
        if repair(str(error))[:_MESSAGE_LIMIT] == message:
            return error
    return None
