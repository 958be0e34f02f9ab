import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import FormatError
from sag_research.ingest._clean import clean
from sag_research.ingest._json import decode, loads, outline


class Thing(msgspec.Struct):
    text: object = None
    items: list[int] | None = None


THING = msgspec.json.Decoder(Thing)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"text": "plain", "unread": [1, {"a": 2}]}', "plain"),
        (b'\xef\xbb\xbf{"text": "after a mark"}', "after a mark"),
        (b'{"text": "half \\ud835 char"}', "half \ud835 char"),
        (b'{"text": "ok \xff\xfe\\u0000"}', "ok \udcff\udcfe\x00"),
        (b'{"text": "x", "unread": NaN}', "x"),
        (b'{"text": "raw \x1b escape"}', "raw \x1b escape"),
        (b'{"text": "first", "text": "last"}', "last"),
        (b'{"text": "x", "unread": ' + b"9" * 5_000 + b"}", "x"),
        (b'{"text": "x", "unread": 1e999}', "x"),
    ],
)
def test_text_is_read_whatever_stands_around_it(data, text):
    assert decode(data, THING).text == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"text": "cut', "cut short"),
        (b'{"text": [1, 2', "cut short"),
        (b'{"text": 1} tail', "not valid JSON"),
        (b"\x00\x01", "not valid JSON"),
        (b"", "empty"),
        (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"items": [1, "x"]}', r"another shape .*\$\.items\[1\]"),
    ],
)
def test_what_cannot_be_read_says_why(data, reason):
    with pytest.raises(FormatError, match=reason):
        decode(data, THING)


def json_values():
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
    )


@given(st.dictionaries(st.text(), json_values()), st.integers(0, 400))
def test_an_outline_never_claims_a_key_that_is_not_there(value, cut):
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    whole, part = outline(data), outline(data[:cut])
    assert set(whole.keys) == {
        key.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        for key in map(_escaped, value)
    }
    assert whole.complete
    assert not whole.more
    assert set(part.keys) <= set(whole.keys)


def _escaped(key):
    return json.dumps(key, ensure_ascii=False)[1:-1]


def test_an_outline_looks_two_levels_deep():
    seen = outline(b'[{"a": [{"b": {"c": 1}}, {"d": 2}], "e": "{\\"f\\": 1}"}, {"g": 1}]')
    assert {key: set(below) for key, below in seen.keys.items()} == {"a": {"b"}, "e": set()}


def test_an_outline_sees_that_lines_follow():
    assert outline(b'{"a": 1}\n{"b": 2}').more
    assert not outline(b'{"a": 1}\n').more


@given(json_values())
def test_clean_values_are_fit_for_the_log(value):
    cleaned = clean(value, "x", spoilt := {})
    encoded = msgspec.json.encode(cleaned)
    assert loads(encoded) == cleaned
    assert bool(spoilt) == (cleaned != value)


def test_repair_keeps_what_was_there():
    value = {"a": ["fine", "half \ud835", {"n": float("inf"), "big": 2**70}]}
    cleaned = clean(value, "state", spoilt := {})
    assert cleaned == {"a": ["fine", "half \ufffd", {"n": "inf", "big": str(2**70)}]}
    assert spoilt == {
        "state.a[1]": "half \ud835",
        "state.a[2].n": "inf",
        "state.a[2].big": str(2**70),
    }


def test_depth_is_bounded():
    value: object = "deep"
    for _ in range(900):
        value = [value]
    spoilt: dict[str, str] = {}
    assert "nested too deeply" in str(clean(value, "x", spoilt))
    ((path, original),) = spoilt.items()
    assert path == "x" + "[0]" * 60
    assert original == "[" * 840 + '"deep"' + "]" * 840


def test_what_is_cut_off_is_kept_as_json():
    deep: object = {"a": [1, True, None, 1.5, "half \ud835", {}], "b": [], "c": {"d": 2**70}}
    value = deep
    for _ in range(60):
        value = [value]
    spoilt: dict[str, str] = {}
    clean(value, "x", spoilt)
    (original,) = spoilt.values()
    assert json.loads(original) == deep
    assert original == json.dumps(deep, ensure_ascii=False)
