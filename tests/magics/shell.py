"""An IPython of its own for a test, with what it printed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@dataclass
class Cell:
    """What a cell did."""

    ok: bool
    result: Any
    out: str
    err: str


@dataclass
class Shell:
    """One IPython session."""

    ip: InteractiveShell

    def run(self, code: str) -> Cell:
        """Run a cell, as a notebook would."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            done = self.ip.run_cell(code)
        return Cell(bool(done.success), done.result, out.getvalue(), err.getvalue())

    def completions(self, code: str, at: int | None = None) -> list[str]:
        """Texts offered at a place of a cell, by the interface that front ends use."""
        place = len(code) if at is None else at
        with provisionalcompleter():
            return [one.text for one in self.ip.Completer.completions(code, place)]


@contextmanager
def new_shell(folder: Path) -> Iterator[Shell]:
    """Start IPython with the extension loaded; it keeps its history in memory."""
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.IPCompleter.use_jedi = False
    ip = InteractiveShell(config=config, ipython_dir=str(folder))
    ip.extension_manager.load_extension("sag_research")
    yield Shell(ip)
    ip.extension_manager.unload_extension("sag_research")
    ip.history_manager.end_session()
