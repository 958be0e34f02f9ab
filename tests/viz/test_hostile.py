"""Texts that want to be more than text, in every view, title, table, export and message."""

from __future__ import annotations

import json
import re
import time

import pytest

from sag_research.bloom import EventRow, bloom_graph
from sag_research.errors import UsageError
from sag_research.viz import View, page, scene, scene_data
from tests.viz.test_browser import PAINTED
from tests.viz.test_page import HOSTILE, Tags, hostile_graph

LONG = "x" * 1_000_000


@pytest.fixture
def opened(offline_page, tmp_path):
    def open_scene(drawn):
        offline_page.page.set_viewport_size({"width": 1280, "height": 720})
        offline_page.open(drawn.to_html(tmp_path / "graph.html"))
        offline_page.page.wait_for_function(PAINTED)
        return offline_page.page

    return open_scene


@pytest.mark.parametrize("layout", ["timeline", "force"])
def test_title_legend_table_and_search_hold_texts_only(opened, offline_page, layout):
    tab = opened(scene(hostile_graph(), layout, entities=1_000, title=HOSTILE[0]))
    tab.locator(".sag-table summary").click()
    tab.wait_for_function("() => document.querySelectorAll('.sag-table tr').length > 10")
    for text in HOSTILE[:4]:
        tab.locator(".sag-tools input").fill(text[:200])
    bad = ".sag :is(script, img, svg, a, iframe, object, link, style, form)"
    assert tab.locator(bad).count() == 0
    assert "onerror=" in tab.inner_text(".sag-title, .sag-head strong")
    shown = tab.inner_text(".sag")
    assert not re.search("[\u202a-\u202e\x1b\ud800-\udfff]", shown)
    assert "__proto__" in shown
    assert tab.evaluate("() => window.__pwned === undefined && ({}).sag === undefined")
    offline_page.assert_quiet()


def test_a_line_of_a_million_characters_is_folded(opened, offline_page):
    events = [EventRow("r", 1, step=0, action="cat a", observation=LONG, thought=LONG[:9_000])]
    drawn = scene(bloom_graph(events))
    observation = drawn.nodes[1].detail["observation"]
    assert observation.endswith("… (980,000 more characters)")
    assert len(observation) < 21_000
    tab = opened(drawn)
    tab.evaluate("() => bloom.choose('event:r:1')")
    assert len(tab.inner_text(".sag-inspector")) < 10_000
    tab.get_by_role("button", name="Show all 9,000 characters").click()
    assert len(tab.inner_text(".sag-inspector pre >> nth=0")) == 9_000
    assert tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    offline_page.assert_quiet()


def test_many_long_lines_do_not_stall_a_drawing():
    events = [EventRow("r", n, step=n, observation=LONG, action=LONG) for n in range(20)]
    began = time.perf_counter()
    drawn = scene(bloom_graph(events))
    text = page(drawn)
    assert time.perf_counter() - began < 60  # of 40 MB; what is quadratic takes hours
    assert len(text) < 1_000_000


def test_a_scene_is_short_and_valid_whatever_it_was_given():
    data = scene_data(scene(hostile_graph(), entities=1_000))
    for name in ("kinds", "links", "legend", "bands", "notes", "title"):
        text = json.dumps(data[name], ensure_ascii=False)
        assert not re.search("[\x1b\ud800-\udfff]", text), name
        assert len(text) < 60_000 + 2_000_000 * (name == "bands"), name


def test_the_table_is_text_that_can_be_written_down(tmp_path):
    table = scene(hostile_graph(), entities=1_000).table_
    names = "".join(table["name"]) + "".join(table["detail"])
    assert not re.search("[\u202a-\u202e\x1b\ud800-\udfff]", names)
    assert table["name"].str.len().max() <= 150
    assert table["kind"].str.len().max() <= 24


def test_a_view_in_a_notebook_is_one_frame():
    bundle = View(scene(hostile_graph(), entities=1_000))._repr_mimebundle_()
    assert [tag for tag, _ in Tags(bundle["text/html"]).tags] == ["iframe"]
    assert re.fullmatch(r"View\(timeline, \d+ nodes, \d+ edges\)", bundle["text/plain"])


def test_an_error_says_what_it_was_given_and_no_more():
    with pytest.raises(UsageError) as caught:
        scene(hostile_graph(), "\x1b[31m\u202e" + LONG)
    assert not re.search("[\x1b\u202e]", str(caught.value))
    assert len(str(caught.value)) < 200
