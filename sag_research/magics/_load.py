"""Putting the magics into a running IPython, and taking them out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sag_research.magics._complete import IDENTIFIER, matcher
from sag_research.magics._magic import SagMagics

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]


def load(shell: InteractiveShell) -> SagMagics:
    """Register ``%sag``, ``%%sag`` and their completion; what was loaded before is replaced."""
    unload(shell)
    magics = SagMagics(shell)
    shell.register_magics(magics)
    completer = getattr(shell, "Completer", None)  # a shell that is not interactive has none
    if completer is not None:
        completer.custom_matchers.append(matcher(magics))
    return magics


def unload(shell: InteractiveShell) -> None:
    """Take the magics out, and close the workspace that they opened."""
    old = shell.magics_manager.registry.pop(SagMagics.__name__, None)
    if isinstance(old, SagMagics):
        old.close()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("sag", None)
    completer = getattr(shell, "Completer", None)
    if completer is not None:
        kept = [
            one
            for one in completer.custom_matchers
            if getattr(one, "matcher_identifier", "") != IDENTIFIER
        ]
        completer.custom_matchers[:] = kept
