"""Whatever happens to the bytes of an OpenHands file: runs, or a reason."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats.openhands import OpenHands
from sag_research.ingest.formats.openhands_completions import OpenHandsCompletions
from sag_research.ingest.formats.openhands_output import OpenHandsOutput
from sag_research.ingest.formats.openhands_sdk import OpenHandsSdk
from tests.ingest.formats.openhands_make import (
    act,
    bitten,
    completion,
    got,
    lines,
    record,
    said,
    v0_events,
)
from tests.ingest.make import write

GOOD = {
    OpenHands: json.dumps(v0_events()).encode(),
    OpenHandsOutput: lines(record(), record()),
    OpenHandsCompletions: json.dumps(completion()).encode(),
    OpenHandsSdk: lines(said("u", "Go."), act("a", "ls", "r"), got("o", "call-a", "x")),
}


@pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.name)
def test_any_bytes_give_runs_or_a_reason(tmp_path_factory, kind):
    folder = tmp_path_factory.mktemp("bytes")

    @settings(max_examples=60)
    @given(bitten(GOOD[kind]))
    def check(data):
        source = Source(write(folder / "x-1757015076.json", data))
        kind().sniff(data[:4096], source.path)
        with suppress(FormatError):  # nothing else may come out
            reading = kind().read(source)
            assert list(reading) or reading.refused

    check()


@pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.name)
def test_texts_keep_their_odd_characters(tmp_path, kind):
    odd = GOOD[kind].replace(b'"ls"', b'"ls \\ud835 \\u0000 \xff"').replace(b'\\"ls', b'\\"ls \xff')
    runs = list(kind().read(Source(write(tmp_path / "x.json", odd))))
    assert any("\udcff" in step.action for run in runs for step in run.steps)


@pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.name)
@pytest.mark.parametrize("opening", [b"[", b'{"history":', b'[{"args":', b'{"kind":'])
def test_deep_nesting_is_refused(tmp_path, kind, opening):
    source = Source(write(tmp_path / "x.json", opening * 100_000))
    with pytest.raises(FormatError):
        list(kind().read(source))
