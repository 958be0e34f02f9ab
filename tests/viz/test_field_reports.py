"""Public bug reports about pyvis, each with the smallest input that shows it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sag_research.bloom import bloom_graph
from sag_research.viz import Edge, Node, Scene, inline, page, scene
from sag_research.viz._pyvis import drawing_data
from tests.viz.test_page import Tags

QUIET = [("r", 1), ("r", 2)]


def small(*edges: Edge, label: str = "a") -> Scene:
    nodes = [Node(id=name, kind="File", label=label) for name in ("a", "b")]
    return Scene(nodes=nodes, edges=list(edges), layout="force")


class TestB34:
    """A blank cell, raw HTML in it, and styles that leak into the notebook."""

    def test_b34_what_a_cell_gets_is_one_frame_and_no_style(self) -> None:
        frame = inline(scene(bloom_graph(QUIET)))
        assert [tag for tag, _ in Tags(frame).tags] == ["iframe"]
        assert not re.search(r"<style|<script|<link", frame)  # they are inside, as a text

    def test_b34_the_frame_can_do_nothing_but_draw(self) -> None:
        ((_, attributes),) = Tags(inline(scene(bloom_graph(QUIET)))).tags
        assert attributes["sandbox"] == "allow-scripts"
        assert attributes["srcdoc"]


class TestB35:
    """What should be in line still loads from a CDN."""

    def test_b35_no_element_of_a_page_has_an_address(self) -> None:
        for _, attributes in Tags(page(scene(bloom_graph(QUIET)))).tags:
            assert not {"src", "href"} & attributes.keys()

    def test_b35_styles_of_a_page_have_none_either(self) -> None:
        text = page(scene(bloom_graph(QUIET)))
        styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
        assert styles
        assert not re.search(r"@import|url\(\s*['\"]?(?!data:)", styles)


class TestB37:
    """Titles, ids, nodes that are there twice, and edges between the same two nodes."""

    def test_b37_a_title_is_text_whatever_it_says(self) -> None:
        drawn = small(label="<b>bold</b>")
        assert "<b>bold" not in page(drawn)
        assert not any("title" in node for node in drawing_data(drawn)["nodes"])

    @pytest.mark.parametrize("run", [("a", 1), np.int64(3), 7])
    def test_b37_ids_that_are_no_texts_are_drawn(self, run: object) -> None:
        data = drawing_data(scene(bloom_graph([(run, 1)])))
        assert [node["id"] for node in data["nodes"]] == [*range(len(data["nodes"]))] != []

    def test_b37_parallel_edges_are_drawn_each(self) -> None:
        edges = [Edge(source="a", target="b", kind=kind) for kind in ("NEXT", "CAUSED", "FORK")]
        assert len(drawing_data(small(*edges))["edges"]) == 3
