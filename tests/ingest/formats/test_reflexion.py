import gzip
import json

import pytest

from sag_research.errors import FormatError
from sag_research.ingest import ingest
from sag_research.ingest._source import Source
from sag_research.ingest.formats.reflexion import Reflexion
from sag_research.log import SQLiteEventStore
from sag_research.model import Outcome
from tests.ingest.make import write

FORMAT = Reflexion()


def environment(number=0, **more):
    return {"name": f"env_{number}", "memory": [], "is_success": True, **more}


def read(path, value):
    reading = FORMAT.read(Source(write(path, value)))
    return list(reading), reading


def test_environments(tmp_path):
    memory = ["I should look \ud835 <b>first</b>."]
    value = [environment(), environment(1, is_success=False, memory=memory)]
    runs, reading = read(tmp_path / "env_results_trial_5.json", value)
    assert [(run.task_id, run.record, run.attempt) for run in runs] == [
        ("reflexion:env_0", "0", 5), ("reflexion:env_1", "1", 5),
    ]  # fmt: skip
    assert [(run.steps, run.end) for run in runs] == [((), None)] * 2
    assert [run.outcome.outcome for run in runs] == ["success", "failure"]
    assert [run.config for run in runs] == [{}, {"reflections": memory}]
    assert reading.refused == []
    assert read(tmp_path / "x.json", value)[0][0].attempt is None


@pytest.mark.parametrize("said", [None, 0, 1, "true", []])
def test_what_is_neither_true_nor_false_says_nothing(tmp_path, said):
    (run,), _ = read(tmp_path / "x.json", [environment(is_success=said)])
    assert run.outcome is None


def test_what_was_skipped_is_unknown(tmp_path):
    value = [environment(is_success=False, skip=True), environment(is_success=False, skip=False)]
    runs, _ = read(tmp_path / "x.json", value)
    source = "reflexion is_success"
    assert [run.outcome for run in runs] == [
        Outcome(outcome="unknown", detail="skipped", source=source),
        Outcome(outcome="failure", source=source),
    ]


def test_records_that_cannot_be_read(tmp_path):
    value = [3, environment(name=None), environment(2), environment(2, memory="x")]
    runs, reading = read(tmp_path / "x.json", value)
    assert [run.record for run in runs] == ["2", "3"]
    assert reading.refused == [("environment 0", "no object"), ("environment 1", "has no name")]
    with pytest.raises(FormatError, match="no environments"):
        read(tmp_path / "y.json", [{"a": 1}])


@pytest.mark.parametrize("value", [environment(), [{**environment(), "steps": []}], [{"name": 1}]])
def test_what_is_no_result(value):
    assert FORMAT.sniff(json.dumps(value).encode(), None) == 0


# ---- real files


def test_real_results(real_data):
    folder, told = real_data / "reflexion_alfworld", []
    for path in sorted(folder.rglob("*.json.gz")):
        told += json.loads(gzip.decompress(path.read_bytes()))
    with SQLiteEventStore(":memory:") as store:
        report = ingest(store, [folder], progress=False)
        assert report.by_format == {"reflexion": {"files": 4, "runs": 4 * 134, "steps": 0}}
        assert (report.rejected, report.ignored) == ([], [])
        assert {run.attempt for run in store.runs()} == {5, 6, 12}
        events = store.read("@workspace", types=("outcome.recorded",))
        found = [event.payload["outcome"] for event in events]
    assert found.count("success") == sum(one["is_success"] for one in told) == 473
    assert found.count("failure") == 63
