"""A model whose answers are given beforehand."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from sag_research.llm._errors import ModelError
from sag_research.llm._records import Chunk, Identity, Reply, Request

__all__ = ["Answer", "Scripted"]

Answer: TypeAlias = "Reply | str | Exception | None"


class Scripted:
    """Answers from a list, or by a function of the request; for tests, examples and baselines.

    Parameters
    ----------
    answers : iterable or callable
        Replies, texts, ``None`` for an empty answer, or exceptions to raise; or a function that
        makes one of a request.
    name : str
        Name of the model in keys: two scripts of one name count as the same model.

    Attributes
    ----------
    requests : list of Request
        What was asked, in order.

    Examples
    --------
    >>> model = Scripted(["yes", "no"])
    >>> from sag_research.llm import as_request
    >>> model.complete(as_request("Is it?")).text
    'yes'
    >>> [chunk.text for chunk in Scripted(["well said"]).stream(as_request("?"))]
    ['well ', 'said', '']
    """

    def __init__(
        self, answers: Iterable[Answer] | Callable[[Request], Answer], *, name: str = "script"
    ) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._function = answers if callable(answers) else None
        self._answers = iter(() if callable(answers) else answers)

    def __repr__(self) -> str:
        return f"Scripted({self.name!r}, {len(self.requests)} asked)"

    def identity(self) -> Identity:
        """Return the script's name as a model of the provider ``scripted``."""
        return Identity(provider="scripted", model=self.name)

    def complete(self, request: Request) -> Reply:
        """Return the next answer.

        Raises
        ------
        ModelError
            When the script has ended; or whatever error the script holds.
        """
        with self._lock:
            self.requests.append(request)
            answer = None if self._function else self._next()
        if self._function is not None:
            answer = self._function(request)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Reply) else Reply(text=answer, finish="stop")

    def stream(self, request: Request) -> Iterator[Chunk]:
        """Return the next answer word by word."""
        reply = self.complete(request)
        for word in re.findall(r"\s*\S+\s*", reply.text or "") or [reply.text or ""]:
            if word:
                yield Chunk(text=word)
        yield Chunk(calls=reply.calls, usage=reply.usage, finish=reply.finish, model=reply.model)

    def _next(self) -> Answer:
        for answer in self._answers:
            return answer
        raise ModelError(
            "the script has ended",
            why=f"ask number {len(self.requests)} has no answer",
            fix="give more answers or a function",
        )
