"""From texts of agents to the things they name, with the place and the rule of each mention.

Rules and aliases are data (``rules.toml``, ``aliases.toml``), and so are the rules by which a
step becomes one symbol of a small alphabet (``tokens.toml``). A model may read after the rules;
its calls are recorded, and names that the text does not hold are dropped.
"""

from ._extractor import EntityExtractor
from ._model import ModelExtraction, ModelExtractor
from ._model_run import ExtractionRun, extract_run
from ._tables import Extraction, StepTexts
from ._terminal import has_codes
from ._tokens import Coverage, Vocabulary

__all__ = [
    "Coverage",
    "EntityExtractor",
    "Extraction",
    "ExtractionRun",
    "ModelExtraction",
    "ModelExtractor",
    "StepTexts",
    "Vocabulary",
    "extract_run",
    "has_codes",
]
