"""The protocol of PrefixGuard: its examples, labels, splits and alerts, counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sag_research import open as open_workspace
from sag_research.errors import NotEnoughDataError
from sag_research.paper import Cohort, StudyError
from sag_research.paper._prefixguard import (
    Protocol,
    Split,
    prefixguard,
    prefixguard_alerts,
    run_protocol,
)
from sag_research.paper._prefixguard import _alerts as alerts
from sag_research.paper._prefixguard import _best_f1 as best_f1
from sag_research.paper._prefixguard import _within as within
from sag_research.workspace import Workspace
from tests.paper.study import records


def cohort_of(ws: Workspace, rows: list[dict[str, object]]) -> Cohort:
    return Cohort(ws, {"runs": ws.add(rows)}, "true", 0, Path())


def test_examples_and_labels() -> None:
    steps = [{"action": "ls", "observation": "ok"}] * 5
    rows: list[dict[str, object]] = [
        {"task_id": f"t{i}", "steps": steps, "outcome": outcome}
        for i, outcome in enumerate(["failure", "success", "failure", "unknown"])
    ]
    with open_workspace(":memory:") as ws:
        found = run_protocol(cohort_of(ws, rows), ["constant"], horizon=2, splits=4)
    assert len(found.run) == 15  # three known runs, every prefix, the whole run too
    for run in range(3):
        positive = found.positive[found.run == run].tolist()
        assert positive == ([False, False, True, True, True] if found.failed[run] else [False] * 5)
    for part in found.scores["constant"]:
        assert not (part.calibration & part.test).any()
        for chosen in (part.calibration, part.test, ~(part.calibration | part.test)):
            assert len(set(found.task[found.run[chosen]])) == 1  # whole tasks, no part empty


def test_too_few_tasks_and_strange_heads() -> None:
    with open_workspace(":memory:") as ws:
        cohort = cohort_of(ws, records(tasks=2))
        with pytest.raises(NotEnoughDataError, match="2 tasks do not fill"):
            prefixguard(cohort)
        with pytest.raises(StudyError, match="no head"):
            prefixguard(cohort, heads=["oracle"])


def test_alerts_by_hand() -> None:
    # two runs to calibrate, three to test, four prefixes each; runs 0, 2 and 3 fail
    run, seen = np.repeat(np.arange(5), 4), np.tile(np.arange(1, 5), 5)
    failed = np.array([True, False, True, True, False])
    positive = failed[run] & (seen > 2)
    score = np.array(
        [
            0.1,
            0.2,
            0.8,
            0.9,
            0.1,
            0.3,
            0.2,
            0.1,
            0.1,
            0.8,
            0.2,
            0.9,
            0.1,
            0.1,
            0.2,
            0.2,
            0.1,
            0.85,
            0.1,
            0.1,
        ]
    )
    part = Split(score, run < 2, run >= 2)
    found = Protocol(run, seen, positive, failed, np.full(5, 4), np.arange(5), {"a": [part]})
    assert best_f1(found, part) == 0.8  # reaches both positives and no other
    runs, first = alerts(found, part, 0.8)
    assert runs.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(first, [2, np.nan, 2])
    assert within(found, part, 0.0) > 0.3  # the one good calibration run peaks at .3
    assert within(found, part, 0.0) < 0.31
    assert within(found, part, 1.0) == -np.inf


def test_tables_count_what_they_say() -> None:
    with open_workspace(":memory:") as ws:
        cohort = cohort_of(ws, records())
        table = prefixguard(cohort, splits=2)
        alert = prefixguard_alerts(cohort, splits=2)
    constant = table.set_index("head").loc["constant"]
    assert constant["auroc"] == 0.5
    assert constant["auprc"] == pytest.approx(constant["prevalence"])
    assert (table["auprc_low"] <= table["auprc_high"]).all()
    assert (table["n"] == table["n"].iloc[0]).all()
    assert (alert["n_failed"] + alert["n_succeeded"] == table["n_runs"].iloc[0]).all()
    assert alert["alerted"].between(0, 1).all()
