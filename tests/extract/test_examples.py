"""What must be found in given texts, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sag_research.errors import SagError
from sag_research.extract import EntityExtractor, StepTexts

Found = list[tuple[str, str]]


@pytest.fixture(scope="module")
def extractor() -> EntityExtractor:
    return EntityExtractor()


def named(extractor: EntityExtractor, text: str, field: str = "observation") -> Found:
    return [(m.entity.kind, m.entity.name) for m in extractor.mentions(text, field=field)]


def related(extractor: EntityExtractor, text: str) -> list[tuple[str, str, str]]:
    return [(r.source.name, r.type, r.target.name) for r in extractor.extract(text)[1]]


def test_the_reference_sentence(extractor: EntityExtractor) -> None:
    text = "Failed to connect to postgresql database at port 5432: connectiontimeout"
    assert named(extractor, text) == [
        ("System", "Postgres"), ("Configuration", "Port 5432"), ("Error", "TimeoutError"),
    ]  # fmt: skip
    assert related(extractor, text) == [
        ("Postgres", "CONFIGURED_WITH", "Port 5432"), ("Postgres", "ENCOUNTERED", "TimeoutError"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the same thing written in several ways
        ("./a/b.py /repo/a/b.py /testbed/a/b.py a//b.py a/./b.py", [("File", "a/b.py")] * 5),
        ("/x__y/a/b.py and ../opt/c.py", [("File", "a/b.py"), ("File", "/opt/c.py")]),
        ("pg, Postgres, PostgreSQL", [("System", "Postgres")] * 3),
        ("port 80, port:80, port=80, PORT 80", [("Configuration", "Port 80")] * 4),
        (r"open C:\work\sub\y.py now", [("File", "C:/work/sub/y.py")]),
        # only where it is one
        ("pg dump took 5432 ms", [("System", "Postgres")]),
        ("the timeout is 30 seconds", []),
        ("error: request timed out", [("Error", "TimeoutError")]),
        ("error as e, timeout as t", []),
        ("version 1.2.3 of *.py in src/pkg/", []),
        ("self.log, np.dat and x.y.db = 3", []),
        ("299.1.1.1 or 10.0.0.7 ", [("Host", "10.0.0.7")]),
        ("port 99999", []),
        (".../pkg/core.py:3", []),
        ("backends/postgresql and sqlite_master and sqlite3.connect", []),
        ("print $ENV{x}; echo $HOME", [("Configuration", "HOME")]),
        # one span, one kind: the most specific
        ("t/a.py::T::test_x[a b] PASSED", [("Test", "t/a.py::T::test_x[a b]")]),
        ("test_x (pkg.Case) ... ok", [("Test", "test_x (pkg.Case)")]),
        ("http://u:p@ab.org:81/a.py", [("Host", "ab.org"), ("Configuration", "Port 81")]),
        ("raise pkg.errors.LockError(x)", [("Error", "pkg.errors.LockError")]),
        ("class LockError(OSError):", [("Symbol", "LockError"), ("Error", "OSError")]),
        ("from pkg.errors import LockError", [("Module", "pkg.errors"), ("Error", "LockError")]),
        # each kind
        ("import os, sys as s", [("Module", "os"), ("Module", "sys")]),
        ("Successfully installed foo-bar-2.1 idna-3", [("Module", "foo-bar"), ("Module", "idna")]),
        ("Collecting foo>=2 (from bar)", [("Module", "foo")]),
        ("a.py:1:80: E501 too long", [("File", "a.py"), ("Error", "E501")]),
        ("open failed: ENOENT", [("Error", "ENOENT")]),
        ("bash: line 1: rg: command not found", [("Command", "rg")]),
        ("HEAD is now at 1a2b3c4 x", [("Commit", "1a2b3c4")]),
        ("deadbeef and 1234567 stand alone", []),
        ("    def run(self):", [("Symbol", "run")]),
        ("call run(self) of the class", []),
        ("A_B=1 and c_d=2 and E_F == 3", [("Configuration", "A_B")]),
        ("cat Makefile .gitignore", [("File", "Makefile"), ("File", ".gitignore")]),
    ],
)  # fmt: skip
def test_what_a_text_names(extractor: EntityExtractor, text: str, expected: Found) -> None:
    assert named(extractor, text) == expected


def test_a_traceback_gives_frames_and_who_raised(extractor: EntityExtractor) -> None:
    text = (
        "Traceback (most recent call last):\r\n"
        '  File "/testbed/a/x.py", line 3, in go\r\n    run()\r\n'
        '  File "/testbed/a/y.py", line 4, in <module>\r\n    stop()\r\n    ^^^^^^\r\n'
        "project.Refused: no\r\n"
    )
    assert named(extractor, text) == [
        ("File", "a/x.py"), ("Symbol", "go"), ("File", "a/y.py"), ("Error", "project.Refused"),
    ]  # fmt: skip
    assert related(extractor, text) == [("a/y.py", "RAISED", "project.Refused")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ValueError in sympy/core/add.py line 3", [("sympy/core/add.py", "RAISED", "ValueError")]),
        ("a/b.py:12: KeyError", [("a/b.py", "RAISED", "KeyError")]),
        ("a/b.py and KeyError", []),
        ("t/a.py::test_x failed", [("t/a.py::test_x", "TESTS", "t/a.py")]),
        ("src/q.py:3:import os", [("src/q.py", "IMPORTS", "os")]),
        ("src/q.py said:\nimport os", []),
        ("+++ b/q.py\n@@ -1 +1 @@\n+import os\n-import re\n", [("q.py", "IMPORTS", "os")]),
        ("redis and pg at port 5432", []),
        ("redis:\nport 5432", []),
        ("    raise ValueError('pg')", []),
    ],
)
def test_relations_are_certain_or_absent(
    extractor: EntityExtractor, text: str, expected: list[tuple[str, str, str]]
) -> None:
    assert related(extractor, text) == expected


def test_spans_count_code_points_of_the_original(extractor: EntityExtractor) -> None:
    text = "naïve 🎉 \x1b[31msrc/\x1b[1mcore.py\x1b[0m:3 \x00 half \ud835 end.py\r\n/x/last.py"
    spans = [(text[m.start : m.end], m.entity.name) for m in extractor.mentions(text)]
    assert spans == [
        ("src/\x1b[1mcore.py", "src/core.py"), ("end.py", "end.py"), ("/x/last.py", "/x/last.py"),
    ]  # fmt: skip


def test_diff_prefixes_stay_outside(extractor: EntityExtractor) -> None:
    text = "diff --git a/p/c.py b/p/c.py\n--- a/p/c.py\n+++ b/p/c.py\n"
    mentions = extractor.mentions(text)
    assert [text[m.start : m.end] for m in mentions] == ["p/c.py"] * 4


def test_scope_is_part_of_files_only(extractor: EntityExtractor) -> None:
    steps = StepTexts([""] * 2, ["setup.py: TimeoutError"] * 2, ["a/a", "b/b"], [None] * 2)
    rows = extractor.extract_steps(steps).mentions.to_pylist()
    assert [(r["row"], r["kind"], r["scope"]) for r in rows] == [
        (0, "File", "a/a"), (0, "Error", ""), (1, "File", "b/b"), (1, "Error", ""),
    ]  # fmt: skip


def test_git_lines_count_only_below_a_git_action(extractor: EntityExtractor) -> None:
    steps = StepTexts(["git log --oneline", "ls"], ["1a2b3c4 start"] * 2, [""] * 2, [None] * 2)
    rows = extractor.extract_steps(steps).mentions.to_pylist()
    assert [(r["row"], r["name"]) for r in rows if r["kind"] == "Commit"] == [(0, "1a2b3c4")]


def test_entities_are_distinct_and_in_order(extractor: EntityExtractor) -> None:
    entities, _ = extractor.extract("b.py a.py b.py KeyError", scope="r")
    assert [e.entity_id for e in entities] == ["File|r|b.py", "File|r|a.py", "Error||KeyError"]


def test_a_batch_is_its_steps_one_by_one(extractor: EntityExtractor) -> None:
    actions = ["cat a.py", "sed -i s/a/b/ a.py", "cat a.py", ""]
    observations = ["import os\nb.py", "", "é b.py:1: KeyError", "import os\nb.py"]
    steps = StepTexts(actions, observations, ["s", "s", "t", ""], [None] * 4)
    whole = extractor.extract_steps(steps)
    for table in ("mentions", "relations"):
        rows = []
        for i in range(4):
            one = StepTexts(*(column[i : i + 1] for column in steps))
            part = getattr(extractor.extract_steps(one), table).to_pylist()
            rows += [{**row, "row": i} for row in part]
        assert getattr(whole, table).to_pylist() == rows
    again = extractor.extract_steps(steps)
    assert again.mentions.equals(whole.mentions)
    assert again.relations.equals(whole.relations)


def test_no_steps(extractor: EntityExtractor) -> None:
    result = extractor.extract_steps(StepTexts([], [], [], []))
    assert (result.mentions.num_rows, result.relations.num_rows) == (0, 0)
    assert result.mentions.column_names == [
        "row", "field", "start", "end", "kind", "scope", "name", "role", "rule",
    ]  # fmt: skip


def test_a_user_extends_the_aliases(tmp_path: Path, extractor: EntityExtractor) -> None:
    path = tmp_path / "aliases.toml"
    path.write_text(
        '[System]\n"Billing DB" = ["billdb", "pg"]\n[File]\n"core.py" = ["old_core.py"]\n',
        encoding="utf-8",
    )
    own = EntityExtractor(aliases=path)
    assert named(own, "billdb, pg, redis, old_core.py") == [
        *[("System", "Billing DB")] * 2, ("System", "Redis"), ("File", "core.py"),
    ]  # fmt: skip
    assert own.version != extractor.version
    assert own.version.rpartition("-")[0] == extractor.version.rpartition("-")[0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[System\n", "cannot understand"),
        ('[System]\nx = "y"\n', "cannot understand"),
        ("[Systems]\nx = []\n", "unknown kind 'Systems'"),
        (None, "cannot read"),
    ],
)
def test_a_bad_alias_file_is_explained(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "aliases.toml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(SagError, match=problem):
        EntityExtractor(aliases=path)


def test_a_key_changes_nothing_and_is_not_kept() -> None:
    with_key = EntityExtractor(api_key="sk-secret")
    assert with_key.version == EntityExtractor().version
    assert "sk-secret" not in repr(vars(with_key))
