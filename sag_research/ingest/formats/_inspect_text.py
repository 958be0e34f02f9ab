"""Texts of Inspect logs: attachments put back, content blocks read, tool calls shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._openhands_turns import mapping
from sag_research.model import Call

__all__ = ["Attachments", "calls_of", "spoken", "thought_of"]

_REFERENCE: Final = re.compile(r"(?:attachment|tc)://([0-9a-f]{16,64})")
_DEEP: Final = 60
_TYPED: Final = frozenset({"bash", "bash_session", "python", "shell", "execute"})
_TYPED_ARGUMENTS: Final = ("cmd", "command", "code", "input")


class Attachments:
    """Texts that were moved out of a sample, under their hashes.

    Examples
    --------
    >>> texts = Attachments({"0123456789abcdef": "long"})
    >>> texts.put_back(["attachment://0123456789abcdef", 1]), texts.missing
    (['long', 1], 0)
    """

    def __init__(self, found: Any) -> None:
        self._texts: Mapping[str, Any] = mapping(found)
        self.missing = 0

    def put_back(self, value: Any, depth: int = 0) -> Any:
        """Return a value in which references are texts again; unknown ones stay as they are."""
        if isinstance(value, str):
            return _REFERENCE.sub(self._text, value) if "://" in value else value
        if depth > _DEEP:
            return value
        if isinstance(value, list):
            return [self.put_back(one, depth + 1) for one in value]
        if isinstance(value, dict):
            return {name: self.put_back(one, depth + 1) for name, one in value.items()}
        return value

    def _text(self, reference: re.Match[str]) -> str:
        text = self._texts.get(reference[1])
        if isinstance(text, str):
            return text
        self.missing += 1
        return reference[0]


def spoken(content: Any) -> str:
    r"""Return what a message or a tool says as text.

    Examples
    --------
    >>> spoken([{"type": "text", "text": "a"}, {"type": "image", "image": "data:…"}]), spoken(2)
    ('a\n[image]', '2')
    """
    if isinstance(content, list):
        return "\n".join(map(spoken, content))
    if isinstance(content, dict) and "text" not in content and "type" not in content:
        return json.dumps(content, ensure_ascii=False)
    return shared.text_of(content)


def thought_of(content: Any) -> str:
    """Return what the model thought and said; reasoning that is hidden is named as such."""
    if not isinstance(content, list):
        return spoken(content)
    return shared.joined([_part(block) for block in content])


def _part(block: Any) -> str:
    if not isinstance(block, dict) or block.get("type") != "reasoning":
        return spoken(block)
    shown = shared.word(block.get("summary")) if block.get("redacted") else block.get("reasoning")
    return shown if isinstance(shown, str) else "[reasoning]"


def calls_of(message: Mapping[str, Any]) -> tuple[Call, ...]:
    """Read a reply's tool calls, whose ``function`` is a name and ``arguments`` an object."""
    found = message.get("tool_calls")
    entries = [one for one in (found if isinstance(found, list) else []) if isinstance(one, dict)]
    return tuple(map(_typed, shared.calls_from([_named(one) for one in entries])))


def _named(entry: dict[str, Any]) -> dict[str, Any]:
    if isinstance(entry.get("function"), dict):
        return entry
    return {
        "id": entry.get("id"),
        "name": entry.get("function"),
        "arguments": entry.get("arguments"),
    }


def _typed(call: Call) -> Call:
    """Show a call of a shell or an interpreter as what was typed."""
    if call.name not in _TYPED:
        return call
    given = mapping(call.arguments)
    text = next((given[one] for one in _TYPED_ARGUMENTS if isinstance(given.get(one), str)), None)
    return call if text is None else replace(call, text=text)
