"""The append-only event log: the truth from which everything else is projected."""

from sag_research.log._store import Head, SQLiteEventStore
from sag_research.log._verify import Problem, VerifyReport

__all__ = ["Head", "Problem", "SQLiteEventStore", "VerifyReport"]
