"""Damaged Parquet files and manifests: the warehouse says `sag rebuild`, and that mends it.

The log is whole in all of these, so nothing can be lost; the question is whether a wrong answer
could be given. It must not: either the answers are right, or the error says what to do.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

import sag_research as sag
from sag_research.errors import UsageError, WarehouseError
from sag_research.warehouse import _intact
from sag_research.warehouse._manifest import Manifest, Segment, read_manifest, write_manifest
from tests.faults.study import (
    ONCE_AND_OFTEN,
    Study,
    asked,
    assert_whole,
    build,
    complaint,
    one_line,
    projected,
    rebuilt,
    seeds,
    words_of,
)

Harm = Callable[[Path, Random], object]


def some_file(folder: Path, random: Random) -> Path:
    return folder / random.choice(read_manifest(folder).segments).file


# ---- Parquet


def flip_bits(folder: Path, random: Random) -> None:
    file = some_file(folder, random)
    data = bytearray(file.read_bytes())
    for _ in range(random.randint(1, 3)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    file.write_bytes(data)


def truncate(folder: Path, random: Random) -> None:
    file = some_file(folder, random)
    data = file.read_bytes()
    file.write_bytes(data[: random.randrange(1, len(data))])


def zero_a_page(folder: Path, random: Random) -> None:
    file = some_file(folder, random)
    data = bytearray(file.read_bytes())
    start = random.randrange(0, len(data), 512)
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    file.write_bytes(data)


def swap_two(folder: Path, random: Random) -> None:
    first, second = random.sample(read_manifest(folder).segments, 2)
    data = (folder / first.file).read_bytes()
    shutil.copy(folder / second.file, folder / first.file)
    (folder / second.file).write_bytes(data)


def swap_within_a_table(folder: Path, random: Random) -> None:
    steps = [s for s in read_manifest(folder).segments if s.table == "steps"]
    first, second = random.sample(steps, 2)
    shutil.copy(folder / first.file, folder / second.file)


def append_garbage(folder: Path, random: Random) -> None:
    with some_file(folder, random).open("ab") as file:
        file.write(random.randbytes(100))


PARQUET: dict[str, Harm] = {
    "flipped bits": flip_bits,
    "truncated": truncate,
    "deleted": lambda folder, random: some_file(folder, random).unlink(),
    "zero bytes long": lambda folder, random: some_file(folder, random).write_bytes(b""),
    "a page of zeros": zero_a_page,
    "two swapped": swap_two,
    "one in place of another": swap_within_a_table,
    "garbage at its end": append_garbage,
    "no segments": lambda folder, random: shutil.rmtree(folder / "segments"),
    "no mentions": lambda folder, random: shutil.rmtree(folder / "mentions"),
}

# ---- manifest


def manifest_of(folder: Path) -> Path:
    return folder / "manifest.json"


def tear(folder: Path, random: Random) -> None:
    data = manifest_of(folder).read_bytes()
    manifest_of(folder).write_bytes(data[: random.randrange(1, len(data) - 1)])


def flip_a_digit(folder: Path, random: Random) -> None:
    """Good JSON, with another number."""
    data = manifest_of(folder).read_text(encoding="utf-8")
    found = random.choice(list(re.finditer(r'"(?:watermark|k|rows|bytes)": \d*(\d)', data)))
    digit = str((int(found[1]) + random.randint(1, 9)) % 10)
    manifest_of(folder).write_text(
        data[: found.start(1)] + digit + data[found.end(1) :], encoding="utf-8"
    )


def leave_one_out(folder: Path, random: Random) -> None:
    manifest = read_manifest(folder)
    kept = list(manifest.segments)
    kept.remove(random.choice(kept))
    changed = msgspec.structs.replace(manifest, segments=tuple(kept))
    manifest_of(folder).write_bytes(msgspec.json.encode(changed))


def old_one_whose_files_are_gone(folder: Path, random: Random) -> None:
    """A manifest that was put back from a copy after its open segments were replaced."""
    manifest = read_manifest(folder)
    older = [
        msgspec.structs.replace(s, file=s.file[:-12] + "00000000.parquet") if s.k == 3 else s
        for s in manifest.segments
    ]
    write_manifest(folder, msgspec.structs.replace(manifest, segments=tuple(older)))


def a_folder_instead(folder: Path, random: Random) -> None:
    manifest_of(folder).unlink()
    manifest_of(folder).mkdir()


MANIFEST: dict[str, Harm] = {
    "torn": tear,
    "zero bytes long": lambda folder, random: manifest_of(folder).write_bytes(b""),
    "zeros": lambda folder, random: manifest_of(folder).write_bytes(bytes(3000)),
    "random bytes": lambda folder, random: manifest_of(folder).write_bytes(random.randbytes(999)),
    "nested without end": lambda folder, random: manifest_of(folder).write_bytes(b"[" * 99_999),
    "another digit": flip_a_digit,
    "a segment left out": leave_one_out,
    "old, its files are gone": old_one_whose_files_are_gone,
    "a folder in its place": a_folder_instead,
}


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("harm", PARQUET.values(), ids=PARQUET.keys())
def test_a_bad_segment_is_named_and_a_rebuild_mends_it(
    template: Study, tmp_path: Path, harm: Harm, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        harm(study.warehouse, random)
        assert re.search(
            r"(segments|mentions)/.*\.parquet of the warehouse is missing or damaged \(.*\); "
            "run `sag rebuild`",
            complaint(study.path),
        )
        rebuilt(study)
        assert_whole(study)


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("harm", MANIFEST.values(), ids=MANIFEST.keys())
def test_a_bad_manifest_is_named_and_a_rebuild_mends_it(
    template: Study, tmp_path: Path, harm: Harm, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        harm(study.warehouse, random)
        assert "sag rebuild" in complaint(study.path)
        if manifest_of(study.warehouse).is_dir():  # what else is in it is not ours to remove
            manifest_of(study.warehouse).rmdir()
        rebuilt(study)
        assert_whole(study)


# ---- harm that costs nothing but time


def of_another_workspace(folder: Path, random: Random) -> None:
    other = build(folder.parent.parent / "other")
    shutil.copy(other.warehouse / "manifest.json", manifest_of(folder))


def of_a_copy_that_went_on(folder: Path, random: Random) -> None:
    """The same log, but the watermark stands at an event that this copy does not have."""
    twin = folder.parent.parent / "twin"
    shutil.copytree(folder.parent, twin)
    with sag.open(twin) as ws:
        ws.add({"task_id": "elsewhere", "steps": [{"action": "make"}]})
        ws.sync()
    shutil.rmtree(folder)
    shutil.copytree(twin / "warehouse", folder)


def an_earlier_one(folder: Path, random: Random) -> None:
    """Put back the folder of before, after a sync; its files are all there."""
    before = folder.parent.parent / "before"
    shutil.copytree(folder, before)
    with sag.open(folder.parent) as ws:
        ws.sync()
    shutil.rmtree(folder)
    before.rename(folder)


def left_by_a_kill(folder: Path, random: Random) -> None:
    for place in ("segments", "mentions/rules-0", "."):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / ".sag-0123.tmp").write_bytes(random.randbytes(50))


HARMLESS: dict[str, Harm] = {
    "no warehouse": lambda folder, random: shutil.rmtree(folder),
    "no manifest": lambda folder, random: manifest_of(folder).unlink(),
    "no lock": lambda folder, random: (folder / "lock.sqlite").unlink(),
    "manifest of another workspace": of_another_workspace,
    "warehouse of a copy that went on": of_a_copy_that_went_on,
    "an earlier warehouse": an_earlier_one,
    "half-written files": left_by_a_kill,
}


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
@pytest.mark.parametrize("harm", HARMLESS.values(), ids=HARMLESS.keys())
@pytest.mark.filterwarnings("ignore:.*no longer holds what the warehouse was made of")
def test_what_the_log_can_replace_is_replaced(
    template: Study, tmp_path: Path, harm: Harm, times: int
) -> None:
    for random in seeds(times):
        place = tmp_path / f"{random.random()}"
        place.mkdir()
        study = template.copy(place / "study")
        harm(study.warehouse, random)
        assert_whole(study)
        assert not list(study.warehouse.rglob("*.tmp"))


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
def test_a_bad_lock_stops_syncs_and_not_queries(
    template: Study, tmp_path: Path, times: int
) -> None:
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        (study.warehouse / "lock.sqlite").write_bytes(random.randbytes(5000))
        assert asked(study.path) == study.answers
        with (
            sag.open(study.path) as ws,
            pytest.raises(WarehouseError, match=r"remove .*lock") as no,
        ):
            ws.sync()
        assert "holds nothing" in one_line(no.value)
        (study.warehouse / "lock.sqlite").unlink()
        assert_whole(study)


# ---- a manifest that somebody made with care


def hostile(file: str, table: str = "steps", k: int = 0) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        new = Segment(table=table, k=k, file=file, rows=1, bytes=1, sealed=True)
        kept = tuple(s for s in manifest.segments if (s.table, s.k) != (table, k))
        return msgspec.structs.replace(manifest, segments=(*kept, new))

    return change


def named_twice(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, segments=(*manifest.segments, manifest.segments[-1]))


NAME = "steps-00000-0123456789abcdef.parquet"
HOSTILE = {
    "out of the folder": hostile(f"../../secret/{NAME}"),
    "out by way of the folder": hostile(f"segments/../../../secret/{NAME}"),
    "from the root": hostile(f"/etc/{NAME}"),
    "of Windows": hostile(f"segments\\..\\..\\{NAME}"),
    "over the network": hostile(f"https://example.org/{NAME}"),
    "with a pattern": hostile("segments/steps-*.parquet"),
    "of another table": hostile("segments/calls-00000-0123456789abcdef.parquet"),
    "of another segment": hostile("segments/steps-00001-0123456789abcdef.parquet"),
    "of no table": hostile("segments/passwd-00000-0123456789abcdef.parquet", table="passwd"),
    "with a line break": hostile(f"segments/{NAME}\n"),
    "named twice": named_twice,
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_name_in_a_manifest_leads_out_of_the_warehouse(
    template: Study, tmp_path: Path, change: Callable[[Manifest], Manifest]
) -> None:
    study = template.copy(tmp_path / "study")
    secret = tmp_path / "secret" / NAME
    secret.parent.mkdir()
    shutil.copy(study.warehouse / read_manifest(study.warehouse).files("steps")[0], secret)
    write_manifest(study.warehouse, change(read_manifest(study.warehouse)))
    said = complaint(study.path)
    assert re.search(r"manifest\.json is damaged \(.* (is no file of|is named twice)", said)
    assert "sag rebuild" in said
    rebuilt(study)
    assert_whole(study)
    assert secret.exists()


# ---- warehouses too large to be read through when they are opened


@pytest.mark.parametrize("times", ONCE_AND_OFTEN)
def test_in_a_large_warehouse_flipped_bits_are_found_by_verify_and_by_the_next_sync(
    template: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(_intact, "LOOKED_AT_BYTES", 0)
    for random in seeds(times):
        study = template.copy(tmp_path / f"{random.random()}")
        open_ = [s for s in read_manifest(study.warehouse).segments if not s.sealed]
        file = study.warehouse / random.choice([s for s in open_ if s.table == "steps"]).file
        data = bytearray(file.read_bytes())
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        file.write_bytes(data)
        with sag.open(study.path) as ws:
            (problem,) = ws.verify().problems
            assert (problem.run, problem.position) == ("(warehouse)", 0)
            assert f"{file.name}: its bytes have changed; run `sag rebuild`" in problem.problem
            with pytest.raises(WarehouseError, match=r"bytes have changed.*sag rebuild"):
                ws.sync()
        rebuilt(study)
        assert_whole(study)


@pytest.mark.parametrize("harm", [flip_bits, truncate, zero_a_page, swap_two])
def test_a_file_that_breaks_while_it_is_used_is_told_from_a_wrong_query(
    template: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Harm
) -> None:
    """DuckDB's words for a damaged file and for a wrong cast are of the same kinds."""
    monkeypatch.setattr(_intact, "LOOKED_AT_BYTES", 0)
    for number in range(2):
        study = template.copy(tmp_path / f"{number}")
        with sag.open(study.path) as ws:
            with pytest.raises(sag.errors.QueryError):
                ws.sql("SELECT decode('\\xFF'::BLOB) FROM steps")
            harm(study.warehouse, Random(number))
            query = "SELECT md5(string_agg(s::VARCHAR, '' ORDER BY seq)) FROM steps s"
            said = words_of(lambda ws=ws, query=query: ws.sql(query))
            assert "sag rebuild" in said or not said
            ws.rebuild()
        assert_whole(study)


def test_the_command_line_says_it_in_one_line(template: Study, tmp_path: Path) -> None:
    study = template.copy(tmp_path / "study")
    truncate(study.warehouse, Random(4))

    def sag_(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sag_research.cli", *words, "-w", str(study.path)]
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=120, check=False
        )

    refused = sag_("runs")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.endswith("run `sag rebuild`\n")


def test_a_rebuild_that_may_not_run_now_says_who_is_at_it(template: Study, tmp_path: Path) -> None:
    study = template.copy(tmp_path / "study")
    code = (
        "import sys, pathlib; from sag_research.warehouse._sync import _lock\n"
        "with _lock(pathlib.Path(sys.argv[1])) as mine: print(mine, flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(study.warehouse)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        with sag.open(study.path) as ws:
            with pytest.raises(UsageError, match="is syncing this warehouse") as refused:
                ws.rebuild()
            if sys.platform == "linux":
                assert f"process {process.pid} (" in one_line(refused.value)
            assert not ws.sync().done
            assert ws.sql("FROM runs ORDER BY seq").rows()
        process.kill()
    assert_whole(study)  # the lock died with its holder


def test_the_truth_used_here_is_not_the_thing_tested(template: Study) -> None:
    with sag.open(template.path) as ws:
        assert projected(ws.store) == template.answers
        assert ws.sql("SELECT count(*) FROM events").rows() == [(len(template.said),)]
    assert len({s.k for s in read_manifest(template.warehouse).segments}) > 2
