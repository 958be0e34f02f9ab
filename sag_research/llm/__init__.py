"""Models, and calls that are recorded: asked once, answered again from the log."""

from sag_research.llm._anthropic import Anthropic
from sag_research.llm._asking import PriceTable, Retry
from sag_research.llm._context import Context
from sag_research.llm._errors import (
    CutStream,
    MalformedReply,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
    RateLimited,
    RecordedFailure,
    ReplayMiss,
    ServerFailed,
)
from sag_research.llm._gemini import Gemini
from sag_research.llm._grammar import grammar_of_choices, grammar_of_schema, sample
from sag_research.llm._history import RecordedCall, RecordedCalls, recorded_calls
from sag_research.llm._local import Local, installed_weights
from sag_research.llm._openai import OpenAICompatible
from sag_research.llm._questions import read_request
from sag_research.llm._recorder import Mode
from sag_research.llm._records import (
    Asked,
    Chunk,
    Identity,
    Message,
    Model,
    Reply,
    Request,
    Tool,
    ToolCall,
    as_request,
    join_chunks,
)
from sag_research.llm._scripted import Scripted

__all__ = [  # noqa: RUF022
    # recorded calls
    "Context",
    "Mode",
    "RecordedCall",
    "RecordedCalls",
    "ReplayMiss",
    "RecordedFailure",
    "recorded_calls",
    "read_request",
    # what is asked and answered
    "Asked",
    "Chunk",
    "Identity",
    "Message",
    "Reply",
    "Request",
    "Tool",
    "ToolCall",
    "as_request",
    "join_chunks",
    # models
    "Anthropic",
    "Gemini",
    "Local",
    "Model",
    "OpenAICompatible",
    "PriceTable",
    "Retry",
    "Scripted",
    "installed_weights",
    # holding a model to a form
    "grammar_of_choices",
    "grammar_of_schema",
    "sample",
    # errors of models
    "CutStream",
    "MalformedReply",
    "ModelError",
    "ModelRefused",
    "ModelTimeout",
    "ModelUnreachable",
    "RateLimited",
    "ServerFailed",
]
