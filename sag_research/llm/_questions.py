"""What was asked, as data: its key, and its form in the log.

A transcript grows by a few messages a turn and is asked whole each time. It is kept as a chain:
every message is a document that names the one before it, so a request refers to its last message
alone, and equal prefixes are stored once, whichever run asked them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sag_research.errors import StoreError
from sag_research.llm._records import Identity, Request, clean
from sag_research.log import (
    SQLiteEventStore,
    canonical_digest,
    document_digest,
    has_document,
    put_document,
    read_document,
)
from sag_research.model import Event

__all__ = [
    "Question",
    "effect_question",
    "llm_question",
    "question_of",
    "read_request",
    "requested_payload",
    "tool_question",
]

_KEY_VERSION: Final = 1


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked and recorded."""

    kind: str
    """``llm``, ``tool`` or ``effect``."""
    name: str
    """The model, the tool or the effect."""
    key: str
    """64 hex digits: equal questions have equal keys."""
    body: dict[str, Any]
    """The whole question as plain data."""
    chain: tuple[tuple[str, dict[str, Any]], ...] = ()
    """The messages as documents, each with its digest."""


def llm_question(identity: Identity, request: Request) -> Question:
    """Say what is asked of a model; nothing is written.

    Raises
    ------
    BadPayloadError
        If the request has no canonical form.
    """
    body = _plain({**msgspec.to_builtins(identity), **msgspec.to_builtins(request)})
    messages = body.pop("messages")
    if "parameters" in body:
        body["parameters"] = _same_numbers(body["parameters"])
    chain = _chain(messages)
    question = {**body, "messages": chain[-1][0] if chain else ""}
    return Question(
        kind="llm",
        name=identity.model,
        key=_key("llm", question),
        body={**body, "messages": messages},
        chain=chain,
    )


def tool_question(name: str, arguments: Mapping[str, Any], version: str) -> Question:
    """Say what is asked of a tool."""
    body = _plain({"name": name, "version": version, "arguments": dict(arguments)})
    return Question(kind="tool", name=name, key=_key("tool", body), body=body)


def effect_question(name: str, arguments: Mapping[str, Any]) -> Question:
    """Say what is asked of the outside world: the clock, chance, the environment, a file."""
    body = _plain({"effect": name, "arguments": dict(arguments)})
    return Question(kind="effect", name=name, key=_key("effect", body), body=body)


def _key(kind: str, question: Mapping[str, Any]) -> str:
    return canonical_digest({"version": _KEY_VERSION, "kind": kind, "question": question})


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    return clean(value)  # type: ignore[no-any-return]


def _same_numbers(value: Any) -> Any:
    """Write 1.0 as 1: a temperature is the same question in either spelling."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _same_numbers(item) for key, item in value.items()}
    return [_same_numbers(item) for item in value] if isinstance(value, list) else value


def _chain(messages: Sequence[dict[str, Any]]) -> tuple[tuple[str, dict[str, Any]], ...]:
    links: list[tuple[str, dict[str, Any]]] = []
    for message in messages:
        link = {"after": links[-1][0] if links else None, "message": message}
        links.append((document_digest(link), link))
    return tuple(links)


def requested_payload(store: SQLiteEventStore, question: Question) -> dict[str, Any]:
    """Write what a request refers to, and return the event's payload without key and number."""
    if question.kind != "llm":
        return question.body
    new = []
    for digest, link in reversed(question.chain):
        if has_document(store, digest):
            break  # and so are all before it: they were written together
        new.append(link)
    for link in reversed(new):
        put_document(store, link)
    last = question.chain[-1][0] if question.chain else None
    payload = {**question.body, "messages": {"last": last, "count": len(question.chain)}}
    for name in ("tools", "output_schema"):
        if name in payload:
            payload[name] = put_document(store, {name: payload[name]})
    return payload


def question_of(
    store: SQLiteEventStore, event: Event, known: dict[str, list[dict[str, Any]]] | None = None
) -> dict[str, Any]:
    """Return the whole question of an event ``*.requested`` or ``effect.recorded``.

    ``known`` remembers transcripts, for a caller that reads many questions of one run.

    Raises
    ------
    StoreError
        If a part of it is missing or damaged.
    """
    drop = ("key", "occurrence", "value", "blob", "error")
    body = {name: value for name, value in event.payload.items() if name not in drop}
    if event.type != "llm.requested":
        return body
    for name in ("tools", "output_schema"):
        if name in body:
            body[name] = read_document(store, body[name])[name]
    reference = body.get("messages") or {}
    last, count = reference.get("last"), int(reference.get("count") or 0)
    body["messages"] = _read_chain(store, last, count, {} if known is None else known)
    return body


def _read_chain(
    store: SQLiteEventStore, last: str | None, count: int, known: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Walk back from the last message to the first, or to a transcript that is known."""
    new: list[dict[str, Any]] = []
    digest = last
    while digest is not None and digest not in known:
        if len(new) == count:
            raise StoreError(f"a transcript has more messages than the {count} it should have")
        link = read_document(store, digest)
        new.append(link["message"])
        digest = link["after"]
    messages = (known[digest] if digest is not None else []) + new[::-1]
    if last is not None:
        known[last] = messages
    return messages


def read_request(store: SQLiteEventStore, event: Event) -> Request:
    """Return the request that an event ``llm.requested`` stands for, all messages included.

    Raises
    ------
    StoreError
        If a part of it is missing or damaged.

    Examples
    --------
    >>> from sag_research.llm import Context, Scripted
    >>> from sag_research.model import Run
    >>> store = SQLiteEventStore(":memory:")
    >>> _ = store.create_run(Run(run_id="r1"))
    >>> _ = Context(store, "r1").llm(Scripted(["4"]), "2 + 2?")
    >>> asked = next(store.read("r1", types=["llm.requested"]))
    >>> read_request(store, asked).messages[0].content
    '2 + 2?'
    """
    body = question_of(store, event)
    for name in msgspec.structs.fields(Identity):
        body.pop(name.name, None)
    try:
        return msgspec.convert(body, Request)
    except msgspec.ValidationError as error:
        raise StoreError(
            f"event {event.position} of run {event.run_id!r} holds no request", why=str(error)
        ) from None
