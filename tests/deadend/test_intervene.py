from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from sag_research.deadend._intervene import break_even, pilot, precision_interval
from sag_research.deadend._metrics import wilson
from sag_research.errors import NotEnoughDataError, UsageError


def test_break_even_by_hand() -> None:
    assert break_even(0.3, 0.1) == pytest.approx(0.25)
    assert break_even(0.3, 0.0) == 0
    assert math.isnan(break_even(0, 0))
    with pytest.raises(UsageError, match="no share"):
        break_even(2, 0.1)


def pairs(tasks: int = 60) -> pd.DataFrame:
    """Of each task one run that fails left alone and one that does not; a third is turned."""
    rows = []
    for task in range(tasks):
        rows.append((f"t{task}", 0, int(task % 3 == 0)))
        rows.append((f"t{task}", 1, int(task % 6 != 0)))
    return pd.DataFrame(rows, columns=["task_id", "continued", "acted"])


def test_pilot_by_hand() -> None:
    table = pilot(pairs())
    assert table.loc["recovery", "value"] == pytest.approx(1 / 3)
    assert table.loc["disruption", "value"] == pytest.approx(1 / 6)
    assert table.loc["p_star", "value"] == pytest.approx(1 / 3)
    assert table["n"].tolist() == [60, 60, 120]
    assert (table["n_tasks"] == 60).all()
    assert (table["low"] < table["value"]).all()
    assert (table["value"] < table["high"]).all()


def test_small_or_one_sided_pilots_are_refused() -> None:
    with pytest.raises(NotEnoughDataError, match=r"pilot of 50 tasks.*there are 49"):
        pilot(pairs(49))
    with pytest.raises(NotEnoughDataError, match="runs that fail and runs that succeed"):
        pilot(pairs().assign(continued=0))
    with pytest.raises(UsageError, match="leave out unknown"):
        pilot(pairs().assign(acted=np.nan))


def test_precision_knows_about_small_numbers_and_about_tasks() -> None:
    failed = np.array([1.0, 1.0, 1.0, 0.0])
    alone = precision_interval(failed, np.arange(4))
    assert alone == pytest.approx(wilson(3, 4), abs=0.06)
    assert alone.low <= wilson(3, 4).low
    # forty alarms of two tasks are worth little more than two
    many = np.repeat([1.0, 0.0], 20)
    clustered = precision_interval(many, np.repeat([0, 1], 20))
    assert clustered == (0.0, 1.0)
    one = precision_interval(many, np.zeros(40, int))
    assert one == pytest.approx(wilson(20, 40))


def test_no_alarms_have_no_precision() -> None:
    assert all(map(math.isnan, precision_interval(np.array([]), np.array([], int))))
