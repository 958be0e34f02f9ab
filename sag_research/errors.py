"""Errors that say what failed, why, and how to fix it.

Every error a user can meet derives from :class:`SagError`. The command line prints
``str(error)`` on one line and leaves with the error's ``exit_code``.
"""

from __future__ import annotations

from types import TracebackType

__all__ = [
    "BadPayloadError",
    "BusyError",
    "Caught",
    "ConflictError",
    "FormatError",
    "LabelError",
    "LeakError",
    "MissingDataError",
    "NotEnoughDataError",
    "QueryError",
    "RunExistsError",
    "RunNotFoundError",
    "SagError",
    "SchemaError",
    "StoreError",
    "UsageError",
    "WarehouseError",
    "WriteError",
]


class SagError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    what : str
        What failed, as a short sentence without a full stop.
    why : str, optional
        The cause, if known.
    fix : str, optional
        What the user can do about it.

    Examples
    --------
    >>> str(SagError("no run 'r9'", why="the log holds 3 runs", fix="see `sag runs`"))
    "no run 'r9' (the log holds 3 runs); see `sag runs`"
    """

    exit_code = 1

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(what, why, fix)

    def __str__(self) -> str:
        text = self.what + (f" ({self.why})" if self.why else "")
        return text + (f"; {self.fix}" if self.fix else "")


class UsageError(SagError):
    """The call's arguments do not fit together."""

    exit_code = 2


class StoreError(SagError):
    """The log file cannot be opened, read or written."""


class SchemaError(StoreError):
    """The log file is of another kind, or of a newer version than this package knows."""


class BusyError(StoreError):
    """Another process holds the lock for longer than the time-out."""


class RunNotFoundError(SagError):
    """No run, or more than one, answers to the given name."""


class RunExistsError(SagError):
    """A run of this id is already in the log."""


class ConflictError(SagError):
    """Another writer appended at the expected position first.

    Attributes
    ----------
    run_id : str
    expected : int
        The position this writer wanted.
    winner : object
        The :class:`~sag_research.model.Event` that stands there.
    """

    def __init__(self, run_id: str, expected: int, winner: object) -> None:
        self.run_id, self.expected, self.winner = run_id, expected, winner
        super().__init__(
            f"position {expected} of run {run_id!r} is taken",
            why="another writer appended first",
            fix="read the run again and append after its last event",
        )
        self.args = (run_id, expected, winner)  # what a copy, e.g. in another process, is made of


class BadPayloadError(SagError):
    """A payload cannot be written in canonical form.

    Attributes
    ----------
    path : str
        Where the offending value stands, as in ``$.calls[0].arguments``.
    """

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(
            f"payload refused at {path}", why=why, fix="correct that value and append again"
        )
        self.args = (path, why)


class FormatError(SagError):
    """A file was claimed by a format but cannot be read as such."""


class LabelError(SagError):
    """A label file cannot be understood."""


class WarehouseError(SagError):
    """The warehouse folder is damaged or of a newer version."""


class WriteError(SagError, OSError):
    """A file cannot be written: the disk is full, broken, or may only be read."""


class QueryError(SagError):
    """DuckDB refused a query."""


class MissingDataError(SagError):
    """A bundled data set or an optional package is not there."""


class NotEnoughDataError(SagError):
    """The data cannot carry the number that was asked for."""


class LeakError(SagError):
    """A number would be computed on data that the model has seen."""


class Caught:
    """Keeps the error of a block that runs code of others, for the caller to write down.

    Interrupts and cancellations are no errors of that code and pass.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return self.error is not None
