"""The tree of forks: every run has its place, every count adds up, and pages are inert."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sag_research as sag
from sag_research.errors import RunNotFoundError, UsageError
from sag_research.lab import bundled
from sag_research.runtime import Kin, Lineage
from sag_research.viz import LineageTree
from sag_research.viz._lineage_tree_data import Ending, kept_rows, lineage_data
from tests.browser import OfflinePage
from tests.viz.trees import CONTRAST, HOSTILE, open_page, shoot


def step(action: str = "ls") -> dict[str, Any]:
    return {"action": action, "observation": "ok", "calls": []}


def begin(ws: Any, steps: int) -> str:
    ws.store.create_run(sag.Run(run_id="root", goal="g"))
    for i in range(steps):
        ws.store.append(sag.Event(run_id="root", type="agent.step", payload=step(f"cat {i}")))
    return "root"


@pytest.fixture
def ws() -> Any:
    """A run that was taken back, and an experiment on what came of it."""
    ws = sag.open(":memory:")
    ws.add({"task_id": "other", "steps": [{"action": "ls"}], "outcome": "success"})
    root = begin(ws, 4)
    said = {"run": root, "outcome": "failure", "source": "test"}
    ws.store.append(sag.Event(run_id="@workspace", type="outcome.recorded", payload=said))
    taken = {"backtrack": 1, "from": root, "change": {"avoid": ["cat 2", "cat 3"]}}
    ws.fork(root, step=1, run_id="back", intervention=taken)
    for _ in range(3):
        ws.store.append(sag.Event(run_id="back", type="agent.step", payload=step()))
    end = {"exit_status": "dead end predicted"}
    ws.store.append(sag.Event(run_id="back", type="run.abandoned", payload=end))
    for i, outcome in enumerate(["success", "failure", "unknown"]):
        arm = {"arm": "colder", "repeat": i, "change": {"temperature": 0.2}}
        ws.fork("back", step=2, run_id=f"arm-{i}", intervention=arm)
        ws.store.append(sag.Event(run_id=f"arm-{i}", type="agent.step", payload=step()))
        if outcome != "unknown":
            said = {"run": f"arm-{i}", "outcome": outcome, "source": "test"}
            event = sag.Event(run_id="@workspace", type="outcome.recorded", payload=said)
            ws.store.append(event)
    return ws


def test_each_row_says_where_what_and_how(ws: Any) -> None:
    tree = LineageTree(ws, "arm-1")
    rows = tree.table_.set_index("run_id")
    assert rows.index.tolist() == ["root", "back", "arm-0", "arm-1", "arm-2"]
    assert rows.loc["back", "change"] == "taken back for the 1st time: told to avoid 2 actions"
    assert rows.loc["back", ["end", "exit_status"]].tolist() == [
        "run.abandoned",
        "dead end predicted",
    ]
    assert rows["outcome"].tolist() == ["failure", "unknown", "success", "failure", "unknown"]
    assert rows["n_steps"].tolist() == [4, 3, 1, 1, 1]
    assert rows["n_inherited"].tolist() == [0, 2, 3, 3, 3]
    assert rows["fork_step"].tolist()[1:] == [1, 2, 2, 2]
    assert rows.loc["arm-2", "change"] == "arm colder, repeat 2: temperature = 0.2"
    data = tree._start["data"]
    assert data["left"] == [False, True, False, False, False]
    assert data["end"][1] == "abandoned: dead end predicted"
    assert repr(tree) == "LineageTree('arm-1', 5 runs, depth 2)"


def test_show_of_a_family_is_the_same_tree(ws: Any) -> None:
    shown = ws.lineage("arm-1").show(view="table")
    assert shown._start == LineageTree(ws, "arm-1")._start
    assert (shown.view, shown.selected) == ("table", "arm-1")
    family = Lineage("a", [kin("a", None)])
    with pytest.raises(UsageError, match="this family has no log"):
        family.show()


def test_selected(ws: Any) -> None:
    tree = LineageTree(ws, "root")
    assert (tree.selected, tree._row) == ("root", 0)
    tree.selected = "arm-2"
    assert tree._row == 4
    tree._row = 1  # as a page sets it
    assert tree.selected == "back"
    tree._row = 99
    assert tree.selected == "back"
    with pytest.raises(RunNotFoundError, match="no run 'x' in this family"):
        tree.selected = "x"


def kin(run_id: str, parent: str | None, depth: int = 0, outcome: str = "unknown") -> Kin:
    return Kin(run_id=run_id, parent_id=parent, fork_position=0, fork_step=None, depth=depth,
               n_events=3, n_steps=2, n_inherited=0, outcome=outcome, intervention="")  # fmt: skip


def family(n: int, seed: int = 1) -> Lineage:
    """A family of n runs, as `lineage` orders it: each before its children."""
    draw = random.Random(seed)
    parents = [-1] + [draw.randrange(max(0, i - 40), i) for i in range(1, n)]
    children: dict[int, list[int]] = {}
    for i, parent in enumerate(parents):
        children.setdefault(parent, []).append(i)
    found: list[Kin] = []
    waiting = [(0, 0)]
    while waiting:
        i, depth = waiting.pop()
        outcome = draw.choice(["success", "failure", "unknown"])
        above = None if parents[i] < 0 else f"r{parents[i]}"
        found.append(kin(f"r{i}", above, depth, outcome))
        waiting += [(child, depth + 1) for child in reversed(children.get(i, []))]
    return Lineage(f"r{n - 1}", found)


@pytest.mark.parametrize(("n", "most"), [(1, 2_000), (700, 2_000), (5_000, 2_000), (300, 40)])
def test_a_large_family_is_counted_together(n: int, most: int) -> None:
    runs = family(n)
    data = lineage_data(runs, [Ending()] * n, most)
    drawn = [i for i, many in enumerate(data["others"]) if not many]
    way = {*runs.ancestors_, runs.run_id}
    # a way that is longer than the picture is drawn all the same
    assert len(data["id"]) <= max(most, 2 * len(way))
    assert data["run_id"][data["asked"]] == runs.run_id
    assert way <= set(data["run_id"])
    totals = [sum(column) for column in zip(*data["counts"], strict=True)]
    outcomes = [k.outcome for k in runs.runs]
    assert totals == [n, *(outcomes.count(o) for o in ("failure", "success", "unknown"))]
    # forks drawn and forks counted make up all forks of each run that is drawn
    children: dict[str, int] = {}
    for one in runs.runs:
        children[one.parent_id or ""] = children.get(one.parent_id or "", 0) + 1
    for i in drawn:
        below = [j for j, parent in enumerate(data["parent"]) if parent == i]
        many = sum(data["others"][j] or 1 for j in below)
        assert many == children.get(data["run_id"][i], 0)
        assert all(j > i for j in below)
    if n > most:
        assert any(data["others"])
        assert len(data["id"]) > most * 0.5


def test_rows_are_kept_in_order() -> None:
    parents: Sequence[int] = [-1, 0, 1, 2, 0, 0, 0]
    assert kept_rows(parents, 3, 7) == [0, 1, 2, 3, 4, 5, 6]
    assert kept_rows(parents, 3, 6) == [0, 1, 2, 3, 4]


def hostile() -> Any:
    ws = sag.open(":memory:")
    begin(ws, 2)
    for i, text in enumerate(HOSTILE):
        name = f"{text[:200]}{i}".replace("\ud800", "")
        change = {text[:300].replace("\ud800", ""): [text.replace("\ud800", "")]}
        ws.fork("root", step=0, run_id=name, intervention=change)
    return ws


def test_hostile_texts_stay_text(tmp_path: Path, offline_page: OfflinePage) -> None:
    tree = LineageTree(hostile(), "root")
    json.dumps(tree._start, ensure_ascii=False).encode()
    path = tree.to_html(tmp_path / "a.html")
    text = path.read_bytes()
    assert text.isascii()
    assert b"<img" not in text
    for suffix in ("svg", "png", "pdf"):
        assert getattr(tree, f"to_{suffix}")(tmp_path / f"a.{suffix}").stat().st_size > 2_000
    page = open_page(offline_page, path)
    for view in ("Tree", "Table"):
        page.get_by_role("button", name=view, exact=True).click()
        assert page.locator("img, a, .sag-tree script").count() == 0
        shoot(page, f"lineage_hostile_{view.lower()}")
        assert "⟨U+202E⟩" in page.locator(".sag-stage").text_content()
    offline_page.assert_quiet()


def test_files_are_the_same_twice(ws: Any, tmp_path: Path) -> None:
    made = []
    for i in range(2):
        tree = LineageTree(ws, "back")
        bundle, _ = tree._repr_mimebundle_()
        files = [tree.to_html(tmp_path / f"{i}.html"), tree.to_svg(tmp_path / f"{i}.svg")]
        made.append([bundle["text/plain"], bundle["text/html"], *(f.read_bytes() for f in files)])
    assert made[0] == made[1]


# ---------------------------------------------------------------------- in a browser


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_is_walked_through(
    ws: Any, tmp_path: Path, offline_page: OfflinePage, dark: bool
) -> None:
    tree = LineageTree(ws, "arm-1")
    page = open_page(offline_page, tree.to_html(tmp_path / "a.html"), dark=dark)
    side, stage = page.locator(".sag-side"), page.locator(".sag-stage")
    heading = side.locator("h3")
    assert heading.inner_text() == "arm-1"
    assert "forked after step 2 of" in side.inner_text()
    stage.press("ArrowUp")
    assert heading.inner_text() == "arm-0"
    stage.press("ArrowLeft")
    assert heading.inner_text() == "back"
    assert "told to avoid 2 actions" in side.inner_text()
    assert "abandoned: dead end predicted" in side.inner_text()
    ratio, text = page.evaluate(CONTRAST)
    assert ratio >= 4.5, text
    shoot(page, f"lineage_{'dark' if dark else 'light'}")
    stage.press("ArrowLeft")  # closes the branch
    assert page.locator(".node").count() == 2
    stage.press("ArrowRight")
    assert page.locator(".node").count() == 5
    page.locator(".node[data-row='4'] .row").click()
    assert heading.inner_text() == "arm-2"
    side.get_by_role("button", name="back").click()
    assert heading.inner_text() == "back"
    page.get_by_role("button", name="Table", exact=True).click()
    rows = page.locator("tbody tr")
    assert rows.count() == len(tree.table_)
    cells = rows.nth(1).locator("td").all_inner_texts()
    assert cells[:5] == ["back", "root", "1", "3", "2"]
    assert cells[5:7] == ["unknown", "abandoned: dead end predicted"]
    ratio, text = page.evaluate(CONTRAST)
    assert ratio >= 4.5, text
    offline_page.assert_quiet()


def test_hundreds_of_forks_are_drawn(tmp_path: Path, offline_page: OfflinePage) -> None:
    ws = sag.open(":memory:")
    ws.ingest(bundled("crates"))
    run = ws.runs()["run_id"].iloc[0]
    for i in range(400):
        change = {"arm": f"a{i % 4}", "repeat": i // 4}
        ws.fork(run, step=i % 8, run_id=f"fork-{i}", intervention=change)
        ws.store.append(sag.Event(run_id=f"fork-{i}", type="agent.step", payload=step()))
    tree = LineageTree(ws, "fork-399")
    page = open_page(offline_page, tree.to_html(tmp_path / "a.html"))
    assert page.locator(".node").count() == 401
    assert page.locator(".node.chosen .name").text_content() == "fork-399"
    shoot(page, "lineage_hundreds")
    offline_page.assert_quiet()
