"""What a result was made with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from sag_research import __version__
from sag_research._text import clip, escape

if TYPE_CHECKING:
    from sag_research.workspace._looking import Looking

__all__ = ["Provenance", "provenance"]


class Provenance:
    """What a result was made with. The text form is stable; the HTML form has the details."""

    def __init__(self, seed: int | None, cohort: str | None) -> None:
        self.seed, self.cohort = seed, cohort
        self.versions = {"sag_research": __version__} | {n: _version(n) for n in _VERSIONED}

    def __repr__(self) -> str:
        parts = [f"sag_research {self.versions['sag_research']}"]
        parts += [f"seed {self.seed}"] if self.seed is not None else []
        parts += [f"cohort {self.cohort}"] if self.cohort is not None else []
        return f"Provenance({', '.join(parts)})"

    def _repr_html_(self) -> str:
        versions = {**self.versions, "python": platform.python_version()}
        details = ", ".join(f"{name} {number}" for name, number in versions.items())
        return f"<div><b>{escape(repr(self))}</b><br>{escape(clip(details, 400))}</div>"


_VERSIONED = ("duckdb", "pandas", "polars", "pyarrow", "networkx", "numpy")


def provenance(seed: int | None = None, ws: Looking | None = None) -> Provenance:
    """Say what a notebook's results are made with: versions, seed, fingerprint of the data."""
    return Provenance(seed, None if ws is None else ws.digest())


def _version(package: str) -> str:
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "?"
