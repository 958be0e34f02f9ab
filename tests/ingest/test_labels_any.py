"""Whatever a label file holds: labels, or an error that says what is wrong; never more."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sag_research.errors import LabelError
from sag_research.ingest import read_labels
from sag_research.ingest._copies_spelling import Deed, fingerprint, sketch
from tests.ingest.make import write
from tests.ingest.test_labels_trials import harbor, terminal_bench

KEYS = st.sampled_from(
    ["resolved", "resolved_ids", "ids_unresolved", "instance_id", "task_id", "outcome", "report",
     "test_result", "all_results", "results", "is_resolved", "verifier_result", "rewards",
     "trial_name", "error_eval", "model", "instances", "a"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 2), st.floats(), st.sampled_from(["", "x", "\ud800"])
)
VALUES = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=5)
)
FEW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "r/report.json"


def labels_or_error(path, data):
    said, labels = "", []
    try:
        labels = list(read_labels(write(path, data)))
    except LabelError as error:
        said = str(error)
    assert labels or "report.json" in said
    for label in labels:
        assert label.outcome.outcome in {"success", "failure", "unknown"}
        assert label.outcome.source == "r/report.json"
        assert label.key


@FEW
@given(value=VALUES)
def test_any_json(path, value):
    labels_or_error(path, json.dumps(value).encode())


@FEW
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), seed=st.integers(0, 2))
def test_any_byte_of_a_report(path, place, byte, seed):
    value = (harbor(1.0), terminal_bench(None), {"resolved_ids": ["a"], "error_ids": ["b"]})[seed]
    data = bytearray(json.dumps(value).encode())
    data[place % len(data)] = byte
    labels_or_error(path, bytes(data))


@pytest.mark.parametrize("text", ["<function=", "</parameter=a", "```\n", "--a ", "a {", '{"a":'])
def test_hostile_actions_come_to_an_end(text):
    deed = Deed(text * (3_000_000 // len(text)))
    assert sketch([deed]) == sketch([Deed(deed.text)])
    assert fingerprint([deed], [deed.text]).n_actions == 1


@FEW
@given(value=VALUES)
def test_any_arguments(value):
    deed = Deed("", "tool", {"a": value})
    assert sketch([deed]) == sketch([Deed("", "tool", {"b": value})])
