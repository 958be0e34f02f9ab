"""Drawings for print: PNG, SVG and PDF without a browser."""

from __future__ import annotations

import io
import re
import warnings

import pytest

from sag_research.bloom import bloom_graph
from sag_research.errors import UsageError
from sag_research.viz import scene
from sag_research.viz._static import draw_scene
from tests.viz.sample import graph
from tests.viz.test_page import HOSTILE, hostile_graph

BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def texts(drawn):
    return [text.get_text() for text in draw_scene(drawn).axes[0].texts]


@pytest.mark.parametrize("form", BEGINS)
@pytest.mark.parametrize("layout", ["timeline", "force"])
def test_the_same_scene_gives_the_same_bytes(tmp_path, form, layout):
    drawn = scene(graph(), layout, risk={"leap-day~1": [0.5] * 30}, alarms={"leap-day~1": 9})
    save = getattr(drawn, f"to_{form}")
    first, second = (save(tmp_path / f"{name}.{form}") for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(BEGINS[form])


def test_a_png_shows_what_the_picture_shows(tmp_path):
    from PIL import Image

    file = scene(graph()).to_png(tmp_path / "a.png", dpi=100)
    picture = Image.open(io.BytesIO(file.read_bytes())).convert("RGB")
    counts = {colour: n for n, colour in picture.getcolors(1 << 24)}
    assert counts[(0x00, 0x72, 0xB2)] > 1_000
    assert counts[(0xF0, 0x88, 0x3E)] > 300


def test_lanes_ends_flags_and_legend_are_words():
    said = texts(scene(graph(), risk={"leap-day~1": [0.5] * 30}, alarms={"leap-day~1": 9}))
    words = ["✘ failure", "✔ success", "fork", "alarm", "risk", "searched", "handed in"]
    words += ["went well", "error or failed test", "forked: tried again from there", "Error"]
    for word in words:
        assert word in said, word
    assert "changed" not in said  # a line that is not drawn is not explained


def test_hostile_texts_are_drawn_as_texts_without_a_warning(tmp_path):
    drawn = scene(hostile_graph(), entities=1_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = drawn.to_svg(tmp_path / "a.svg")
    svg = file.read_text(encoding="utf-8")
    assert not re.search(r"<(script|img|foreignObject|a|image)\b", svg)
    assert "pwned" not in re.sub(r"<!--.*?-->", "", svg)
    said = "".join(texts(drawn))
    assert "\u202e" not in said
    assert "⟨U+202E⟩" in said
    assert "\x1b" not in said


def test_names_the_font_lacks_are_drawn_as_boxes(tmp_path):
    drawn = scene(bloom_graph([("r", 1)], [("r", 1, "Error||中文$x^2$")]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn.to_png(tmp_path / "a.png")
    assert "□□$x^2$" in texts(drawn)


def test_a_file_of_another_form_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"does not end in \.png"):
        scene(graph()).to_png(tmp_path / "a.pdf")
    with pytest.raises(UsageError) as caught:
        scene(graph()).to_png(tmp_path / "\u202egnp.exe")
    assert "\u202e" not in str(caught.value)


@pytest.mark.parametrize("text", ["", HOSTILE[0]])
def test_an_empty_scene_can_be_drawn(tmp_path, text):
    assert scene(bloom_graph([]), title=text).to_pdf(tmp_path / "a.pdf").stat().st_size > 500
