from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.errors import UsageError
from sag_research.extract import Vocabulary
from sag_research.warehouse.corpus import Codes, chained


def test_a_code_is_the_same_in_another_process():
    names = ["edit|src|ok", "look|test|error", "none|none|none"]
    line = f"from sag_research.warehouse.corpus import Codes; print(*Codes().of({names!r}))"
    done = subprocess.run(
        [sys.executable, "-c", line], check=True, capture_output=True, encoding="utf-8"
    )
    assert [int(code) for code in done.stdout.split()] == Codes().of(names).tolist()


def test_all_tokens_of_the_vocabulary_have_one():
    codes = Codes()
    alphabet = Vocabulary().alphabet
    assert len(codes.names) == np.prod([len(one) for one in alphabet.values()])
    assert len(set(codes.names)) == len(codes.names)
    assert codes.table().column("name").to_pylist() == list(codes.names)


def test_further_tokens_stand_behind_the_vocabularys():
    codes, known = Codes(more=["dig|hole|deep", "edit|src|ok"]), Codes()
    assert codes.names == (*known.names, "dig|hole|deep")
    assert codes.table().slice(len(known.names)).to_pylist() == [
        {
            "token": len(known.names),
            "name": "dig|hole|deep",
            "verb": "dig",
            "object": "hole",
            "result": "deep",
        }
    ]


def test_what_is_no_token_has_no_code():
    with pytest.raises(UsageError, match="is no token"):
        Codes().of(["edit|src|ok", "edit"])


def test_a_function_has_no_codes():
    with pytest.raises(UsageError, match="no codes"):
        Codes(Vocabulary(function=lambda step: step["action"]))


def test_steps_get_the_codes_of_their_tokens():
    steps = pa.table({"action": ["ls", "cat a.py"], "observation": ["a.py", "x = 1"]})
    vocabulary = Vocabulary()
    names = [vocabulary.token(one) for one in steps.to_pylist()]
    assert Codes().of_steps(steps).tolist() == Codes().of(names).tolist()
    assert Codes().of_steps(steps.slice(0, 0)).tolist() == []


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=8))
def test_prefixes_are_equal_where_their_tokens_are(runs):
    tokens = np.array([token for run in runs for token in run])
    first = np.cumsum([0, *map(len, runs[:-1])])
    hashes = chained(tokens, first).tolist()
    prefixes = [tuple(run[: end + 1]) for run in runs for end in range(len(run))]
    meant: dict[int, set[tuple[int, ...]]] = {}
    for one, prefix in zip(hashes, prefixes, strict=True):
        meant.setdefault(one, set()).add(prefix)
    assert all(len(one) == 1 for one in meant.values())
    assert len(meant) == len(set(prefixes))


def test_no_steps_no_prefixes():
    assert chained(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).tolist() == []
