"""The canonical form: what it keeps, what it refuses and how it names the place."""

from __future__ import annotations

import enum
import json
import random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import BadPayloadError
from sag_research.log import _canonical as canonical
from tests.log.strategies import keys, payloads, threshold_texts


class Text(str):
    __slots__ = ()


class Word(enum.StrEnum):
    A = "a"


def decoded(payload: Any) -> dict[str, Any]:
    body, blobs = canonical.encode(payload)
    return canonical.decode(body, blobs.__getitem__)


def exact(value: Any) -> str:
    """A text in which 1, 1.0 and True, or 0.0 and -0.0, are different things."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{exact(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(exact, value)) + "]"
    return f"{type(value).__name__} {value!r}"


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, order)) for key, item in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


@given(payloads)
def test_what_is_encoded_comes_back_exactly(payload: dict[str, Any]) -> None:
    assert exact(decoded(payload)) == exact(payload)


@given(payloads)
def test_the_body_is_json_and_holds_no_long_text(payload: dict[str, Any]) -> None:
    body, blobs = canonical.encode(payload)
    longest = [0]

    def look(value: Any) -> None:
        if isinstance(value, str):
            longest.append(len(value.encode()))
        elif isinstance(value, dict):
            for item in value.values():
                look(item)
        elif isinstance(value, list):
            for item in value:
                look(item)

    look(json.loads(body))
    assert max(longest) < canonical.BLOB_BYTES
    assert canonical.marked([body]) == set(blobs)
    assert all(canonical.blob_digest(data) == digest for digest, data in blobs.items())
    assert all(len(data) >= canonical.BLOB_BYTES for data in blobs.values())


@given(payloads, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(payload: dict[str, Any], order: random.Random) -> None:
    assert canonical.encode(shuffled(payload, order)) == canonical.encode(payload)


@given(threshold_texts)
def test_texts_of_512_bytes_and_more_stand_beside(text: str) -> None:
    body, blobs = canonical.encode({"t": text})
    assert list(blobs.values()) == ([text.encode()] if len(text.encode()) >= 512 else [])
    assert canonical.decode(body, blobs.__getitem__) == {"t": text}


def test_equal_long_texts_are_one_blob() -> None:
    text = "x" * 512
    body, blobs = canonical.encode({"a": text, "b": [text, {"c": text}]})
    assert list(blobs.values()) == [text.encode()]
    assert body.count(canonical.blob_digest(text.encode()).hex().encode()) == 3
    assert canonical.marked([body, b"{}", body]) == set(blobs)


def test_any_mapping_and_tuple_is_accepted() -> None:
    payload = MappingProxyType({"a": (1, MappingProxyType({"b": ()}))})
    assert decoded(payload) == {"a": [1, {"b": []}]}


def test_the_deepest_and_the_longest_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "MAX_TEXT_BYTES", 1_000)
    assert decoded({"a": "é" * 500}) == {"a": "é" * 500}
    deep: Any = 1
    for _ in range(canonical.MAX_DEPTH - 1):
        deep = [deep]
    assert decoded({"a": deep}) == {"a": deep}
    assert decoded({"n": 10**4300 - 1}) == {"n": 10**4300 - 1}


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


cyclic: dict[str, Any] = {}
cyclic["me"] = cyclic


@pytest.mark.parametrize(
    ("payload", "path", "why"),
    [
        ({"a": [1, {"b": float("nan")}]}, "$.a[1].b", "nan"),
        ({"a": float("inf")}, "$.a", "inf"),
        ({"a": (0, float("-inf"))}, "$.a[1]", "-inf"),
        ({"a": "half \ud835"}, "$.a", "surrogate at character 5"),
        ({"a": ["x" * 600 + "\udc80"]}, "$.a[0]", "surrogate at character 600"),
        ({"a": {"\ud800": 1}}, "$.a", "key"),
        ({"a": {"\x00": "ab" * 32}}, "$.a", "key"),
        ({"a": {"b\x00": 1}}, "$.a", "key"),
        ({"a": {1: 1}}, "$.a", "key 1"),
        ({"a": {None: 1}}, "$.a", "key None"),
        ({Text("a"): 1}, "$", "key"),
        ({"a": b"bytes"}, "$.a", "bytes"),
        ({"a": [{1}]}, "$.a[0]", "set"),
        ({"a": object()}, "$.a", "object"),
        ({"a": 1j}, "$.a", "complex"),
        ({"a": Text("x")}, "$.a", "Text"),
        ({"a": Word.A}, "$.a", "Word"),
        ({"a": 10**4300}, "$.a", "digits"),
        ({"a": [-(10**5000)]}, "$.a[0]", "digits"),
        ({"a": nested(99)}, "$.a" + "[0]" * 99, "deeper"),
        (cyclic, "$" + ".me" * 100, "deeper"),
        ([1], "$", "list"),
        ("text", "$", "str"),
        (None, "$", "NoneType"),
        # The first of several, after values that are fine.
        ({"a": "x" * 600, "b": {"c": True, "d": [None, set(), b""]}}, "$.b.d[1]", "set"),
    ],
)
def test_a_refusal_names_the_path(payload: Any, path: str, why: str) -> None:
    with pytest.raises(BadPayloadError) as caught:
        canonical.encode(payload)
    assert caught.value.path == path
    assert why in caught.value.why
    assert path in str(caught.value)


def test_a_text_can_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "MAX_TEXT_BYTES", 1_000)
    with pytest.raises(BadPayloadError, match=r"\$\.a\[1\] \(text of 1002 bytes, .* is 1000"):
        canonical.encode({"a": ["x" * 1_000, "é" * 501]})


@given(keys, keys)
def test_the_digest_depends_on_where_names_end(first: str, second: str) -> None:
    """Type and actor cannot be shifted into each other."""
    chain = canonical.chain(canonical.GENESIS, first + "x", second, None, b"")
    assert chain != canonical.chain(canonical.GENESIS, first, "x" + second, None, b"")


def test_the_form_and_its_digests_stay_what_they_are() -> None:
    """Digests are cited in papers: a change here breaks every log that was ever written."""
    body, blobs = canonical.encode({"b": [1, 2.5, None, True], "a": "é", "t": "x" * 512})
    [digest] = blobs
    assert body == (
        b'{"a":"\xc3\xa9","b":[1,2.5,null,true],"t":{"\\u0000":"' + digest.hex().encode() + b'"}}'
    )
    event = canonical.chain(
        canonical.GENESIS, "note.taken", "agent", 1, canonical.body_digest(body)
    )
    sealed = canonical.seal(canonical.GENESIS, event, (1, None, 0.5, "f"))
    assert canonical.GENESIS.hex() == GOLDEN["genesis"]
    assert digest.hex() == GOLDEN["blob"]
    assert event.hex() == GOLDEN["event"]
    assert sealed.hex() == GOLDEN["seal"]


GOLDEN = {
    "genesis": "57abc27b2fcf287f811b501f9cecd0080395f61d798a48efc7296057d13997cb",
    "blob": "7ca37375f168964e0319ef8478b444475ea543ce287d45bb73efa6da3f83713a",
    "event": "97de28c6938b414d2a91ad081bdcd77c79d98a5951b7d471762f9ee1fa61173d",
    "seal": "7652bbac358b61bc1dbc9ee9d35565dc9a7b8431fc70761d777f5d2d3794d579",
}
