"""The beginnings that runs share, counted: what every picture of a prefix tree draws."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research.errors import NotEnoughDataError, UsageError

if TYPE_CHECKING:
    from sag_research.deadend import Prefixes

__all__ = ["EXAMPLES", "Branch", "Counts", "Flow", "PrefixTree", "Spot", "Stop"]

Ints = NDArray[np.int64]

EXAMPLES: Final = 6
"""Runs named with a node: failed and successful ones first, half and half."""
OTHER: Final = -1


class Counts(NamedTuple):
    """Runs by outcome; ``n = failed + succeeded + unknown``."""

    n: int = 0
    failed: int = 0
    succeeded: int = 0
    unknown: int = 0

    def less(self, other: Counts) -> Counts:
        """Return what is left when others are taken away."""
        return Counts(*(a - b for a, b in zip(self, other, strict=True)))

    def plus(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class Spot(NamedTuple):
    """A prefix: the runs ``low … high - 1`` of the sorted order, and its number of tokens."""

    low: int
    high: int
    depth: int


class Branch(NamedTuple):
    """A node of the tree that is drawn; ``n`` = children + ended + cut."""

    spot: Spot
    parent: int
    """Index of the parent in the list; -1 for the first."""
    token: int
    """Code of the last token; -1 for the root of all."""
    counts: Counts
    ended: Counts
    """Runs that have no further step."""
    cut_tokens: int
    """Number of continuations that are not in the list."""
    cut: Counts
    """Their runs."""
    parted: int
    """Failed runs that leave, with the next step, every successful run of their task."""
    examples: tuple[int, ...]
    """Runs, as indices into the cohort."""


class Stop(NamedTuple):
    """All runs that show a token at a step; ``n`` = outgoing flows + ended."""

    step: int
    token: int
    """-1: all rarer tokens together."""
    tokens: int
    counts: Counts
    ended: Counts
    examples: tuple[int, ...]


class Flow(NamedTuple):
    """Runs that go from one stop to one of the next step."""

    source: int
    target: int
    counts: Counts


class PrefixTree:
    """The exact prefix tree of a cohort, over runs of every outcome.

    Runs whose first own step is not step 0 are left out: what stands before it was taken over
    from another run and supports nothing, and without it the prefix is not theirs.

    Attributes
    ----------
    cohort : Prefixes
        The runs that count.
    continuations : int
        How many runs were left out for that.
    parted : ndarray of int64, shape (n_runs,)
        For each failed run, in sorted order: after how many steps it left all successful runs of
        its task; -1 where it never did, or there is none.
    """

    def __init__(self, prefixes: Prefixes) -> None:
        from sag_research.deadend import PrefixIndex  # scikit-learn takes a second to import

        fresh = _begin_at_the_start(prefixes)
        self.continuations = int((~fresh).sum())
        self.cohort = cohort = prefixes.take(fresh) if self.continuations else prefixes
        if not len(cohort):
            raise NotEnoughDataError(
                "no prefix to draw", why=f"{self.continuations} runs go on from another run",
                fix="choose a cohort with runs of its own",
            )  # fmt: skip
        flat, start = cohort.table.tokens, cohort.start
        # every run counts here, so none may be left out for its outcome
        index = PrefixIndex.build(flat, start, cohort.stop, np.zeros(len(cohort)))
        self._index, self._tokens, self._offset = index, index.tokens, index.offset
        self.run: Ints = np.asarray(index.run, dtype=np.int64)
        outcome = cohort.failed[self.run]
        kinds = [outcome == 1, outcome == 0, np.isnan(outcome)]
        self._places = [np.flatnonzero(kind) for kind in kinds]
        self._sums = np.stack([np.concatenate(([0], np.cumsum(kind))) for kind in kinds])
        self.parted = self._find_parted(outcome)

    def __len__(self) -> int:
        return len(self.run)

    @property
    def root(self) -> Spot:
        """All runs."""
        return Spot(0, len(self), 0)

    def counts(self, low: int, high: int) -> Counts:
        """Count the runs of a range of the sorted order."""
        failed, succeeded, unknown = (self._sums[:, high] - self._sums[:, low]).tolist()
        return Counts(high - low, failed, succeeded, unknown)

    def runs(self, spot: Spot) -> Ints:
        """Return the runs of a prefix, as sorted indices into the cohort."""
        return np.sort(self.run[spot.low : spot.high])

    def path(self, spot: Spot) -> list[int]:
        """Return the token codes of a prefix."""
        begin = int(self._offset[spot.low])
        codes: list[int] = self._tokens[begin : begin + spot.depth].tolist()
        return codes

    def find(self, codes: Sequence[int]) -> Spot | None:
        """Return where the runs stand that begin with these codes; None where there are none."""
        cursor = self._index.begin()
        for code in codes:
            if not cursor.narrow(code).n:
                return None
        return Spot(cursor.low, cursor.high, len(codes)) if codes else self.root

    def children(self, spot: Spot) -> list[tuple[int, Spot]]:
        """Return token and place of every prefix that is one token longer."""
        first = spot.low + self.ended(spot).n
        if first == spot.high:
            return []
        codes = self._tokens[self._offset[first : spot.high] + spot.depth]
        cuts = np.flatnonzero(np.diff(codes.astype(np.int64))) + 1
        lows = [first, *(first + cuts).tolist()]
        highs = [*lows[1:], spot.high]
        return [
            (int(codes[low - first]), Spot(low, high, spot.depth + 1))
            for low, high in zip(lows, highs, strict=True)
        ]

    def ended(self, spot: Spot) -> Counts:
        """Count the runs of a prefix that have no further step; they stand first."""
        ends = self._offset[spot.low + 1 : spot.high + 1]
        going = ends - self._offset[spot.low : spot.high] > spot.depth
        return self.counts(spot.low, spot.low + int((~going).sum()))

    def branches(self, spot: Spot, most: int, depth: int | None = None) -> list[Branch]:
        """Return the most frequent prefixes below one, itself first.

        Parameters
        ----------
        spot : Spot
        most : int
            Number of branches.
        depth : int, optional
            Number of levels below `spot`.
        """
        if most < 1:
            raise UsageError(f"{most} branches", fix="ask for 1 or more")
        deepest = np.inf if depth is None else spot.depth + depth
        last = self.path(spot)[-1] if spot.depth else OTHER
        waiting = [(-(spot.high - spot.low), spot.depth, spot.low, OTHER, last, spot)]
        kept: list[tuple[int, int, Spot]] = []
        below: list[list[tuple[int, Spot]]] = []
        while waiting and len(kept) < most:
            *_, parent, token, here = heappop(waiting)
            number = len(kept)
            kept.append((parent, token, here))
            below.append(self.children(here))
            if here.depth < deepest:
                for code, child in below[-1]:
                    weight = -(child.high - child.low)
                    heappush(waiting, (weight, child.depth, child.low, number, code, child))
        shown = [Counts()] * len(kept)
        count = [0] * len(kept)
        for parent, _, here in kept[1:]:
            shown[parent] = shown[parent].plus(self.counts(here.low, here.high))
            count[parent] += 1
        return [
            self._branch(*one, len(down) - count[i], shown[i])
            for i, (one, down) in enumerate(zip(kept, below, strict=True))
        ]

    def _branch(self, parent: int, token: int, spot: Spot, cut: int, shown: Counts) -> Branch:
        counts, ended = self.counts(spot.low, spot.high), self.ended(spot)
        parted = int((self.parted[spot.low : spot.high] == spot.depth).sum())
        return Branch(
            spot, parent, token, counts, ended, cut, counts.less(ended).less(shown), parted,
            self._examples(spot.low, spot.high),
        )  # fmt: skip

    def _examples(self, low: int, high: int, inside: NDArray[np.bool_] | None = None
                  ) -> tuple[int, ...]:  # fmt: skip
        """Name some runs of a range: failed and successful ones in turn, then unknown ones."""
        found = []
        for places in self._places:
            a, b = np.searchsorted(places, (low, high)).tolist()
            few = places[a:b] if inside is not None else places[a : min(b, a + EXAMPLES)]
            if inside is not None:
                few = few[inside[few - low]][:EXAMPLES]
            found.append(few.tolist())
        failed, succeeded, open_ = found
        half = EXAMPLES // 2
        mixed = failed[: max(half, EXAMPLES - len(succeeded))]
        mixed += succeeded[: EXAMPLES - len(mixed)]
        mixed += open_[: EXAMPLES - len(mixed)]
        return tuple(self.run[mixed].tolist())

    # ------------------------------------------------------------------ flows of single tokens

    def flows(self, spot: Spot, steps: int, tokens: int) -> tuple[list[Stop], list[Flow]]:
        """Count the tokens at each step behind a prefix, and how runs go from one to the next.

        Parameters
        ----------
        spot : Spot
        steps : int
            Number of steps behind the prefix.
        tokens : int
            Most tokens of a step; rarer ones are counted together, as token -1.

        Returns
        -------
        stops : list of Stop
            Ordered by step, then by number of runs, with the rarer ones last.
        flows : list of Flow
            Between stops, as indices.
        """
        length = np.diff(self._offset)[spot.low : spot.high]
        kind = np.zeros(len(length), dtype=np.int64)
        for number, places in enumerate(self._places):
            a, b = np.searchsorted(places, (spot.low, spot.high)).tolist()
            kind[places[a:b] - spot.low] = number
        stops: list[Stop] = []
        flows: list[Flow] = []
        before = np.full(len(length), -1, dtype=np.int64)
        for step in range(spot.depth, spot.depth + steps):
            alive = np.flatnonzero(length > step)
            if not len(alive):
                break
            here = np.full(len(length), -1, dtype=np.int64)
            codes = self._tokens[self._offset[spot.low + alive] + step].astype(np.int64)
            here[alive] = self._stops_of(stops, spot, step, tokens, (alive, codes, kind, length))
            came = alive[before[alive] >= 0]
            flows += _flows(before[came], here[came], kind[came])
            before = here
        return stops, flows

    def _stops_of(
        self,
        stops: list[Stop],
        spot: Spot,
        step: int,
        tokens: int,
        rows: tuple[Ints, Ints, Ints, Ints],
    ) -> Ints:
        """Add the stops of one step, and return the stop of each run that has this step."""
        alive, codes, kind, length = rows
        names, inverse, n = np.unique(codes, return_inverse=True, return_counts=True)
        order = np.lexsort((names, -n))
        slot = np.empty(len(names), dtype=np.int64)
        slot[order] = np.minimum(np.arange(len(names)), tokens)
        if len(names) == tokens + 1:  # one rare token alone has a name of its own
            slot[order[-1]] = tokens
        place = slot[inverse]
        first = len(stops)
        for number in range(int(place.max()) + 1):
            members = alive[place == number]
            merged = int((slot == number).sum())
            inside = np.zeros(len(length), dtype=np.bool_)
            inside[members] = True
            ended = members[length[members] == step + 1]
            stops.append(
                Stop(
                    step,
                    int(names[order[number]]) if merged == 1 else OTHER,
                    merged,
                    _by_kind(kind[members]),
                    _by_kind(kind[ended]),
                    self._examples(spot.low, spot.high, inside),
                )
            )
        return first + place

    def at_stop(self, spot: Spot, step: int, token: int) -> Ints:
        """Return the runs of a prefix that show a token at a step, as indices into the cohort."""
        places, codes = self._at_step(spot, step)
        return np.sort(self.run[places[codes == token]])

    def not_at_stop(self, spot: Spot, step: int, tokens: Collection[int]) -> Ints:
        """Return the runs of a prefix that show another token than these at a step."""
        places, codes = self._at_step(spot, step)
        return np.sort(self.run[places[~np.isin(codes, sorted(tokens))]])

    def _at_step(self, spot: Spot, step: int) -> tuple[Ints, Ints]:
        places = np.arange(spot.low, spot.high)
        places = places[np.diff(self._offset)[places] > step]
        return places, self._tokens[self._offset[places] + step].astype(np.int64)

    # ------------------------------------------------------------------ where runs part

    def _find_parted(self, outcome: NDArray[np.float64]) -> Ints:
        """Find how long each failed run stays with a successful one of its task.

        In sorted order the runs that share most with a run stand next to it, so of the successful
        ones only the last before it and the first behind it need be compared.
        """
        task = self.cohort.groups()[self.run]
        parted = np.full(len(self), -1, dtype=np.int64)
        shared = np.full(len(self), -1, dtype=np.int64)
        for way in (1, -1):
            last: dict[int, int] = {}
            for place in range(len(self))[::way]:
                group = int(task[place])
                if outcome[place] == 0:
                    last[group] = place
                elif outcome[place] == 1 and group in last:
                    shared[place] = max(shared[place], self._common(place, last[group]))
        length = np.diff(self._offset)
        apart = (shared >= 0) & (shared < length)
        parted[apart] = shared[apart]
        return parted

    def _common(self, one: int, other: int) -> int:
        """Return how many first tokens two runs share."""
        a, b = int(self._offset[one]), int(self._offset[other])
        length = int(min(self._offset[one + 1] - a, self._offset[other + 1] - b))
        differ = self._tokens[a : a + length] != self._tokens[b : b + length]
        return int(np.argmax(differ)) if differ.any() else length

    def partings(self) -> list[tuple[int, int, Spot]]:
        """Return run, token it went on with, and common prefix, of each failed run that left."""
        found = []
        for place in np.flatnonzero(self.parted >= 0).tolist():
            depth = int(self.parted[place])
            begin = int(self._offset[place])
            spot = self.find(self._tokens[begin : begin + depth].tolist())
            assert spot is not None  # noqa: S101 - the run itself begins so
            found.append((int(self.run[place]), int(self._tokens[begin + depth]), spot))
        return sorted(found)


def _begin_at_the_start(prefixes: Prefixes) -> NDArray[np.bool_]:
    """Tell which runs have their own first step: the others took it over from another run."""
    columns = prefixes.table.columns
    if columns is None or "step" not in columns.column_names or not len(prefixes.table):
        return np.ones(len(prefixes), dtype=np.bool_)
    number = np.asarray(columns.column("step").to_numpy())
    empty = prefixes.start == prefixes.stop
    first = np.minimum(prefixes.start, len(number) - 1)
    return np.asarray((number[first] == 0) | empty)


def _by_kind(kind: Ints) -> Counts:
    failed, succeeded, unknown = np.bincount(kind, minlength=3).tolist()
    return Counts(len(kind), failed, succeeded, unknown)


def _flows(source: Ints, target: Ints, kind: Ints) -> list[Flow]:
    if not len(source):
        return []
    wide = int(target.max()) + 1
    pairs, inverse = np.unique(source * wide + target, return_inverse=True)
    table = np.bincount(inverse * 3 + kind, minlength=3 * len(pairs)).reshape(-1, 3)
    return [
        Flow(pair // wide, pair % wide, Counts(sum(row), *row))
        for pair, row in zip(pairs.tolist(), table.tolist(), strict=True)
    ]
