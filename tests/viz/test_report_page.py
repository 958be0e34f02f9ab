"""The report's page with its section on dead ends, read by a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from sag_research import viz
from sag_research.deadend import Prefixes

if TYPE_CHECKING:
    from tests.browser import OfflinePage

HOSTILE = '<img src=x onerror="document.title=1"> </svg><script>document.title=2</script>'


@pytest.fixture(scope="module")
def report() -> Any:
    """A report on runs whose every text is hostile."""
    rng = np.random.default_rng(1)
    names = ["look|src|ok", "edit|src|ok", "test|test|test-fail"]
    tokens = [[str(x) for x in rng.choice(names, rng.integers(6, 14))] for _ in range(90)]
    outcomes = [str(x) for x in rng.choice(["success", "failure"], 90)]
    texts = pa.table({name: [HOSTILE] * sum(map(len, tokens))
                      for name in ("thought", "action", "observation")})  # fmt: skip
    tasks = [f"t{i // 3}" for i in range(90)]
    ids = [f"run{i} {HOSTILE}" for i in range(90)]
    prefixes = Prefixes.from_tokens(tokens, outcomes, tasks, texts, run_id=ids)
    return viz.deadend_report(prefixes, ["hazard"], baselines=("backoff",), folds=3)


def test_page_is_inert_and_complete(report: Any, tmp_path: Path) -> None:
    page = report.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert "<script" not in page
    assert "&lt;img src=x" in page
    assert "<h2>Run run" in page
    assert not any("\x1b" in line for line in report.lines())


def test_page_draws_without_a_network(
    report: Any, tmp_path: Path, offline_page: OfflinePage
) -> None:
    page = offline_page.open(report.to_html(tmp_path / "r.html"))
    assert page.title() == "Dead ends"
    widths = page.evaluate("[...document.images].map(i => i.naturalWidth)")
    assert len(widths) >= 5
    assert min(widths) > 200
    offline_page.assert_quiet()
