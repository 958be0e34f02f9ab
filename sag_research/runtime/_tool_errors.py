"""How a call of a tool fails, as data that the model is shown and that a replay finds again."""

from __future__ import annotations

import msgspec

from sag_research._text import clip, repair
from sag_research.errors import Caught, SagError

__all__ = ["ToolError", "ToolFailedError", "raised"]

_LONGEST = 600


class ToolError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong in a call."""

    code: str
    """``invalid-input``, ``invalid-output``, ``raised``, or ``unrecordable`` by the log."""
    message: str
    kind: str = ""
    """Class of what the tool raised."""
    problems: tuple[str, ...] = ()
    """Where values do not fit their schema, and why."""


class ToolFailedError(SagError):
    """A tool was called and has no result.

    It is the same error when a replay revives it: all that it says is in its one argument.

    Attributes
    ----------
    error : ToolError
    """

    def __init__(self, error: ToolError | str) -> None:
        self.error = msgspec.json.decode(error, type=ToolError) if isinstance(error, str) else error
        super().__init__(f"{self.error.code}: {self.error.message}")
        self.args = (msgspec.json.encode(self.error).decode(),)


def raised(error: BaseException) -> ToolError:
    """Describe what a tool raised, without the places in its code.

    Examples
    --------
    >>> raised(ValueError("k is negative"))
    ToolError(code='raised', message='k is negative', kind='ValueError', problems=())
    """
    message = ""
    with Caught():  # of an error whose own ``__str__`` raises the class has to do
        message = clip(repair(str(error)), _LONGEST)
    return ToolError(code="raised", message=message, kind=type(error).__qualname__)
