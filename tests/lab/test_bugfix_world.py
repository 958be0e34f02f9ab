"""Actions are really executed, inside the sandbox only, and the state can be taken back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sag_research.errors import SagError, UsageError
from sag_research.lab.bugfix import BugfixWorld, parse, render
from sag_research.lab.bugfix._git import diff

TASK = "lumen__confkit-3"


@pytest.fixture
def world() -> Iterator[BugfixWorld]:
    with BugfixWorld(TASK) as made:
        yield made


@pytest.fixture
def box(world: BugfixWorld) -> Path:
    return world._box.repo


def test_pytest_really_runs(world: BugfixWorld) -> None:
    seen = world.act("python -m pytest -q --tb=short tests/test_core.py::test_token_from_env")
    assert seen.exit_code == 1
    assert "confkit/core.py:19: in authorise" in seen.text
    assert "KeyError: 'token is not set'" in seen.text
    assert "1 failed in 0.01s" in seen.text


def test_a_repair_makes_the_official_test_pass(world: BugfixWorld) -> None:
    assert world.evaluate().detail == "empty"
    world.act("sed -i 's/CONFIKIT_/CONFKIT_/' confkit/env.py")
    verdict = world.evaluate()
    assert (verdict.success, verdict.detail) == (True, "resolved")
    assert '-PREFIX = "CONFIKIT_"\n+PREFIX = "CONFKIT_"\n' in world.diff()


def test_changing_the_tests_does_not_help(world: BugfixWorld) -> None:
    world.act("rm -rf tests")
    world.act("mkdir tests")
    code = "def test_fine():\n    assert True\n"
    create = {"command": "create", "path": "/repo/tests/test_core.py", "file_text": code}
    world.call("str_replace_editor", create)
    assert world.act("python -m pytest -q").exit_code == 0
    assert world.evaluate().detail == "tests_failed"


@pytest.mark.parametrize(
    "action",
    [
        "cat /etc/passwd",
        "cat ../../../../etc/passwd",
        "ls /",
        "cd ..",
        "cp README.md /tmp/x",
        "mv README.md ../x",
        "rm -rf /",
        "rm -rf .",
        "find / -name '*.py'",
        "grep -r root /etc",
        "sed -i 's/a/b/' ../x",
        "python ../evil.py",
        "python -m pytest /etc",
        "python -m pytest --rootdir=/etc",
        "python -m http.server",
        "git diff ../..",
        "str_replace_editor view /etc/passwd",
        "str_replace_editor create /repo/../x.py --file_text x",
        "cat 'a\x00b'",
    ],
)
def test_what_leads_outside_is_refused(world: BugfixWorld, action: str) -> None:
    before = world.snapshot()
    seen = world.act(action)
    assert seen.exit_code == 126
    assert "root:" not in seen.text
    assert world.snapshot() == before


def test_a_link_does_not_lead_outside(world: BugfixWorld, box: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden-text", encoding="utf-8")
    (box / "link").symlink_to(tmp_path)
    (box / "file").symlink_to(tmp_path / "secret")
    assert world.act("cat link/secret").exit_code == 126
    assert world.act("ls -R").text.count("secret") == 0
    assert "hidden-text" not in world.act("grep -r hidden-text .").text


@pytest.mark.parametrize(
    "action",
    ["ls | cat", "ls; ls", "ls > x", "echo $(id)", "curl http://x", "bash -c ls", "ls &", "'"],
)
def test_no_shell_features(world: BugfixWorld, action: str) -> None:
    before = world.snapshot()
    assert world.act(action).exit_code in {2, 127}
    assert world.snapshot() == before


def test_joined_commands_stop_at_the_first_failure(world: BugfixWorld) -> None:
    seen = world.act("cd confkit && cat nothing.py && ls")
    assert seen.exit_code == 1
    assert "No such file" in seen.text
    assert world.state["working_dir"] == "/repo/confkit"


def test_programs_inherit_nothing(world: BugfixWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "k-123")
    seen = world.act("python -c \"import os; print(sorted(os.environ), os.environ['TZ'])\"")
    assert "UTC" in seen.text
    assert "MY_API_KEY" not in seen.text
    assert str(world._box.root) not in seen.text


def test_time_out(box: Path) -> None:
    with BugfixWorld(TASK, timeout=0.5) as world:
        seen = world.act('python -c "while True: pass"')
    assert seen.exit_code == 124
    assert "stopped after 0.5 seconds" in seen.text


def test_text_commands(world: BugfixWorld) -> None:
    assert world.act("ls").text == "README.md\nconfkit\npyproject.toml\ntests\n"
    assert world.act("head -n 1 confkit/env.py").text.startswith('"""Environment')
    assert world.act("tail -1 confkit/env.py").text == "    return found\n"
    assert world.act("wc -l confkit/env.py").text == "11 confkit/env.py\n"
    assert world.act("sed -n '3,3p' confkit/env.py").text == 'PREFIX = "CONFIKIT_"\n'
    assert world.act("find . -name 'e*.py' -type f").text == "./confkit/env.py\n"
    assert (
        world.act("grep -rn 'def merge(' .").text
        == "./confkit/merge.py:5:def merge(base, extra):\n"
    )
    assert world.act("grep -n nothing README.md").exit_code == 1
    assert world.act("grep -E '(' README.md").exit_code == 126


def test_editor(world: BugfixWorld) -> None:
    view = {"command": "view", "path": "/repo/confkit/env.py", "view_range": [3, 4]}
    text = world.call("str_replace_editor", view).text
    assert text == '/repo/confkit/env.py:\n     3\tPREFIX = "CONFIKIT_"\n     4\t\n'
    assert world.state["open_file"] == "/repo/confkit/env.py"
    twice = {"command": "str_replace", "path": "/repo/confkit/env.py", "old_str": "found"}
    assert "occurs 3 times" in world.call("str_replace_editor", twice | {"new_str": "x"}).text
    insert = {"command": "insert", "path": "/repo/confkit/env.py", "insert_line": 1}
    assert world.call("str_replace_editor", insert | {"new_str": "# note"}).exit_code == 0
    assert world.act("head -2 confkit/env.py").text.endswith("# note\n")
    assert world.call("str_replace_editor", {"command": "fly", "path": "x"}).exit_code == 2


def test_nothing_happens_after_submission(world: BugfixWorld) -> None:
    assert world.act("submit").done
    late = world.act("rm README.md")
    assert late.done
    assert late.exit_code == 1
    assert world.diff() == ""


def test_snapshot_restores_everything(world: BugfixWorld, box: Path) -> None:
    world.act("rm confkit/env.py && mkdir empty && cd confkit")
    (box / "bytes.bin").write_bytes(b"\xff\x00\xfe")
    (box / "text:trap").write_bytes(b"text:base64:\r\nx")
    (box / "here").symlink_to("README.md")
    taken = json.loads(json.dumps(world.snapshot()))
    world.act("cd /repo && rm -rf tests empty README.md")
    (box / "new.py").write_bytes(b"x = 1\n")
    assert world.snapshot() != taken
    world.restore(taken)
    assert world.snapshot() == taken
    assert (box / "bytes.bin").read_bytes() == b"\xff\x00\xfe"
    assert (box / "text:trap").read_bytes() == b"text:base64:\r\nx"
    assert not (box / "new.py").exists()
    assert not (box / "confkit/env.py").exists()
    assert (box / "empty").is_dir()
    assert world.state["working_dir"] == "/repo/confkit"


def test_a_snapshot_carries_over_to_another_world(world: BugfixWorld) -> None:
    world.act("sed -i 's/CONFIKIT_/CONFKIT_/' confkit/env.py")
    with BugfixWorld(TASK) as other:
        other.restore(world.snapshot())
        assert other.evaluate().success
        assert other.snapshot()["digest"] == world.snapshot()["digest"]


def test_wrong_snapshots_are_refused(world: BugfixWorld) -> None:
    taken = world.snapshot()
    with BugfixWorld("lumen__confkit-9") as other, pytest.raises(UsageError):
        other.restore(taken)
    taken["files"]["README.md"] = "forged"
    with pytest.raises(SagError, match="digest"):
        world.restore(taken)


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside"])
def test_a_snapshot_cannot_write_outside(world: BugfixWorld, name: str) -> None:
    with pytest.raises(SagError, match="outside"):
        world._box.write({name: "x"})


def test_the_folder_is_removed() -> None:
    with BugfixWorld(TASK) as world:
        root = world._box.root
        assert root.is_dir()
    assert not root.exists()


def test_render_and_parse_are_inverse() -> None:
    arguments = {
        "command": "str_replace",
        "path": "/repo/a b.py",
        "old_str": "it's\n  'x'",
        "new_str": "",
    }
    assert parse(render("str_replace_editor", arguments)) == ("str_replace_editor", arguments)
    insert = {"command": "insert", "path": "/repo/a.py", "insert_line": 3, "new_str": "7"}
    assert parse(render("str_replace_editor", insert)) == ("str_replace_editor", insert)
    assert parse(render("submit", {})) == ("submit", {})


def test_diff_of_added_deleted_and_unfinished_files() -> None:
    text = diff({"a": "1\n", "b": "2"}, {"b": "3", "c": "4\n"})
    assert "deleted file mode 100644" in text
    assert "new file mode 100644" in text
    assert text.count("\\ No newline at end of file") == 2
    assert diff({"a": "1"}, {"a": "1"}) == ""


def test_no_process_is_left_behind(world: BugfixWorld) -> None:
    seen = world.act('python -c "import os; print(os.getpgid(0))"')
    with pytest.raises(ProcessLookupError):
        os.killpg(int(seen.text), 0)
