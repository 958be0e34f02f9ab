"""The page in a real browser with no network."""

from __future__ import annotations

import html
import io
import itertools

import pytest

from sag_research.bloom import BloomGraph, bloom_graph
from sag_research.viz import inline, page, scene
from tests.viz.sample import graph
from tests.viz.test_page import HOSTILE, hostile_graph

PAINTED = "() => document.documentElement.dataset.painted !== undefined"

# pixels of the canvas that are not transparent, and how many colours they have
INK = """() => {
  const canvas = document.querySelector("#canvas canvas");
  const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  let drawn = 0;
  for (let i = 0; i < bytes.length; i += 4) {
    if (bytes[i + 3] === 0) continue;
    drawn += 1;
    colours.add((bytes[i] << 16) | (bytes[i + 1] << 8) | bytes[i + 2]);
  }
  return { share: drawn / (canvas.width * canvas.height), colours: colours.size };
}"""

# where a node stands on the screen, found by what the inspector says of it
PLACE = """([name, text]) => {
  const id = bloom.data.texts.findIndex((texts) => texts[2][name] === text);
  const place = bloom.network.canvasToDOM(bloom.network.getPosition(id));
  const canvas = document.querySelector("#canvas").getBoundingClientRect();
  return [place.x + canvas.left, place.y + canvas.top];
}"""


@pytest.fixture
def opened(offline_page, tmp_path):
    def open_scene(drawn):
        offline_page.page.set_viewport_size({"width": 1280, "height": 720})
        file = tmp_path / "graph.html"
        file.write_text(page(drawn), encoding="ascii")
        offline_page.open(file)
        offline_page.page.wait_for_function(PAINTED)
        return offline_page.page

    return open_scene


def click(tab, name, text):
    tab.mouse.click(*tab.evaluate(PLACE, [name, text]))


def test_a_run_of_thirty_steps_is_drawn_and_read(opened, offline_page):
    tab = opened(scene(graph()))
    ink = tab.evaluate(INK)
    assert ink["share"] > 0.2
    assert ink["colours"] > 100
    assert "How to read this" in tab.inner_text("#inspector")
    click(tab, "step", "5")
    tab.wait_for_function("document.querySelector('#inspector h2').textContent === 'step 5'")
    shown = tab.inner_text("#inspector")
    assert "python reproduce.py" in shown
    assert "ValueError: day is out of range for month" in shown
    assert "ValueError" in tab.locator("#inspector .near button").all_inner_texts()
    tab.locator("#inspector .near button", has_text="ValueError").first.click()
    assert tab.inner_text("#inspector h2") == "ValueError"
    assert "step 14 · leap-day~1" in tab.locator("#inspector .near button").all_inner_texts()
    offline_page.assert_quiet()


def test_the_screenshot_shows_lanes_and_boxes(opened):
    from PIL import Image

    tab = opened(scene(graph()))
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    counts = {colour: n for n, colour in picture.getcolors(1 << 24)}
    assert counts[(0xE6, 0x9F, 0x00)] > 300  # steps that changed something
    assert counts[(0xF4, 0xF6, 0xF8)] > 50_000  # lanes and shelf
    assert counts[(0xD5, 0x5E, 0x00)] > 100  # exit codes


def test_boxes_do_not_overlap_as_the_browser_draws_them(opened):
    names = ["sqlite3.OperationalError", "mmmmWWWW@@%%mmmmWWWW@@", "a/very/long/path/to/one.py"]
    names += ["iiiiii", "中文中文中文中文", "UPPER_CASE_CONSTANT_XY", "x", "…mixed.Case_Name"]
    mentions = [("r", 2, f"{kind}||{name}") for name in names for kind in ("File", "Error")]
    tab = opened(scene(bloom_graph([("r", 1, "run.created"), ("r", 2)], mentions)))
    boxes = tab.evaluate("bloom.data.nodes.map((n) => bloom.network.getBoundingBox(n.id))")
    assert len(boxes) == 3 + len(mentions)
    for a, b in itertools.combinations(boxes, 2):
        apart = a["right"] <= b["left"] or b["right"] <= a["left"]
        assert apart or a["bottom"] <= b["top"] or b["bottom"] <= a["top"]


def test_pointing_reads_clicking_keeps(opened):
    tab = opened(scene(graph()))
    tab.mouse.move(*tab.evaluate(PLACE, ["step", "3"]))
    tab.wait_for_function("document.querySelector('#inspector h2').textContent === 'step 3'")
    click(tab, "step", "8")
    tab.wait_for_function("document.querySelector('#inspector h2').textContent === 'step 8'")
    tab.mouse.move(*tab.evaluate(PLACE, ["step", "3"]))
    tab.wait_for_timeout(100)
    assert tab.inner_text("#inspector h2") == "step 8"
    tab.mouse.click(1000 - 10, 720 - 10)  # nothing there
    tab.wait_for_function(
        "document.querySelector('#inspector h2').textContent === 'How to read this'"
    )


def test_the_legend_hides_and_shows_a_kind(opened):
    tab = opened(scene(graph()))
    hidden = "() => bloom.network.body.data.nodes.get().filter((node) => node.hidden).length"
    tab.get_by_role("button", name="Command").click()
    assert tab.evaluate(hidden) == sum(node.kind == "Command" for node in scene(graph()).nodes)
    tab.get_by_role("button", name="Command").click()
    assert tab.evaluate(hidden) == 0


def test_a_run_tells_where_it_was_forked_from(opened):
    tab = opened(scene(graph()))
    click(tab, "forked from", "leap-day~1 at position 10")
    assert "forked from" in tab.inner_text("#inspector")
    assert "success" in tab.inner_text("#inspector")
    tab.locator("#inspector .near button", has_text="step 8").click()
    assert tab.inner_text("#inspector h2") == "step 8"


@pytest.mark.parametrize("layout", ["timeline", "force"])
def test_hostile_text_stays_text(opened, offline_page, layout):
    drawn = scene(hostile_graph(), layout, entities=1000)
    tab = opened(drawn)
    for id in range(len(drawn.nodes)):
        tab.evaluate("(id) => bloom.choose(id)", id)
        inspector = tab.locator("#inspector")
        assert inspector.locator("script, img, svg, a, iframe").count() == 0
        assert inspector.locator("pre *, dd *, h2 *").count() == 0
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.__pwned === undefined")
    assert tab.url.startswith("file:")
    offline_page.assert_quiet()


def test_hidden_characters_are_made_visible(opened):
    drawn = scene(hostile_graph(), entities=1000)
    tab = opened(drawn)
    at = HOSTILE.index("right to left \u202egnp.exe")
    step = next(i for i, n in enumerate(drawn.nodes) if n.detail.get("step") == str(at))
    tab.evaluate("(id) => bloom.choose(id)", step)
    assert "right to left \u27e8U+202E\u27e9gnp.exe" in tab.inner_text("#inspector")
    assert "\u202e" not in tab.inner_text("body")


def test_the_page_cannot_ask_the_network_even_if_told_to(opened, offline_page):
    tab = opened(scene(graph()))
    tab.evaluate("""() => {
      for (const tag of ["img", "script", "link", "iframe"]) {
        const made = document.createElement(tag);
        if (tag === "link") made.rel = "stylesheet";
        made[tag === "link" ? "href" : "src"] = "https://elsewhere.example/" + tag;
        document.body.append(made);
      }
      return fetch("https://elsewhere.example/fetch").catch(() => null);
    }""")
    tab.wait_for_timeout(200)
    assert offline_page.blocked == []
    # the policy's own complaints prove that the attempts were made
    told = [text for text in offline_page.console_errors if "Content Security Policy" in text]
    assert len(told) >= 5


def test_a_frame_in_a_host_page(offline_page, tmp_path):
    host = tmp_path / "host.html"
    frame = inline(scene(hostile_graph(), entities=1000), height=500)
    host.write_text(
        f"<!doctype html><meta charset=utf-8><p>above</p>{frame}<p>below</p>", encoding="utf-8"
    )
    offline_page.open(host)
    tab = offline_page.page
    inner = next(frame for frame in tab.frames if frame != tab.main_frame)
    inner.wait_for_function(PAINTED)
    assert inner.evaluate(INK)["share"] > 0.05
    inner.evaluate("() => bloom.choose(0)")
    assert "thought" in inner.inner_text("#inspector") or "run" in inner.inner_text("#inspector")
    # sandboxed: the frame has an origin of its own and cannot reach its host
    assert inner.evaluate("() => window.origin") == "null"
    for where in (tab.main_frame, inner):
        assert where.evaluate("window.__pwned === undefined")
    assert tab.locator("body > *").count() == 3
    offline_page.assert_quiet()


def test_the_html_of_show_is_that_frame(offline_page, tmp_path):
    bundle = BloomGraph(graph()).show()._repr_mimebundle_()
    host = tmp_path / "notebook.html"
    host.write_text(f"<!doctype html><meta charset=utf-8>{bundle['text/html']}", encoding="utf-8")
    offline_page.open(host)
    tab = offline_page.page
    tab.frames[1].wait_for_function(PAINTED)
    assert tab.frames[1].evaluate(INK)["colours"] > 100
    assert html.unescape(bundle["text/html"]) != bundle["text/html"]
    offline_page.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_titles_can_be_read_on_light_and_dark(opened, offline_page, scheme):
    offline_page.page.emulate_media(color_scheme=scheme)
    tab = opened(scene(graph()))
    paper, ink = tab.evaluate("""() => {
      const style = getComputedStyle(document.body);
      const sum = (text) => text.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0);
      return [sum(style.backgroundColor), sum(style.color)];
    }""")
    assert abs(paper - ink) > 400
    assert (paper > ink) == (scheme == "light")
