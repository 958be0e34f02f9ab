"""Inspect AI logs: ``.eval`` archives and ``.json``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import FormatError
from sag_research.ingest._format import Reading
from sag_research.ingest._json import loads, outline
from sag_research.ingest._source import Source
from sag_research.ingest.formats import _shared as shared
from sag_research.ingest.formats._inspect_json import take
from sag_research.ingest.formats._inspect_sample import Log, read_sample
from sag_research.ingest.formats._inspect_zip import Archive, Entry, first_name, opened
from sag_research.ingest.formats._openhands_turns import key, mapping
from sag_research.model import Trajectory

__all__ = ["Inspect"]

_ZIP: Final = b"PK\x03\x04"
_OURS: Final = re.compile(r"_journal/.*|samples/.*\.json|(?:header|summaries|reductions)\.json")
_SAMPLE: Final = re.compile(r"samples/(?P<record>.+)\.json", re.DOTALL)
_SUMMARIES: Final = re.compile(r"summaries\.json|_journal/summaries/.+\.json")
_HEADERS: Final = ("header.json", "_journal/start.json")
_LOG: Final = {"version", "status", "plan", "stats", "results", "samples"}
_EVAL: Final = {"task", "model", "dataset", "run_id", "created"}
_DECODER: Final = msgspec.json.Decoder(Log)


class Inspect:
    """Inspect AI logs: a zip archive (``.eval``) or one object (``.json``).

    Traps that are honoured

    * Entries of the archive are packed by deflate or, in current versions, by zstd. They are read
      one at a time. An archive that is damaged or was cut short is read by the headers of its
      entries; where ``header.json`` is missing the run died, and ``_journal/start.json`` stands
      in for it. A bad sample costs that sample; one of which only the summary is left is listed.
      Names inside the archive are labels, never paths.
    * A sample is a run, known by its id, which may be a number, and its epoch.
    * Any text may be a reference to ``attachments``; messages that a model was sent may be
      ranges in a pool. Neither what a model was sent before its last reply, nor events of other
      kinds, is built: of 40,000 events those of models and tools are.
    * Steps are the replies in the events, or the assistant's messages where there are no events.
      What came back comes from the tools' events or, where an agent outside of Inspect ran them,
      from what the model was sent next. A call without a reply is no step (``failed_calls``).
    * Calls of the model inside a scorer are the judge's and no steps. Those inside a tool, a
      handoff, a subtask, or an agent inside an agent are runs of their own, relation
      ``subagent``, behind the step that called them; so is an agent that begins while another is
      at work. Agents one after another are one run; ``state`` names them. Branches are forks at
      their anchor, without what they replayed.
    * An earlier attempt at a sample is a run, if the model replied in it; its outcome is unknown.
    * Tokens are counted once per reply. Cached input is part of the input. A reply that came
      from Inspect's own cache has the flag ``cached`` and no tokens. ``model_usage`` counts the
      scorers' models as well, and is kept in ``config``.
    * The outcome comes from the scores: ``C`` success, ``I`` failure, ``N`` failure (``empty``:
      no answer), 1 and 0, true and false. ``P`` and numbers between are unknown (``partial``), as
      are numbers of a scorer that goes beyond 1 (``scale``), and scorers that contradict each
      other (``conflict``). An error is unknown (``infra``), unless the task scores errors. All
      scores are in ``config``.
    * ``logs.json`` beside the logs is an index of them and no log.
    * The state of the store is not kept.
    """

    name = "inspect"

    def sniff(self, head: bytes, path: Path) -> float:
        """Claim archives that begin with a log's entry, and objects that describe an evaluation."""
        if head.startswith(_ZIP):
            return 0.95 if _OURS.fullmatch(first_name(head)) else 0.0
        seen = outline(head)
        if seen.root != "object" or len(seen.below("eval") & _EVAL) < 3:
            return 0.0
        return 0.95 if len(_LOG & set(seen.keys)) >= 2 or not seen.complete else 0.0

    def read(self, source: Source) -> Reading:
        """Read all samples, one at a time."""
        notes: list[str] = []
        refused: list[tuple[str, str]] = []
        if source.head.startswith(_ZIP):
            with opened(source) as archive:
                log = _header(archive, notes)
            return Reading(log.release, _archived(source, log, notes, refused), notes, refused)
        log = take(source.bytes(), _DECODER)
        if not mapping(log.eval):
            raise FormatError("JSON of another shape", why="no object at $.eval")
        return Reading(log.release, _listed(log, notes, refused), notes, refused)


def _listed(log: Log, notes: list[str], refused: list[tuple[str, str]]) -> Iterator[Trajectory]:
    names: set[str] = set()
    if not log.samples:
        notes.append("the log holds no samples")
    for number, raw in enumerate(log.samples or []):
        try:
            yield from read_sample(raw, log, names, notes)
        except FormatError as error:
            refused.append((f"sample {number}", str(error)))


# ---- archives


def _header(archive: Archive, notes: list[str]) -> Log:
    entries = {entry.name: entry for entry in archive.entries}
    if archive.damage:
        notes.append(f"{archive.damage}; {len(entries)} entries were found by their own headers")
    if archive.replaced:
        notes.append(f"{archive.replaced} entries were written again: the last one counts")
    if _HEADERS[0] not in entries:
        notes.append("header.json is missing: the evaluation was not finished")
    for name in _HEADERS:
        if name in entries:
            try:
                return take(archive.read(entries[name]), _DECODER)
            except FormatError as error:
                notes.append(f"{name}: {error}")
    return Log()


def _archived(
    source: Source, log: Log, notes: list[str], refused: list[tuple[str, str]]
) -> Iterator[Trajectory]:
    names: set[str] = set()
    with opened(source) as archive:
        found = [(_SAMPLE.fullmatch(entry.name), entry) for entry in archive.entries]
        samples = {name["record"]: entry for name, entry in found if name}
        for record, entry in samples.items():
            try:
                yield from read_sample(archive.read(entry), log, names, notes)
            except FormatError as error:
                refused.append((f"sample {record}", str(error)))
            if archive.is_bomb:
                raise FormatError("the archive expands far beyond its size")
        refused += [
            (f"sample {record}", "only its summary is left")
            for record in _summarised(archive)
            if record not in samples
        ]
    if not samples:
        notes.append("the log holds no samples")


def _summarised(archive: Archive) -> list[str]:
    """Return the samples of which there are summaries, each once."""
    found: dict[str, None] = {}
    for entry in archive.entries:
        if _SUMMARIES.fullmatch(entry.name):
            found.update(dict.fromkeys(_summaries(archive, entry)))
    return list(found)


def _summaries(archive: Archive, entry: Entry) -> Iterator[str]:
    try:
        value: Any = loads(archive.read(entry))
    except FormatError:  # says nothing about samples, which are there or not
        return
    for one in value if isinstance(value, list) else []:
        name = key(mapping(one).get("id"))
        if name is not None:
            yield f"{name}_epoch_{shared.integer(one.get('epoch')) or 1}"
