"""One small workspace for all faults; each gets a copy of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sag_research.warehouse import _sync
from tests.faults.study import SEGMENT_EVENTS, Study, build


@pytest.fixture(scope="session")
def small_segments() -> Iterator[None]:
    """Segments so small that a few runs fill several; some are sealed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sync, "SEGMENT_EVENTS", SEGMENT_EVENTS)
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, small_segments: None) -> Study:
    return build(tmp_path_factory.mktemp("template") / "study")
