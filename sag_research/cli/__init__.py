"""The command ``sag``: the Python API with flags."""

from sag_research.cli import (  # noqa: F401  # each adds its commands to the group
    _agent,
    _annotate,
    _branch,
    _datasets,
    _deadend,
    _demo,
    _export,
    _ingest,
    _interchange,
    _look,
    _memory,
    _paper,
    _scan,
)
from sag_research.cli._base import main, sag

__all__ = ["main", "sag"]
