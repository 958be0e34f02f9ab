"""A study is built whole or not at all, and what is wrong with it is said in one line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from sag_research.errors import MissingDataError, SagError, UsageError
from sag_research.paper import StudyError, build, check, init
from tests.paper.study import TOML, change, outputs, records, write_data, write_study

SHORT = TOML.split("[backtest.main]", maxsplit=1)[0]
OWN_TABLE = '[[table]]\nname = "own"\nfunction = "analysis:drawn"\n'


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path / "study", SHORT)


def test_everything_declared_is_written(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study")
    built = build(folder)
    assert repr(built) == "Built(4 tables, 2 figures, 27 runs)"
    tables = {f"tables/{name}.{kind}" for name in ("datasets", "success", "models", "own")
              for kind in ("csv", "md", "tex")}  # fmt: skip
    figures = {
        f"figures/{name}.{kind}" for name in ("reliability", "own") for kind in ("pdf", "svg")
    }
    assert set(outputs(folder)) == tables | figures | {"figures/reliability.csv", "data.bib"}
    assert not list(folder.glob(".results-*"))
    for name in tables:
        if name.endswith(".csv"):
            columns = pd.read_csv(folder / "results" / name).columns
            assert any(column == "n" or column.startswith("n_") for column in columns), name


def test_manifest_says_what_the_results_are_made_of(study: Path) -> None:
    manifest = build(study).manifest
    data = manifest["data"]["runs"]
    assert data["n_runs"] == 27
    assert set(data["files"]) == {"runs.jsonl"}
    assert data["digest"].startswith("sha256:")
    assert manifest["study"]["seed"] == 3
    assert set(manifest["study"]["files"]) == {"study.toml", "analysis.py"}
    assert {"python", "numpy", "duckdb", "sag_research"} <= set(manifest["versions"])
    table = manifest["outputs"]["tables/success"]
    assert table["cohort"] == {
        "data": ["runs"], "where": "true", "n_runs": 27, "digest": data["cohort"],
    }  # fmt: skip
    assert manifest["cost"]["n_runs"] == 27
    assert manifest["cost"]["cost_usd"] is None  # unknown is not 0
    assert "seconds" in manifest["not_compared"]
    text = (study / "results" / "manifest.json").read_text(encoding="utf-8")
    assert str(study) not in text
    assert json.loads(text) == json.loads(json.dumps(manifest))


def test_commit_of_the_study_is_written_down(study: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=study, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "study")
    commit = build(study).manifest["commit"]
    assert len(commit["id"]) == 40
    assert not commit["changed"]
    assert not build(study).manifest["commit"]["changed"]  # results are no change
    change(study, "analysis.py", "import pandas", "# more\nimport pandas")
    assert build(study).manifest["commit"]["changed"]


def test_where_and_parts_of_the_data(study: Path) -> None:
    text = SHORT.replace('name = "success"', 'name = "success"\nwhere = "model <> \'m2\'"')
    (study / "study.toml").write_text(text, encoding="utf-8")
    write_data(study / "more", [{**records()[0], "task_id": "other"}])
    change(study, "study.toml", "[[table]]", '[data.more]\npath = "more"\n\n[[table]]')
    manifest = build(study).manifest
    assert manifest["outputs"]["tables/success"]["cohort"]["n_runs"] == 19
    table = pd.read_csv(study / "results/tables/datasets.csv")
    assert table[["data", "n"]].to_numpy().tolist() == [["runs", 27], ["more", 1]]


def test_labels_and_workspaces_are_data_too(tmp_path: Path) -> None:
    from sag_research import open as open_workspace

    folder = write_study(tmp_path / "study", SHORT)
    labels = "task_id,outcome\ntask-0,failure\ntask-1,success\n"
    (folder / "labels.csv").write_text(labels, encoding="utf-8")
    rows = [{k: v for k, v in row.items() if k != "outcome"}
            for row in records(attempts=1)]  # fmt: skip
    write_data(folder / "data", rows)
    change(folder, "study.toml", 'path = "data"', 'path = "data"\nlabels = "labels.csv"')
    assert set(build(folder).manifest["data"]["runs"]["files"]) == {
        "runs.jsonl", "labels/labels.csv",
    }  # fmt: skip
    table = pd.read_csv(folder / "results/tables/datasets.csv")
    assert table[["n", "n_failure", "n_unknown"]].to_numpy().tolist() == [[9, 1, 7]]
    with open_workspace(folder / "ws") as ws:
        ws.add(records())
    text = SHORT.replace('path = "data"', 'workspace = "ws"')
    (folder / "study.toml").write_text(text, encoding="utf-8")
    read = build(folder).manifest["data"]["runs"]
    assert (read["n_runs"], set(read["files"])) == (27, {"runs and outcomes"})
    assert check(folder).same  # reading a workspace does not change it


def test_changed_data_is_refused_until_it_is_accepted(study: Path) -> None:
    digest = build(study).manifest["data"]["runs"]["digest"]
    change(study, "study.toml", 'path = "data"', f'path = "data"\ndigest = "{digest}"')
    before = build(study).manifest["outputs"]
    change(study, "data/runs.jsonl", '"success"', '"failure"')
    with pytest.raises(StudyError, match=r"not what study.toml names \(runs.jsonl changed\)"):
        build(study)
    assert json.loads((study / "results/manifest.json").read_text("utf-8"))["outputs"] == before
    build(study, accept_data=True)
    assert digest not in (study / "study.toml").read_text("utf-8")
    build(study)


def test_missing_data(study: Path) -> None:
    build(study)
    (study / "data" / "runs.jsonl").rename(study / "gone.jsonl")
    (study / "data").rmdir()
    with pytest.raises(MissingDataError, match="data 'runs' is missing"):
        build(study)
    found = check(study)
    assert [str(one) for one in found.differences] == ["data runs: is missing (there is no data)"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("def drawn():\n    return 1 / 0", r"analysis.py, line 2\) .*ZeroDivisionError"),
        ("def drawn():\n    return 1", "returned no DataFrame but int"),
        ("def drawn(x):\n    return 1", "cannot be called"),
        ("def drawn(:", r"analysis.py, line 1\).*SyntaxError"),
        ("import nothing_of_this_name", r"line 1\).*ModuleNotFoundError"),
        ("drawn = 1", "has no drawn"),
        ("import sys\ndef drawn():\n    sys.exit(0)", "tried to exit"),
        ("import pandas\ndef drawn():\n    return pandas.DataFrame({'a': [1.5]})", "how many runs"),
        ("import pandas\ndef drawn(ws):\n    ws.sql('SELEC 1')", "line 3"),
    ],
)
def test_an_own_function_that_fails_is_blamed_in_one_line(study: Path, own: str, said: str) -> None:
    build(study)
    before = outputs(study)
    (study / "study.toml").write_text(SHORT + OWN_TABLE, encoding="utf-8")
    (study / "analysis.py").write_text(own, encoding="utf-8")
    with pytest.raises(StudyError, match=said) as caught:
        build(study)
    assert "table 'own'" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert outputs(study) == before


def test_own_modules_of_two_studies_do_not_meet(tmp_path: Path) -> None:
    own = "import pandas, helper\ndef drawn():\n    return pandas.DataFrame({'n': [helper.N]})"
    for number in (1, 2):
        folder = write_study(tmp_path / str(number), SHORT + OWN_TABLE, own)
        (folder / "helper.py").write_text(f"N = {number}", encoding="utf-8")
        build(folder)
        assert (folder / "results/tables/own.csv").read_text("utf-8") == f"n\n{number}\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seed = 3", "sed = 3", "unknown field `sed`"),
        ("seed = 3", "seed = ", "cannot be read"),
        ('path = "data"', "", "one of bundled, path and workspace"),
        ('analysis = "datasets"', 'analysis = "nothing"', "no table 'nothing'"),
        ('analysis = "datasets"', "", "either analysis or function"),
        ('analysis = "datasets"', 'analysis = "backtest"', "is of a backtest"),
        ('analysis = "datasets"', 'analysis = "datasets"\noptions = {x = 1}', "cannot be asked"),
        ('name = "datasets"', 'name = "../x"', "is no name"),
        ('name = "datasets"', 'name = "success"', "two tables are called"),
        ('analysis = "datasets"', 'analysis = "datasets"\ndata = ["no"]', "which is not declared"),
        ('analysis = "datasets"', 'analysis = "datasets"\nwhere = "nonsense"', "nonsense"),
        ('path = "data"', 'bundled = "no-such-set"', "no bundled data set"),
    ],
)
def test_slips_in_the_declaration(study: Path, old: str, new: str, said: str) -> None:
    change(study, "study.toml", old, new)
    with pytest.raises(SagError, match=said) as caught:
        build(study)
    assert "\n" not in str(caught.value).strip()


def test_results_of_something_else_are_not_removed(study: Path) -> None:
    (study / "results").mkdir()
    (study / "results" / "mine.txt").write_text("x", encoding="utf-8")
    with pytest.raises(StudyError, match="not empty"):
        build(study)
    assert (study / "results" / "mine.txt").is_file()


def test_init_around_own_runs(tmp_path: Path) -> None:
    write_data(tmp_path / "my runs", records())
    folder = init(tmp_path / "deep" / "study", data=[tmp_path / "my runs"])
    text = (folder / "study.toml").read_text("utf-8")
    assert 'path = "../../my runs"' in text
    assert "sha256:" in text
    assert str(tmp_path) not in text
    assert "@software{sag_research," in (folder / "references.bib").read_text("utf-8")
    change(folder, "study.toml", "[backtest.main]", "[backtest.main]\noptions = { draws = 50 }")
    assert repr(build(folder)) == "Built(4 tables, 1 figure, 27 runs)"
    assert check(folder).same


def test_init_refuses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no example"):
        init(tmp_path / "a", "nothing")
    with pytest.raises(UsageError, match="brings its own data"):
        init(tmp_path / "a", "prefixguard", data=["x"])
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place, said in ((tmp_path, "not empty"), (tmp_path / "file", "is a file")):
        with pytest.raises(StudyError, match=said):
            init(place)
    with pytest.raises(StudyError, match=r"no study\.toml"):
        build(tmp_path)
    assert not (tmp_path / "a").exists()


def test_hostile_names_are_text_in_every_table(study: Path) -> None:
    name = r"\input{x} & 50% _b_ <img src=x onerror=alert(1)> | $y$ #"
    rows = [{**row, "model": name} for row in records()]
    write_data(study / "data", rows)
    build(study)
    results = outputs(study)
    assert rb"\input{x}" not in results["tables/success.tex"]
    assert rb"\textbackslash{}input\{x\} \& 50\% \_b\_" in results["tables/success.tex"]
    assert b"<img" not in results["tables/success.md"]
    assert b"onerror" in results["tables/success.md"]
