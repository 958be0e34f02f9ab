"""Provenance from the command line: the same quads in every form."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import sag_research as sag
from sag_research.bloom import read_quads
from sag_research.cli._base import sag as command

FORMS = {"prov": "prov-json", "trig": "trig", "nquads": "nquads", "jsonld": "jsonld"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "ws"
    with sag.open(folder) as ws:
        step = {"thought": "<t> 诊断", "action": "cat setup.py", "observation": "TimeoutError"}
        ws.add([{"task_id": f"t{n}", "steps": [step], "outcome": "success"} for n in range(2)])
    return folder


def run(*words):
    import sag_research.cli._export  # the group's commands

    assert sag_research.cli._export
    return CliRunner().invoke(command, ["export", *map(str, words)], standalone_mode=False)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_quads(folder, form, tmp_path):
    done = run(form, "-w", folder, "-o", tmp_path / "all", "--json")
    told = json.loads(done.output)
    quads = read_quads((tmp_path / "all").read_bytes(), FORMS[form])
    assert (told["runs"], told["quads"]) == (2, len(quads))
    with sag.open(folder) as ws:
        ws.recorder.catch_up()
        assert set(ws.recorder.traces) == set(quads)


@pytest.mark.parametrize("form", FORMS)
def test_one_run_is_a_part_of_all(folder, form, tmp_path):
    done = run(form, "-w", folder, "--run", "t1", "-o", tmp_path / "one")
    assert done.output.strip().endswith(f"quads as {FORMS[form]}")
    assert "1 runs" in done.output
    run(form, "-w", folder, "-o", tmp_path / "all")
    one, all_ = (set(read_quads((tmp_path / n).read_bytes(), FORMS[form])) for n in ("one", "all"))
    assert one < all_


def test_an_unknown_run_leaves_no_file(folder, tmp_path):
    done = run("trig", "-w", folder, "--run", "nothing", "-o", tmp_path / "x")
    assert isinstance(done.exception, sag.SagError)
    assert not list(tmp_path.iterdir())


def test_the_graph_for_cypher_is_a_folder(folder, tmp_path):
    done = run("cypher", "-w", folder, "-o", tmp_path / "graph", "--json", "--texts")
    told = json.loads(done.output)
    assert told["counts"]["runs"] == 2
    assert (tmp_path / "graph" / "import.sh").exists()
    one = run("cypher", "-w", folder, "--run", "t1", "-o", tmp_path / "one")
    assert "1 runs" in one.output
    both = run("cypher", "-w", folder, "--run", "t1", "--where", "true and true", "-o", "x")
    assert isinstance(both.exception, sag.SagError)
