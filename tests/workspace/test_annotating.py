"""Annotations: facts in the log, of which the last word holds."""

from __future__ import annotations

import pytest

import sag_research as sag
from sag_research.errors import UsageError


@pytest.fixture
def ws():
    with sag.open(":memory:") as study:
        steps = [{"action": f"ls {k}", "observation": "x"} for k in range(6)]
        for name in ("t1", "t2"):
            study.add({"task_id": name, "steps": steps})
        yield study


def test_the_last_word_holds_and_the_log_keeps_all(ws):
    ws.annotate("t1", 2, code="loop", note="first", by="me")
    ws.annotate("t1", 2, code=" loop ", note="half \ud800", by="me")
    assert ws.annotations()["note"].tolist() == ["half \ufffd"]
    ws.remove_annotation("t1", 2, code="loop", by="me")
    assert len(ws.annotations()) == 0
    ws.annotate("t1", code="odd", by="me")
    assert ws.annotations()["step"].isna().tolist() == [True]
    counted = "SELECT count(*) FROM events WHERE starts_with(type, 'annotation.')"
    assert ws.sql(counted).rows() == [(4,)]
    with pytest.raises(UsageError, match="no annotation"):
        ws.remove_annotation("t2", 2, code="loop")
    with pytest.raises(UsageError, match="no step"):
        ws.annotate("t1", 99, code="loop")
    assert ws.verify().ok


def test_a_step_that_a_fork_took_over_is_one_step(ws):
    child = ws.fork("t1", step=3).run_id
    ws.annotate(child, 2, code="loop", by="me")
    ws.annotate("t1", 5, code="loop", by="me")
    assert ws.annotations("t1")["step"].tolist() == [2, 5]
    assert ws.annotations(child)["step"].tolist() == [2]


def test_runs_that_one_has_not_read_are_left_out(ws):
    for who in ("me", "you"):
        ws.annotate("t1", 1, code="loop", by=who)
    ws.annotate("t2", 1, code="loop", by="me")
    found = ws.agreement("me", "you")
    assert (found.kappa.n, len(found.left_out)) == (6, 1)
    assert ws.agreement("me", "you", runs=["t1", "t2"]).kappa.n == 12
    with pytest.raises(UsageError, match="annotated nothing"):
        ws.agreement("me", "nobody")
