"""The append-only event log: the truth from which everything else is projected."""

from sag_research.log._calls import (
    CALL_TYPES,
    CallScope,
    canonical_digest,
    count_calls,
    document_digest,
    find_call,
    has_call,
    has_document,
    put_document,
    read_document,
    rebuild_calls,
    record_call,
)
from sag_research.log._canonical import marked_digest
from sag_research.log._cleaned import write_cleaned
from sag_research.log._holders import holder_of
from sag_research.log._mend import mend
from sag_research.log._merge import MergedRuns, merge_log
from sag_research.log._prepared import (
    PreparedEvent,
    PreparedRun,
    RunWriter,
    keep_bytes,
    keep_text,
    packed_run,
    prepare_event,
    prepare_run,
    writing_runs,
)
from sag_research.log._reading import RawEvent, RawPage
from sag_research.log._redact import (
    Redaction,
    Redactions,
    ToRedact,
    empty_write_ahead_log,
    loose_texts,
    names_in_log,
    redact_all,
)
from sag_research.log._store import Head, SQLiteEventStore
from sag_research.log._verify import Problem, VerifyReport

__all__ = [  # noqa: RUF022
    "Head",
    "Problem",
    "Redaction",
    "Redactions",
    "SQLiteEventStore",
    "VerifyReport",
    "empty_write_ahead_log",
    "holder_of",
    "loose_texts",
    "mend",
    "names_in_log",
    # recorded calls
    "CALL_TYPES",
    "CallScope",
    "count_calls",
    "find_call",
    "has_call",
    "rebuild_calls",
    "record_call",
    # bodies as they are kept
    "RawEvent",
    "RawPage",
    "marked_digest",
    # runs made ready elsewhere
    "PreparedEvent",
    "PreparedRun",
    "RunWriter",
    "keep_bytes",
    "keep_text",
    "packed_run",
    "prepare_event",
    "prepare_run",
    "writing_runs",
    # other logs
    "MergedRuns",
    "merge_log",
    "write_cleaned",
    # what was taken out
    "ToRedact",
    "redact_all",
    # documents
    "canonical_digest",
    "document_digest",
    "has_document",
    "put_document",
    "read_document",
]
