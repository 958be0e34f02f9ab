"""Overlaps are settled as the slow definition says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sag_research.extract._resolve import resolve


class Match(NamedTuple):
    text: int
    start: int
    length: int
    priority: int
    mask: bool
    immune: bool

    def touches(self, other: Match) -> bool:
        apart = self.start + self.length <= other.start or other.start + other.length <= self.start
        return self.text == other.text and not apart


def by_definition(matches: list[Match]) -> list[int]:
    masks = [match for match in matches if match.mask]
    ranked = sorted(
        range(len(matches)),
        key=lambda i: (-matches[i].priority, -matches[i].length, matches[i].start, i),
    )
    chosen: list[int] = []
    for i in ranked:
        match = matches[i]
        hidden = match.mask or (not match.immune and any(match.touches(m) for m in masks))
        if not hidden and not any(match.touches(matches[j]) for j in chosen):
            chosen.append(i)
    return sorted(chosen, key=lambda i: (matches[i].text, matches[i].start))


matches = st.builds(
    Match, st.integers(0, 2), st.integers(0, 12), st.integers(1, 5), st.integers(0, 3),
    st.integers(0, 5).map(lambda n: n == 0), st.booleans(),
)  # fmt: skip


@given(st.lists(matches, max_size=14))
def test_resolve_keeps_its_definition(found: list[Match]) -> None:
    columns = np.array([match[:4] for match in found], dtype=np.int64).reshape(-1, 4)
    kept = resolve(
        columns[:, 0], columns[:, 1], columns[:, 1] + columns[:, 2], columns[:, 3],
        np.array([match.mask for match in found], bool),
        np.array([match.immune for match in found], bool),
    )  # fmt: skip
    assert kept.tolist() == by_definition(found)
