"""Formats of other packages: found by entry point, and a broken one costs itself."""

import os
import subprocess
import sys
from importlib import metadata

import pytest

from sag_research.errors import FormatError, UsageError
from sag_research.ingest import Reading, Source, ingest, plugins
from sag_research.ingest.formats import FORMATS, recognise
from sag_research.log import SQLiteEventStore
from sag_research.model import Step, Trajectory
from tests.ingest.make import swe_file, write

MARK = b'{"mine":'


class Mine:
    name = "mine"

    def sniff(self, head, path):
        return 0.9 if head.startswith(MARK) else 0.0

    def read(self, source):
        return Reading("1", iter([Trajectory(task_id="t", steps=(Step(action="ls"),))]))


def with_(**more):
    return type("Odd", (Mine,), more)()


class Point:
    """An entry point as an installed package would give it."""

    dist = None

    def __init__(self, name, loaded, value="x:y"):
        self.name, self.value, self._loaded = name, value, loaded

    def load(self):
        if isinstance(self._loaded, BaseException):
            raise self._loaded
        return self._loaded


@pytest.fixture
def install(monkeypatch):
    def install(*points):
        def entry_points(*, group):
            assert group == "sag_research.formats"
            return list(points)

        monkeypatch.setattr(metadata, "entry_points", entry_points)

    return install


def discovered(known=FORMATS):
    notes = []
    return plugins.discover(known, notes)[len(known) :], notes


@pytest.mark.parametrize("loaded", [Mine, Mine()])
def test_a_class_or_an_object_is_a_format(install, tmp_path, loaded):
    install(Point("mine", loaded))
    (found,), notes = discovered()
    assert (found.name, notes) == ("mine", [])
    path = write(tmp_path / "a.json", b'{"mine": 1}')
    assert recognise(Source(path), (*FORMATS, found)) is found
    reading = found.read(Source(path))
    assert (reading.version, [run.task_id for run in reading]) == ("1", ["t"])


class BadError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("loaded", "said"),
    [
        (ImportError("no module named 'x'"), "ImportError: no module named 'x'"),
        (BadError(), "BadError"),
        (SystemExit("no licence"), "it called sys.exit"),
        (ZeroDivisionError("a\nb"), "ZeroDivisionError"),
        (type("Costly", (), {"__init__": lambda self, key: None}), "TypeError"),
        (with_(name="Mine"), "its name 'Mine' is not in kebab-case"),
        (with_(name=None), "its name None"),
        (with_(name="swe-agent"), "there is a format 'swe-agent' already"),
        (with_(sniff=None), "it has no sniff"),
        (object(), "its name None"),
    ],
)
def test_a_broken_plug_in_costs_itself(install, loaded, said):
    install(Point("good", Mine), Point("bad", loaded, "a:b"))
    (found,), (note,) = discovered()
    assert found.name == "mine"
    assert note.startswith("plug-in 'bad' of an unknown package left out: ")
    assert said in note
    assert "\n" not in note


def test_interrupts_pass(install):
    install(Point("bad", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        discovered()


def test_two_plug_ins_of_one_name(install):
    install(Point("b", Mine, "b:x"), Point("a", Mine, "a:x"))
    (found,), (note,) = discovered()
    assert note == "plug-in 'b' of an unknown package left out: there is a format 'mine' already"
    assert "'a'" in repr(found)


def boom(*_):
    raise KeyError("boom")


@pytest.mark.parametrize("claim", [boom, lambda *_: "much", lambda *_: None])
def test_a_plug_in_that_fails_to_recognise_claims_nothing(install, tmp_path, claim):
    install(Point("bad", with_(sniff=claim)))
    notes = []
    *_, found = plugins.discover((), notes)
    assert [found.sniff(b"x", tmp_path), found.sniff(b"y", tmp_path)] == [0.0, 0.0]
    assert len(notes) == 1
    assert "failed to recognise a file" in notes[0]


@pytest.mark.parametrize(("claim", "taken"), [(7, 1.0), (-1, 0.0), (float("nan"), 0.0), (1, 1.0)])
def test_claims_are_kept_in_bounds(install, tmp_path, claim, taken):
    install(Point("odd", with_(sniff=lambda *_: claim)))
    (found,), notes = discovered()
    assert (found.sniff(b"x", tmp_path), notes) == (taken, [])


def broken_runs():
    yield Trajectory(task_id="t")
    raise KeyError("late")


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (boom, "KeyError: 'boom'"),
        (lambda *_: None, "read gave NoneType, no Reading"),
        (lambda *_: Reading("1", broken_runs()), "KeyError: 'late'"),
        (lambda *_: Reading("1", iter([{}])), "it yielded dict, no Trajectory"),
        (lambda *_: Reading("1", [Trajectory(task_id="t")]), "TypeError"),
    ],
)
def test_a_plug_in_that_fails_to_read_costs_the_file(install, tmp_path, read, said):
    install(Point("bad", with_(read=read)))
    (found,), _ = discovered()
    with pytest.raises(FormatError, match="plug-in 'bad' of an unknown package failed") as error:
        list(found.read(Source(write(tmp_path / "a", b"x"))))
    assert said in str(error.value)


def test_what_a_plug_in_refuses_is_said_as_it_is(install, tmp_path):
    def refuse(*_):
        raise FormatError("too old", fix="convert it")

    install(Point("bad", with_(read=refuse)))
    (found,), _ = discovered()
    with pytest.raises(FormatError, match=r"^too old; convert it$"):
        found.read(Source(write(tmp_path / "a", b"x")))


def test_formats_by_name(install):
    install(Point("mine", Mine))
    assert [one.name for one in plugins.available("mine").tried] == ["mine"]
    assert [one.name for one in plugins.available("native").tried] == ["native"]
    assert plugins.available().tried[:-1] == FORMATS
    with pytest.raises(
        UsageError, match=r"no format is called 'x'; choose one of .*native.*, mine"
    ):
        plugins.available("x")


def test_an_installed_package_is_found(tmp_path):
    """A real entry point, in another process whose path holds the package."""
    about = tmp_path / "theirs-1.0.dist-info"
    write(about / "METADATA", b"Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    write(
        about / "entry_points.txt", b"[sag_research.formats]\ntheirs = theirs:Theirs\ngone = no:X\n"
    )
    write(
        tmp_path / "theirs.py",
        b"class Theirs:\n    name = 'theirs'\n    sniff = read = lambda *_: 0.0\n",
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import sag_research.ingest.plugins as p\n"
        "assert 'theirs' not in sys.modules\n"
        "notes = []; print([f.name for f in p.discover((), notes)], notes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("['theirs'] [\"plug-in 'gone' of theirs left out: ModuleNotFound")


PACKAGE = b"""
from sag_research.ingest import Reading
from sag_research.model import Step, Trajectory


class Theirs:
    name = "theirs"

    def sniff(self, head, path):
        return 0.9 if head.startswith(b'{"theirs"') else 0.0

    def read(self, source):
        if b"bad" in source.bytes():
            raise KeyError("what a mess")
        if b"ends" in source.bytes():
            raise SystemExit(3)
        return Reading("1", iter([Trajectory(task_id="t", steps=(Step(action="ls"),))]))


class Shaky(Theirs):
    name = "shaky"

    def sniff(self, head, path):
        return 1 / 0
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with a good format, one that is lost, and one that always fails."""
    about = tmp_path / "site/theirs-1.0.dist-info"
    points = (
        b"[sag_research.formats]\ntheirs = theirs_x:Theirs\nz = theirs_x:Shaky\ngone = no_x:X\n"
    )
    write(about / "METADATA", b"Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    write(about / "entry_points.txt", points)
    write(tmp_path / "site/theirs_x.py", PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path
    sys.modules.pop("theirs_x", None)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_ingest_finds_plug_ins_and_outlives_them(installed, jobs):
    write(installed / "in/a.json", b'{"theirs": 1}')
    write(installed / "in/b.json", b'{"theirs": "bad"}')
    write(installed / "in/b2.json", b'{"theirs": "ends"}')
    write(installed / "in/c.traj", swe_file())
    with SQLiteEventStore(installed / "log.sqlite") as store:
        report = ingest(store, [installed / "in"], jobs=jobs, progress=False)
    assert report.by_format["theirs"] == {"files": 1, "runs": 1, "steps": 1}
    assert report.by_format["swe-agent"]["files"] == 1
    failed = "plug-in 'theirs' of theirs failed"
    assert report.rejected == [
        ("b.json", f"{failed} (KeyError: 'what a mess')"),
        ("b2.json", f"{failed} (RuntimeError: it called sys.exit)"),
    ]
    told = [note for note in report.notes if note.startswith("plug-in")]
    assert told[0].startswith("plug-in 'gone' of theirs left out: ModuleNotFoundError")
    shaky = "plug-in 'z' of theirs failed to recognise a file: ZeroDivisionError: division by zero"
    assert 1 <= told[1:].count(shaky) == len(told[1:]) <= jobs


def test_the_format_of_a_plug_in_can_be_asked_for(installed):
    write(installed / "in/a.traj", b'{"theirs": 1}')
    with SQLiteEventStore(":memory:") as store:
        assert ingest(store, [installed / "in"], format="theirs", progress=False).runs == 1
        with pytest.raises(UsageError, match=r"choose one of .*theirs"):
            ingest(store, [installed / "in"], format="thiers", progress=False)


def test_what_is_installed_is_looked_through_once_until_it_changes(tmp_path, monkeypatch):
    site = tmp_path / "site"
    write(site / "other-1.dist-info/METADATA", b"Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    monkeypatch.syspath_prepend(str(site))
    looks = []
    real = metadata.entry_points

    def entry_points(*, group):
        looks.append(group)
        return real(group=group)

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    before = [discovered()[1] for _ in range(3)]
    assert len(looks) == 1
    about = site / "theirs-1.dist-info"
    write(about / "METADATA", b"Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    write(about / "entry_points.txt", b"[sag_research.formats]\ngone = no_such_module_here:X\n")
    os.utime(site, ns=(0, site.stat().st_mtime_ns + 10**9))
    (note,) = discovered()[1]
    assert before == [[]] * 3
    assert note.startswith("plug-in 'gone' of theirs left out")
    assert len(looks) == 2
