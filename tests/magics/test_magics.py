"""``%sag`` in a real IPython: commands, SQL with parameters, errors, completion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import sag_research as sag
from sag_research.magics import Table, bind, place_of, spell_parameters
from tests.magics.shell import Shell, new_shell

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m red \u202e tfel"
FILL = f"""
import sag_research as sag
ws = sag.open(":memory:")
for number in range(30):
    ws.add({{"task_id": f"t{{number}}", "model": {HOSTILE!r}, "steps": [{{"action": "ls"}}],
            "outcome": "success" if number % 3 else "failure"}})
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAG_WORKSPACE", raising=False)
    with new_shell(tmp_path / "ipython") as started:
        yield started


@pytest.fixture
def filled(shell: Shell) -> Shell:
    assert shell.run(FILL).ok
    return shell


# ---- the workspace


def test_status_without_a_workspace_makes_none(shell: Shell, tmp_path: Path) -> None:
    told = shell.run("%sag")
    assert told.ok
    assert told.out.startswith("no workspace: no workspace at sag-workspace; choose one")
    assert "%%sag [NAME <<]" in told.out
    assert not (tmp_path / "sag-workspace").exists()


def test_a_workspace_is_made_only_on_request(shell: Shell, tmp_path: Path) -> None:
    refused = shell.run("%sag workspace study")
    assert not refused.ok
    assert refused.err.splitlines() == [
        "UsageError: no workspace at study; to make one: %sag workspace study --create"
    ]
    assert not (tmp_path / "study").exists()
    made = shell.run("%sag workspace study --create")
    assert made.out == "Workspace('study')\n"
    assert shell.run("%sag workspace").out == "Workspace('study')\n"
    assert shell.run("%sag").out.startswith("Workspace('study')\n%sag workspace PATH")


def test_the_usual_folder_is_found(shell: Shell) -> None:
    sag.open("sag-workspace").close()
    assert shell.run("%sag workspace").out == "Workspace('sag-workspace')\n"


def test_a_variable_may_hold_it(filled: Shell) -> None:
    assert filled.run("%sag workspace").out == "Workspace('in memory')\n"
    filled.run("%sag workspace other --create")
    assert filled.run("%%sag\nSELECT count(*) FROM runs").result.rows() == [(0,)]
    filled.run("%sag workspace ws")
    assert filled.run("%%sag\nSELECT count(*) FROM runs").result.rows() == [(30,)]
    filled.run("%sag workspace other")
    assert filled.run("len(ws.runs())").result == 30  # leaving it did not close it


# ---- queries


def test_a_query_is_kept_as_a_data_frame(filled: Shell) -> None:
    done = filled.run("%%sag runs_ <<\nSELECT run_id, n_steps FROM runs ORDER BY seq")
    assert done.out == "runs_: 30 rows × 2 columns (run_id, n_steps)\n"
    assert done.result is None
    kept = filled.ip.user_ns["runs_"]
    assert isinstance(kept, pd.DataFrame)
    assert kept.shape == (30, 2)


def test_a_shortened_table_says_so(filled: Shell) -> None:
    table = filled.run("%%sag --rows 2\nSELECT task_id FROM runs ORDER BY seq").result
    assert repr(table) == ("task_id\n-------\nt0\nt1\n2 of 30 rows shown; --rows 0 shows all")
    assert "2 of 30 rows shown" in table._repr_html_()
    assert len(table.df()) == 30
    whole = filled.run("%%sag --rows 0\nSELECT task_id FROM runs ORDER BY seq").result
    assert len(repr(whole).splitlines()) == 32
    assert "shown" not in repr(whole) + whole._repr_html_()


def test_runs_are_listed_by_a_condition(filled: Shell) -> None:
    assert len(filled.run("%sag runs").result) == 30
    assert len(filled.run("%sag runs outcome = 'failure' -- no more").result) == 10
    filled.run("wanted = 'success'")
    chosen = filled.run("%sag runs --params --rows 3 outcome = $wanted AND n_steps > 0").result
    assert (len(chosen), repr(chosen).count("success")) == (20, 3)


def test_views_are_explained(filled: Shell) -> None:
    assert filled.run("%sag views").result.rows()[0][:3] == ("runs", "", "VIEW")
    assert "known_at_step" in repr(filled.run("%sag views outcomes").result)
    assert "no view 'nosuch'" in filled.run("%sag views nosuch").err


def test_parameters_are_values_never_text(filled: Shell) -> None:
    filled.run("task = \"t1' OR true --\"\nleast = 1\nnames = {'t1', 't2'}")
    count = "%%sag --params\nSELECT count(*) FROM runs WHERE n_steps >= :least AND task_id"
    assert filled.run(f"{count} = :task").result.rows() == [(0,)]
    assert filled.run(f"{count} = $task").result.rows() == [(0,)]
    assert filled.run(f"{count} IN :names").result.rows() == [(2,)]
    refused = filled.run("%sag runs task_id = $task")  # nor does the shell put it into the line
    assert "with --params" in refused.err
    assert "OR true" not in refused.err


def test_parameters_of_a_function(filled: Shell) -> None:
    filled.run("def of(task):\n    found = %sag runs --params task_id = :task\n    return found")
    assert filled.run("len(of('t3'))").result == 1


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT :a, $b, :a", ["a", "b"]),
        ("SELECT ':a', \":b\", $$ :c $$ -- :d\n/* :e */", []),
        ("SELECT x::int, {'k':v}, l[1:n], l[:n], f(1):o", []),
        ("SELECT é.x FROM é WHERE é.x = :ü", ["ü"]),
        ("x IN (:a) AND y <:b OR z LIKE :c LIMIT :limit", ["a", "b", "c", "limit"]),
        ("SELECT ? + $1", []),
        ("", []),
    ],
)
def test_parameters_are_told_from_other_colons(query: str, names: list[str]) -> None:
    spelt, found = spell_parameters(query)
    assert found == names
    changed = {(s, q) for s, q in zip(spelt, query, strict=True) if s != q}
    assert changed <= {("$", ":")}


# ---- errors


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("%%sag\nSELECT 1,\n  nope FROM runs", "at line 2, column 3: nope FROM runs"),
        ("%%sag\nSELEC 1", "at line 1, column 1: SELEC 1"),
        ("%%sag\nSELECT 1 FROM\n\n nosuch", "at line 3, column 2: nosuch"),
        ("%%sag --params\nSELECT :nosuch", "no variable nosuch"),
        ("%%sag\nSELECT run_id FROM runs WHERE outcome = :m", "with --params"),
        ("%%sag a\nSELECT 1", "'a' names no variable"),
        ("%%sag 1a <<\nSELECT 1", "'1a <<' names no variable"),
        ("%%sag class <<\nSELECT 1", "'class <<' names no variable"),
        ("%%sag --rows -1\nSELECT 1", "--rows -1"),
        ("%%sag --nosuch\nSELECT 1", "--nosuch"),
        ("%%sag\n   ", "holds no SQL"),
        ("%sag nosuch", "no command 'nosuch'"),
        ("%sag runs nosuch = 1", "nosuch"),
        ("%%sag\nSELECT '<img onerror=x>\x1b[31m\u202e'::int", "⟨U+202E⟩"),
    ],
)
def test_an_error_is_one_line_and_fails_the_cell(filled: Shell, code: str, told: str) -> None:
    done = filled.run(code)
    assert not done.ok
    assert told in done.err
    assert len(done.err.splitlines()) == 1
    assert "Traceback" not in done.err + done.out
    assert "\x1b" not in done.err


def test_finding_the_place_runs_nothing(shell: Shell) -> None:
    shell.run(FILL)
    shell.run("ws.duckdb.execute('CREATE TABLE mine (a INT)')")
    shell.run("%%sag\nINSERT INTO mine SELECT nope")
    shell.run("%%sag\nSELECT nope; INSERT INTO mine VALUES (1)")
    assert shell.run("%%sag\nSELECT count(*) FROM mine").result.rows() == [(0,)]


def test_an_error_of_the_data_has_no_place() -> None:
    with sag.open(":memory:") as ws:
        query = "SELECT sqrt(-x) FROM range(1, 3) t(x)"
        assert place_of(ws.duckdb, query, {}) is None


def test_unknown_values_are_refused_in_one_line(filled: Shell) -> None:
    filled.run("odd = object()")
    done = filled.run("%%sag --params\nSELECT :odd")
    assert len(done.err.splitlines()) == 1
    assert "python value of type" in done.err


def test_values_become_plain() -> None:
    series = pd.Series(["a", "b"])
    assert bind(["x"], {"x": series}) == {"x": ["a", "b"]}
    assert bind(["x"], {"x": pd.Timestamp("2026-01-02")}) == {"x": pd.Timestamp("2026-01-02")}


# ---- texts of others


def test_hostile_texts_are_inert_and_readable(filled: Shell) -> None:
    table = filled.run("%%sag --rows 1\nSELECT model FROM runs").result
    assert isinstance(table, Table)
    assert "<img" not in table._repr_html_()
    assert not {"\x1b", "\u202e"} & set(repr(table) + table._repr_html_())
    assert "⟨U+202E⟩" in repr(table)
    assert table.df()["model"][0] == HOSTILE  # the data is as it was


# ---- completion


@pytest.mark.parametrize(
    ("code", "offered", "not_offered"),
    [
        ("%sag ", ["workspace", "runs", "views"], ["%run"]),
        ("%sag wo", ["workspace"], ["runs"]),
        ("%sag runs outc", ["outcome"], ["outcomes "]),
        ("%sag views ca", ["calls"], ["runs"]),
        ("%sag workspace w", ["ws"], []),
        ("%%sag --pa", ["--params"], ["--rows"]),
        ("%%sag x <<\nSELECT * FROM ru", ["runs"], ["%run"]),
        ("%%sag\nSELECT s. FROM steps s", ["thought", "observation"], ["outcome"]),
        ("%%sag --params\nSELECT * FROM runs WHERE model = :num", [":number"], ["number"]),
    ],
)
def test_completion(filled: Shell, code: str, offered: list[str], not_offered: list[str]) -> None:
    at = code.index("s.") + 2 if "s. " in code else len(code)
    found = filled.completions(code, at)
    assert set(offered) <= set(found)
    assert not set(not_offered) & set(found)


def test_columns_of_the_views_that_are_read(filled: Shell) -> None:
    code = "%%sag\nSELECT o\nFROM steps"
    found = filled.completions(code, code.index("o\n") + 1)
    assert "observation" in found
    assert "outcome" not in found  # a column of runs
    assert "open" not in found  # nor names of Python


def test_the_old_interface_completes_too(filled: Shell) -> None:
    line = "%sag runs task"
    with pytest.warns(PendingDeprecationWarning):
        assert filled.ip.complete("task", line, len(line))[1] == ["task_id"]


def test_other_cells_are_completed_as_before(filled: Shell) -> None:
    assert "runs" not in filled.completions("ru")
    assert any(text.endswith("runs") for text in filled.completions("ws.run"))


def test_user_tables_are_known_and_inner_ones_are_not(filled: Shell) -> None:
    filled.run("ws.duckdb.execute('CREATE TABLE mine (depth INT)')")
    assert filled.completions("%%sag\nSELECT dep") == ["depth"]
    assert filled.completions("%%sag\nSELECT * FROM tail_") == []


def test_folders_are_offered(shell: Shell, tmp_path: Path) -> None:
    sag.open("study-a").close()
    (tmp_path / "study-b").mkdir()
    assert shell.completions("%sag workspace study") == ["study-a", "study-b/"]


# ---- loading


def test_loading_twice_leaves_one(filled: Shell) -> None:
    filled.ip.extension_manager.reload_extension("sag_research")
    assert filled.completions("%sag wo") == ["workspace"]
    assert len(filled.ip.Completer.custom_matchers) == 1
    assert filled.run("%sag workspace").out == "Workspace('in memory')\n"


def test_unloading_leaves_nothing(filled: Shell) -> None:
    filled.ip.extension_manager.unload_extension("sag_research")
    assert filled.ip.Completer.custom_matchers == []
    assert not filled.run("%sag").ok
    filled.ip.extension_manager.load_extension("sag_research")


def test_help_shows_the_arguments(filled: Shell) -> None:
    told = filled.ip.object_inspect_text("%sag")
    assert "--params" in told
    assert "NAME <<" in told
