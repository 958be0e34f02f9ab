"""OpenInference: spans of agents, with what was said in flat, dotted attributes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sag_research.ingest._format import Reading
from sag_research.ingest._source import Source
from sag_research.ingest.formats._span_runs import read_spans
from sag_research.ingest.formats._spans import looks_like_spans

__all__ = ["OpenInference"]

_NAMES: Final = re.compile(
    rb'(?<!\\)"(?:attributes\.)?(?:openinference\.span\.kind|llm\.(?:input|output)_messages[\w.]*)"'
    rb'(?:\s*:|\s*,\s*"value"\s*:)'
)
"""Names of attributes as keys: ``"name":``, or ``"key":"name","value":`` as OTLP has it."""


class OpenInference:
    """OpenInference spans: ``openinference.span.kind``, ``llm.output_messages.0.message.role``.

    Read from OTLP in JSON (one request, or one a line), from the JSON of OpenTelemetry's SDKs for
    Python and JavaScript, from rows of a table (``attributes.…``) and from attributes alone.

    Traps that are honoured

    * Attributes are flat (``message.tool_calls.1.tool_call.function.arguments``), nested, or OTLP's
      typed pairs. A message's text is one attribute, or parts (``contents.0.message_content``).
    * Ids are hex or, in protobuf's JSON, base64; times are nanoseconds as text, pairs of numbers,
      or text. A zero id is none.
    * A trace is a run. Spans stand in the order in which they ended, and links to parents may be
      missing or lead in a circle: the order is that of the starts, or of the file if one has none.
    * A span of kind ``LLM`` is a step: a reply, its calls and its tokens. Outer spans (agents,
      chains, a client's call around the provider's) are none, so tokens are counted once: of two
      model calls in each other that say the same, or of which one says nothing, one is a step.
      Where both say something and it differs, both are steps, and a note says so. A span that is
      there twice is read once.
    * What came back is in spans of kind ``TOOL``, in the messages of the next ``LLM`` span, or in
      both: it is taken once, joined by the id of the call, else by the tool's name. A tool's span
      that no reply asked for is a call of the step before it.
    * The messages of an ``LLM`` span repeat the talk before it. Replies among them that have no
      span in the trace were made elsewhere: they are ``history`` in ``config``, and no steps.
    * A span's status is how it ended. It is no label, so the outcome is unknown. What an export of
      this package put into ``sag.record`` and ``sag.step``, as labels and flags, is taken from
      there.
    * Traces without a reply of a model (embeddings, retrievers) are no runs; they are noted.

    Real files were at hand for flat attributes alone and for JavaScript's spans; OTLP and the
    Python SDK's JSON were compared with what these write for an agent of LangGraph.
    """

    name = "openinference"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim spans that have attributes of OpenInference."""
        return 0.95 if looks_like_spans(head, _NAMES) else 0.0

    def read(self, source: Source) -> Reading:
        """Read the traces."""
        return read_spans(source, "1")
