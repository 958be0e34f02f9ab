"""All runs as one picture."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sag_research as sag
from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.viz import overview
from tests.viz.test_page import HOSTILE, Tags


def steps(runs=30, length=6, **columns):
    table = pd.DataFrame({"run_id": [f"r{n:04}" for n in range(runs)]}).merge(
        pd.DataFrame({"step": range(length)}), how="cross"
    )
    number = table["run_id"].str[1:].astype(int)
    table["task_id"] = "t" + (number % 3).astype(str)
    table["outcome"] = number.map(lambda n: ["failure", "success", "unknown"][n * 3 // runs])
    table["class"] = np.where(table["step"] == length - 1, 4, table["step"] % 2)
    return table.assign(**columns)


def test_every_run_and_step_is_counted_once():
    drawn = overview(steps(), rows=7)
    assert repr(drawn) == "Overview(30 runs in 7 rows, 6 columns, did)"
    table = drawn.table_
    assert table["n_runs"].sum() == 30
    assert table[["failure", "success", "unknown"]].sum().tolist() == [10, 10, 10]
    assert drawn._cells.n.sum() == 30 * 6
    assert drawn._cells.n[:, 5, 4].sum() == 30


def test_a_workspace_says_which_runs_are_not_drawn():
    with sag.open(":memory:") as ws:
        step = {"action": "ls", "observation": "a"}
        made = [{"task_id": f"t{n}", "steps": [step] * (n + 1)} for n in range(4)]
        names = ws.add([*made, {"task_id": "empty", "steps": []}])
        ws.hide(names[0])
        fork = ws.fork(names[1], step=0)
        drawn = overview(ws)
        assert drawn.left_out == {"hidden": 1, "without a step of their own": 2}
        assert drawn.n_runs + sum(drawn.left_out.values()) == len(ws.runs()) == 6
        assert fork.run_id not in ", ".join(drawn.table_["runs"])
        assert "Not drawn: 1 hidden, 2 without a step of their own." in drawn.html()


def test_rows_stand_by_outcome_or_task():
    drawn = overview(steps(), rows=30).table_
    assert drawn["failure"].tolist() == [1] * 10 + [0] * 20
    tasks = overview(steps(), order="task", rows=3).table_["runs"].str.split(", ")
    assert [{int(run[1:]) % 3 for run in runs} for runs in tasks] == [{0}, {1}, {2}]


def test_a_few_endless_runs_do_not_make_the_others_narrow():
    table = pd.concat([steps(400, 10), steps(1, 5_000).assign(run_id="endless")])
    drawn = overview(table, columns=50)
    assert drawn._cells.shape[1] * drawn._cells.wide < 100
    assert "5,000" in drawn.plot().get_xlabel()


def test_the_cells_are_coloured_by_what_most_steps_did_and_by_risk():
    did = overview(steps(), rows=3).plot().images[0].get_array()
    assert np.allclose(did[0, 0], [0x56 / 255, 0xB4 / 255, 0xE9 / 255])
    risk = steps(risk=0.0)
    risk.loc[risk["step"] == 3, "risk"] = 1.0
    shown = overview(risk, "risk", rows=3).plot().images[0].get_array()
    assert shown[0, 3].sum() < shown[0, 2].sum()


def test_a_row_fades_as_its_runs_end():
    table = steps(10, 8)
    table = table[(table["run_id"] < "r0003") | (table["step"] < 4)]
    shown = overview(table.assign(outcome="failure"), rows=1).plot().images[0].get_array()
    assert shown[0, 6].min() > shown[0, 0].min()


def test_the_same_runs_give_the_same_files(tmp_path):
    for name in ("a", "b"):
        overview(steps(), pages="runs").to_png(tmp_path / f"{name}.png")
        overview(steps(), pages="runs").to_html(tmp_path / f"{name}.html")
    for form in ("png", "html"):
        first, second = ((tmp_path / f"{name}.{form}").read_bytes() for name in "ab")
        assert first == second


def test_hostile_names_stay_names_and_rows_lead_to_runs(offline_page, tmp_path):
    names = [*HOSTILE[:-1], "x" * 2_000]
    table = pd.concat([steps(1, 4).assign(run_id=name.replace("\ud835", "?")) for name in names])
    drawn = overview(table, rows=len(names), title=HOSTILE[0], pages="runs")
    page = drawn.html()
    assert [tag for tag, _ in Tags(page).tags if tag in {"script", "img", "svg"}] == [
        "img", "script", "script",
    ]  # fmt: skip
    tab = offline_page.open(drawn.to_html(tmp_path / "overview.html"))
    for row in range(len(names)):
        tab.locator("#row").fill(str(row))
        links = tab.locator("#told a")
        assert links.count() == 1
        assert links.first.get_attribute("href").startswith("runs/")
        assert links.first.get_attribute("href").endswith(".html")
    assert tab.evaluate("() => window.__pwned === undefined")
    picture = tab.locator("#picture")
    height = picture.bounding_box()["height"]
    picture.hover(position={"x": 300, "y": 0.12 * height})
    assert tab.inner_text("#told p").startswith("Row 1:")
    offline_page.assert_quiet()


@pytest.mark.parametrize("colour", ["did", "result"])
def test_a_workspace_is_drawn_from_its_views(colour):
    with sag.open(":memory:") as ws:
        for n, outcome in enumerate(["success", "failure"]):
            told = [{"thought": "", "action": action, "observation": "x"}
                    for action in ("grep -n x .", "cd a && pytest -q", "submit")]  # fmt: skip
            ws.add({"task_id": f"t{n}", "steps": told, "outcome": outcome})
        drawn = overview(ws, colour)
        assert drawn.n_runs == 2
        found = drawn._cells.n.argmax(axis=2)
        if colour == "did":
            assert found.tolist() == [[1, 3, 4], [1, 3, 4]]
        assert drawn.table_["failure"].tolist() == [1, 0]


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(UsageError, match="colour='x'"):
        overview(steps(), "x")
    with pytest.raises(UsageError, match="no column 'step'"):
        overview(steps().drop(columns="step"))
    with pytest.raises(NotEnoughDataError, match="no steps"):
        overview(steps().head(0))
    with sag.open(":memory:") as ws, pytest.raises(UsageError, match="no risk"):
        overview(ws, "risk")
