"""The tasks' data files say what is true."""

from __future__ import annotations

from collections import Counter

import pytest

from sag_research.errors import MissingDataError, SagError
from sag_research.lab.bugfix import BugfixWorld, Edit, load_task, task_ids
from sag_research.lab.bugfix._tasks import apply


def test_there_are_enough_and_they_share_repositories() -> None:
    tasks = [load_task(name) for name in task_ids()]
    repos = Counter(task.repo for task in tasks)
    assert len(tasks) >= 24
    assert min(repos.values()) >= 3
    assert {task.difficulty for task in tasks} == {"easy", "medium", "hard"}
    assert {task.misleading for task in tasks} == {True, False}
    assert len({task.error for task in tasks}) >= 10


def test_same_file_names_occur_in_several_repositories() -> None:
    one_task_of_each = {load_task(name).repo: name for name in task_ids()}
    counts = Counter(path for name in one_task_of_each.values() for path in load_task(name).files())
    assert counts["tests/test_core.py"] >= 3
    assert counts["setup.py"] >= 3
    assert counts["pyproject.toml"] >= 3


@pytest.mark.parametrize("name", task_ids())
def test_every_edit_applies_to_the_broken_package(name: str) -> None:
    task = load_task(name)
    broken = task.files()
    fixed = broken
    for edit in task.fix:
        fixed = apply(fixed, edit)
    assert fixed != broken
    assert len(task.decoy) >= 3
    for edit in task.decoy:
        assert apply(broken, edit) not in (broken, fixed)
    assert task.task_id.startswith(f"{task.repo}-")
    assert "def test_" in task.official()


def test_an_edit_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SagError, match="2 times"):
        apply({"a.py": "x x"}, Edit("a.py", "x", "y"))


def test_unknown_task() -> None:
    with pytest.raises(MissingDataError, match="nowhere-1"):
        load_task("nowhere-1")


def _check(name: str) -> None:
    task = load_task(name)
    with BugfixWorld(task) as world:
        broken = world.snapshot()
        visible = world.act("python -m pytest -q --tb=short")
        assert visible.exit_code in {1, 2}
        assert task.error in visible.text or task.error == "AssertionError"
        assert world.evaluate().detail == "empty"
        shallow = 0
        for edit in task.decoy:
            world.restore(broken)
            _make(world, edit)
            shallow += world.act("python -m pytest -q").exit_code == 0
            assert not world.evaluate().success, edit
        assert shallow, "no decoy satisfies the visible tests"
        world.restore(broken)
        for edit in task.fix:
            _make(world, edit)
        assert world.act("python -m pytest -q").exit_code == 0
        assert world.evaluate().detail == "resolved"


def _make(world: BugfixWorld, edit: Edit) -> None:
    arguments = {"command": "str_replace", "path": f"/repo/{edit.file}"}
    done = world.call("str_replace_editor", arguments | {"old_str": edit.old, "new_str": edit.new})
    assert done.exit_code == 0


@pytest.mark.parametrize("name", ["lumen__confkit-9"])
def test_fix_is_right_and_decoys_are_wrong(name: str) -> None:
    _check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", task_ids())
def test_every_fix_is_right_and_every_decoy_wrong(name: str) -> None:
    _check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", task_ids())
def test_misleading_means_that_the_traceback_names_another_file(name: str) -> None:
    task = load_task(name)
    with BugfixWorld(task) as world:
        text = world.act("python -m pytest -q --tb=short").text
    named = any(f"\n{edit.file}:" in text for edit in task.fix)
    if task.error != "AssertionError":
        assert task.misleading is not named
