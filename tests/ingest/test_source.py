import gzip
import hashlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest import Source, _source

DATA = b'{"a": 1}\n' * 50_000


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKED = {
    "plain": DATA,
    "gzip": gzip.compress(DATA),
    "two gzip members": gzip.compress(DATA[:9]) + gzip.compress(DATA[9:]),
    "zstd": zstd(DATA),
    "two zstd frames": zstd(DATA[:9]) + zstd(DATA[9:]),
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("kept", [True, False])
def test_content_is_the_same_however_it_is_packed(tmp_path, monkeypatch, kind, kept):
    if not kept:
        monkeypatch.setattr(_source, "_KEEP", 1_000)
    path = tmp_path / "any.name"
    path.write_bytes(PACKED[kind])
    source = Source(path)
    assert source.head == DATA[: _source.HEAD_BYTES]
    assert source.bytes() == DATA
    assert list(source.lines()) == DATA.splitlines()
    assert (source.digest, source.size) == (hashlib.sha256(DATA).hexdigest(), len(DATA))
    assert source.source_id == source.digest[:16]


def test_the_head_of_a_large_file_is_read_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "_EAGER", 10)
    path = tmp_path / "x"
    path.write_bytes(DATA)
    source = Source(path)
    assert source.head == DATA[: _source.HEAD_BYTES]
    assert not source.is_read


@pytest.mark.parametrize("kind", ["gzip", "zstd", "two gzip members", "two zstd frames"])
def test_a_cut_file_is_refused_and_not_read_as_far_as_it_goes(tmp_path, kind):
    path = tmp_path / "x"
    path.write_bytes(PACKED[kind][:-5])
    with pytest.raises(FormatError, match="cut short"):
        Source(path).bytes()


def test_damaged_data_is_refused(tmp_path):
    for packed in (PACKED["gzip"], PACKED["zstd"]):
        path = tmp_path / "x"
        path.write_bytes(packed[:30] + bytes([packed[30] ^ 0xFF]) + packed[31:])
        with pytest.raises(FormatError, match=r"damaged|cut short"):
            Source(path).bytes()


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "_LIMIT", 100_000)
    path = tmp_path / "x"
    path.write_bytes(PACKED["gzip"])
    with pytest.raises(FormatError, match="expands to more"):
        Source(path).bytes()


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "_KEEP", 10)
    path = tmp_path / "x"
    path.write_bytes(DATA)
    source = Source(path)
    assert source.digest
    path.write_bytes(DATA + b"more")
    with pytest.raises(FormatError, match="changed"):
        list(source.lines())


@given(st.binary(max_size=200), st.integers(1, 20))
def test_lines_do_not_depend_on_chunks(tmp_path_factory, data, chunk):
    path = tmp_path_factory.mktemp("lines") / "x"
    path.write_bytes(b"\x00" + data)  # no magic
    source = Source(path)
    expected = (b"\x00" + data).split(b"\n")
    expected = expected[:-1] if not expected[-1] else expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_source, "_CHUNK", chunk)
        patch.setattr(_source, "_KEEP", 0)
        assert list(source.lines()) == expected


def test_a_long_line_is_put_together_in_one_go(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "_CHUNK", 4)
    monkeypatch.setattr(_source, "_KEEP", 0)
    path = tmp_path / "x"
    path.write_bytes(b"aaaaaaaaaaaaaaaaaaaaaa\n\nb\nc\nddddddddd")
    assert list(Source(path).lines()) == [b"a" * 22, b"", b"b", b"c", b"d" * 9]


def test_a_value_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "_VALUE", len(DATA) - 1)
    path = tmp_path / "x"
    path.write_bytes(DATA)
    with pytest.raises(FormatError, match=r"^one value of 450000 bytes \(the limit is 449999\)"):
        Source(path).bytes()
    assert len(list(Source(path).lines())) == 50_000


def test_what_was_refused_is_not_unpacked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "_LINE", 1_000)
    path = tmp_path / "x"
    path.write_bytes(b"a" * 5_000)
    source = Source(path)
    with pytest.raises(FormatError, match="a line of more than 1000 bytes"):
        source.bytes()
    path.write_bytes(b"a")
    with pytest.raises(FormatError, match="a line of more than 1000 bytes"):
        list(source.lines())


def test_lines_are_measured_each(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "_LINE", 1_000)
    monkeypatch.setattr(_source, "_CHUNK", 7)
    path = tmp_path / "x"
    path.write_bytes((b"a" * 999 + b"\n") * 5)
    assert Source(path).size == 5_000
