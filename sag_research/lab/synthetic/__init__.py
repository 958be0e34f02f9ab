"""Synthetic runs whose probability of failure is known after every step.

Three worlds: `traps` (progress, detours and traps), `memory` (an early choice decides late) and
`length` (duration alone decides). Parameters stand in ``worlds.toml``, their reasons in
``card.md``.
"""

from __future__ import annotations

from sag_research.lab.synthetic._generate import WORLDS, SyntheticSet, generate, parameters
from sag_research.lab.synthetic._oracle import OracleRisk

__all__ = ["WORLDS", "OracleRisk", "SyntheticSet", "generate", "parameters"]
