from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sag_research.deadend._index import PrefixIndex, Support, open_arrays, save_arrays
from sag_research.errors import FormatError, UsageError

# few symbols, many lengths: shared prefixes, runs that are prefixes of others, runs without steps
RUNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2) | st.just(300), max_size=12),
        st.sampled_from([0.0, 1.0, float("nan")]),
    ),
    max_size=25,
)
# runs that share more tokens than are sorted at a time, then part
STEM = st.tuples(
    st.sampled_from([0, 15, 31, 32, 62, 63, 64]), st.lists(st.integers(0, 2), max_size=6)
).map(lambda parts: [1] * parts[0] + parts[1])
LONG = st.lists(st.tuples(STEM, st.sampled_from([0.0, 1.0, float("nan")])), max_size=25)
Labelled = list[tuple[list[int], float]]


def built(runs: Labelled) -> tuple[PrefixIndex, np.ndarray, np.ndarray, np.ndarray]:
    length = np.array([len(codes) for codes, _ in runs], dtype=np.int64)
    codes = np.array([code for codes, _ in runs for code in codes], dtype=np.int32)
    stop = np.cumsum(length)
    failed = np.array([failed for _, failed in runs], dtype=np.float64)
    return PrefixIndex.build(codes, stop - length, stop, failed), codes, stop - length, length


def begins(runs: Labelled, prefix: list[int]) -> list[int]:
    """Runs of known outcome that begin with a prefix."""
    return [
        place
        for place, (codes, failed) in enumerate(runs)
        if codes[: len(prefix)] == prefix and not np.isnan(failed)
    ]


def by_hand(runs: Labelled, prefix: list[int]) -> Support:
    found = begins(runs, prefix)
    return Support(len(found), sum(int(runs[place][1]) for place in found))


@given(RUNS | LONG)
def test_every_prefix_is_counted_as_by_hand(runs: Labelled) -> None:
    index, codes, start, length = built(runs)
    n, failed = index.narrow_all(codes, start, length)
    at = 0
    for run, _ in runs:
        cursor = index.begin()
        for depth in range(1, len(run) + 1):
            expected = by_hand(runs, run[:depth])
            assert cursor.narrow(run[depth - 1]) == expected
            assert (n[at], failed[at]) == expected
            at += 1
        assert cursor.depth == len(run)


@given(RUNS | LONG, st.lists(st.integers(-1, 3) | st.sampled_from([300, 301, 70_000]), max_size=6))
def test_any_other_prefix_too(runs: Labelled, prefix: list[int]) -> None:
    index, *_ = built(runs)
    assert index.count(prefix) == by_hand(runs, prefix)
    assert sorted(index.members(prefix).tolist()) == begins(runs, prefix)


@given(RUNS | LONG)
def test_rows_are_sorted_and_none_is_lost(runs: Labelled) -> None:
    index, *_ = built(runs)
    rows = [index.row(place) for place in range(len(index))]
    assert rows == sorted(codes for codes, failed in runs if not np.isnan(failed))
    assert [runs[run][0] for run in index.run.tolist()] == rows


@given(RUNS | LONG, st.integers(1, 3))
def test_list_of_distinct_prefixes(runs: Labelled, min_runs: int) -> None:
    index, *_ = built(runs)
    known = [codes for codes, failed in runs if not np.isnan(failed)]
    expected = {
        tuple(codes[:depth]): by_hand(runs, codes[:depth])
        for codes in known
        for depth in range(1, len(codes) + 1)
    }
    table = index.prefixes(min_runs)
    found = {
        tuple(index.row(row["first"], row["depth"])): (row["n"], row["failed"])
        for row in table.to_dict("records")
    }
    assert len(found) == len(table)
    assert found == {prefix: s for prefix, s in expected.items() if s.n >= min_runs}


@pytest.mark.parametrize("seed", range(20))
def test_groups_of_alike_runs_are_sorted_to_their_last_member(seed: int) -> None:
    random = np.random.default_rng(seed)
    stems = random.integers(0, 3, (4, 100)).tolist()
    runs: Labelled = []
    for _ in range(60):
        shared = stems[random.integers(4)][: random.integers(100)]
        runs.append((shared + random.integers(0, 3, random.integers(8)).tolist(), 0.0))
    index, *_ = built(runs)
    assert [index.row(place) for place in range(60)] == sorted(codes for codes, _ in runs)


def test_order_matters() -> None:
    index, *_ = built([([1, 2], 1.0), ([2, 1], 0.0)])
    assert index.count([1, 2]) == (1, 1)
    assert index.count([2, 1]) == (1, 0)


def test_a_run_is_counted_once_for_each_of_its_prefixes() -> None:
    index, *_ = built([([7] * 50, 1.0)])
    assert {index.count([7] * depth) for depth in range(1, 51)} == {(1, 1)}
    assert index.count([7] * 51) == (0, 0)


@pytest.mark.parametrize("mmap", [True, False])
def test_saved_and_opened(tmp_path: Path, mmap: bool) -> None:
    runs = [([1, 2, 300], 1.0), ([1], 0.0), ([], 1.0), ([2, 2], 0.0)]
    index, codes, start, length = built(runs)
    index.save(tmp_path / "i.npz")
    again = PrefixIndex.open(tmp_path / "i.npz", mmap=mmap)
    assert isinstance(again.tokens, np.memmap) == mmap
    assert again.count([1]) == index.count([1]) == (2, 1)
    for one, other in zip(index.narrow_all(codes, start, length),
                          again.narrow_all(codes, start, length), strict=True):  # fmt: skip
        assert np.array_equal(one, other)


def test_mapped_arrays_are_what_numpy_reads(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(7, dtype=np.int16),
        "empty": np.zeros((0, 3)),
        "grid": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "one": np.array(5),
    }
    save_arrays(tmp_path / "x.npz", arrays, {"kind": "x"})
    found, meta = open_arrays(tmp_path / "x.npz")
    assert meta == {"kind": "x"}
    with np.load(tmp_path / "x.npz", allow_pickle=False) as theirs:
        for name, array in arrays.items():
            assert np.array_equal(found[name], array)
            assert np.array_equal(theirs[name], array)
            assert found[name].dtype == array.dtype


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not end in \.npz"):
        save_arrays(tmp_path / "x.zip", {}, {})
    save_arrays(tmp_path / "x.npz", {"a": np.arange(3)}, {"kind": "other", "version": 1})
    with pytest.raises(FormatError, match="no prefix index"):
        PrefixIndex.open(tmp_path / "x.npz")
    (tmp_path / "x.json").write_text(json.dumps({}), encoding="utf-8")
    (tmp_path / "x.npz").write_bytes(b"PK not a zip")
    with pytest.raises(FormatError, match="cannot be read"):
        PrefixIndex.open(tmp_path / "x.npz")


def test_objects_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FormatError, match="cannot be read"):
        open_arrays(tmp_path / "x.npz")


def test_more_runs_than_are_copied_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Labelled = [([n % 7, n % 3, n % 5][: n % 4], float(n % 2)) for n in range(50)]
    whole, *_ = built(runs)
    monkeypatch.setattr("sag_research.deadend._index.CHUNK_RUNS", 8)
    parts, *_ = built(runs)
    assert np.array_equal(parts.tokens, whole.tokens)
    assert [parts.row(n) for n in range(50)] == sorted(codes for codes, _ in runs)
