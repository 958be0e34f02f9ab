"""The page on the native record says what the reader does."""

import json
import re
from pathlib import Path

import pytest

from sag_research.errors import BadPayloadError
from sag_research.ingest import add
from sag_research.ingest.formats import native
from sag_research.log import SQLiteEventStore
from tests.ingest import make

PAGE = (Path(__file__).parents[2] / "docs/native.md").read_text(encoding="utf-8")
SHAPES = {
    "The run": native._Record,
    "The step": native._Step,
    "The call": native._Call,
    "Usage": native._Usage,
    "The outcome object": native._Outcome,
}


def table(title):
    """First three cells of each row under a heading."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|", section, re.MULTILINE)
    return {field: (kind, default) for field, kind, default in rows}


@pytest.mark.parametrize("title", SHAPES)
def test_each_field_is_in_its_table(title):
    assert tuple(table(title)) == SHAPES[title].__struct_fields__


@pytest.mark.parametrize("title", SHAPES)
def test_what_is_needed_is_said(title):
    shape = SHAPES[title]
    count = len(shape.__struct_fields__) - len(shape.__struct_defaults__)
    needed = [field for field, (_, default) in table(title).items() if default == "needed"]
    assert tuple(needed) == shape.__struct_fields__[:count]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_run():
    names = {}
    *_, query = blocks("python")
    for block in blocks("python"):
        exec(compile(block, "native.md", "exec"), names)
    ws, run = names["ws"], names["run"]
    assert ws.runs()["outcome"].tolist() == ["failure"]
    assert ws.steps(run)["n_calls"].tolist() == [1, 2]
    text = query.partition('"""')[2].partition('"""')[0]
    assert ws.sql(text).rows() == [(run, "v3")]
    ws.close()


def test_the_least_record_is_enough():
    (line,) = blocks("json")
    with SQLiteEventStore(":memory:") as store:
        assert add(store, json.loads(line))


@pytest.mark.parametrize(
    ("record", "taken"),
    [
        (make.native(model=None, usage=None, goal=None, attempt=None, end=None), True),
        (
            make.native(steps=[{"thought": None, "action": None, "usage": {"tokens_in": None}}]),
            True,
        ),
        (make.native(config=None), False),
        (make.native(steps=[{"calls": None}]), False),
        (make.native(attempt="1"), False),
        (make.native(model=1), False),
        (make.native(attempt=2**53 + 1), False),
        (make.native(steps=[]), True),
        (make.native(usage={"cost_usd": float("nan")}), False),
        (make.native(config={"n": float("inf"), "deep": [[[{}]]]}), True),
        (make.native(usage={"tokens_in": 0}), True),
        (make.native(usage={"tokens_in": -1}), False),
        (make.native(config={"n": object()}), False),
        (make.native(config={1: "n"}), False),
    ],
)
def test_what_is_refused(record, taken):
    with SQLiteEventStore(":memory:") as store:
        if taken:
            assert add(store, record)
        else:
            with pytest.raises(BadPayloadError):
                add(store, record)


def test_ids_are_as_the_page_says(tmp_path):
    with SQLiteEventStore(":memory:") as store:
        first = add(store, make.native())
        assert add(store, make.native()) == first
        assert add(store, make.native(attempt=1)) != first
        assert add(store, make.native(config={"copy": 2})) != first
