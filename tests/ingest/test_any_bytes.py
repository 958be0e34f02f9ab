"""Whatever bytes a file holds, an ingest gives runs or a reason, and the rest goes on."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.ingest import ingest
from sag_research.log import SQLiteEventStore
from tests.ingest.make import mini_file, native, swe_file, tau_result, write

SEEDS = [
    json.dumps(value).encode()
    for value in (
        swe_file(),
        {"history": swe_file()["history"]},
        {"attempts": [swe_file()], "info": {"best_attempt_idx": 0}},
        mini_file(),
        mini_file()["messages"],
        [tau_result(), tau_result(trial=1)],
        native(outcome="success"),
    )
]
NAMES = st.sampled_from(["x.traj", "x.json", "x.jsonl", "x.traj.json", "x.txt"])


@st.composite
def mutations(draw):
    """A good file with bytes changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 12))
        data[place : place + length] = draw(st.binary(max_size=8))
    return bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


@st.composite
def transplants(draw):
    """A good file in which some values were replaced by any JSON."""
    value = json.loads(draw(st.sampled_from(SEEDS)))

    def graft(node):
        if draw(st.integers(0, 15)) == 0:
            return draw(JSON)
        if isinstance(node, dict):
            return {key: graft(item) for key, item in node.items()}
        if isinstance(node, list):
            return [graft(item) for item in node]
        return node

    return json.dumps(graft(value)).encode()


def check(folder, name, data):
    write(folder / "in" / name, data)
    write(folder / "in/good.traj", swe_file())
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder / "in"])
        refused = len(report.ignored) + len(report.rejected)
        assert report.ingested + report.duplicates + refused == report.files == 2
        assert all(reason for _, reason in report.ignored + report.rejected)
        assert report.ingested >= 1
        assert report.runs == len(store.runs()) >= 1
        steps = sum(event.type == "agent.step" for event in store.tail())
        assert steps == report.steps
        assert store.verify().ok
        before = store.last_seq()
        ingest(store, [folder / "in"])
        assert store.last_seq() == before


@given(st.binary(max_size=300), NAMES, st.booleans())
def test_random_bytes(tmp_path_factory, data, name, packed):
    data = gzip.compress(data) if packed else data
    check(tmp_path_factory.mktemp("any"), name, data)


@settings(max_examples=100)
@given(mutations(), NAMES)
def test_damaged_files(tmp_path_factory, data, name):
    check(tmp_path_factory.mktemp("any"), name, data)


@settings(max_examples=150)
@given(transplants(), NAMES)
def test_files_with_strange_values(tmp_path_factory, data, name):
    check(tmp_path_factory.mktemp("any"), name, data)


@pytest.mark.parametrize("opening", [b"[", b'{"trajectory":', b'{"messages":[{"role":', b'[{"a":'])
@pytest.mark.parametrize("depth", [900, 200_000])
def test_deep_nesting(tmp_path, opening, depth):
    check(tmp_path, "x.traj", opening * depth)


@pytest.mark.parametrize("depth", [90, 900, 200_000])
def test_deep_nesting_inside_a_step(tmp_path, depth):
    nest = b"[" * depth + b"]" * depth
    check(tmp_path, "x.traj", b'{"trajectory": [{"action": "ls", "state": ' + nest + b"}]}")
