import os
from pathlib import Path

import pytest

from sag_research.errors import UsageError
from sag_research.ingest._walk import find
from tests.ingest.make import write


def names(*paths, own=None):
    return [found.name for found in find(paths, own)]


def test_order_is_fixed_and_hidden_names_are_left_out(tmp_path):
    for name in ("b/x.traj", "a.traj", "B.traj", ".hidden", ".git/config", "b/.x"):
        write(tmp_path / name, b"x")
    assert names(tmp_path) == ["B.traj", "a.traj", "b/x.traj"]


def test_loops_of_links_end(tmp_path):
    write(tmp_path / "a/x.traj", b"x")
    (tmp_path / "a/loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "broken.traj").symlink_to(tmp_path / "nowhere")
    found = list(find([tmp_path]))
    assert [one.name for one in found] == ["a/x.traj", "broken.traj", "self"]
    assert [bool(one.problem) for one in found] == [False, True, True]


def test_a_linked_folder_is_walked_once(tmp_path):
    write(tmp_path / "data/x.traj", b"x")
    (tmp_path / "all").mkdir()
    for link in ("one", "two"):
        (tmp_path / "all" / link).symlink_to(tmp_path / "data")
    assert names(tmp_path / "all") == ["one/x.traj"]


def test_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.traj")
    (found,) = find([tmp_path])
    assert found.problem == "not a regular file"


def test_a_file_named_twice_is_one_file(tmp_path):
    path = write(tmp_path / "a/x.traj", b"x")
    assert names(tmp_path, path, tmp_path / "a" / ".." / "a") == ["a/x.traj"]
    (found,) = find([path])
    assert (found.name, found.root, found.named) == ("x.traj", tmp_path / "a", True)


def test_workspaces_are_no_input(tmp_path):
    own = write(tmp_path / "log.sqlite", b"x")
    for name in (
        "log.sqlite-wal",
        "warehouse/steps.parquet",
        "x.traj",
        "study/log.sqlite",
        "study/warehouse/y",
    ):
        write(tmp_path / name, b"x")
    assert names(tmp_path, own=own) == ["x.traj"]


def test_a_path_that_is_not_there_is_an_error_before_anything_is_found(tmp_path):
    with pytest.raises(UsageError, match="no such file or folder"):
        find([tmp_path, tmp_path / "gone"])


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_what_the_system_makes_is_not_opened(tmp_path):
    write(tmp_path / "in/x.traj", b"x")
    for name, target in {
        "kernel.traj": "/proc/kmsg",
        "zero.traj": "/dev/zero",
        "folder": "/proc/self",
        "sys": "/sys",
    }.items():
        (tmp_path / "in" / name).symlink_to(target)
    (tmp_path / "by").symlink_to(tmp_path / "in/kernel.traj")
    own = "the system's own, no file of yours: in /proc, /sys, /dev"
    found = {one.name: one.problem for one in find([tmp_path / "in", tmp_path / "by"])}
    assert found == {
        "folder": own,
        "kernel.traj": own,
        "sys": own,
        "x.traj": "",
        "zero.traj": "not a regular file",
        "by": own,
    }
    assert [one.problem for one in find(["/proc/self/status", "/proc/self"])] == [own, own]


def test_another_workspace_is_no_input(tmp_path):
    own = write(tmp_path / "log.sqlite", b"x")
    (tmp_path / "warehouse").mkdir()
    assert names(tmp_path, own=own) == []
    for other in (None, write(tmp_path / "other/log.sqlite", b"x"), tmp_path / "gone.sqlite"):
        with pytest.raises(UsageError, match="is a workspace"):
            find([tmp_path], other)
