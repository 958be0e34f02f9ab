"""Models by name."""

from __future__ import annotations

import pytest
from sklearn.base import clone

from sag_research.deadend._models import MODELS, model_of
from sag_research.deadend._stack import PrefixRisk
from sag_research.errors import UsageError

NAMES = [
    "majority", "hazard", "characters", "cap-p75", "repeat-3", "prior", "sag-entity-rule", "trie",
    "backoff", "markov", "counts-logistic", "behaviour-trees", "text-tfidf", "boosting", "knn",
    "stack",
]  # fmt: skip


def test_all_names_are_there() -> None:
    assert set(MODELS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_gives_a_model_that_scikit_learn_can_copy(name: str) -> None:
    model = model_of(name)
    assert model.name == name
    assert clone(model).get_params() == model.get_params()


def test_a_model_is_passed_through() -> None:
    own = PrefixRisk(trees=3)
    assert model_of(own) is own


def test_other_names_are_refused() -> None:
    with pytest.raises(UsageError, match="no model 'oracle'"):
        model_of("oracle")
