"""Tools: functions that an agent may call, checked on the way in and on the way out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, overload

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import BadPayloadError, Caught, UsageError
from sag_research.llm import Context
from sag_research.llm import Tool as OfferedTool
from sag_research.runtime._awaited import call, until_cancelled
from sag_research.runtime._loop_errors import LoopCancelledError, StepCancelledError
from sag_research.runtime._tool_errors import ToolError, ToolFailedError, raised
from sag_research.runtime._tool_schema import (
    Signature,
    annotated,
    checked_schema,
    problems,
    signature_of,
)

__all__ = ["Tool", "ToolResult", "tool", "tools_by_name"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INTERRUPTIONS: Final = (LoopCancelledError, StepCancelledError)
_ENDINGS: Final = (SystemExit, GeneratorExit, asyncio.CancelledError)


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one call of a tool."""

    value: Any = None
    """What the tool returned, as plain JSON data."""
    error: ToolError | None = None

    @property
    def status(self) -> str:
        """``ok`` or ``error``."""
        return "ok" if self.error is None else "error"

    @property
    def text(self) -> str:
        """The observation: a text as it is, other values and errors as JSON.

        Examples
        --------
        >>> ToolResult(value={"n": 4}).text
        '{"n": 4}'
        >>> ToolResult(error=ToolError(code="raised", message="no such file")).text
        '{"error": {"code": "raised", "message": "no such file"}}'
        """
        if self.error is not None:
            return _json({"error": msgspec.to_builtins(self.error)})
        return self.value if isinstance(self.value, str) else _json(self.value)


class Tool(msgspec.Struct, frozen=True):
    """A function that an agent may call.

    Parameters
    ----------
    name : str
        Letters, digits, ``_`` and ``-``, at most 64: what all providers take.
    description : str
        Tells the model what it is for.
    input_schema : dict
        JSON schema of the arguments, an object; references stay within it.
    run : callable
        ``run(**arguments)`` returns plain JSON data; it may be ``async def``.
    output_schema : dict, optional
        JSON schema of what it returns.
    version : str
        Part of the recorded call's key: change it when the tool changes.

    Raises
    ------
    UsageError
        If the name cannot be used or a schema is none.

    Notes
    -----
    What goes wrong in a call, in the arguments, the tool or its result, is a result with a
    structured error, so that the model sees it; only cancellation and interrupts are raised.

    Examples
    --------
    >>> schema = {
    ...     "type": "object",
    ...     "properties": {"n": {"type": "integer"}},
    ...     "required": ["n"],
    ... }
    >>> half = Tool("half", "Half of n.", schema, lambda n: n / 2)
    >>> half.call({"n": 3}).value, half.call({"n": "x"}).error.problems
    (1.5, ("$.n: 'x' is not of type 'integer'",))
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    run: Callable[..., Any]
    output_schema: dict[str, Any] | None = None
    version: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(str(self.name)):
            raise UsageError(
                f"a tool cannot be named {self.name!r}",
                fix="use letters, digits, _ and -, at most 64",
            )
        if not callable(self.run):
            raise UsageError(f"tool {self.name!r} has nothing to call")
        checked_schema(self.input_schema, f"the input schema of tool {self.name!r}")
        if self.output_schema is not None:
            checked_schema(self.output_schema, f"the output schema of tool {self.name!r}")

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, {', '.join(self.input_schema.get('properties', {}))})"

    def __call__(self, /, *args: Any, **arguments: Any) -> Any:
        """Call the function itself, unchecked and unrecorded."""
        function = self.run.function if isinstance(self.run, _Typed) else self.run
        return function(*args, **arguments)

    @property
    def offered(self) -> OfferedTool:
        """The tool as it is offered to a model."""
        return OfferedTool(
            name=self.name, description=self.description, parameters=self.input_schema,
            version=self.version,
        )  # fmt: skip

    def call(
        self, arguments: Any, ctx: Context | None = None, *, cause: int | None = None
    ) -> ToolResult:
        """Check the arguments, call the function, and check what it returns.

        Parameters
        ----------
        arguments : mapping
        ctx : Context, optional
            Records the call, or answers it from the record.
        cause : int, optional
            Position of the event because of which it is called.

        Returns
        -------
        ToolResult
            With an error where the arguments do not fit (nothing is called or recorded then),
            the function raised, or its result does not fit.

        Raises
        ------
        LoopCancelledError, StepCancelledError
            If the function noticed that it should come to an end.
        ReplayMiss, StoreError
            If the record has no answer, or cannot be written.
        """
        if (error := self.refusal(arguments)) is not None:
            return ToolResult(error=error)
        try:
            if ctx is None:
                return ToolResult(value=self._checked(**arguments))
            return ToolResult(
                value=ctx.tool(
                    self.name, self._checked, arguments, version=self.version, cause=cause
                )
            )
        except ToolFailedError as failed:
            return ToolResult(error=failed.error)
        except BadPayloadError as refused:  # by the log, e.g. for being nested too deeply
            error = ToolError(code="unrecordable", message=clip(str(refused), 200))
            return ToolResult(error=error)

    def refusal(self, arguments: Any) -> ToolError | None:
        """Say what is wrong with arguments, if anything."""
        if not isinstance(arguments, Mapping):
            return ToolError(code="invalid-input", message="the arguments are no JSON object")
        found = problems(self.input_schema, dict(arguments))
        if not found and isinstance(self.run, _Typed):
            found = self.run.problems(arguments)
        if not found:
            return None
        about = f"the arguments of {self.name} do not fit its schema"
        return ToolError(code="invalid-input", message=about, problems=found)

    def _checked(self, /, **arguments: Any) -> Any:
        with Caught() as caught:
            try:
                value = call(lambda: until_cancelled(self.run(**arguments)))
            except _ENDINGS as left:  # e.g. of a parser of command lines; no end of the agent
                raise ToolFailedError(raised(left)) from left
        if isinstance(caught.error, ToolFailedError):
            raise caught.error
        if isinstance(caught.error, _INTERRUPTIONS):
            raise caught.error
        if caught.error is not None:
            raise ToolFailedError(raised(caught.error)) from caught.error
        return self._fitting(value)

    def _fitting(self, value: Any) -> Any:
        """Return a result as plain data, or say why it is none."""
        with Caught() as caught:
            plain = json.loads(json.dumps(msgspec.to_builtins(value), allow_nan=False))
        if caught.error is not None:
            about = f"the result of {self.name} is no JSON: {clip(str(caught.error), 200)}"
            raise ToolFailedError(ToolError(code="invalid-output", message=about))
        if self.output_schema is not None and (found := problems(self.output_schema, plain)):
            about = f"the result of {self.name} does not fit its schema"
            error = ToolError(code="invalid-output", message=about, problems=found)
            raise ToolFailedError(error)
        return plain


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, version: str = ""
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of the decorated function; its types become the schemas.

    Parameters
    ----------
    name : str, optional
        Default: the function's name.
    description : str, optional
        Default: the first paragraph of the docstring.
    version : str
        See :class:`Tool`.

    Raises
    ------
    UsageError
        If a parameter has no type, or one that JSON cannot carry.

    Notes
    -----
    Arguments arrive as the annotated types, e.g. a dataclass instead of an object. A parameter
    is described to the model by ``Annotated[str, msgspec.Meta(description="…")]``.

    Examples
    --------
    >>> @tool
    ... def lookup(query: str, k: int = 3) -> list[str]:
    ...     "Find pages about something."
    ...     return [f"{query} {n}" for n in range(k)]
    >>> lookup, lookup.input_schema["required"]
    (Tool('lookup', query, k), ['query'])
    >>> lookup.call({"query": "graph", "k": 2}).text
    '["graph 0", "graph 1"]'
    >>> lookup.call({"query": "graph", "page": 2}).error.problems
    ("$: Additional properties are not allowed ('page' was unexpected)",)
    """

    def make(decorated: Callable[..., Any]) -> Tool:
        named = name or str(getattr(decorated, "__name__", type(decorated).__name__))
        signature = signature_of(decorated, named)
        about = description if description is not None else _first_paragraph(decorated)
        run = _Typed(decorated, signature)
        return Tool(named, about, signature.input_schema, run, signature.output_schema, version)

    return make if function is None else make(function)


class _Typed:
    """Calls a function with arguments of the types that it is annotated with."""

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        self.function, self._signature = function, signature

    def problems(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Say why arguments that fit the schema are not of the types, as a date that is none."""
        with Caught() as caught:
            self._signature.arguments(arguments)
        if caught.error is None:
            return ()
        about = raised(caught.error)
        return (clip(about.message, 200) or about.kind,)

    def __call__(self, /, **arguments: Any) -> Any:
        return self.function(**self._signature.arguments(arguments))


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = (annotated(function).__doc__ or "").strip()
    return " ".join(text.partition("\n\n")[0].split())


def tools_by_name(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Return tools by name; a typed function is made one.

    Raises
    ------
    UsageError
        If two have the same name.
    """
    if not isinstance(tools, Iterable):
        raise UsageError(f"{clip(repr(tools))} is no list of tools", fix="put it into one")
    known: dict[str, Tool] = {}
    for one in tools:
        made = one if isinstance(one, Tool) else _of(one)
        if known.setdefault(made.name, made) is not made:
            raise UsageError(f"there are two tools {made.name!r}", fix="give one another name")
    return known


def _of(one: object) -> Tool:
    offered = getattr(one, "tool", one)
    if isinstance(offered, Tool):
        return offered
    if not callable(offered):
        raise UsageError(f"{clip(repr(one))} is no tool", fix="decorate the function with @tool")
    return tool(offered)


def _json(value: Any) -> str:
    return repair(json.dumps(value, ensure_ascii=False))
