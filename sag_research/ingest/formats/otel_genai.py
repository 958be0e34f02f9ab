"""OpenTelemetry's conventions for generative AI, and the names of others that came before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sag_research.ingest._format import Reading
from sag_research.ingest._source import Source
from sag_research.ingest.formats._span_runs import read_spans
from sag_research.ingest.formats._spans import looks_like_spans

__all__ = ["OtelGenAi"]

_NAMES: Final = re.compile(
    rb'(?<!\\)"(?:attributes\.)?(?:gen_ai\.[\w.]+|ai\.operationId|llm\.request\.type)"'
    rb'(?:\s*:|\s*,\s*"value"\s*:)'
)


class OtelGenAi:
    """OpenTelemetry GenAI spans: ``gen_ai.operation.name``, ``gen_ai.input.messages``.

    Read from the same files as ``openinference``; a file that has attributes of both is taken for
    that one, and is read alike.

    Traps that are honoured

    * Names changed between versions of the conventions: tokens are ``input_tokens`` or
      ``prompt_tokens``; messages are JSON in one attribute (``parts``, or chat messages), numbered
      attributes (``gen_ai.prompt.0.content``, as OpenLLMetry has them), or events of the span
      (``gen_ai.user.message``, ``gen_ai.choice``, ``gen_ai.content.prompt``). The first of these
      that a span has is read.
    * The AI SDK of Vercel writes ``ai.prompt.messages`` and ``ai.response.text``, and two spans for
      one reply: ``ai.generateText`` around ``ai.generateText.doGenerate``, with the same tokens.
      The outer one is a step only where no span of the reply itself is known, by its parents or by
      the provider's id of the reply: the two may stand in different traces.
    * A span of ``invoke_agent`` repeats the replies below it; one of ``execute_tool`` answers the
      call whose id it has, else the open call of its name.
    * Whole numbers are text in OTLP's JSON, and an attribute may be the text of JSON: both are
      decoded once. Finish reasons are in ``state``; they are no outcome.
    * Runs, order, times and ids are those of ``openinference``.

    Real files were at hand for messages in JSON and for Vercel's spans; events, numbered attributes
    and tools' spans were read from the conventions' text alone. Messages that are sent as log
    records, apart from their spans, are not read.
    """

    name = "otel-genai"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim spans that have attributes of the GenAI conventions."""
        return 0.9 if looks_like_spans(head, _NAMES) else 0.0

    def read(self, source: Source) -> Reading:
        """Read the traces."""
        return read_spans(source, "1")
