"""The commands for copies and for sets of runs."""

import json

import pytest

import sag_research as sag
from sag_research.cli import main
from tests.ingest.test_copies import three


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command in this process; returns its exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["sag", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return run


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "study"
    with sag.open(folder) as ws:
        ws.ingest(three(tmp_path / "in", 2), progress=False)
    return folder


def test_copies_are_listed_and_taken_back(run, workspace):
    code, out, _ = run("copies", "-w", workspace, "--json")
    listed = json.loads(out)["copies"]
    assert (code, len(listed)) == (0, 4)
    code, out, _ = run("copies", "-w", workspace, "--show", listed[0]["run_id"], "--find", "--json")
    assert listed[0]["run_id"] not in {one["run_id"] for one in json.loads(out)["copies"]}
    code, out, _ = run("copies", "-w", workspace, "--hide", listed[0]["copy_of"])
    assert (code, "hidden by hand" in out) == (0, True)


def test_ingest_says_how_many_were_hidden(run, tmp_path):
    code, out, _ = run("ingest", three(tmp_path / "in", 2), "-w", tmp_path / "ws")
    assert code == 0
    assert "4 hidden as copies" in out
    assert "undo with ws.show(run)" in out


def test_public_sets_are_listed(run):
    code, out, _ = run("datasets", "list")
    assert (code, "nebius-swe-agent" in out, "unpinned" in out) == (0, True, True)
    _, out, _ = run("datasets", "list", "--json")
    sets = {one["name"]: one for one in json.loads(out)["datasets"]}
    assert len(sets["swe-smith"]["revision"]) == 40


def test_a_card_and_what_to_cite(run, workspace, tmp_path):
    _, shown, _ = run("datasets", "card", "-w", workspace, "--licence", "CC0-1.0")
    assert shown.startswith("# study\n")
    assert "- 4 copies and 0 other hidden runs" in shown
    path = tmp_path / "card.md"
    code, out, _ = run("datasets", "card", "-w", workspace, "--licence", "CC0-1.0", "-o", path)
    assert (code, out.strip(), path.read_text(encoding="utf-8")) == (0, str(path), shown)
    code, out, _ = run("datasets", "cite", "-w", workspace)
    assert (code, out.startswith("@software{sag_research,")) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("fetch", "nope"), 2, "no public set is called 'nope'"),
        (("load", "nope"), 2, "no public set is called 'nope'"),
        (("load", "tau-bench", "gone"), 1, "sag datasets fetch tau-bench"),
    ],
)
def test_errors_are_one_line(run, tmp_path, monkeypatch, arguments, code, told):
    monkeypatch.setenv("SAG_WORKSPACE", str(tmp_path / "ws"))
    found, out, err = run("datasets", *arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert told in err


def test_nobody_answers(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda _: None)
    code, _, err = run("datasets", "fetch", "swe-gym", "-o", tmp_path / "d")
    assert code == 1
    assert "http://127.0.0.1:9 cannot be reached" in err
    assert "goes on from there" in err
