"""The result object."""

from __future__ import annotations

from sag_research.bloom import BloomGraph, bloom_graph
from tests.viz.sample import graph


def test_repr_is_one_stable_line():
    assert repr(BloomGraph(graph())) == "BloomGraph(2 runs, 41 events, 31 entities, 222 edges)"
    assert repr(BloomGraph(bloom_graph([]))) == "BloomGraph(0 runs, 0 events, 0 entities, 0 edges)"


def test_counts_add_up():
    bloomed = BloomGraph(graph())
    counts = bloomed.counts_.groupby("what").n.sum()
    assert counts["node"] == bloomed.nx.number_of_nodes()
    assert counts["edge"] == bloomed.nx.number_of_edges()
    assert list(BloomGraph(bloom_graph([])).counts_.columns) == ["what", "label", "kind", "n"]


def test_runs_name_parents_first():
    assert BloomGraph(graph()).runs == ["leap-day~1", "leap-day~1-fork"]


def test_html_repr_is_inert():
    bloomed = BloomGraph(bloom_graph([("r", 1)], [("r", 1, "File|<b>|<img src=x onerror=p()>")]))
    html = bloomed._repr_html_()
    assert "<img" not in html
    assert "<b>&lt;" not in html.replace("<b>BloomGraph", "")
    assert "&lt;img src=x" in html


def test_drawing_leaves_the_graph_as_it_was():
    import networkx as nx

    bloomed = BloomGraph(graph())
    before = bloomed.nx.copy()
    bloomed.show()
    assert nx.utils.graphs_equal(before, bloomed.nx)


def test_to_html_writes_one_file_and_nothing_else(tmp_path, monkeypatch):
    elsewhere = tmp_path / "cwd"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    target = tmp_path / "graph.html"
    assert BloomGraph(graph()).to_html(target) == target
    BloomGraph(graph()).show()._repr_mimebundle_()
    assert list(elsewhere.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cwd", "graph.html"]
    assert target.read_bytes().startswith(b"<!doctype html>")


def test_show_has_a_stable_repr_and_brings_its_page_along():
    view = BloomGraph(graph()).show(height=432)
    assert repr(view) == "View(timeline, 74 nodes, 146 edges)"
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"] == repr(view)
    assert bundle["text/html"].startswith("<iframe srcdoc=")
    assert 'height="432"' in bundle["text/html"]
    assert bundle == BloomGraph(graph()).show(height=432)._repr_mimebundle_()
