"""The ``%sag`` magics: a workspace, its runs and SQL from the cells of a notebook."""

from __future__ import annotations

from sag_research.magics._load import load, unload
from sag_research.magics._magic import SagMagics
from sag_research.magics._sql import Place, bind, place_of, spell_parameters
from sag_research.magics._table import Table

__all__ = [
    "Place",
    "SagMagics",
    "Table",
    "bind",
    "load",
    "place_of",
    "spell_parameters",
    "unload",
]
