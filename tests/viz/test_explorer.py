"""The explorer driven from Python: what its parts say when they are set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

import sag_research as sag
from sag_research.errors import UsageError
from sag_research.viz._explorer_data import Filters, RunTable
from sag_research.viz._explorer_html import FOLD, shown

HOSTILE = '<img src=x onerror="alert(1)"> </script> \x1b[31mred\x1b[0m \u202egnp'
LONG = "z" * (FOLD + 1)


@pytest.fixture(scope="module")
def ws() -> Iterator[sag.workspace.Workspace]:
    with sag.open(":memory:") as study:
        for number in range(60):
            steps = [
                {"thought": HOSTILE, "action": f"cat shop/m{(number + k) % 5}.py",
                 "observation": LONG if k == 3 else f"KeyError: {HOSTILE}"}
                for k in range(6 + number % 5)
            ]  # fmt: skip
            record = {"task_id": f"T{number % 12}", "repo": "acme/shop", "steps": steps,
                      "model": f"m{number % 3}", "goal": HOSTILE,
                      "outcome": "success" if number % 2 else "failure"}  # fmt: skip
            study.add(record)
        yield study


@pytest.fixture(scope="module")
def runs(ws):
    return [run for (run,) in ws.sql("SELECT run_id FROM runs ORDER BY seq").rows()]


@pytest.fixture
def explorer(ws):
    made = ws.explore()
    yield made
    made.close()


def test_the_list_is_read_in_pages(ws, explorer, runs):
    assert repr(explorer) == "Explorer(60 runs)"
    assert [row.run_id for row in explorer.runs.rows] == runs[:50]
    explorer.runs.next.click()
    assert [row.run_id for row in explorer.runs.rows] == runs[50:]
    assert explorer.runs.next.disabled
    explorer.runs.back.click()
    assert [row.run_id for row in explorer.runs.rows] == runs[:50]


def test_filters_hold_together(explorer):
    explorer.runs.outcome.value = "failure"
    assert explorer.runs.total == 30
    explorer.runs.model.value = "m1"
    assert explorer.runs.total == 10
    explorer.runs.least.value = 9
    explorer.runs.most.value = 9
    assert explorer.runs.total == 2
    explorer.runs.task.value = "no such task"
    assert explorer.runs.told.value == "no run passes"


@pytest.mark.parametrize(
    ("where", "values"),
    [("model = ? AND task_id <> '?'", ["m1"]), ("model = $m", {"m": "m1"}), ("model = 'm1'", ())],
)
def test_conditions_of_the_user_keep_their_values(ws, where, values):
    table = RunTable(ws, where, values)
    assert table.page().total == 20
    assert table.page(Filters(outcome="success")).total == 10
    assert table.models() == ["m1"]
    assert table.search("T1")


def test_a_chosen_node_fills_the_inspector(explorer, runs):
    explorer.view.selected = f"event:{runs[0]}:5"
    assert explorer.place == (runs[0], 5, 3)
    assert explorer.inspector.titles[explorer.inspector.selected_index] == "Step"
    text = explorer.inspector.texts["observation"]
    assert text.more.description == f"Show all {FOLD + 1:,} characters"
    assert LONG not in text.body.value
    text.more.value = True
    assert LONG in text.body.value
    assert explorer.steps.value == (runs[0], 5)
    explorer.steps.value = (runs[0], 2)
    assert explorer.view.selected == f"event:{runs[0]}:2"
    thought = explorer.inspector.texts["thought"].body.value
    assert shown(HOSTILE) in thought
    assert "<img" not in thought
    assert "\x1b" not in thought
    assert "⟨U+202E⟩" in thought


def test_every_tab_is_escaped(explorer, ws, runs):
    child = ws.fork(runs[1], step=2, intervention={"hint": HOSTILE}).run_id
    explorer.go(explorer.find(child)[0])
    explorer.view.selected = f"event:{child}:5"
    for index in range(len(explorer.inspector.children)):
        explorer.inspector.selected_index = index
    markup = [widget.value for widget in _boxes(explorer) if isinstance(widget.value, str)]
    assert any("events shared" in text for text in markup)
    assert any("forked from" in text and "at step 2" in text for text in markup)
    assert not any("<img" in text or "</script" in text or "\x1b" in text for text in markup)
    assert not any("\u202e" in text for text in markup)


def _boxes(widget):
    import ipywidgets

    if isinstance(widget, ipywidgets.HTML):
        yield widget
    for child in getattr(widget, "children", ()):
        yield from _boxes(child)


def test_entities_lead_to_other_steps(explorer, runs):
    explorer.view.selected = f"event:{runs[0]}:3"
    explorer.inspector.selected_index = 2
    part = explorer.inspector.entities
    assert "File|acme/shop|shop/m1.py" in [value for _, value in part.list.options]
    part.list.value = "File|acme/shop|shop/m1.py"
    assert "runs name it" in part.told.value
    part.hits.list.index = len(part.hits.list.options) - 1
    part.hits.button.click()
    assert explorer.place.run != runs[0]
    assert explorer.view.selected == f"event:{explorer.place.run}:{explorer.place.position}"


def test_layouts_chains_and_search(explorer, runs):
    explorer.kind.value = "force"
    assert explorer.scene.layout == "force"
    explorer.kind.value = "timeline"
    explorer.chains.value = True
    chain = next(node.id for node in explorer.scene.nodes if node.id.startswith("chain:"))
    before = len(explorer.scene.nodes)
    explorer.view.selected = chain
    assert not explorer.opener.disabled
    explorer.opener.click()
    assert len(explorer.scene.nodes) > before
    explorer.chains.value = False
    explorer.search.value = "m3.PY"
    kinds = {found.kind for found in explorer.find("m3.PY")}
    assert kinds == {"entity", "step"}
    explorer.search.value = "'; DROP TABLE runs; --"
    assert "Nothing found" in explorer.told.value


def test_steps_are_annotated_and_taken_back(explorer, ws, runs):
    explorer.view.selected = f"event:{runs[0]}:4"
    part = explorer.inspector.annotations
    explorer.inspector.selected_index = 5
    part.add.click()
    assert "needs a code" in explorer.told.value
    part.code.value, part.note.value = "loop", HOSTILE
    part.add.click()
    part.by.value, part.code.value = "you", "loop"
    part.add.click()
    assert list(ws.annotations(runs[0])["by"]) == ["me", "you"]
    assert (part.a.value, part.b.value) == ("me", "you")
    part.agree.click()
    assert "kappa" in part.kappa.value
    part.list.value = 0
    part.remove.click()
    assert list(ws.annotations(runs[0])["by"]) == ["you"]


@pytest.mark.parametrize("action", ["fork", "recall", "risk"])
def test_code_runs(explorer, ws, runs, action):
    explorer.view.selected = f"event:{runs[0]}:5"
    explorer.buttons[action].click()
    code = explorer.code.replace("ws = sag.open(':memory:')\n", "")
    names = {"ws": ws}
    *lines, last = code.splitlines()  # a cell shows its last line
    exec(compile("\n".join([*lines, f"result = {last}"]), "cell", "exec"), names)
    result = names["result"]
    if action == "fork":
        assert len(result) == 4
    elif action == "recall":
        assert "matched" in result  # what all runs know says nothing: no row here
    else:
        assert 0 <= result <= 1


def test_code_holds_hostile_names_as_literals(ws):
    from sag_research.viz._explorer_code import code_for

    name = "x'\n__import__('os')\u202e#"
    for action in ("fork", "recall"):
        tree = ast.parse(code_for(action, ws, name, 1, 3))
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert all(isinstance(call, ast.Attribute) for call in calls)
    with pytest.raises(UsageError, match="needs a step"):
        code_for("risk", ws, name)


def test_risk_and_alarms_of_a_table(ws, runs):
    made = ws.explore(risk={runs[0]: [0.1, 0.5, 0.9]})
    made.view.selected = f"event:{runs[0]}:3"
    assert "0.500" in made.inspector.head.value
    assert any(band.risk for band in made.scene.bands)
    with pytest.raises(UsageError, match="gives no risk"):
        ws.explore(risk=3)


def test_the_saved_notebook_has_the_list(explorer):
    assert "<table>" in explorer.saved()
    assert "50 of" in explorer.saved()


def test_a_workspace_without_runs_can_be_explored():
    with sag.open(":memory:") as study:
        made = study.explore()
        assert repr(made) == "Explorer(0 runs)"
        made.buttons["fork"].click()
        assert "nothing is chosen" in made.told.value
