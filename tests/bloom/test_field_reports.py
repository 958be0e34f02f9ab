"""Public bug reports about RDF, each with the smallest input that shows it."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest

from sag_research.bloom import (
    Named,
    Observation,
    Recorder,
    Thought,
    TraceItem,
    provenance_text,
    read_quads,
    read_traces,
)
from sag_research.model import Entity, Run

GRAPH_FORMS = {"trig": "trig", "nquads": "nquads", "jsonld": "json-ld"}
each_form = pytest.mark.parametrize("form", sorted(GRAPH_FORMS))


def recorded(*names):
    """Two runs, each a named graph, whose second step names files."""
    recorder = Recorder()
    for run in ("r1", "r2"):
        recorder.add_run(Run(run_id=run, goal="Mend it."))
        recorder.add(run, TraceItem(0, Thought("look")))
        files = [Named(Entity("File", "org/repo", name)) for name in names]
        recorder.add(run, TraceItem(1, Observation("ls", "seen")), named=files)
    return recorder.traces


def of_rdflib(traces, form):
    from rdflib import Dataset

    dataset = Dataset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about rdflib's own old names
        dataset.parse(
            data=provenance_text(traces, form), format=GRAPH_FORMS[form], publicID="urn:x"
        )
    return dataset


class TestB38:
    """JSON-LD with named graphs, read into a single graph, gives no triple."""

    def test_b38_a_data_set_gets_all_of_them(self):
        traces = recorded("a.py")
        dataset = of_rdflib(traces, "jsonld")
        assert sum(1 for _ in dataset.quads((None, None, None, None))) == len(traces) > 10

    def test_b38_our_reader_finds_both_runs(self):
        quads = read_quads(provenance_text(recorded("a.py"), "jsonld"), "jsonld")
        assert sorted(trace.run_id for trace in read_traces(quads)) == ["r1", "r2"]


class TestB39:
    """Round trips move triples between graphs, and the default graph gets a name."""

    @each_form
    def test_b39_each_graph_keeps_its_triples(self, form):
        traces = recorded("a.py")
        again = read_quads(provenance_text(traces, form), form)
        counted = Counter(str(quad.graph_name) for quad in traces)
        assert Counter(str(quad.graph_name) for quad in again) == counted
        assert len(counted) == 3  # of the two runs, and of what they share

    @each_form
    def test_b39_no_graph_has_blank_nodes_in_common(self, form):
        from rdflib import BNode

        quads = [*of_rdflib(recorded("a.py"), form).quads((None, None, None, None))]
        assert quads
        assert not [quad for quad in quads if any(isinstance(part, BNode) for part in quad)]


class TestB40:
    """A name that is no part of an IRI: the writer raises, or the triple is gone."""

    NAMES = ("a file.py", "C:\\x", "a|b", "<t>", "/abs/path.py", 'say "hi".py', "%20", "é.py")

    @each_form
    @pytest.mark.parametrize("name", NAMES)
    def test_b40_it_comes_back_as_it_was(self, form, name):
        traces = recorded(name)
        again = read_quads(provenance_text(traces, form), form)
        assert set(again) == set(traces)
        assert name in {getattr(quad.object, "value", None) for quad in again}  # as a literal

    @each_form
    def test_b40_names_that_differ_stay_apart(self, form):
        def nodes(*names):
            quads = of_rdflib(recorded(*names), form).quads((None, None, None, None))
            return {str(part) for quad in quads for part in quad[:3:2] if "File" in str(part)}

        assert len(nodes(*self.NAMES)) - len(nodes(self.NAMES[0])) >= len(self.NAMES) - 1

    @each_form
    def test_b40_no_name_becomes_an_address_of_a_file(self, form):
        text = provenance_text(recorded(*self.NAMES), form)
        assert b"file:" not in (text if isinstance(text, bytes) else text.encode())
