"""A bar for people: how far an ingest is, how fast, and how long it will take yet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

__all__ = ["Progress", "shown"]

Progress: TypeAlias = Callable[[int, int, int], None]
"""Is told of each file that is done: its bytes, and the files and runs done so far."""


@contextmanager
def shown(total: int, files: int, wanted: bool) -> Iterator[Progress]:
    """Show a bar on standard error, in bytes with rate and time left, where someone can see it."""
    if not wanted or not (sys.stderr.isatty() or _in_notebook()):
        yield lambda size, files, runs: None
        return
    from tqdm.auto import tqdm

    def update(size: int, done: int, runs: int) -> None:
        bar.set_postfix_str(f"{done:,} of {files:,} files, {runs:,} runs", refresh=False)
        bar.update(size)

    with tqdm(total=total, desc="ingest", unit="B", unit_scale=True, leave=False) as bar:
        yield update


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
