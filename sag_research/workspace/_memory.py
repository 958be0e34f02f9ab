"""Remembering: what past runs say to the next one."""

from __future__ import annotations

from sag_research.workspace._base import Base

__all__ = ["Remembering"]


class Remembering(Base):
    """The methods of a workspace that recall past runs, their entities and their provenance."""
