"""The estimators by the names under which tables list them."""

from __future__ import annotations

from sag_research.deadend._backoff import BackoffRisk
from sag_research.deadend._baselines import (
    CapRisk,
    CharactersRisk,
    EntityRuleRisk,
    MajorityRisk,
    PriorRisk,
    RepeatRisk,
)
from sag_research.deadend._boosting import BoostingRisk
from sag_research.deadend._counts import CountsRisk
from sag_research.deadend._forest import BehaviourRisk
from sag_research.deadend._hazard import HazardRisk
from sag_research.deadend._markov import MarkovRisk
from sag_research.deadend._model import RiskModel
from sag_research.deadend._neighbours import NeighbourRisk
from sag_research.deadend._stack import PrefixRisk
from sag_research.deadend._text_model import TextRisk
from sag_research.deadend._trie import TrieRisk
from sag_research.errors import UsageError

__all__ = ["MODELS", "model_of"]

MODELS: dict[str, type[RiskModel]] = {
    model.name: model
    for model in (
        MajorityRisk,
        HazardRisk,
        CharactersRisk,
        CapRisk,
        RepeatRisk,
        PriorRisk,
        EntityRuleRisk,
        TrieRisk,
        BackoffRisk,
        MarkovRisk,
        CountsRisk,
        BehaviourRisk,
        TextRisk,
        BoostingRisk,
        NeighbourRisk,
        PrefixRisk,
    )
}
"""Model name to class, in the order of tables."""


def model_of(model: str | RiskModel) -> RiskModel:
    """Return a model of this name with its default parameters, or the model itself.

    Examples
    --------
    >>> model_of("hazard").name
    'hazard'
    """
    if isinstance(model, RiskModel):
        return model
    if model not in MODELS:
        raise UsageError(f"no model {model!r}", fix=f"one of {', '.join(MODELS)}")
    return MODELS[model]()
