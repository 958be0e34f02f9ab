"""Training and test runs that do not leak into each other, or a refusal."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sag_research.deadend._model import check_both_outcomes
from sag_research.deadend._prefixes import TEXTS, Floats, Ints, Prefixes
from sag_research.errors import LeakError, MissingDataError, NotEnoughDataError, UsageError

__all__ = [
    "Fold",
    "LeakWarning",
    "group_folds",
    "leave_out_folds",
    "make_folds",
    "random_folds",
    "time_folds",
    "warn_of_copies",
]

SPLITS = ("group", "random", "leave", "time")
MANY_GROUPS = 5_000
"""Groups that are dealt to folds rather than weighed against each."""
_BITS = 80  # of surprise that two token sequences must share before chance is ruled out


class LeakWarning(UserWarning):
    """A number may be computed on data that the model has seen."""


class Fold(NamedTuple):
    """Runs to fit on and runs to score, as indices into a cohort."""

    train: Ints
    test: Ints
    repeat: int
    name: str


def make_folds(
    prefixes: Prefixes,
    split: str = "group",
    group_by: str = "task_id",
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    allow_leak: bool = False,
) -> list[Fold]:
    """Split a labelled cohort.

    Parameters
    ----------
    prefixes : Prefixes
        Runs of known outcome.
    split : {"group", "leave", "time", "random"}
        ``group``: no group is in training and test; ``leave``: each group is the test set once;
        ``time``: fit on the past, score the future; ``random``: by run, which leaks.
    group_by : str
        Column of ``runs``: the task, or what tasks share, such as a customer or a repository.
    folds, repeats : int
        Repeats are further partitions; ``leave`` and ``time`` have one.
    seed : int
    allow_leak : bool
        ``random`` is refused without it.

    Raises
    ------
    NotEnoughDataError
        If one outcome is missing, or there are fewer groups than folds.
    LeakError
        If a random split is asked for without `allow_leak`.
    MissingDataError
        If the split by time lacks timestamps.
    """
    check_both_outcomes(prefixes, "split runs into training and test")
    if split == "group":
        return group_folds(prefixes, group_by, folds, repeats, seed)
    if split == "leave":
        return leave_out_folds(prefixes, group_by)
    if split == "time":
        return time_folds(prefixes, folds, group_by)
    if split == "random":
        return random_folds(prefixes, folds, repeats, seed, allow_leak)
    raise UsageError(f"no split {split!r}", fix=f"one of {', '.join(SPLITS)}")


def group_folds(
    prefixes: Prefixes, by: str = "task_id", folds: int = 5, repeats: int = 1, seed: int = 0
) -> list[Fold]:
    """Keep each group in one fold, and the share of failures about equal over folds.

    scikit-learn's ``StratifiedGroupKFold`` weighs every group against every fold. Above
    :data:`MANY_GROUPS` groups they are dealt instead, those with the most failures first.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    groups = prefixes.groups(by)
    _check_groups(prefixes, by, folds)
    if repeats < 1:
        raise UsageError(f"{repeats} repeats", fix="give 1 or more")
    found = []
    for repeat in range(repeats):
        if groups.max(initial=0) >= MANY_GROUPS:
            parts = _dealt(prefixes.failed, groups, folds, seed + repeat)
        else:
            splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed + repeat)
            parts = splitter.split(np.zeros(len(groups)), prefixes.failed, groups)
        for number, (train, test) in enumerate(parts):
            if len(test):
                name = f"repeat {repeat} fold {number}"
                found.append(Fold(train.astype(np.int64), test.astype(np.int64), repeat, name))
    return found


def _dealt(
    failed: Floats, groups: Ints, folds: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Deal groups to folds, back and forth, in the order of their failures and sizes."""
    n_groups = int(groups.max()) + 1
    sizes = np.bincount(groups, minlength=n_groups)
    failures = np.bincount(groups, failed == 1, minlength=n_groups)
    blind = np.random.default_rng(seed).permutation(n_groups)
    order = np.lexsort((blind, -sizes, -failures))
    around = np.concatenate([np.arange(folds), np.arange(folds)[::-1]])
    fold = np.empty(n_groups, dtype=np.int64)
    fold[order] = np.resize(around, n_groups)
    for number in range(folds):
        is_test = fold[groups] == number
        yield np.flatnonzero(~is_test), np.flatnonzero(is_test)


def leave_out_folds(prefixes: Prefixes, by: str) -> list[Fold]:
    """Make each group the test set once."""
    _check_groups(prefixes, by, 2)
    groups, values = prefixes.groups(by), prefixes.runs[by].to_numpy()
    found = []
    for group in np.unique(groups):
        test = np.flatnonzero(groups == group)
        found.append(Fold(np.flatnonzero(groups != group), test, 0, f"{by} {values[test[0]]}"))
    return found


def time_folds(prefixes: Prefixes, folds: int = 5, by: str = "task_id") -> list[Fold]:
    """Fit on runs that had started before the test runs did, block after block.

    The runs are cut by ``started_at`` into ``folds + 1`` blocks; each but the first is tested
    once. Training runs of a group that is tested in the block are left out of that fold.
    """
    started = _started(prefixes)
    moments = np.unique(started)
    if len(moments) < folds + 1:
        raise NotEnoughDataError(
            f"cannot make {folds} folds by time",
            why=f"the runs have {len(moments)} different start times",
            fix="ask for fewer folds",
        )
    groups = prefixes.groups(by)
    cuts = np.quantile(started, np.arange(1, folds + 1) / (folds + 1), method="higher")
    ends = np.append(cuts[1:], np.inf)
    found = []
    for number, (begin, end) in enumerate(zip(cuts, ends, strict=True)):
        test = np.flatnonzero((started >= begin) & (started < end))
        past = np.flatnonzero(started < begin)
        train = past[~np.isin(groups[past], groups[test])]
        if len(test) and len(train):
            found.append(Fold(train, test, 0, f"time block {number + 1}"))
    if not found:
        raise NotEnoughDataError(
            "cannot split by time", why=f"every {by} of the future is also in the past"
        )
    return found


def _started(prefixes: Prefixes) -> Floats:
    """Start of each run in seconds, or a refusal."""
    import pandas as pd

    started = pd.to_datetime(prefixes.runs["started_at"], utc=True, errors="coerce")
    missing = int(started.isna().sum())
    if missing:
        raise MissingDataError(
            "cannot split by time",
            why=f"{missing} of {len(prefixes)} runs have no started_at",
            fix="leave these runs out, or split by group",
        )
    return started.astype("datetime64[ns, UTC]").astype(np.int64).to_numpy() / 1e9


def random_folds(
    prefixes: Prefixes,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    allow_leak: bool = False,
) -> list[Fold]:
    """Split by run, so that runs of one task are in training and test: only to show the leak."""
    from sklearn.model_selection import StratifiedKFold

    if not allow_leak:
        raise LeakError(
            "a random split puts runs of one task into training and test",
            why="scores then tell how well the task is remembered",
            fix="split by group, or say allow_leak=True to show the leak",
        )
    rarest = int(min((prefixes.failed == 1).sum(), (prefixes.failed == 0).sum()))
    if rarest < folds:
        raise NotEnoughDataError(
            f"cannot make {folds} folds", why=f"the rarer outcome has {rarest} runs"
        )
    found = []
    for repeat in range(repeats):
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed + repeat)
        parts = splitter.split(np.zeros(len(prefixes)), prefixes.failed)
        for number, (train, test) in enumerate(parts):
            name = f"repeat {repeat} fold {number}"
            found.append(Fold(train.astype(np.int64), test.astype(np.int64), repeat, name))
    return found


def _check_groups(prefixes: Prefixes, by: str, folds: int) -> None:
    found = len(np.unique(prefixes.groups(by)))
    if folds < 2:
        raise UsageError(f"{folds} folds are no cross-validation", fix="give 2 or more")
    if found < folds:
        fix = "collect runs of more tasks" if found < 2 else f"give folds={found}"
        raise NotEnoughDataError(
            f"cannot make {folds} folds by {by}", why=f"the cohort has {found}", fix=fix
        )


def warn_of_copies(prefixes: Prefixes, by: str = "task_id") -> int:
    """Warn where the same run stands in several groups, so that a split by group does not help.

    Runs are the same when all their tokens and texts are. Without texts, only sequences too long
    and too unusual to coincide by chance are compared.

    Returns
    -------
    int
        Runs that have a copy in another group.
    """
    groups = prefixes.groups(by)
    prints = _fingerprints(prefixes)
    seen: dict[bytes, set[int]] = {}
    for mark, group in zip(prints, groups.tolist(), strict=True):
        if mark is not None:
            seen.setdefault(mark, set()).add(group)
    copied = sum(mark is not None and len(seen[mark]) > 1 for mark in prints)
    if copied:
        warnings.warn(
            f"{copied} of {len(prefixes)} runs are word for word in another {by} as well: "
            "test runs stand in the training corpus; remove the copies",
            LeakWarning,
            stacklevel=3,
        )
    return copied


def _fingerprints(prefixes: Prefixes) -> list[bytes | None]:
    """Return a digest of each run's own content; None where it is too little to identify it."""
    table = prefixes.table
    texts = [table.text(name) for name in TEXTS] if table.has_text else []
    surprise = None if texts else _surprise(prefixes)
    prints: list[bytes | None] = []
    for i, (a, b) in enumerate(zip(prefixes.start, prefixes.stop, strict=True)):
        if surprise is not None and surprise[i] < _BITS:
            prints.append(None)
            continue
        digest = blake2b(table.tokens[a:b].tobytes(), digest_size=16)
        for column in texts:
            for text in column[a:b]:
                raw = text.encode("utf-8", "surrogatepass")
                digest.update(len(raw).to_bytes(8, "little") + raw)
        prints.append(digest.digest())
    return prints


def _surprise(prefixes: Prefixes) -> Floats:
    """Bits of each run's tokens, each given the one before it, counted over the cohort."""
    sequences = prefixes.sequences()
    size = len(prefixes.table.names) + 1
    pairs = [np.append(0, s[:-1] + 1).astype(np.int64) * size + s for s in sequences if len(s)]
    if not pairs:
        return np.zeros(len(sequences))
    keys, place = np.unique(np.concatenate(pairs), return_inverse=True)
    count = np.bincount(place).astype(np.float64)
    before = np.unique(keys // size, return_inverse=True)[1]
    bits = -np.log2(count / np.bincount(before, count)[before])[place]
    owner = np.repeat(np.arange(len(sequences)), [len(s) for s in sequences])
    return np.bincount(owner, bits, minlength=len(sequences)).astype(np.float64)
