"""The front door: one folder, and the same answers through every way in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sag_research as sag
from sag_research.errors import RunNotFoundError, StoreError, UsageError
from tests.browser import OfflinePage


def record(task: str, outcome: str | None = "success", **more: Any) -> dict[str, Any]:
    return {
        "task_id": task,
        "repo": "acme/shop",
        "model": "m1",
        "steps": [
            {"thought": "look", "action": "cat shop/cart.py", "observation": "import json"},
            {
                "thought": "mend",
                "action": "sed -i 's/a/b/' shop/cart.py",
                "observation": "KeyError: 'x'",
            },
        ],
        **({"outcome": outcome} if outcome else {}),
        **more,
    }


@pytest.fixture
def ws(tmp_path: Path) -> sag.Workspace:
    return sag.open(tmp_path / "study")


def test_a_run_goes_in_and_comes_out(ws: sag.Workspace) -> None:
    run = ws.add(record("t1"))
    frame = ws.steps(run)
    assert list(frame.action) == ["cat shop/cart.py", "sed -i 's/a/b/' shop/cart.py"]
    assert list(frame.step) == [0, 1]
    assert not frame.inherited.any()
    row = ws.runs().iloc[0]
    assert (row.task_id, row.outcome, row.n_steps, row.model) == ("t1", "success", 2, "m1")


def test_steps_from_the_log_and_from_the_warehouse_agree(ws: sag.Workspace) -> None:
    run = ws.add(record("t1"))
    columns = "step, position, thought, action, observation, n_calls, tool, exit_code"
    query = f"SELECT {columns} FROM steps WHERE run_id = ? ORDER BY step"
    expected = ws.sql(query, [run]).df()
    got = ws.steps(run)[columns.split(", ")]
    assert got.astype(object).where(got.notna(), None).to_numpy().tolist() == (
        expected.astype(object).where(expected.notna(), None).to_numpy().tolist()
    )


def test_a_workspace_is_found_again_with_the_same_digest(tmp_path: Path) -> None:
    with sag.open(tmp_path / "a") as first:
        first.add([record("t1"), record("t2", "failure"), record("t3", None)])
        digest = first.digest()
    with sag.open(tmp_path / "a") as again:
        assert again.digest() == digest
        assert len(again.runs()) == 3
    with sag.open(":memory:") as other:
        other.add([record("t3", None), record("t2", "failure"), record("t1")])
        assert other.digest() == digest, "the order of adding does not matter"
        other.add(record("t4"))
        assert other.digest() != digest
        assert other.digest("task_id <> ?", ["t4"]) == digest


def test_an_outcome_changes_the_cohort_digest(tmp_path: Path) -> None:
    with sag.open(":memory:") as ws:
        ws.add(record("t1", None))
        before = ws.digest()
        labels = tmp_path / "labels.csv"
        labels.write_text("task_id,outcome\nt1,failure\n", encoding="utf-8")
        ws.label(labels)
        assert ws.runs().outcome.tolist() == ["failure"]
        assert ws.digest() != before


def test_a_run_is_meant_by_id_prefix_or_task(ws: sag.Workspace) -> None:
    run = ws.add(record("shop-1"))
    ws.add(record("shop-2", attempt=1))
    ws.add(record("shop-2", attempt=2))
    assert ws.resolve(run) == run
    assert ws.resolve("shop-1") == run
    assert ws.resolve(run[:-3]) == run
    with pytest.raises(RunNotFoundError, match="may be any of 2 runs"):
        ws.resolve("shop-2")
    with pytest.raises(RunNotFoundError, match="no run 'other'"):
        ws.resolve("other")


def test_hostile_text_is_no_sql(ws: sag.Workspace) -> None:
    ws.add(record("'; DROP TABLE lineage; --"))
    assert ws.resolve("'; DROP TABLE lineage; --")
    assert len(ws.runs("task_id = $t", {"t": "'; DROP TABLE lineage; --"})) == 1


def test_a_fork_inherits_and_counts_once(ws: sag.Workspace) -> None:
    run = ws.add(record("t1"))
    child = ws.fork(run, step=0, intervention={"prompt": "other"})
    assert ws.steps(child.run_id).inherited.tolist() == [True]
    assert ws.info()["counts"]["steps"] == 2
    rows = ws.sql("SELECT n_steps, n_inherited, outcome FROM runs WHERE parent_id = ?", [run])
    assert rows.rows() == [(0, 1, "unknown")]
    with pytest.raises(UsageError, match="no step 7"):
        ws.fork(run, step=7)


def test_a_rebuild_changes_nothing(ws: sag.Workspace) -> None:
    ws.add([record(f"t{i}") for i in range(5)])
    ws.sync()
    tables = ("runs", "steps", "mentions", "relations", "events", "outcomes")
    queries = [f"SELECT * FROM {name} ORDER BY ALL" for name in tables]
    before = [ws.sql(query).rows() for query in queries]
    assert ws.rebuild().events > 0
    assert [ws.sql(query).rows() for query in queries] == before


def test_aliases_of_the_workspace_are_used(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    aliases = '[System]\n"House Store" = ["whdb"]\n'
    (folder / "aliases.toml").write_text(aliases, encoding="utf-8")
    with sag.open(folder) as ws:
        ws.add(record("t1", steps=[{"action": "ls", "observation": "whdb refused connection"}]))
        found = ws.sql("SELECT name FROM mentions WHERE kind = 'System'").rows()
        assert found == [("House Store",)]


def test_report_is_escaped(ws: sag.Workspace, tmp_path: Path) -> None:
    ws.add(record("<img src=x onerror=alert(1)>", model="<script>alert(1)</script>"))
    page = ws.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_nothing_is_made_where_nothing_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no workspace at"):
        sag.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_text_forms_are_stable(ws: sag.Workspace) -> None:
    ws.add(record("t1"))
    assert repr(ws.sql("SELECT 1 AS a")) == "QueryResult(1 rows: a)"
    assert repr(sag.provenance(7, ws)) == repr(sag.provenance(7, ws))
    assert json.dumps(ws.info()["counts"])
    assert "<b>" in ws._repr_html_()


def test_report_opens_without_network(
    ws: sag.Workspace, tmp_path: Path, offline_page: OfflinePage
) -> None:
    ws.add(record("<img src=x onerror='window.pwned=1'>"))
    offline_page.open(ws.report(tmp_path / "report.html"))
    frame = offline_page.page.frames[1]
    frame.wait_for_selector("canvas")
    assert offline_page.page.locator("table").count() >= 3
    assert offline_page.page.evaluate("window.pwned") is None
    assert frame.evaluate("window.pwned") is None
    offline_page.assert_quiet()


def test_an_odd_event_costs_itself(ws: sag.Workspace) -> None:
    run = ws.add(record("t1"))
    odd: list[dict[str, Any]] = [{"calls": "x"}, {"calls": [5]}, {"flags": 5}, {"usage": 3}]
    for payload in odd:
        ws.store.append(sag.Event(run_id=run, type="agent.step", payload=payload))
    assert len(ws.steps(run)) == 6
    assert ws.sql("SELECT count(*) FROM steps").rows() == [(6,)]


def test_a_task_means_its_run_and_not_the_forks(ws: sag.Workspace) -> None:
    run = ws.add(record("shop-1"))
    ws.fork(run, step=0)
    assert ws.resolve("shop-1") == run
    with pytest.raises(UsageError, match="cannot be forked"):
        ws.store.fork("@workspace", at=1)


def test_a_copy_of_the_log_alone_holds_what_was_ingested(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text(json.dumps(record("t1")), encoding="utf-8")
    (tmp_path / "copy").mkdir()
    with sag.open(tmp_path / "study") as ws:
        ws.ingest(tmp_path / "runs.jsonl")
        shutil.copy(tmp_path / "study" / "log.sqlite", tmp_path / "copy" / "log.sqlite")
    with sag.open(tmp_path / "copy") as copy:
        assert len(copy.runs()) == 1


def test_forks_are_compared_and_listed(ws: sag.Workspace) -> None:
    run = ws.add(record("t1"))
    child = ws.fork(run, step=0, run_id="child").run_id
    ws.store.append(sag.Event(run_id=child, type="agent.step", payload={"action": "pytest -q"}))
    found = ws.diff(run, child)
    assert found.shared_steps == 1
    assert {row.status for row in found.rows} <= {"changed", "only_a", "only_b"}
    assert ws.lineage(child).table_.run_id.tolist() == [run, "child"]
    assert len(ws.recorded_calls(child)) == 0


def test_a_redacted_text_is_gone_from_log_and_warehouse(ws: sag.Workspace) -> None:
    secret = "the-password-is-swordfish " * 40
    run = ws.add(record("t1", steps=[{"action": "cat .env", "observation": secret}]))
    ws.sync()
    assert ws.sql("SELECT count(*) FROM steps WHERE observation LIKE '%swordfish%'").rows() == [
        (1,)
    ]
    ws.redact(run, 2, "a secret")
    assert ws.sql("SELECT count(*) FROM steps WHERE observation LIKE '%swordfish%'").rows() == [
        (0,)
    ]
    assert "swordfish" not in ws.steps(run).to_string()
    assert ws.verify().ok


def test_a_flattened_fork_has_the_same_digest(ws: sag.Workspace) -> None:
    child = ws.fork(ws.add(record("t1")), step=0)
    flat = ws.flatten(child.run_id, "flat")
    assert flat.parent_id is None
    assert ws.store.head("flat").digest == ws.store.head(child.run_id).digest
