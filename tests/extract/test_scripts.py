"""Programs and diffs inside actions: which files they change, and nothing guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.extract import EntityExtractor, StepTexts

EXTRACTOR = EntityExtractor()


def rows(action: str) -> list[dict[str, str]]:
    steps = StepTexts([action], [""], ["r"], [None])
    found: list[dict[str, str]] = EXTRACTOR.extract_steps(steps).mentions.to_pylist()
    return found


DIFF = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-x\n+x = open('no.py', 'w')\n"
NEW = "--- /dev/null\n+++ b/new_one\t2020-01-01\n@@ -0,0 +1 @@\n+x\n"
GONE = "diff --git a/old.py b/old.py\n--- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
WRITE = "p = 'pkg/a.py'\nwith open(p, 'w') as f:\n    f.write('x')\n"


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("open('a.py', 'w')", "a.py"),
        ('io.open("a.py", mode="a", encoding="utf-8")', "a.py"),
        ("open('a', 'r+'); open('b', 'x'); open('c', 'wb'); open(r'd', 'rb+')", "a b c d"),
        ("open('a.py'); open('b.py', 'r'); open('c.py', 'rb')", ""),
        ("open('a.py', mode)", ""),
        ("p = 'a.py'\nopen(p, 'w')", "a.py"),
        ("p: str = 'a.py'  # why\nopen(\n    p,\n    'w',\n)", "a.py"),
        ("def main():\n    p = 'a.py'\n    with open(p, 'w') as f:\n        pass", "a.py"),
        ("p = 'a.py'\np = sys.argv[1]\nopen(p, 'w')", ""),
        ("p = 'a.py'\np += '.bak'\nopen(p, 'w')", ""),
        ("p = 'a.py'\np, q = pair\nopen(p, 'w')", ""),
        ("p = 'a.py'\ndef f(p):\n    open(p, 'w')", ""),
        ("p = 'a.py'\nfor p in paths:\n    open(p, 'w')", ""),
        ("p = 'a.py'\nwith x as p:\n    open(p, 'w')", ""),
        ("f(p='a.py')\nopen(p, 'w')", ""),
        ("p = 'a.py' if x else 'b.py'\nopen(p, 'w')", ""),
        ("for p in ['a.py', 'b.py']:\n    open(p, 'w')", "a.py b.py"),
        ("ps = ('a.py',\n  'b.py')\nfor p in ps:\n    open(p, 'w')", "a.py b.py"),
        ("open('a' + '.py', 'w'); open('b%d.py' % 1, 'w'); open('c.py'.upper(), 'w')", ""),
        ("open(f'{x}.py', 'w'); open('*.py', 'w'); open('a\\tb.py', 'w')", ""),
        ("tar.open('a.py', 'w'); x.os.remove('a.py')", ""),
        ("# open('a.py', 'w')\nx = \"open('b.py', 'w')\"", ""),
        ("s = '''\nopen('b.py', 'w')\n'''\nopen('a.py', 'w')", "a.py"),
        ("Path('a.py').write_text(x); pathlib.Path('b.py').write_bytes(x)", "a.py b.py"),
        ("Path('a.py').read_text(); Path('b.py').open('w'); Path('c.py').open()", "b.py"),
        ("p = Path('a.py')\np.write_text(p.read_text().replace('x', 'y.py'))", "a.py"),
        ("p = 'a.py'\nPath(p).write_text(x); p.replace('q.py', 'r.py')", "a.py"),
        ("Path('a.py').rename('b.py'); (Path('d') / 'c.py').write_text(x)", "a.py b.py"),
        ("shutil.copy('a.py', 'b.py'); shutil.move('c.py', 'd.py')", "b.py c.py d.py"),
        ("os.remove('a.py'); os.rename('b.py', 'c.py'); os.stat('d.py')", "a.py b.py c.py"),
        ("for l in fileinput.input('a.py', inplace=True): pass", "a.py"),
        ("for l in fileinput.input('a.py'): pass", ""),
        ("open('/dev/null', 'w'); open('', 'w'); open('http://x/a.py', 'w')", ""),
        ("open('a.py', 'w", ""),
    ],
)  # fmt: skip
def test_files_that_python_writes(code: str, changed: str) -> None:
    action = f"python3 - <<'EOF'\n{code}\nEOF\nls"
    found = rows(action)
    mutated = {row["name"] for row in found if row["role"] == "MUTATED"}
    assert mutated == set(changed.split())
    for row in found:
        if row["role"] == "MUTATED":
            assert action[int(row["start"]) : int(row["end"])] == row["name"]


@pytest.mark.parametrize(
    ("action", "changed"),
    [
        ("python3 -c \"open('a.py', 'w')\"", "a.py"),
        ("python3 -c 'p = \"a.py\"\nopen(p, \"w\")'", "a.py"),
        ('python -c "open(\\"a.py\\", \\"w\\")"', "a.py"),
        ("python -c 'open('\"'\"'a.py'\"'\"', '\"'\"'w'\"'\"')'", "a.py"),
        ("python3 -u <<< \"open('a.py', 'w')\"", "a.py"),
        ("cat <<EOF | python3\nopen('a.py', 'w')\nEOF", "a.py"),
        ("timeout 5 /usr/bin/python3.9 <<EOF\nopen('a.py', 'w')\nEOF", "a.py"),
        ("python manage.py shell <<EOF\nopen('a.py', 'w')\nEOF", "a.py"),
        ("python <<EOF\nopen('$A/a.py', 'w')\nEOF", ""),
        # input is no program
        ("python x.py <<EOF\nopen('a.py', 'w')\nEOF", ""),
        ("python -m x <<EOF\nopen('a.py', 'w')\nEOF", ""),
        ("cat <<EOF | grep x | python\nopen('a.py', 'w')\nEOF", ""),
        ("grep x <<EOF\nopen('a.py', 'w')\nEOF", ""),
        # scripts that the action writes and runs
        (f"cat > fix.py <<'EOF'\n{WRITE}EOF\npython fix.py", "fix.py pkg/a.py"),
        (f"cat <<EOF > ./fix.py && python3 fix.py\n{WRITE}EOF", "./fix.py pkg/a.py"),
        (f"tee fix.py <<EOF\n{WRITE}EOF\ncd x; python ./fix.py --now", "fix.py pkg/a.py"),
        (f"cat > fix <<EOF\n#!/usr/bin/env python3\n{WRITE}EOF\n./fix", "fix pkg/a.py"),
        (f"cat > fix.py <<EOF\n{WRITE}EOF\npython < fix.py", "fix.py pkg/a.py"),
        (f"cat > fix.py <<EOF\n{WRITE}EOF\ncat fix.py", "fix.py"),
        (f"cat > fix.py <<EOF\n{WRITE}EOF\npython other.py", "fix.py"),
        (f"python fix.py; cat > fix.py <<EOF\n{WRITE}EOF", "fix.py"),
        ("cat > s.sh <<EOF\nsed -i s/x/y/ a.py\ncat b.py\nEOF\nbash s.sh", "s.sh a.py"),
        ("bash <<EOF\nrm a.py\ncat b.py\nEOF", "a.py"),
        # diffs
        (f"patch -p1 <<'EOF'\n{DIFF.format('q/a.py')}EOF", "q/a.py"),
        (f"git apply <<'EOF'\n{NEW}{GONE}EOF", "new_one old.py"),
        (f"cat <<EOF | patch -p1\n{DIFF.format('a.py')}EOF", "a.py"),
        (f"cat > x.patch <<EOF\n{DIFF.format('a.py')}EOF\ngit apply x.patch", "x.patch a.py"),
        (f"cat > x.patch <<EOF\n{DIFF.format('a.py')}EOF\npatch < x.patch", "x.patch a.py"),
        (f"cat > x.patch <<EOF\n{DIFF.format('a.py')}EOF", "x.patch"),
        ("git apply <<EOF\nrename from a.py\nrename to b.py\nEOF", "a.py b.py"),
    ],
)  # fmt: skip
def test_what_runs_in_the_action_counts(action: str, changed: str) -> None:
    mutated = [row for row in rows(action) if row["role"] == "MUTATED"]
    texts = {action[int(row["start"]) : int(row["end"])] for row in mutated}
    assert texts == set(changed.split())
    for row in mutated:
        assert row["kind"] == "File"


def test_a_path_that_no_rule_knows_is_mentioned() -> None:
    action = "python - <<'E'\nopen('pkg/NOTES_2', 'w')\nE"
    (row,) = [row for row in rows(action) if row["kind"] == "File"]
    assert (row["name"], row["role"], row["rule"]) == ("pkg/NOTES_2", "MUTATED", "action-write")
    assert action[int(row["start"]) : int(row["end"])] == "pkg/NOTES_2"


def test_the_interpreter_touches_what_its_program_writes() -> None:
    steps = StepTexts(["python - <<'E'\nopen('a.py', 'w')\nE"], [""], ["r"], [None])
    (edge,) = EXTRACTOR.extract_steps(steps).relations.to_pylist()
    assert (edge["source_name"], edge["type"], edge["target_name"]) == ("python", "TOUCHED", "a.py")


PIECES = [
    "python ", "-c ", "cat > f.py ", "python f.py", "<<< ", "<<E\n", "\nE\n", "open(", "'a.py'",
    ", 'w')", "p = ", "p", "Path(", ").write_text(", "for p in ", "[", "]", ":", "'''", '"""', "\\",
    "'", '"', "\n", ";", "os.remove(", "lambda ", "def ", "as ", ",", ".", "=", "--- a/b\n",
    "+++ b/c.py\n", "/dev/null", "patch -p1 ", "git apply ", "ed ", "dd of=", "| ", "\ud800", "é",
    "rename from x\n", "bash ", "#!python\n", "./f.py", "inplace=True", "fileinput.input(",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=40).map("".join))
def test_any_action_is_read(action: str) -> None:
    for row in rows(action):
        assert 0 <= int(row["start"]) < int(row["end"]) <= len(action)


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=40).map("".join))
def test_any_program_is_read(code: str) -> None:
    for head in ("python", "patch", "bash"):
        rows(f"{head} - <<'ENDE'\n{code}\nENDE\n")


@pytest.mark.parametrize(
    "unit",
    [
        "open(", "open('a', ", "Path(", "(a).b", "a = ", "p.", "'''\\", "\"\\\"", "for x in [",
        "def ", "--- a\t", "--- a", "+++ ", "os.remove(p)", "[", "str(", "x = 'y'\n", "a,", "\n",
    ],
)  # fmt: skip
def test_long_hostile_programs_are_read(unit: str) -> None:
    # Anything slower than linear would run into the suite's time limit here.
    long = unit * (200_000 // len(unit))
    for head in ("python", "patch", "cat > f.py", "bash"):
        again = "; python f.py" * 1_000 + " | python" * 1_000
        assert rows(f"{head} <<'ENDE'\nopen\n{long}\nENDE\n{again}")
