"""Worlds in which agents really run, and the data sets generated in them."""

from __future__ import annotations

from sag_research.lab._bundled import bundled

__all__ = ["bundled"]
