"""The page as text: self-contained, inert, stable."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import itertools
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from sag_research.bloom import EventRow, RunRow, bloom_graph
from sag_research.viz import Node, Scene, inline, page, scene
from sag_research.viz._pyvis import LIBRARY, drawing_data, drawing_library
from sag_research.viz._style import ENTITY_COLOURS, TONES, tint
from tests.viz.sample import graph

HOSTILE = [
    "</script><img src=x onerror=window.__pwned=1>",
    "<a href='javascript:window.__pwned=1'>href</a>",
    "javascript:window.__pwned=1",
    "\x1b[31mred\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "half \ud835 char",
    "right to left \u202egnp.exe",
    "${title} $$data {{ }} <!-- ]]>",
    '"><svg onload=window.__pwned=1>',
    "'); window.__pwned=1; ('",
    "\u2028window.__pwned=1\u2029",
    "__proto__",
    "x" * 1_000_000,
]


def hostile_graph():
    """A graph that holds every hostile text in every place that a text can have."""
    runs = [RunRow(text, None, None, text, text, text, text, text, text) for text in HOSTILE]
    events, mentions, relations = [], [], []
    for n, text in enumerate(HOSTILE):
        events.append(EventRow(text, 1, "run.created", body=text))
        events.append(EventRow(text, 2, step=n, thought=text, action=text, observation=text))
        mentions += [(text, 2, f"File|{text}|{text}", "PROCESSED", 1, text),
                     (text, 2, f"{text}|x|y", "PROCESSED", 1, text)]  # fmt: skip
        relations.append((f"File|{text}|{text}", text, f"{text}|x|y", text, 2, text))
    return bloom_graph(events, mentions, relations, runs)


class Tags(HTMLParser):
    """Collect the elements of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_drawing_library_is_the_one_we_read():
    path = files("pyvis").joinpath(*LIBRARY)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == "1f20f0736f32cb9bedf8f6383b25cfea2f839e1abe80d6e8040b4d5bea378c69"


def test_the_drawing_library_fits_into_a_script_element():
    source = drawing_library()
    assert source.isascii()
    assert "</script" not in source.lower()
    assert "<!--" not in source
    assert "sourceMappingURL" not in source


@pytest.mark.parametrize("layout", ["timeline", "force"])
def test_the_same_scene_gives_the_same_bytes(layout):
    assert page(scene(graph(), layout)) == page(scene(graph(), layout))


def test_the_page_refers_to_nothing_outside():
    tags = Tags(page(scene(hostile_graph()))).tags
    for tag, attributes in tags:
        assert not {"src", "href", "action", "background"} & attributes.keys(), tag
        assert tag not in {"link", "iframe", "img", "object", "embed", "base", "form", "a"}
    policies = [a["content"] for t, a in tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    ]


def test_hostile_text_adds_no_element():
    quiet = bloom_graph([("r", 1)], [("r", 1, "File|x|y")])
    count = [tag for tag, _ in Tags(page(scene(quiet))).tags]
    assert [tag for tag, _ in Tags(page(scene(hostile_graph()))).tags] == count


def test_the_page_is_ascii_and_its_data_can_be_read_back():
    text = page(scene(hostile_graph(), entities=1000))
    assert text.isascii()
    block = re.search(r'<script type="text/plain" id="data">(.*?)</script>', text, re.DOTALL)
    packed = gzip.decompress(base64.b64decode(block[1])).decode("ascii")
    data = json.loads(packed)
    assert len(data["nodes"]) == len(data["texts"]) == len(data["kinds"])
    assert len(data["edges"]) == len(data["links"])
    assert any("<img src=x" in str(texts) for texts in data["texts"])
    assert "\x1b" not in str(data)
    assert not re.search("[\ud800-\udfff]", str(data))


def test_pyvis_gets_numbers_and_no_text_of_others():
    data = drawing_data(scene(hostile_graph(), entities=1000))
    text = json.dumps(data)
    assert "pwned" not in text
    assert "evil" not in text
    assert [node["id"] for node in data["nodes"]] == list(range(len(data["nodes"])))
    assert not any("title" in item for item in (*data["nodes"], *data["edges"]))
    assert data["options"]["physics"] == {"enabled": False}
    assert all({"x", "y"} <= node.keys() for node in data["nodes"])


def test_no_edge_is_lost_on_the_way_to_pyvis():
    drawn = scene(graph())
    data = drawing_data(drawn)
    assert len(data["edges"]) == len(drawn.edges)
    assert [(drawn.nodes[e["from"]].id, drawn.nodes[e["to"]].id) for e in data["edges"]] == [
        (edge.source, edge.target) for edge in drawn.edges
    ]


def test_a_title_with_href_changes_only_texts():
    def shell(name):
        text = page(Scene(nodes=[Node(id="a", kind="File", label=name)], edges=[], layout="force"))
        return re.sub(r'id="data">.*?</script>', "", text, flags=re.DOTALL)

    assert shell("<a href=x>") == shell("harmless")


def test_the_frame_is_sandboxed_and_holds_the_page_unchanged():
    drawn = scene(hostile_graph())
    frame = inline(drawn, height=480)
    tags = Tags(frame).tags
    assert len(tags) == 1
    name, attributes = tags[0]
    assert name == "iframe"
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["height"] == "480"
    assert attributes["srcdoc"] == page(drawn)
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == page(drawn)


def test_thirty_steps_are_a_small_page():
    assert len(page(scene(graph()))) < 250_000


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """The ratio of WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_can_be_read(theme):
    css = files("sag_research.viz").joinpath("js", "draw.css").read_text(encoding="utf-8")
    head = ".sag {" if theme == "light" else '.sag[data-theme="dark"] {'
    block = css.split(head, 1)[1].split("}", 1)[0]
    colours = dict(re.findall(r"--sag-([a-z-]+): (#[0-9a-f]{6})", block))
    pairs = [(ink, ground) for ink in ("ink", "faint") for ground in ("paper", "band", "chip")]
    pairs += [(word, "band") for word in
              ("success", "failure", "undecided", "alarm", "parting")]  # fmt: skip
    pairs += [(f"{tone}-ink", tone) for tone in ("ok", "error", "empty", "unknown", "run")]
    for ink, ground in pairs:
        assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for line in ("ok-line", "error-line", "empty-line", "next", "fork", "changed", "risk", "focus"):
        assert contrast(colours[line], colours["band"]) >= 2.9, line  # no texts
    for colour in ENTITY_COLOURS.values():
        share = 0.14 if theme == "light" else 0.34
        assert contrast(colours["ink"], tint(colour, share, colours["paper"])) >= 4.5, colour


def test_the_colours_of_results_stay_apart_without_red_or_green():
    # as dichromats see them (Machado, Oliveira and Fernandes 2009, severity 1)
    seen = {
        "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
        "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                   (-0.011820, 0.042940, 0.968881)),
    }  # fmt: skip
    for matrix in seen.values():
        fills = {}
        for tone, (fill, _) in TONES.items():
            parts = [int(fill[i : i + 2], 16) for i in (1, 3, 5)]
            fills[tone] = [sum(m * p for m, p in zip(row, parts, strict=True)) for row in matrix]
        for one, other in itertools.combinations(fills.values(), 2):
            assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 80
