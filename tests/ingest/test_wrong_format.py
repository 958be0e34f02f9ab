"""A format that is named for files of another one: it takes nothing for good unless it is told."""

import re

import pytest

from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats import by_name, claimed
from sag_research.log import SQLiteEventStore
from tests.conformance.test_formats import EXAMPLES
from tests.ingest.make import mini_file, native, write


@pytest.fixture
def store():
    with SQLiteEventStore(":memory:") as store:
        yield store


@pytest.mark.parametrize("own", EXAMPLES)
def test_what_another_format_is_sure_of_can_still_be_read_rightly(tmp_path, own):
    objected = 0
    made = [make(tmp_path / str(number)) for number, make in enumerate(EXAMPLES[own])]
    paths = [path for several in made for path in several]
    for named in EXAMPLES:
        for path in paths:
            with SQLiteEventStore(":memory:") as store:
                report = ingest(store, [path], format=named, progress=False)
                if named == own or (path.is_file() and claimed(Source(path), [by_name(named)])[1]):
                    continue
                assert (report.ingested, store.runs()) == (0, [])
                objected += 1
                assert ingest(store, [path], progress=False).by_format.keys() == {own}
    assert objected


def test_the_refusal_says_how_to_force_it(store, tmp_path):
    path = write(tmp_path / "x.traj.json", mini_file())
    ((_, reason),) = ingest(store, [path], format="swe-gym").rejected
    assert re.match(r"it looks like mini-swe-agent, not swe-gym: .* \(swe-gym!\)$", reason)
    assert ingest(store, [path], format="swe-gym!").by_format["swe-gym"]["steps"] == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_are_told_as_well(store, tmp_path, jobs):
    for number in range(3):
        write(tmp_path / f"{number}.traj.json", mini_file(instance_id=f"i{number}"))
    assert ingest(store, [tmp_path], format="swe-gym", jobs=jobs).ingested == 0
    assert ingest(store, [tmp_path], format="swe-gym!", jobs=jobs).ingested == 3


def test_a_format_that_claims_a_file_a_little_may_have_it(store, tmp_path):
    talk = mini_file()["messages"]
    path = write(tmp_path / "x.json", {"messages": talk, "id": "a"})
    assert ingest(store, [path], format="openai-chat").by_format["openai-chat"]["runs"] == 1


def test_what_no_format_is_sure_of_is_read_as_asked(store, tmp_path):
    path = write(tmp_path / "x.jsonl", {**native(), "steps": [{"action": "ls", "wrong": 1}]})
    assert "allowed" in ingest(store, [path], format="native").rejected[0][1]
