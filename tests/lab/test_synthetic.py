"""The synthetic worlds at their real size: calibration, what each hides, and the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from sag_research.deadend import Prefixes
from sag_research.errors import UsageError
from sag_research.lab.synthetic import WORLDS, OracleRisk, SyntheticSet, generate

Floats = NDArray[np.float64]


def one_look_a_run(made: SyntheticSet) -> tuple[Floats, Floats]:
    """Truth and outcome after 1 to 20 steps, a number given to each run beforehand.

    Drawing one of a run's own looks would not do: runs that are about to end would be drawn more
    often at the looks they have.
    """
    looks = made.prefixes.looks("all")
    chosen = looks.seen == 1 + looks.run % 20
    rows = made.prefixes.rows(looks)[chosen]
    return made.truth[rows], made.prefixes.failed[looks.run[chosen]]


def worst_bin(risk: Floats, failed: Floats) -> float:
    """Largest distance of a bin's observed failures from the expected ones, in standard errors."""
    edges = np.unique(np.quantile(risk, np.linspace(0, 1, 11)))
    bins = np.clip(np.searchsorted(edges, risk, side="right") - 1, 0, len(edges) - 2)
    excess = np.bincount(bins, failed - risk)
    return float(np.max(np.abs(excess) / np.sqrt(np.bincount(bins, risk * (1 - risk)))))


@pytest.mark.parametrize(
    ("world", "shift"), [("traps", 0.0), ("traps", 1.0), ("memory", 0.0), ("length", 0.0)]
)
def test_truth_is_calibrated_on_20000_runs(world: str, shift: float) -> None:
    made = generate(world, tasks=20_000, runs=1, seed=11, shift=shift)
    risk, failed = one_look_a_run(made)
    assert len(risk) > 10_000
    assert worst_bin(risk, failed) < 4
    assert worst_bin(np.clip(risk + 0.05, 0.001, 0.999), failed) > 4  # the test can fail


@pytest.mark.parametrize(
    ("world", "lowest", "highest"),
    [("traps", 0.70, 0.78), ("memory", 0.74, 0.80), ("length", 0.67, 0.74)],
)
def test_oracle_ranks_as_the_data_card_says(world: str, lowest: float, highest: float) -> None:
    made = generate(world)
    looks = made.prefixes.looks()
    oracle = OracleRisk(world).fit(made.prefixes)
    risk = oracle.predict(made.prefixes, looks)
    np.testing.assert_allclose(risk, made.truth[made.prefixes.rows(looks)], atol=1e-12)
    weight, failed = made.prefixes.weights(looks), made.prefixes.failed[looks.run]
    assert lowest < roc_auc_score(failed, risk, sample_weight=weight) < highest


def test_same_seed_same_set() -> None:
    one, two, other = (
        generate("traps", seed=4),
        generate("traps", seed=4),
        generate("traps", seed=5),
    )
    assert np.array_equal(one.prefixes.table.tokens, two.prefixes.table.tokens)
    assert np.array_equal(one.truth, two.truth)
    assert one.prefixes.runs.equals(two.prefixes.runs)
    assert one.hidden.equals(two.hidden)
    assert not np.array_equal(one.lost_at, other.lost_at)


def test_texts_change_nothing_else() -> None:
    plain, told = generate("traps", tasks=20), generate("traps", tasks=20, text=True)
    assert told.prefixes.table.has_text
    assert not plain.prefixes.table.has_text
    assert np.array_equal(plain.prefixes.table.tokens, told.prefixes.table.tokens)
    assert np.array_equal(plain.truth, told.truth)
    assert len(told.prefixes.table.text("action")) == len(told.truth)


def test_entities_are_rows_of_a_sparse_matrix() -> None:
    made = generate("traps", tasks=30)
    table = made.prefixes.table
    assert table.entities is not None
    offsets, ids, names = table.entities
    assert len(offsets) == len(table) + 1
    assert offsets[-1] == len(ids)
    assert ids.max() < len(names)
    task = np.repeat(made.prefixes.groups(), made.prefixes.n_steps)
    for row in range(0, len(table), 37):
        files = [names[i] for i in ids[offsets[row] : offsets[row + 1]] if "/" in names[i]]
        assert all(name.startswith(f"task-{task[row]:04d}/") for name in files)


@pytest.mark.parametrize("world", WORLDS)
def test_lost_at_is_a_step_of_a_failed_run(world: str) -> None:
    made = generate(world)
    lost = made.lost_at >= 0
    assert np.all(made.prefixes.failed[lost] == 1)
    assert np.all(made.lost_at < made.prefixes.n_steps)
    share = lost.sum() / made.prefixes.failed.sum()
    assert share == 0 if world == "length" else share > 0.75


def test_task_decides_much() -> None:
    made = generate("traps", seed=2)
    by_task = made.prefixes.failed.reshape(-1, 4)
    shuffled = np.random.default_rng(0).permutation(by_task.ravel()).reshape(-1, 4)
    assert by_task.mean(axis=1).var() > 1.3 * shuffled.mean(axis=1).var()


def test_memory_leaves_no_trace_after_the_choice() -> None:
    made = generate("memory", tasks=5_000)
    looks = made.prefixes.looks([12])
    wrong = (made.hidden["choice"] == "wrong").to_numpy()[looks.run]
    rows = made.prefixes.rows(looks)
    tokens = made.prefixes.table.tokens
    for back in range(5):
        both = np.stack(
            [np.bincount(tokens[rows[w] - back], minlength=20) for w in (wrong, ~wrong)]
        )
        assert chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue > 0.001
    first = made.truth[made.prefixes.start + 3]
    assert np.array_equal(first[looks.run], made.truth[rows])


def test_length_has_tokens_that_say_nothing() -> None:
    made = generate("length", tasks=5_000)
    looks = made.prefixes.looks("all")
    failed = made.prefixes.failed[looks.run] == 1
    codes = made.prefixes.table.tokens[made.prefixes.rows(looks)]
    both = np.stack([np.bincount(codes[w], minlength=20) for w in (failed, ~failed)])
    assert chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue > 0.001
    risk = made.truth[made.prefixes.rows(looks)]
    for seen in range(1, 40):
        assert np.ptp(risk[looks.seen == seen]) == 0


def test_families_differ_under_shift_only() -> None:
    rates = {
        shift: generate("traps", tasks=2_000, shift=shift).prefixes.runs.groupby("repo")["outcome"]
        for shift in (0.0, 1.0)
    }
    spread = {s: g.agg(lambda o: (o == "failure").mean()).std() for s, g in rates.items()}
    assert spread[0.0] < 0.03
    assert spread[1.0] > 0.1


def test_oracle_is_an_estimator() -> None:
    made = generate("memory", tasks=20)
    oracle = clone(OracleRisk("memory")).fit(made.prefixes)
    assert oracle.get_params() == {"world": "memory", "shift": 0.0}
    some = made.prefixes.take([3, 1])
    assert np.allclose(
        oracle.predict(some)[: some.n_steps[0]], made.truth[some.start[0] : some.stop[0]]
    )


def test_refusals() -> None:
    with pytest.raises(UsageError, match="no world 'maze'; one of traps, memory, length"):
        generate("maze")
    with pytest.raises(UsageError, match="knows no shift"):
        generate("length", shift=1.0)
    with pytest.raises(UsageError, match="at least 1"):
        generate("traps", tasks=0)
    strangers = Prefixes.from_tokens(
        [["dance|none|ok"] * 2, ["dance|none|ok"] * 3], ["success", "failure"]
    )
    with pytest.raises(
        UsageError, match=r"not of world 'traps' \(unknown token 'dance\|none\|ok'\)"
    ):
        OracleRisk("traps").fit(strangers).predict(strangers)
