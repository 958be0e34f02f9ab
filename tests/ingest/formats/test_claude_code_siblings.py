"""Sessions that begin with the history of another file of their folder."""

import os

import pytest

from sag_research.ingest.formats._claude_siblings import copied_replies
from tests.ingest.formats.claude_make import lines, reply, simple, user
from tests.ingest.make import write

KEYS = {("m1", "req-m1"), ("m2", "req-m2")}


def longer():
    return [*simple(), user("v", "a2", "Go on.", 20), reply("b", "v", "Yes.", "m3", 21)]


def test_the_later_file_has_the_copies(tmp_path):
    first = write(tmp_path / "b.jsonl", lines(*simple()))
    later = write(tmp_path / "a.jsonl", lines(*longer()))
    write(tmp_path / "c.jsonl", lines(user("u", None, "Other."), reply("x", "u", "X.", "m2")))
    assert copied_replies(later) == KEYS
    assert copied_replies(first) == frozenset()


@pytest.mark.parametrize("extra", [[], [user("v", "a2", "No answer.", 30)]])
def test_a_file_without_a_reply_of_its_own_has_no_copies(tmp_path, extra):
    one = write(tmp_path / "a.jsonl", lines(*simple()))
    other = write(tmp_path / "b.jsonl", lines(*simple(), *extra))
    assert copied_replies(one) == copied_replies(other) == frozenset()


def test_files_that_differ_or_are_strange(tmp_path):
    path = write(tmp_path / "a.jsonl", lines(*longer()))
    write(tmp_path / "b.jsonl", b"")
    write(tmp_path / "c.jsonl", b"\xff\n[1]\n{\n")
    write(tmp_path / "d.jsonl", b'{"type": "assistant", "message": "x"}\n{"type": []}\n')
    (tmp_path / "e.jsonl").mkdir()
    os.mkfifo(tmp_path / "f.jsonl")
    (tmp_path / "g.jsonl").symlink_to(tmp_path / "nowhere")
    assert copied_replies(path) == frozenset()
    assert copied_replies(tmp_path / "nowhere.jsonl") == frozenset()
    assert copied_replies(tmp_path / "no-folder" / "x.jsonl") == frozenset()


def test_a_file_that_has_grown_is_read_again(tmp_path):
    write(tmp_path / "b.jsonl", lines(*simple()))
    later = write(tmp_path / "a.jsonl", lines(*simple()[:2], user("z", "a1", "?", 40)))
    assert copied_replies(later) == frozenset()
    write(later, lines(*longer()))
    assert copied_replies(later) == KEYS
