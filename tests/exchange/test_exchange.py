"""Event logs for process mining: valid, complete, the same twice, and safe with hostile text."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import re
import tracemalloc
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.dom import minidom
from xml.parsers import expat

import pytest

import sag_research as sag
from sag_research._text import REPLACEMENT
from sag_research.errors import NotEnoughDataError
from sag_research.exchange import ExportReport, Trace, export_csv, export_xes, traces

HOSTILE = 'a<b>&"\'\n\tc\r \x1b[31m\x00 \ud835 ]]> \u202e =1+1 <!ENTITY x SYSTEM "file:///etc">'
STEPS = [
    {"thought": "t", "action": "cat src/a.py", "observation": HOSTILE},
    {"thought": "", "action": "pytest -q", "observation": "1 failed in 0.1s"},
]


@pytest.fixture(scope="module")
def ws() -> Iterator[sag.Workspace]:
    with sag.open(":memory:") as workspace:
        base = {"repo": "acme/a", "agent": "swe", "steps": STEPS}
        workspace.add(base | {"task_id": "t1", "model": "m<1>", "outcome": "success"})
        workspace.add(base | {"task_id": "t2", "model": "m<1>", "outcome": "failure"})
        workspace.add(base | {"task_id": "=t3", "model": "m2"})
        yield workspace


# ---- an XES validator of our own: the structure that IEEE 1849 prescribes

NAME = re.compile(r"[A-Za-z_:][\w:.-]*")
VALUE = {
    "string": re.compile(r".*", re.DOTALL),
    "int": re.compile(r"[+-]?\d+"),
    "float": re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?|NaN|-?INF"),
    "boolean": re.compile(r"true|false|0|1"),
    "date": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"),
}
ORDER = ("extension", "global", "classifier", "attribute", "trace", "event")


def problems(document: bytes) -> list[str]:
    """List what breaks the structure, types and promises of an XES document."""
    log = ET.fromstring(document)
    found = [] if log.tag == "log" else [f"root {log.tag}"]
    if not re.fullmatch(r"\d+\.\d+", log.get("xes.version", "")):
        found.append("xes.version is no decimal")
    kinds = ["attribute" if child.tag in VALUE else child.tag for child in log]
    places = [ORDER.index(kind) if kind in ORDER else -1 for kind in kinds]
    if places != sorted(places) or -1 in places:
        found.append("children of log out of order")
    for child in log.iter():
        if child.tag in VALUE:
            found += _attribute(child)
    for trace in log.findall("trace"):
        tags = ["event" if child.tag == "event" else "" for child in trace]
        if tags != sorted(tags):
            found.append("attributes of a trace after its events")
    return found + _promises(log)


def _attribute(element: ET.Element) -> list[str]:
    found = []
    if not NAME.fullmatch(element.get("key", "")):
        found.append(f"key {element.get('key')!r}")
    if not VALUE[element.tag].fullmatch(element.get("value") or ""):
        found.append(f"{element.get('value')!r} is no {element.tag}")
    return found


def _promises(log: ET.Element) -> list[str]:
    """Global attributes are on every element, classifiers use only those, prefixes are declared."""
    found = []
    for declared in log.findall("global"):
        keys = {a.get("key") for a in declared}
        for element in log.iter(declared.get("scope", "")):
            missing = keys - {a.get("key") for a in element}
            found += [f"{declared.get('scope')} without {key}" for key in missing]
    of_events = {a.get("key") for a in log.findall("global[@scope='event']/*")}
    for classifier in log.findall("classifier"):
        keys = set((classifier.get("keys") or "").split())
        found += [f"classifier uses {key}" for key in keys - of_events]
    known = {e.get("prefix") for e in log.findall("extension")}
    for element in log.iter():
        prefix, colon, _ = (element.get("key") or "").partition(":")
        if colon and prefix not in known:
            found.append(f"prefix {prefix} is not declared")
    for element in (*log.iter("trace"), *log.iter("event")):
        keys = [a.get("key") for a in element if a.tag in VALUE]
        found += [f"{key} twice" for key in {k for k in keys if keys.count(k) > 1}]
    return found


HEAD = '<log xes.version="1849.2016">'


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ('<log><trace/></log>', "no decimal"),
        (f'{HEAD}<trace/><global scope="event"/></log>', "out of order"),
        (f'{HEAD}<trace><event/><string key="a" value=""/></trace></log>', "after its events"),
        (f'{HEAD}<trace><int key="a" value="1.5"/></trace></log>', "'1.5' is no int"),
        (f'{HEAD}<trace><date key="a" value="yesterday"/></trace></log>', "is no date"),
        (f'{HEAD}<trace><int key="x:a" value="1"/></trace></log>', "not declared"),
        (f'{HEAD}<trace><int key="9" value="1"/></trace></log>', "key '9'"),
        (f'{HEAD}<global scope="trace"><int key="a" value="0"/></global><trace/></log>',
         "trace without a"),
        (f'{HEAD}<classifier name="n" keys="b"/></log>', "classifier uses b"),
        (f'{HEAD}<trace><int key="a" value="1"/><int key="a" value="2"/></trace></log>', "a twice"),
    ],
)  # fmt: skip
def test_the_validator_finds(document: str, problem: str) -> None:
    assert any(problem in line for line in problems(document.encode()))


# ---- XES


def values(element: ET.Element) -> dict[str, str]:
    return {a.get("key", ""): a.get("value", "") for a in element if a.tag != "event"}


def test_xes_is_valid_and_says_what_the_runs_did(ws: sag.Workspace, tmp_path: Path) -> None:
    report = export_xes(ws, tmp_path / "log.xes")
    document = (tmp_path / "log.xes").read_bytes()
    assert problems(document) == []
    log = ET.fromstring(document)
    cases = [values(trace) for trace in log.findall("trace")]
    assert [case["task_id"] for case in cases] == ["=t3", "t1", "t2"]
    assert [case["outcome"] for case in cases] == ["unknown", "success", "failure"]
    events = [values(event) for event in log.findall("trace")[1].findall("event")]
    assert [event["order"] for event in events] == ["0", "1"]
    assert events[1]["concept:name"] == "test|none|test-fail"
    assert (events[1]["verb"], events[1]["result"]) == ("test", "test-fail")
    assert events[0]["org:resource"] == "m<1>"
    # nothing says when the steps were, so no time is made up
    assert b"time:timestamp" not in document
    assert "observation" not in events[0]
    assert report.to_dict() == {
        "path": str(tmp_path / "log.xes"), "format": "xes", "runs": 3, "steps": 6,
        "without_time": 6, "replaced": 0, "guarded": 0,
    }  # fmt: skip


def test_texts_come_back_as_they_were_but_for_what_xml_cannot_hold(
    ws: sag.Workspace, tmp_path: Path
) -> None:
    report = export_xes(
        ws, tmp_path / "log.xes", where="task_id = ?", parameters=["t1"], texts=True
    )
    document = (tmp_path / "log.xes").read_bytes()
    assert problems(document) == []
    # the log already holds U+FFFD for the half character and NUL; ESC is left to replace here
    expected = HOSTILE.translate({0x1B: REPLACEMENT, 0xD835: REPLACEMENT, 0: REPLACEMENT})
    event = ET.fromstring(document).find("trace/event")
    assert event is not None
    assert values(event)["observation"] == expected
    assert report.replaced == 1
    # a reader that shares no code with the first one
    dom = minidom.parseString(document)
    seen = [e.getAttribute("value") for e in dom.getElementsByTagName("string")
            if e.getAttribute("key") == "observation"]  # fmt: skip
    assert seen == [expected, "1 failed in 0.1s"]


def test_no_entity_is_declared(ws: sag.Workspace, tmp_path: Path) -> None:
    export_xes(ws, tmp_path / "log.xes", texts=True)
    declared: list[Any] = []
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = lambda *seen: declared.append(seen)
    parser.EntityDeclHandler = lambda *seen: declared.append(seen)
    parser.Parse((tmp_path / "log.xes").read_bytes(), True)
    assert declared == []


WHEN = dt.datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=dt.UTC)
TIMED = Trace(
    {"run_id": "r1", "cost_usd": 0.25, "score": object()},
    [
        {
            "token": "edit|src|ok",
            "started_at": WHEN.replace(tzinfo=None),
            "seconds": 1.5,
            "cost_usd": 0.25,
        },
        {"token": "own", "exit_code": 2**63, "seconds": float("inf")},
    ],
)


def test_times_and_costs_where_they_are_known(tmp_path: Path) -> None:
    report = export_xes([TIMED], tmp_path / "log.xes")
    document = (tmp_path / "log.xes").read_bytes()
    assert problems(document) == []
    trace = ET.fromstring(document).find("trace")
    assert trace is not None
    assert values(trace) == {"concept:name": "r1", "outcome": "unknown", "cost:total": "0.25",
                             "cost:currency": "USD"}  # fmt: skip
    first, second = (values(event) for event in trace.findall("event"))
    assert first["time:timestamp"] == "2026-01-02T03:04:05.600+00:00"
    assert first["seconds"] == "1.5"
    assert first["cost:total"] == "0.25"
    assert "time:timestamp" not in second
    assert (second["verb"], second["object"], second["order"]) == ("own", "none", "1")
    # beyond what XES's numbers hold
    assert (second["exit_code"], second["seconds"]) == (str(2**63), "inf")
    assert (report.runs, report.steps, report.without_time) == (1, 2, 1)


def test_the_same_runs_give_the_same_bytes(ws: sag.Workspace, tmp_path: Path) -> None:
    for write, name in ((export_xes, "a.xes"), (export_xes, "a.xes.gz"), (export_csv, "a.csv.gz")):
        write(ws, tmp_path / name, texts=True)
        first = (tmp_path / name).read_bytes()
        write(ws, tmp_path / name, texts=True)
        assert (tmp_path / name).read_bytes() == first
    packed = gzip.decompress((tmp_path / "a.xes.gz").read_bytes())
    assert packed == (tmp_path / "a.xes").read_bytes()


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    def broken() -> Iterator[Trace]:
        yield TIMED
        raise KeyError("token")

    for write, name in ((export_xes, "a.xes"), (export_csv, "a.csv"), (export_csv, "a.csv.gz")):
        (tmp_path / name).write_bytes(b"old")
        with pytest.raises(KeyError):
            write(broken(), tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 3


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    def many(n: int) -> Iterator[Trace]:
        for i in range(n):
            yield Trace({"run_id": f"r{i}"}, [{"token": "look|src|ok", "action": "x" * 2000}] * 20)

    def peak(n: int) -> int:
        tracemalloc.start()
        export_xes(many(n), tmp_path / "log.xes", texts=True)
        export_csv(many(n), tmp_path / "log.csv", texts=True)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(5)
    few, more = peak(20), peak(200)
    assert (tmp_path / "log.xes").stat().st_size > 8_000_000
    assert more < few + 500_000


# ---- CSV


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_the_columns_that_tools_ask_for(ws: sag.Workspace, tmp_path: Path) -> None:
    report = export_csv(ws, tmp_path / "log.csv")
    found = rows(tmp_path / "log.csv")
    assert list(found[0])[:6] == ["case_id", "activity", "timestamp", "order", "resource", "group"]
    assert "observation" not in found[0]
    assert len(found) == report.steps == 6
    assert len({row["case_id"] for row in found}) == report.runs == 3
    assert [(row["order"], row["activity"]) for row in found if row["task_id"] == "t2"] == [
        ("0", "look|src|ok"), ("1", "test|none|test-fail"),
    ]  # fmt: skip
    assert {row["timestamp"] for row in found} == {""}
    assert {row["exit_code"] for row in found} == {""}  # unknown is empty, never 0


def test_csv_cells_are_no_formulas_and_hold_lines(ws: sag.Workspace, tmp_path: Path) -> None:
    report = export_csv(ws, tmp_path / "log.csv", texts=True)
    found = rows(tmp_path / "log.csv")
    assert sum(row["task_id"] == "'=t3" for row in found) == 2
    # task id and run id of two steps
    assert report.guarded == 4
    assert found[0]["observation"].startswith("a<b>&\"'\n\tc\r ")


def test_csv_writes_times_in_utc(tmp_path: Path) -> None:
    tokyo = WHEN.astimezone(dt.timezone(dt.timedelta(hours=9)))
    later = Trace({"run_id": "r2"}, [{"token": "a", "started_at": tokyo}])
    export_csv([TIMED, later], tmp_path / "log.csv")
    assert [row["timestamp"] for row in rows(tmp_path / "log.csv")] == [
        "2026-01-02T03:04:05.600+00:00", "", "2026-01-02T03:04:05.600+00:00",
    ]  # fmt: skip


# ---- which runs


def test_forks_and_copied_steps_are_no_observations_of_their_own(tmp_path: Path) -> None:
    with sag.open(tmp_path / "w") as ws:
        run = ws.add({"task_id": "t", "steps": STEPS, "outcome": "failure"})
        assert isinstance(run, str)
        ws.fork(run, step=0, run_id="child")
        assert [trace.case["run_id"] for trace in traces(ws)] == [run]
        with pytest.raises(NotEnoughDataError, match="forks, extractions, copies and hidden runs"):
            list(traces(ws, "run_id = 'child'"))
        assert not (tmp_path / "no.xes").exists()


def test_portions_do_not_change_what_is_read(
    ws: sag.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(traces(ws, texts=True))
    monkeypatch.setattr("sag_research.exchange._traces.CHUNK_STEPS", 1)
    assert list(traces(ws, texts=True)) == whole
    assert [len(trace.events) for trace in whole] == [2, 2, 2]


def test_a_vocabulary_of_ones_own(ws: sag.Workspace) -> None:
    from sag_research.extract import Vocabulary

    own = Vocabulary(function=lambda step: "short" if len(step["action"]) < 10 else "long")
    assert [e["token"] for e in next(traces(ws, vocabulary=own)).events] == ["long", "short"]


def test_report_in_one_line() -> None:
    report = ExportReport(Path("a"), "csv", 1200, 9, 0, 3, 2)
    assert repr(report) == (
        "ExportReport(csv: 1,200 runs, 9 steps, 0 without time, 3 characters replaced, "
        "2 cells guarded)"
    )


# ---- the page about it


def test_the_documentation_names_every_column(tmp_path: Path) -> None:
    page = Path(__file__).parents[2].joinpath("docs/process-mining.md").read_text(encoding="utf-8")
    table = page.split("| XES attribute |")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z_:]+)`", table))
    event = dict.fromkeys(("tool", "thought", "action", "observation"), "x")
    event |= dict.fromkeys(("exit_code", "seconds", "cost_usd", "tokens_in", "tokens_out"), 1)
    case = dict.fromkeys(
        ("run_id", "task_id", "outcome", "detail", "exit_status", "dataset", "repo", "agent",
         "model"), "x") | {"known_at_step": 1, "attempt": 1, "n_steps": 1}  # fmt: skip
    full = Trace(case, [event | {"token": "a|b|c", "started_at": WHEN}])
    export_csv([full], tmp_path / "log.csv", texts=True)
    export_xes([full], tmp_path / "log.xes", texts=True)
    (row,) = rows(tmp_path / "log.csv")
    assert all(row.values())
    log = ET.fromstring((tmp_path / "log.xes").read_bytes())
    keys = {a.get("key") for trace in log.findall("trace") for a in trace.iter() if a.get("key")}
    assert set(row) | keys <= named
