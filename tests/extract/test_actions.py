"""Actions: which programs run, which files they read and which they change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.extract import EntityExtractor, StepTexts

EXTRACTOR = EntityExtractor()


def rows(action: str, open_file: str | None = None) -> list[dict[str, str]]:
    steps = StepTexts([action], [""], [""], [open_file])
    found: list[dict[str, str]] = EXTRACTOR.extract_steps(steps).mentions.to_pylist()
    return found


def programs(action: str) -> list[str]:
    return [row["name"] for row in rows(action) if row["kind"] == "Command"]


def files(action: str, open_file: str | None = None) -> dict[str, str]:
    return {r["name"]: r["role"] for r in rows(action, open_file) if r["kind"] == "File"}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("cat a.py | grep -n 'x | y; z' && ls || pwd; id & wc", "cat grep ls pwd id wc"),
        ("A=1 B='x y' sudo -u bob timeout 10s python3 x.py", "sudo timeout python3"),
        ("find . -name x | xargs -n 1 grep -l y", "find xargs grep"),
        ("find . -exec sed -n 1p {} \\;", "find sed"),
        ("if test -f x; then ls; else pwd; fi", "test ls pwd"),
        ("for f in *; do wc $f; done", "wc"),
        ("while read line; do echo $line; done < list.txt", "read echo"),
        ("case $x in a) ls;; b) pwd;; esac", "ls pwd"),
        ("run() { ls; }; (cd x && git log)", "ls cd git"),
        ("echo $(git log `pwd` end) end # rm x", "echo git pwd"),
        ("echo $((1 + 2)) end", "echo"),
        ("cat <<'EOF' > f.py\nimport os\nrm x\nEOF\nls", "cat ls"),
        ("cat <<A <<-B\nrm\nA\nrm\n\tB\nls", "cat ls"),
        ("cat <<EOF\nrm x", "cat"),
        ("cat <<< word && ls", "cat ls"),
        ("ls \\\n  -la\npwd", "ls pwd"),
        ("edit 3:5\nrm x\nend_of_edit\nls", "edit ls"),
        ('str_replace_editor {"command": "create", "path": "/a.py"}', "str_replace_editor"),
        ('bash {"command": "rm a.py && ls"}', "bash rm ls"),
        ("SELECT name FROM pets", ""),
        ("def f(x):\n    return x", ""),
        ("./run.py x", ""),
        ("/usr/bin/env x", "/usr/bin/env"),
        ("", ""),
    ],
)
def test_programs(action: str, expected: str) -> None:
    assert sorted(programs(action)) == sorted(expected.split())


@pytest.mark.parametrize(
    ("action", "changed", "read"),
    [
        ("cat a.py > b.py 2>&1", "b.py", "a.py"),
        ("cat a.py >> b.py 2> c.txt", "b.py c.txt", "a.py"),
        ("wc < a.py", "", "a.py"),
        ("echo x | tee -a a.txt b.txt", "a.txt b.txt", ""),
        ("sed -i 's/x.py/y/' b.py c.py", "b.py c.py", ""),
        ("sed -i.bak -e 's/x/y/' b.py", "b.py", ""),
        ("sed -n 1,5p b.py", "", "b.py"),
        ("perl -pi -e 's/x/y/' b.py", "b.py", ""),
        ("perl x.pl b.py", "", "x.pl b.py"),
        ("rm -f a.py", "a.py", ""),
        ("mv a.py b.py", "a.py b.py", ""),
        ("cp a.py b.py", "b.py", "a.py"),
        ("touch a.py; mkdir b", "a.py", ""),
        ("patch -p1 a.py < fix.patch", "a.py", "fix.patch"),
        ("git checkout -- a.py && git diff b.py", "a.py", "b.py"),
        ("git mv a.py b.py; git restore c.py; git rm d.py", "a.py b.py c.py d.py", ""),
        ("black a.py; ruff check b.py; ruff check --fix c.py", "a.py c.py", "b.py"),
        ("cat <<EOF > f.py\nsee g.py\nEOF", "f.py", "g.py"),
        ("python - <<EOF\nopen('a.py')\nEOF", "", "a.py"),
        ("patch -p1 -i fix.patch a.py", "a.py", "fix.patch"),
        ("ed -s LICENSE2 < a.txt; ex -s -c 'wq' b.txt", "LICENSE2 b.txt", "a.txt"),
        ("truncate -s 0 run_log; dd if=a.bin of=disk bs=1M", "run_log disk", "a.bin"),
        ("install -m 644 a.py b.py; rsync -a c.py d.py", "b.py d.py", "a.py c.py"),
        ("ln -s c.py d.py", "d.py", "c.py"),
        ("create a.py", "a.py", ""),
        ("str_replace_editor str_replace /testbed/a.py --old_str 'see b.py'", "a.py", "b.py"),
        ("str_replace_editor view /testbed/a.py", "", "a.py"),
        ('str_replace_editor {"command": "insert", "path": "/testbed/a.py"}', "a.py", ""),
        ('str_replace_editor {"command": "view", "path": "/testbed/a.py"}', "", "a.py"),
        ('Write {"file_path": "a.py", "content": "see b.py"}', "a.py", "b.py"),
        ('Read {"file_path": "a.py"}', "", "a.py"),
        ('bash {"command": "rm a.py"}', "a.py", ""),
    ],
)  # fmt: skip
def test_roles(action: str, changed: str, read: str) -> None:
    found = files(action)
    assert {name for name, role in found.items() if role == "MUTATED"} == set(changed.split())
    assert {name for name, role in found.items() if role == "PROCESSED"} >= set(read.split())


def test_an_edit_changes_the_open_file() -> None:
    action = "edit 3:5\nx = 1\nend_of_edit"
    assert files(action, "/testbed/pkg/a.py") == {"pkg/a.py": "MUTATED"}
    assert files(action) == {}
    assert files("open b.py", "/testbed/pkg/a.py") == {"b.py": "PROCESSED"}


def test_programs_touch_their_operands() -> None:
    steps = StepTexts(["cat a.py | sed -i s/x/y/ b.py; edit 1:2"], [""], ["r"], ["/repo/o.py"])
    found = EXTRACTOR.extract_steps(steps).relations.to_pylist()
    assert [(r["source_name"], r["type"], r["target_name"], r["target_scope"]) for r in found] == [
        ("cat", "TOUCHED", "a.py", "r"),
        ("edit", "TOUCHED", "o.py", "r"),
        ("sed", "TOUCHED", "b.py", "r"),
    ]


def test_labels_of_test_runners() -> None:
    action = "./tests/runtests.py --parallel 1 app.tests.Case other --settings s -v 2"
    assert [r["name"] for r in rows(action) if r["kind"] == "Test"] == ["app.tests.Case", "other"]
    assert [r["name"] for r in rows("python manage.py test app") if r["kind"] == "Test"] == ["app"]
    assert not [r for r in rows("python manage.py migrate app") if r["kind"] == "Test"]


SHELL = [
    "'", '"', "\\", "`", "$(", "$((", "))", "(", ")", "{", "}", "<<EOF", "<<-", "EOF", "\n", "\t",
    ">", ">>", "2>&1", "|", "&&", ";", "#", "a.py", " ", "rm", "sed -i", "edit 1:2", "end_of_edit",
    ' {"path": "a.py"', '{"', "}", "for", "case", "esac", "=", "A=", "xargs", "sudo -u", "\r\n",
    "\ud800", "\x00", "é", "-exec", "runtests.py", "bash {", '"command": "ls',
]  # fmt: skip


@given(st.lists(st.sampled_from(SHELL) | st.text(max_size=3), max_size=40).map("".join))
def test_any_action_is_read(action: str) -> None:
    for row in rows(action, "a.py"):
        assert 0 <= int(row["start"]) < int(row["end"]) <= len(action)


@pytest.mark.parametrize("unit", ["$(((", "'\"", "`", 'a {"', "<<a\n", 'x {"a": [', "f() {"])
def test_long_hostile_actions_are_read(unit: str) -> None:
    # Anything slower than linear would run into the suite's time limit here.
    assert isinstance(programs(unit * (300_000 // len(unit))), list)
