"""From texts of agents to the things they name, with the place and the rule of each mention.

Rules and aliases are data (``rules.toml``, ``aliases.toml``), and so are the rules by which a
step becomes one symbol of a small alphabet (``tokens.toml``). No model is called.
"""

from ._extractor import EntityExtractor
from ._tables import Extraction, StepTexts
from ._terminal import has_codes
from ._tokens import Coverage, Vocabulary

__all__ = ["Coverage", "EntityExtractor", "Extraction", "StepTexts", "Vocabulary", "has_codes"]
