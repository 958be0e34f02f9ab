"""Whatever happens to the bytes of an Inspect, ATIF or tau2 file: runs, or a reason."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest._events import step_payload
from sag_research.ingest._source import Source
from sag_research.ingest.formats.atif import Atif
from sag_research.ingest.formats.inspect import Inspect
from sag_research.ingest.formats.tau2 import Tau2
from tests.ingest.formats import test_atif, test_tau2
from tests.ingest.formats.inspect_make import deflated, entries, log, reply, sample, span, zipped
from tests.ingest.formats.openhands_make import bitten, damaged
from tests.ingest.make import write

TREE = sample(
    span("main", "agent"),
    reply("m1", "one"),
    span("left", "branch", "main"),
    {"event": "branch", "span_id": "left", "from_span": "main", "from_anchor": "m1"},
    reply("m3", "two", where="left", sent=[], input_refs=[[0, 1]]),
    message_pool=[{"role": "user", "content": "Go."}],
    error_retries=[{"message": "x", "events": [reply("m0", "zero")]}],
)
VOICE = test_tau2.simulation(
    messages=None, ticks=[test_tau2.tick(0, agent="I", agent_tool_calls=[test_tau2.asked("f")])]
)
NESTED = test_atif.trajectory(test_atif.agent("x"), subagent_trajectories=[test_atif.trajectory()])
VALUES = [
    (Inspect(), log(sample(), TREE)),
    (Atif(), NESTED),
    (Atif(), [test_atif.trajectory()]),
    (Atif(), test_atif.trajectory()["steps"]),
    (Tau2(), test_tau2.results()),
    (Tau2(), VOICE),
]
ARCHIVES = [
    deflated(entries(sample(), TREE | {"id": "t"})),
    zipped(entries(sample(), TREE | {"id": "t"})),
    zipped(entries(sample(), TREE | {"id": "t"}), 8, later=True),
    zipped(entries(sample(), TREE | {"id": "t"}), 0),
]


def check(format_, path, data):
    source = Source(write(path, data))
    format_.sniff(data[:4096], source.path)
    with suppress(FormatError):  # nothing else may come out
        reading = format_.read(source)
        runs = list(reading)
        records = [run.record for run in runs]
        assert len(set(records)) == len(records)
        assert all(run.parent in records[:n] for n, run in enumerate(runs) if run.parent)
        for run in runs:
            for step in run.steps:
                step_payload(step)
        assert all(reason for _, reason in reading.refused)


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_any_bytes_give_runs_or_a_reason(tmp_path_factory, number):
    folder = tmp_path_factory.mktemp("bytes")
    format_, value = VALUES[number]

    @settings(max_examples=40)
    @given(bitten(json.dumps(value).encode()))
    def bite(data):
        check(format_, folder / "x.json", data)

    bite()


@pytest.mark.parametrize("number", range(len(ARCHIVES)))
def test_any_archive_gives_runs_or_a_reason(tmp_path_factory, number):
    folder = tmp_path_factory.mktemp("bytes")

    @settings(max_examples=40)
    @given(bitten(ARCHIVES[number]))
    def bite(data):
        check(Inspect(), folder / "x.eval", data)

    bite()


@pytest.mark.parametrize("number", range(len(ARCHIVES)))
def test_an_archive_cut_anywhere(tmp_path_factory, number):
    folder = tmp_path_factory.mktemp("cut")

    @settings(max_examples=30)
    @given(st.integers(0, len(ARCHIVES[number])))
    def cut(stop):
        check(Inspect(), folder / "x.eval", ARCHIVES[number][:stop])

    cut()


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_any_values_give_runs_or_a_reason(tmp_path_factory, number):
    folder = tmp_path_factory.mktemp("values")
    format_, value = VALUES[number]

    @settings(max_examples=40)
    @given(damaged(value))
    def harm(harmed):
        check(format_, folder / "x.json", json.dumps(harmed).encode())

    harm()


@pytest.mark.parametrize("format_", [Inspect(), Atif(), Tau2()], ids=lambda one: one.name)
@pytest.mark.parametrize(
    "opening",
    [b"[", b'{"eval":{"task":', b'{"samples":[{"events":[', b'{"steps":[{"message":',
     b'{"simulations":[{"messages":[', b'[{"steps":['],
)  # fmt: skip
def test_deep_nesting_is_refused(tmp_path, format_, opening):
    source = Source(write(tmp_path / "x.json", opening * 50_000))
    with pytest.raises(FormatError):
        list(format_.read(source))


@pytest.mark.parametrize("depth", [90, 900, 100_000])
def test_deep_nesting_inside_costs_its_part(tmp_path, depth):
    nest = b"[" * depth + b"]" * depth
    data = json.dumps(log(sample(), sample(epoch=2, metadata="NEST"))).encode()
    check(Inspect(), tmp_path / "x.json", data.replace(b'"NEST"', nest))
    assert list(Inspect().read(Source(tmp_path / "x.json")))
