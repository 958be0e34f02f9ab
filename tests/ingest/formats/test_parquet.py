"""Parquet columns as plain values, whatever their types; and Parquet that is damaged."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest._source import Source
from sag_research.ingest.formats import FORMATS, _parquet, by_name
from tests.ingest.formats.openhands_make import bitten
from tests.ingest.formats.rows_make import container, gym, nebius, rebench, smith

TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
CALLS = st.none() | st.lists(
    st.none()
    | st.fixed_dictionaries({"id": TEXTS, "f": st.none() | st.fixed_dictionaries({"a": TEXTS})}),
    max_size=3,
)
ROWS = st.fixed_dictionaries({"role": TEXTS, "n": st.none() | st.integers(0, 9), "calls": CALLS})
KIND = pa.struct(
    [
        ("role", pa.string()),
        ("n", pa.int64()),
        (
            "calls",
            pa.list_(pa.struct([("id", pa.string()), ("f", pa.struct([("a", pa.string())]))])),
        ),
    ]
)


@settings(max_examples=60)
@given(st.lists(st.none() | st.lists(st.none() | ROWS, max_size=3), max_size=5), st.data())
def test_nested_values_and_slices_of_them(value, data):
    array = pa.array(value, pa.list_(KIND))
    start = data.draw(st.integers(0, len(value)))
    for one in (array, array[start:], array[:start], array.cast(pa.large_list(KIND))):
        assert _parquet.values(one) == one.to_pylist()


@pytest.mark.parametrize(
    "array",
    [
        pa.array([], pa.string()),
        pa.array([], pa.list_(pa.string())),
        pa.array([None, None], pa.string()),
        pa.nulls(3),
        pa.array(["a", None, "é"], pa.large_string()),
        pa.array(["a", None, "a long text, too long to be inlined"], pa.string_view()),
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None])),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array([{}, None], pa.struct([])),
        pa.array([True, None]),
        pa.array([1.5, None, 2.0]),
    ],
)
def test_types_of_every_kind(array):
    assert _parquet.values(array) == array.to_pylist()
    assert _parquet.values(array[1:]) == array[1:].to_pylist()


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_are_taken_for_text(kind):
    array = pa.array([b"a", None, b"\xff", "é".encode()], kind)
    assert _parquet.values(array) == ["a", None, "\udcff", "é"]


def test_text_that_is_no_utf_8_costs_nothing_else():
    spoilt = pa.array([b"good \xc3\xa9", None, b"b\xffd"], pa.binary()).view(pa.string())
    assert _parquet.values(spoilt) == ["good é", None, "b\udcffd"]
    assert _parquet.values(spoilt[1:]) == [None, "b\udcffd"]


@pytest.mark.parametrize("column", [[["a"]], [1], ["x"], [{"role": "ai"}], [[["a"]]]])
def test_messages_of_another_shape_are_refused(tmp_path, column):
    pq.write_table(pa.table({"instance_id": ["a"], "trajectory": column}), tmp_path / "a.parquet")
    reading = by_name("nebius-swe-agent").read(Source(tmp_path / "a.parquet"))
    assert [len(run.steps) for run in reading] in ([], [0])
    assert reading.refused or reading.notes


def test_a_column_that_is_there_twice(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    pq.write_table(twice, tmp_path / "a.parquet")
    for one in FORMATS:
        with suppress(FormatError):
            assert [*one.read(Source(tmp_path / "a.parquet"))] == []


def test_no_rows_at_all(tmp_path):
    table = pa.Table.from_pylist([nebius()])
    pq.write_table(table.slice(0, 0), tmp_path / "a.parquet")
    reading = by_name("nebius-swe-agent").read(Source(tmp_path / "a.parquet"))
    assert ([*reading], reading.refused) == ([], [])


def test_columns_are_read_from_the_file_or_from_all_of_its_content(tmp_path):
    path = container(tmp_path / "a", [nebius()], "parquet")
    data = path.read_bytes()
    below = _parquet.columns_of(data[:100], path)
    assert {"role", "text"} <= below["trajectory"]
    assert _parquet.columns_of(data, tmp_path / "gone") == below
    assert _parquet.columns_of(data[:100], tmp_path / "gone") is None
    path.write_bytes(data[:-9])  # the same path, changed
    assert _parquet.columns_of(data[:100], path) is None


SETS = {
    "nebius-swe-agent": [nebius()] * 3,
    "nebius-openhands": [rebench()] * 3,
    "swe-smith": [smith("tool"), smith("xml")],
    "swe-gym": [gym()] * 3,
    "openai-chat": [{"messages": gym()["messages"]}] * 3,
}


def check_damaged(tmp_path_factory, name, data):
    folder = tmp_path_factory.mktemp("any")
    whole = container(folder / "a", SETS[name], "parquet").read_bytes()
    path = folder / "b.parquet"
    path.write_bytes(data.draw(bitten(whole)))
    with suppress(FormatError):  # nothing else may come out
        reading = by_name(name).read(Source(path))
        for run in reading:
            assert isinstance(run.task_id, str)
        assert all(where and why for where, why in reading.refused)


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=25)
@given(data=st.data())
def test_any_bytes_give_runs_or_a_reason(tmp_path_factory, name, data):
    check_damaged(tmp_path_factory, name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@settings(max_examples=3_000)
@given(data=st.data())
def test_many_more_bytes(tmp_path_factory, name, data):
    check_damaged(tmp_path_factory, name, data)
