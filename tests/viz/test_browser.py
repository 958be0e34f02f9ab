"""The page in a real browser with no network."""

from __future__ import annotations

import html
import io

import pytest

from sag_research.bloom import BloomGraph, bloom_graph
from sag_research.viz import inline, page, scene, scene_data, scene_patch
from tests.viz.sample import graph
from tests.viz.test_page import HOSTILE, hostile_graph

PAINTED = "() => document.documentElement.dataset.painted !== undefined"

# pixels of the canvas that are not transparent, and how many colours they have
INK = """() => {
  const canvas = document.querySelector(".sag-canvas canvas");
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

# where a node stands on the screen
PLACE = """(key) => {
  const place = bloom.at(key);
  const canvas = document.querySelector(".sag-canvas").getBoundingClientRect();
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


def click(tab, key):
    tab.mouse.click(*tab.evaluate(PLACE, key))


def heading(tab):
    return tab.inner_text(".sag-inspector h2")


def test_a_run_of_thirty_steps_is_drawn_and_read(opened, offline_page):
    tab = opened(scene(graph()))
    ink = tab.evaluate(INK)
    assert ink["share"] > 0.2
    assert ink["colours"] > 100
    assert heading(tab) == "How to read this"
    click(tab, "event:leap-day~1:7")
    assert heading(tab) == "step 5"
    shown = tab.inner_text(".sag-inspector")
    assert "python reproduce.py" in shown
    assert "ValueError: day is out of range for month" in shown
    assert "ValueError" in tab.locator(".sag-near button").all_inner_texts()
    tab.locator(".sag-near button", has_text="ValueError").first.click()
    assert heading(tab) == "ValueError"
    assert "step 14 · leap-day~1" in tab.locator(".sag-near button").all_inner_texts()
    offline_page.assert_quiet()


def test_the_screenshot_shows_lanes_marks_and_results(opened):
    from PIL import Image

    tab = opened(scene(graph()))
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    counts = {colour: n for n, colour in picture.getcolors(1 << 24)}
    assert counts[(0x00, 0x72, 0xB2)] > 1_000  # what went well
    assert counts[(0xF0, 0x88, 0x3E)] > 300  # errors
    assert counts[(0xF4, 0xF6, 0xF8)] > 50_000  # lanes and shelf


def test_texts_fit_into_their_boxes_as_the_browser_measures_them(opened):
    names = ["sqlite3.OperationalError", "mmmmWWWW@@%%mmmmWWWW@@", "a/very/long/path/to/one.py"]
    names += ["iiiiii", "中文中文中文中文", "UPPER_CASE_CONSTANT_XY", "x", "…mixed.Case_Name"]
    mentions = [("r", 2, f"{kind}||{name}") for name in names for kind in ("File", "Error")]
    drawn = scene(bloom_graph([("r", 1, "run.created"), ("r", 2)], mentions))
    labels = {node.label: node.size for node in drawn.nodes if node.detail.get("entity")}
    assert len(labels) == len(names) + 2  # a path keeps its end, an error's name its beginning
    widths = opened(drawn).evaluate(
        """(labels) => {
          const context = document.createElement("canvas").getContext("2d");
          context.font = "13px system-ui, 'DejaVu Sans', sans-serif";
          return labels.map((label) => context.measureText(label).width);
        }""",
        list(labels),
    )
    for (label, size), width in zip(labels.items(), widths, strict=True):
        assert width <= size - 6, label


def test_pointing_reads_and_ties_clicking_keeps(opened):
    tab = opened(scene(graph()))
    before = tab.evaluate(INK)
    tab.mouse.move(*tab.evaluate(PLACE, "event:leap-day~1:5"))
    tab.wait_for_function(
        "() => document.querySelector('.sag-inspector h2').textContent === 'step 3'"
    )
    tab.wait_for_timeout(100)
    assert tab.evaluate(INK) != before
    click(tab, "event:leap-day~1:10")
    assert heading(tab) == "step 8"
    tab.mouse.move(*tab.evaluate(PLACE, "event:leap-day~1:5"))
    tab.wait_for_timeout(100)
    assert heading(tab) == "step 8"
    tab.mouse.click(1000 - 10, 600)  # nothing there
    assert heading(tab) == "How to read this"


def test_the_keyboard_walks_along_lanes_and_between_them(opened, offline_page):
    tab = opened(scene(graph()))
    tab.keyboard.press("Tab")
    while tab.evaluate("() => !document.activeElement.classList.contains('sag-picture')"):
        tab.keyboard.press("Tab")
    tab.keyboard.press("ArrowRight")
    assert heading(tab) == "run leap-day~1"
    for _ in range(4):
        tab.keyboard.press("ArrowRight")
    assert heading(tab) == "step 2"
    tab.keyboard.press("ArrowLeft")
    assert heading(tab) == "step 1"
    assert "looked at something" in tab.text_content(".sag-said")
    tab.keyboard.press("Enter")
    assert tab.evaluate("() => bloom.selected()") == "event:leap-day~1:3"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert tab.evaluate("() => bloom.selected()").startswith(
        ("run:leap-day~1-fork", "event:leap-day~1-fork")
    )
    tab.keyboard.press("Escape")
    assert tab.evaluate("() => bloom.selected()") is None
    tab.keyboard.press("/")
    tab.keyboard.type("redis")
    keys = tab.evaluate("() => bloom.find('redis')")
    assert "System||Redis" in keys
    assert tab.inner_text(".sag-tools span") == f"{len(keys)} found"
    tab.keyboard.press("Enter")
    assert tab.inner_text(".sag-tools span") == f"1 of {len(keys)}"
    offline_page.assert_quiet()


def test_the_table_says_the_same_as_the_picture(opened):
    drawn = scene(graph())
    tab = opened(drawn)
    assert tab.locator(".sag-table tr").count() == 0
    tab.locator(".sag-table summary").click()
    tab.wait_for_function("() => document.querySelectorAll('.sag-table tr').length > 1")
    assert tab.locator(".sag-table tr").count() == len(drawn.nodes) + 1
    row = tab.locator(".sag-table tr", has_text="python reproduce.py").first
    assert row.locator("td").all_inner_texts()[:5] == [
        "Step", "leap-day~1", "5", "ran a test or a program", "error or failed test",
    ]  # fmt: skip


def test_the_legend_hides_and_shows_a_kind(opened):
    tab = opened(scene(graph()))
    hidden = "() => bloom.network.body.data.nodes.get().filter((node) => node.hidden).length"
    for name, kind, field in [("Command", "Command", "kind"), ("searched", "search", "mark")]:
        tab.get_by_role("button", name=name, exact=True).click()
        nodes = scene(graph()).nodes
        assert tab.evaluate(hidden) == sum(getattr(node, field) == kind for node in nodes) > 0
        tab.get_by_role("button", name=name, exact=True).click()
        assert tab.evaluate(hidden) == 0


def test_a_run_tells_where_it_was_forked_from(opened):
    tab = opened(scene(graph()))
    click(tab, "run:leap-day~1-fork")
    assert "leap-day~1 at position 10" in tab.inner_text(".sag-inspector")
    assert "success" in tab.inner_text(".sag-inspector")
    tab.locator(".sag-near button", has_text="step 8").click()
    assert heading(tab) == "step 8"


def test_two_drawings_live_on_one_page_and_are_patched(opened, offline_page):
    old, new = scene_data(scene(graph(fork=False))), scene_data(scene(graph(), collapse=True))
    tab = opened(scene(graph()))
    told = tab.evaluate(
        """([old, next, patch, back]) => {
          const root = document.createElement("div");
          root.style.height = "400px";
          document.body.append(root);
          const heard = [];
          const view = sagDraw(vis, root, old, { inspector: false });
          view.onChoose((key) => heard.push(key));
          const links = () => view.links().map((link) => JSON.stringify(link)).sort();
          const state = () => [view.keys().sort(), links(), view.network.body.nodeIndices.length];
          const states = [state()];
          view.choose(old.keys[0]);
          view.patch(patch); states.push(state());
          view.patch(back); states.push(state());
          view.replace(next); states.push(state());
          const inspectors = root.querySelectorAll(".sag-inspector").length;
          return { states, kept: view.selected(), inspectors };
        }""",
        [old, new, scene_patch(old, new), scene_patch(new, old)],
    )
    first, patched, back, replaced = told["states"]
    assert first == back
    assert patched == replaced
    assert patched[0] == sorted(new["keys"])
    assert patched[2] == len(new["nodes"])
    assert told["kept"] == old["keys"][0]
    assert told["inspectors"] == 0
    tab.wait_for_timeout(100)
    offline_page.assert_quiet()


def test_theme_follows_the_notebook_and_what_it_is_told(opened):
    tab = opened(scene(graph()))
    theme = "() => document.querySelector('.sag').dataset.theme"
    assert tab.evaluate(theme) == "light"
    tab.evaluate("() => { document.body.dataset.jpThemeLight = 'false'; }")
    tab.wait_for_function("() => document.querySelector('.sag').dataset.theme === 'dark'")
    tab.evaluate("() => bloom.setTheme('light')")
    assert tab.evaluate(theme) == "light"
    tab.evaluate("() => bloom.destroy()")
    assert tab.evaluate("() => document.getElementById('bloom').childElementCount") == 0


@pytest.mark.parametrize("layout", ["timeline", "force"])
def test_hostile_text_stays_text(opened, offline_page, layout):
    drawn = scene(hostile_graph(), layout, entities=1000)
    tab = opened(drawn)
    keys = scene_data(drawn)["keys"]
    assert len(set(keys)) == len(drawn.nodes)
    for key in keys:
        found = tab.evaluate(
            """(key) => {
              bloom.choose(key);
              const inspector = document.querySelector(".sag-inspector");
              const bad = "script, img, svg, a, iframe, pre *, dd *, h2 *";
              return [bloom.selected() === key, inspector.querySelectorAll(bad).length];
            }""",
            key,
        )
        assert found == [True, 0], key[:80]
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.__pwned === undefined")
    assert tab.url.startswith("file:")
    offline_page.assert_quiet()


def test_hidden_characters_are_made_visible(opened):
    drawn = scene(hostile_graph(), entities=1000)
    tab = opened(drawn)
    at = HOSTILE.index("right to left \u202egnp.exe")
    step = next(n.id for n in drawn.nodes if n.detail.get("step") == str(at))
    tab.evaluate("(key) => bloom.choose(key)", step)
    assert "right to left \u27e8U+202E\u27e9gnp.exe" in tab.inner_text(".sag-inspector")
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
    inner.evaluate("() => bloom.choose(bloom.keys()[0])")
    assert inner.inner_text(".sag-inspector h2").startswith("run ")
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
      const style = getComputedStyle(document.querySelector('.sag'));
      const sum = (text) => text.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0);
      return [sum(style.backgroundColor), sum(style.color)];
    }""")
    assert abs(paper - ink) > 400
    assert (paper > ink) == (scheme == "light")
