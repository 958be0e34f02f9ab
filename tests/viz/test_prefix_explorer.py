"""The prefix explorer: every count adds up, unknown is never failure, and pages are inert."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sag_research as sag
from sag_research.deadend import Prefixes, wilson
from sag_research.deadend._locate import divergence
from sag_research.errors import NotEnoughDataError, UsageError
from sag_research.extract import Vocabulary
from sag_research.lab import bundled
from sag_research.viz import PrefixExplorer
from sag_research.viz._prefix_explorer_data import _words, explorer_data, token_words
from sag_research.viz._prefix_explorer_plot import tree_boxes
from sag_research.viz._prefix_explorer_tree import Counts, PrefixTree
from tests.browser import OfflinePage
from tests.viz.trees import CONTRAST, HOSTILE, open_page, shoot

NAMES = ("look|src|ok", "edit|src|ok", "test|test|test-fail", "submit|none|ok")


def cohort(n: int = 300, seed: int = 3, names: tuple[str, ...] = NAMES) -> Prefixes:
    rng = np.random.default_rng(seed)
    runs = [[names[i] for i in rng.choice(len(names), rng.integers(0, 9), p=share(len(names)))]
            for _ in range(n)]  # fmt: skip
    outcomes = rng.choice(["failure", "success", "unknown"], n, p=[0.45, 0.4, 0.15])
    tasks = [f"t{i}" for i in rng.integers(0, n // 8 + 1, n)]
    return Prefixes.from_tokens(runs, outcomes.tolist(), tasks)


def share(n: int) -> Any:
    weight = 1.0 / np.arange(1, n + 1)
    return weight / weight.sum()


def by_hand(prefixes: Prefixes, tokens: tuple[str, ...]) -> Counts:
    """Count the runs that begin so, one by one."""
    names = prefixes.table.names
    found: Counter[str] = Counter()
    for codes, outcome in zip(prefixes.sequences(), prefixes.runs["outcome"], strict=True):
        if tuple(names[code] for code in codes[: len(tokens)]) == tokens:
            found[outcome] += 1
    return Counts(found.total(), found["failure"], found["success"], found["unknown"])


def test_every_node_is_counted_as_by_hand() -> None:
    prefixes = cohort(120)
    table = PrefixExplorer(prefixes, min_runs=1).table_
    assert len(table) > 150
    for row in table.itertuples():
        counts = by_hand(prefixes, row.prefix)
        assert (row.n, row.failed, row.succeeded, row.unknown) == counts, row.prefix
        known = counts.failed + counts.succeeded
        if known:
            assert row.rate == pytest.approx(counts.failed / known)
            assert (row.low, row.high) == pytest.approx(wilson(counts.failed, known))
        else:
            assert math.isnan(row.rate)


@pytest.mark.parametrize("most", [1, 2, 17, 150, 5_000])
@pytest.mark.parametrize("depth", [None, 2])
def test_children_ended_and_cut_add_up(most: int, depth: int | None) -> None:
    tree = PrefixTree(cohort())
    branches = tree.branches(tree.root, most, depth)
    assert len(branches) <= most
    below = [Counts()] * len(branches)
    for branch in branches[1:]:
        below[branch.parent] = below[branch.parent].plus(branch.counts)
    for branch, inside in zip(branches, below, strict=True):
        assert branch.counts == inside.plus(branch.ended).plus(branch.cut)
        assert branch.counts.n == sum(branch.counts[1:])
        assert min(branch.cut) >= 0
        assert (branch.cut_tokens > 0) == (branch.cut.n > 0)


@pytest.mark.parametrize("least", [1, 4, 10, 10_000])
def test_rows_of_the_table_add_up(least: int) -> None:
    table = PrefixExplorer(cohort(), min_runs=least).table_
    rows = {row.prefix: row for row in table.itertuples()}
    below: Counter[tuple[str, ...]] = Counter()
    for prefix, row in rows.items():
        if prefix:
            below[prefix[:-1]] += row.n
            assert row.n >= least
    for prefix, row in rows.items():
        assert row.n == below[prefix] + row.ended + row.others_n
        assert row.n == row.failed + row.succeeded + row.unknown


def test_boxes_of_the_figure_add_up() -> None:
    prefixes = cohort()
    tree = PrefixTree(prefixes)
    boxes = tree_boxes(tree.branches(tree.root, 2_000, 5), prefixes.table.names, 10, 5)
    for level in range(1, 6):
        here = sorted((b for b in boxes if b.level == level), key=lambda b: b.low)
        before = [b for b in boxes if b.level == level - 1 and b.is_node]
        assert sum(b.counts.n for b in here) == sum(b.counts.n for b in before)
        ends = [b.low + b.counts.n for b in here]
        assert all(end <= b.low for end, b in zip(ends, here[1:], strict=False))  # none overlaps


def test_flows_add_up() -> None:
    tree = PrefixTree(cohort())
    first = tree.children(tree.root)[0][1]
    for spot in (tree.root, first):
        stops, flows = tree.flows(spot, 6, 2)
        assert sum(s.counts.n for s in stops if s.step == spot.depth) == (
            spot.high - spot.low - tree.ended(spot).n
        )
        for i, stop in enumerate(stops):
            out = [f.counts for f in flows if f.source == i]
            into = [f.counts for f in flows if f.target == i]
            left = stop.counts
            for counts in [*out, stop.ended]:
                left = left.less(counts)
            if stop.step < max(s.step for s in stops):
                assert left == Counts()
            if stop.step > spot.depth:
                assert sum(c.n for c in into) == stop.counts.n
        assert any(stop.token < 0 and stop.tokens > 1 for stop in stops)


def test_a_page_gets_at_most_2000_nodes_and_more_when_it_asks() -> None:
    names = tuple(f"v{i}|src|ok" for i in range(30))
    tree = PrefixTree(cohort(4_000, names=names))
    whole = explorer_data(tree, tree.root)
    assert 1_500 < len(whole["nodes"]["parent"]) + len(whole["stops"]["step"]) <= 2_000
    # a node of which not all was sent is sent whole when asked for
    number = next(i for i, cut in enumerate(whole["nodes"]["cut"]) if i and cut[0])
    branch = tree.branches(tree.root, len(whole["nodes"]["parent"]))[number]
    part = explorer_data(tree, branch.spot)
    assert part["path"] == tree.path(branch.spot)
    assert part["nodes"]["counts"][0] == list(branch.counts)
    assert part["nodes"]["cut"][0][0] == 0
    size = len(part["nodes"]["parent"]) + len(part["stops"]["step"]) + len(part["path"])
    assert size <= 2_000


def test_unknown_is_shown_apart_and_never_failure() -> None:
    runs = [["a"], ["a"], ["a"], ["b"]]
    outcomes = ["failure", "success", "unknown", "unknown"]
    explorer = PrefixExplorer(Prefixes.from_tokens(runs, outcomes), min_runs=1)
    rows = {row.token: row for row in explorer.table_.itertuples()}
    assert rows["a"].rate == 0.5
    assert (rows["a"].n, rows["a"].unknown) == (3, 1)
    assert math.isnan(rows["b"].rate)
    assert rows["b"].failed == 0


def test_divergence_points_are_those_of_each_run() -> None:
    prefixes = cohort(200)
    found = PrefixExplorer(prefixes, min_runs=1).divergences_.set_index("run_id")
    names, parted = prefixes.table.names, Counter[tuple[str, ...]]()
    for run in np.flatnonzero(prefixes.failed == 1):
        apart = divergence(prefixes, int(run))
        run_id = prefixes.runs["run_id"].iloc[run]
        assert (run_id in found.index) == (apart.step is not None)
        if apart.step is not None:
            row = found.loc[run_id]
            assert (row["step"], row["token"]) == (apart.step, apart.token)
            codes = prefixes.sequences()[run][: apart.step]
            assert row["prefix"] == tuple(names[code] for code in codes)
            parted[row["prefix"]] += 1
    assert len(parted) > 5
    table = PrefixExplorer(prefixes, min_runs=1).table_
    assert {r.prefix: r.parted for r in table.itertuples() if r.parted} == dict(parted)


def test_inherited_steps_support_nothing() -> None:
    # the second run's first own step is step 2: two were taken over
    columns = pa.table({"step": [0, 1, 2, 3, 0]})
    tokens = [["a", "b"], ["a", "b"], ["a"]]
    prefixes = Prefixes.from_tokens(tokens, ["failure"] * 3, columns=columns)
    explorer = PrefixExplorer(prefixes, min_runs=1)
    rows = {row.prefix: row.n for row in explorer.table_.itertuples()}
    assert rows == {(): 2, ("a",): 2, ("a", "b"): 1}
    assert explorer._notes() == ["1 runs left out (goes on from another run 1)"]


def test_forks_of_a_workspace_support_nothing() -> None:
    ws = sag.open(":memory:")
    steps = [{"action": "ls", "observation": "a"}, {"action": "cat a", "observation": "b"}]
    run = ws.add({"task_id": "t", "steps": steps, "outcome": "failure"})
    ws.fork(run, step=0, run_id="child")
    ws.store.append(sag.Event(run_id="child", type="agent.step", payload={"action": "ls"}))
    explorer = ws.prefixes().explore()
    assert explorer.table_["n"].max() == 1
    assert explorer._notes() == ["1 runs left out (fork 1)"]


def test_only_continuations_are_refused() -> None:
    prefixes = Prefixes.from_tokens([["a"]], ["failure"], columns=pa.table({"step": [3]}))
    with pytest.raises(NotEnoughDataError, match="1 runs go on from another run"):
        PrefixExplorer(prefixes)


def test_selected_and_its_runs() -> None:
    prefixes = cohort()
    explorer = PrefixExplorer(prefixes)
    assert len(explorer.runs_) == 300
    prefix = explorer.table_.query("depth == 2").iloc[0]
    explorer.selected = list(prefix["prefix"])
    assert len(explorer.runs_) == prefix["n"]
    assert (explorer.runs_["outcome"] == "failure").sum() == prefix["failed"]
    # as a page sets it: by codes, and by codes that are none
    explorer._path = []
    assert explorer.selected == []
    explorer._path = [99]
    assert explorer.selected == []
    with pytest.raises(UsageError, match="no run begins with nothing"):
        explorer.selected = ["nothing"]
    explorer._run = 7
    assert explorer.run == prefixes.runs["run_id"].iloc[7]


def test_runs_of_a_stop() -> None:
    names = tuple(f"v{i}|src|ok" for i in range(30))
    explorer = PrefixExplorer(cohort(600, names=names))
    stops, _ = explorer._tree.flows(explorer._tree.root, 10, 12)
    for stop in stops:
        explorer._stop = [stop.step, stop.token]
        assert len(explorer.runs_) == stop.counts.n
        assert (explorer.runs_["outcome"] == "failure").sum() == stop.counts.failed
    flows = explorer.flows_
    for step, part in flows.groupby("step"):
        if step < 9:
            assert part["n"].sum() == sum(s.counts.n for s in stops if s.step == step)
    explorer.selected = list(explorer.table_["prefix"][1])
    assert explorer.stop_ is None  # a prefix that is chosen replaces it


def test_a_page_that_asks_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = PrefixExplorer(cohort())
    sent: list[Any] = []
    monkeypatch.setattr(explorer, "send", sent.append)
    for content in ({"ask": [0]}, {"ask": [99]}, {"ask": "x"}, {"ask": [None]}, {}, 7):
        explorer._asked(explorer, content, [])
    assert [one["data"]["path"] for one in sent] == [[0]]


def test_least_runs_fit_the_cohort() -> None:
    assert [PrefixExplorer(cohort(n)).min_runs for n in (9, 100, 300)] == [1, 5, 10]


def test_words_for_every_symbol_of_the_vocabulary() -> None:
    alphabet = Vocabulary().alphabet
    assert {part: set(words) for part, words in _words().items()} == {
        part: set(symbols) for part, symbols in alphabet.items()
    }
    assert token_words("strange|src") == "strange: the project's source code"


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    prefixes = Prefixes.from_tokens(
        [[text] for text in HOSTILE] * 2,
        ["failure", "success"] * len(HOSTILE),
        [HOSTILE[0]] * (2 * len(HOSTILE)),
        run_id=pd.Series([f"{text}{i}" for i in range(2) for text in HOSTILE], dtype=object),
    )
    explorer = PrefixExplorer(prefixes, title=HOSTILE[1])
    json.dumps(explorer._start, ensure_ascii=False).encode()  # no half characters on the wire
    assert len(json.dumps(explorer._start)) < 40_000
    page = explorer.to_html(tmp_path / "a.html").read_bytes()
    assert page.isascii()
    assert b"<img" not in page
    assert page.count(b"<script") == 2
    explorer.selected = [HOSTILE[6]]
    assert explorer.runs_["run_id"].tolist() == [f"{HOSTILE[6]}0", f"{HOSTILE[6]}1"]
    assert HOSTILE[6] in explorer.table_["token"].tolist()
    assert len(explorer.flows_) == 0  # there is no second step
    explorer.selected = []
    assert HOSTILE[0] in explorer.flows_["token"].tolist()
    for suffix in ("svg", "png", "pdf"):
        assert getattr(explorer, f"to_{suffix}")(tmp_path / f"a.{suffix}").stat().st_size > 2_000


def test_texts_and_files_are_the_same_twice(tmp_path: Path) -> None:
    made = []
    for number in range(2):
        explorer = PrefixExplorer(cohort())
        assert repr(explorer) == "PrefixExplorer(300 runs, 38 tasks, 434 nodes)"
        bundle, _ = explorer._repr_mimebundle_()
        assert bundle["text/plain"] == repr(explorer)
        assert "0x" not in bundle["text/plain"]
        files = [explorer.to_html(tmp_path / f"{number}.html"),
                 explorer.to_svg(tmp_path / f"{number}.svg")]  # fmt: skip
        made.append([bundle["text/html"], *(file.read_bytes() for file in files)])
    assert made[0] == made[1]
    with pytest.raises(UsageError, match=r"does not end in \.svg"):
        explorer.to_svg(tmp_path / "a.png")


def test_the_bundled_sets_and_a_real_one(real_data: Path) -> None:
    """On real runs, what is drawn is counted from the runs themselves."""
    ws = sag.open(":memory:")
    folder = real_data / "mini_swe_agent_v1_gemini3pro_verified"
    ws.ingest(folder / "trajs", labels=folder / "reports")
    check_against_runs(ws)


@pytest.mark.parametrize(("name", "labels"), [("bugfix", "labels.csv"), ("crates", None)])
def test_bundled_sets(name: str, labels: str | None) -> None:
    ws = sag.open(":memory:")
    ws.ingest(bundled(name), labels=None if labels is None else bundled(name) / labels)
    check_against_runs(ws)


def check_against_runs(ws: Any) -> None:
    prefixes = ws.prefixes(texts=False, entities=False)
    explorer = PrefixExplorer(prefixes)
    table = explorer.table_
    outcomes = prefixes.runs["outcome"].value_counts()
    root = table.iloc[0]
    assert [root["failed"], root["succeeded"], root["unknown"]] == [
        outcomes.get(name, 0) for name in ("failure", "success", "unknown")
    ]
    assert len(table) > 10
    for row in table.itertuples():
        assert (row.n, row.failed, row.succeeded, row.unknown) == by_hand(prefixes, row.prefix)
    size = explorer._start["data"]
    assert len(size["nodes"]["parent"]) + len(size["stops"]["step"]) <= 2_000


# ---------------------------------------------------------------------- in a browser

# the runs of each drawn column, as said on the boxes' own data
DRAWN = """() => [...document.querySelectorAll(".node")].map((one) => {
  const box = one.querySelector(".box").getBBox();
  return [box.x, box.y, box.height, one.dataset.node === undefined ? "rest" : "node"];
})"""


def exported(explorer: PrefixExplorer, tmp_path: Path) -> Path:
    return explorer.to_html(tmp_path / "explorer.html")


@pytest.fixture
def bugfix() -> PrefixExplorer:
    ws = sag.open(":memory:")
    ws.ingest(bundled("bugfix"), labels=bundled("bugfix") / "labels.csv")
    return ws.prefixes(texts=False, entities=False).explore(title="Bug fixes")


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_is_read_without_python(
    bugfix: PrefixExplorer, tmp_path: Path, offline_page: OfflinePage, dark: bool
) -> None:
    page = open_page(offline_page, exported(bugfix, tmp_path), dark=dark)
    shade = "dark" if dark else "light"
    for view in ("Tree", "Flow of steps", "Table"):
        page.get_by_role("button", name=view, exact=True).click()
        shoot(page, f"prefix_{view.split()[0].lower()}_{shade}")
        ratio, text = page.evaluate(CONTRAST)
        assert ratio >= 4.5, (view, text)
    offline_page.assert_quiet()


def test_columns_of_the_drawing_are_as_high_as_their_parents(
    bugfix: PrefixExplorer, tmp_path: Path, offline_page: OfflinePage
) -> None:
    page = open_page(offline_page, exported(bugfix, tmp_path))
    columns: dict[float, list[list[Any]]] = {}
    for box in page.evaluate(DRAWN):
        columns.setdefault(box[0], []).append(box)
    xs = sorted(columns)
    assert len(xs) == 7
    for before, here in itertools.pairwise(xs):
        nodes = sum(box[2] for box in columns[before] if box[3] == "node")
        assert sum(box[2] for box in columns[here]) == pytest.approx(nodes, rel=1e-3)


def test_click_zoom_and_keys(
    bugfix: PrefixExplorer, tmp_path: Path, offline_page: OfflinePage
) -> None:
    page = open_page(offline_page, exported(bugfix, tmp_path))
    side, crumbs, stage = page.locator(".sag-side"), page.locator(".sag-crumbs"), ".sag-stage"
    assert "320" in side.inner_text()
    page.locator(".node[data-node='1'] .box").click()
    row = bugfix.table_.iloc[1]
    text = side.inner_text()
    assert side.locator("h3").inner_text() == "look ok"
    assert "read something; it worked" in text
    low, high = round(100 * row["low"]), round(100 * row["high"])
    assert f"{row['rate']:.0%}".replace("%", " %") + f" ({low} to {high} %)" in text
    assert side.locator("ul").first.locator("li").count() == 6
    page.locator(stage).press("Enter")
    assert crumbs.inner_text().split() == ["all", "runs", "→", "look", "ok"]
    assert "step 1" in page.locator("svg text.faint").first.text_content()
    page.locator(stage).press("ArrowRight")
    assert side.locator("h3").inner_text() == "look folder ok"
    page.locator(stage).press("ArrowDown")
    assert side.locator("h3").inner_text() == "test test-fail"
    page.locator(stage).press("ArrowUp")
    page.locator(stage).press("ArrowLeft")
    assert side.locator("h3").inner_text() == "look ok"
    page.locator(stage).press("Backspace")
    assert crumbs.inner_text().strip() == "all runs"
    page.locator(".node[data-node='2'] .box").dblclick()
    assert crumbs.locator("button").count() == 2
    crumbs.get_by_role("button", name="all runs").click()
    assert crumbs.locator("button").count() == 1
    page.locator(".node[data-node='1']").hover()
    assert "read something" in page.locator(".sag-tip").inner_text()
    shoot(page, "prefix_tip")
    offline_page.assert_quiet()


def test_fewer_nodes_with_more_runs_asked_for(
    bugfix: PrefixExplorer, tmp_path: Path, offline_page: OfflinePage
) -> None:
    page = open_page(offline_page, exported(bugfix, tmp_path))
    before = page.locator(".node[data-node]").count()
    page.locator("input[type=range]").fill("40")
    after = page.locator(".node[data-node]").count()
    assert 3 < after < before
    bugfix.min_runs = 40
    page.get_by_role("button", name="Table", exact=True).click()
    table = bugfix.table_
    rows = page.locator("tbody tr")
    assert rows.count() == len(table)
    said = {tuple(cells[2:6]) for cells in cells_of(rows)}
    assert said == {
        tuple(f"{v:,}" for v in (r.n, r.failed, r.succeeded, r.unknown)) for r in table.itertuples()
    }
    for cells, row in zip(cells_of(rows)[:1], table.itertuples(), strict=False):
        assert cells[7:] == [str(v) for v in (row.ended, row.others, row.others_n, row.parted)]
    offline_page.assert_quiet()


def cells_of(rows: Any) -> list[list[str]]:
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def test_intervals_of_the_page_are_pythons(
    bugfix: PrefixExplorer, tmp_path: Path, offline_page: OfflinePage
) -> None:
    page = open_page(offline_page, exported(bugfix, tmp_path))
    for part, n in [(0, 4), (4, 4), (3, 17), (135, 310)]:
        assert page.evaluate(f"sagWilson({part}, {n})") == pytest.approx(wilson(part, n))
    assert page.evaluate("sagWilson(0, 0)") is None


def test_a_hostile_page_is_inert(tmp_path: Path, offline_page: OfflinePage) -> None:
    prefixes = Prefixes.from_tokens(
        [[text, text] for text in HOSTILE] * 2,
        ["failure"] * (2 * len(HOSTILE)),
        run_id=pd.Series([f"{text}{i}" for i in range(2) for text in HOSTILE], dtype=object),
    )
    page = open_page(offline_page, exported(prefixes.explore(title=HOSTILE[0]), tmp_path))
    for view in ("Tree", "Flow of steps", "Table"):
        page.get_by_role("button", name=view, exact=True).click()
        assert page.locator("img, a, .sag-tree script").count() == 0
        text = page.locator(".sag-tree").inner_text()
        assert "⟨U+202E⟩" in text
        assert "\x1b" not in text
        shoot(page, f"prefix_hostile_{view.split()[0].lower()}")
    assert HOSTILE[0] in page.locator(".sag-title").inner_text()
    offline_page.assert_quiet()


@pytest.mark.parametrize(
    ("runs", "outcomes"),
    [
        ([["a", "b"], ["a"]], ["unknown", "unknown"]),
        ([["a", "b"], ["a"]], ["success", "success"]),
        ([["a"]], ["failure"]),
        ([[], []], ["failure", "success"]),
    ],
)
def test_odd_cohorts_are_drawn(
    runs: list[list[str]], outcomes: list[str], tmp_path: Path, offline_page: OfflinePage
) -> None:
    explorer = Prefixes.from_tokens(runs, outcomes).explore()
    for suffix in ("svg", "png"):
        getattr(explorer, f"to_{suffix}")(tmp_path / f"a.{suffix}")
    page = open_page(offline_page, exported(explorer, tmp_path))
    n = len(runs)
    for view in ("Tree", "Flow of steps", "Table"):
        page.get_by_role("button", name=view, exact=True).click()
        assert page.locator(".sag-side dd").first.inner_text() == str(n)
    known = n - outcomes.count("unknown")
    said = page.locator(".sag-side").inner_text()
    assert ("not known: no outcome is" in said) == (known == 0)
    offline_page.assert_quiet()
