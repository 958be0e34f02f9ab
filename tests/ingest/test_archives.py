"""Archives are read as folders, within bounds; what is refused is listed."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import zstandard

import sag_research as sag
from sag_research.ingest._archives import Bounds, opened
from sag_research.ingest._walk import Found, find


def record(task: str) -> bytes:
    step = {"thought": "t", "action": "ls", "observation": "a.py"}
    return json.dumps({"task_id": task, "steps": [step]}).encode() + b"\n"


FILES = {"runs/one.jsonl": record("one"), "runs/deep/two.jsonl": record("two"), "notes.txt": b"hi"}


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return path


def pack_zst(path: Path) -> Path:
    packed = path.with_name(path.name + ".zst")
    packed.write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    return packed


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "tar.zst"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_archive_is_read_as_the_folder_it_holds(tmp_path: Path, kind: str, jobs: int) -> None:
    place = tmp_path / "in" / f"set.{kind}"
    place.parent.mkdir()
    if kind == "zip":
        write_zip(place, FILES)
    elif kind == "tar.zst":
        pack_zst(write_tar(tmp_path / "in" / "set.tar", FILES))
    else:
        write_tar(
            place, FILES, {"tar": "w"}.get(kind, "w:" + kind.split(".")[-1].replace("tgz", "gz"))
        )
    with sag.open(tmp_path / "study") as ws:
        report = ws.ingest(place.parent, progress=False, jobs=jobs)
        assert (report.files, report.ingested, report.runs) == (3, 2, 2)
        assert [path for path, _ in report.ignored] == [f"set.{kind}/notes.txt"]
        paths = set(ws.sql("select path from sources").df()["path"])
        assert f"set.{kind}/runs/deep/two.jsonl" in paths
        again = ws.ingest(place.parent, progress=False)
        assert (again.files, again.ingested, again.duplicates) == (3, 0, 2)


def test_the_archive_and_its_folder_hold_the_same_runs(tmp_path: Path) -> None:
    write_zip(tmp_path / "set.zip", FILES)
    for name, data in FILES.items():
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_bytes(data)
    with sag.open(":memory:") as ws:
        report = ws.ingest(tmp_path, progress=False)
        assert (report.files, report.ingested, report.duplicates, report.runs) == (6, 2, 2, 2)


def look(path: Path, bounds: Bounds | None = None) -> list[Found]:
    with ExitStack() as held:
        found = list(opened(find([path]), held, bounds))
        inside = [one.path for one in found if not one.problem]
        assert all(one.is_file() for one in inside)
    assert not any(one.exists() for one in inside)
    return found


EVIL = ["../out.jsonl", "/abs.jsonl", "a/../../out.jsonl", "C:\\out.jsonl", "\\\\host\\out.jsonl",
        "a\\..\\..\\out.jsonl", "x" * 300 + ".jsonl"]  # fmt: skip


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_that_lead_outside_are_refused_and_the_rest_is_read(
    tmp_path: Path, name: str, kind: str
) -> None:
    files = {name: record("evil"), "good.jsonl": record("good")}
    write = write_zip if kind == "zip" else write_tar
    home = tmp_path / "in"
    home.mkdir()
    found = look(write(home / f"set.{kind}", files))
    assert [one.name for one in found if not one.problem] == [f"set.{kind}/good.jsonl"]
    (bad,) = (one for one in found if one.problem)
    assert bad.problem == "its name leads outside of the archive"
    assert sorted(one.name for one in tmp_path.rglob("*.jsonl")) == []


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            about = tarfile.TarInfo(f"thing-{kind.decode()}")
            about.type, about.linkname = kind, "/etc/passwd"
            archive.addfile(about)
    linked = zipfile.ZipInfo("link.jsonl")
    linked.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
        packed.writestr(linked, "/etc/passwd")
    found = [*look(tmp_path / "set.tar"), *look(tmp_path / "set.zip")]
    assert [one.problem for one in found] == ["a link or a device"] * 5


def test_bombs_are_stopped(tmp_path: Path) -> None:
    small = Bounds(members=3, size=2**20, ratio=10, free=2**16)
    many = write_zip(tmp_path / "many.zip", {f"{n}.txt": b"x" for n in range(9)})
    assert look(many, small)[-1].problem == "the archive holds more than 3 members"
    thick = write_zip(tmp_path / "thick.zip", {"a.txt": b"\0" * 2**19})
    assert look(thick, small)[-1].problem == "the archive expands to more than 10 times its size"
    name = write_tar(tmp_path / "name.tar.gz", {"n" * 2**19: b"x"}, "w:gz")
    assert look(name, small)[-1].problem == "the archive expands to more than 10 times its size"
    large = write_tar(tmp_path / "large.tar", {"a.txt": b"\0" * 2**21})
    assert look(large, small)[-1].problem == "the archive expands to more than 1,048,576 bytes"


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz", "tar.zst", "tar"])
def test_a_damaged_archive_costs_itself_and_is_rejected(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "in"
    home.mkdir()
    (home / "good.jsonl").write_bytes(record("good"))
    (home / f"noise.{kind}").write_bytes(b"this is no archive at all" * 50)
    with sag.open(":memory:") as ws:
        report = ws.ingest(home, progress=False)
    assert (report.files, report.ingested) == (2, 1)
    ((path, reason),) = report.rejected
    assert path == f"noise.{kind}"
    assert reason


def test_a_cut_archive_keeps_what_came_before_the_cut(tmp_path: Path) -> None:
    noise = {f"{n}.jsonl": record(str(n)) + bytes(range(256)) * 40 for n in range(40)}
    whole = write_tar(tmp_path / "set.tar", {"first.jsonl": record("first")} | noise)
    whole.write_bytes(whole.read_bytes()[: 2**16])
    found = look(whole)
    assert found[-1].problem
    assert found[-1].named
    assert "set.tar/first.jsonl" in [one.name for one in found if not one.problem]


def test_an_encrypted_member_a_second_of_one_name_and_a_nested_archive(tmp_path: Path) -> None:
    inner = write_zip(tmp_path / "inner.zip", FILES).read_bytes()
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jsonl", record("first"))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.jsonl", record("second"))
        archive.writestr("inner.zip", inner)
        archive.writestr("secret.jsonl", record("x"))
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # the flag in the last entry of the directory
    path.write_bytes(data)
    problems = {one.name: one.problem for one in look(path) if one.problem}
    assert problems == {
        "set.zip/a.jsonl": "a second member of this name",
        "set.zip/inner.zip": "an archive inside an archive",
        "set.zip/secret.jsonl": "encrypted",
    }
