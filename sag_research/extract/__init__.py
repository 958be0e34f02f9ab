"""From texts of agents to the things they name, with the place and the rule of each mention.

Rules and aliases are data (``rules.toml``, ``aliases.toml``). No model is called.
"""

from ._extractor import EntityExtractor
from ._tables import Extraction, StepTexts

__all__ = ["EntityExtractor", "Extraction", "StepTexts"]
