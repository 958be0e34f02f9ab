"""SAG's rule on a run that is going on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from sag_research.deadend._baselines import EntityRuleRisk, names_in
from sag_research.deadend._entity_index import EntityIndex
from sag_research.deadend._index import Support
from sag_research.deadend._metrics import wilson
from sag_research.deadend._monitor import Verdict
from sag_research.deadend._step import SeenStep, see
from sag_research.extract import EntityExtractor, Vocabulary

if TYPE_CHECKING:
    from sag_research.model import Step

__all__ = ["EntityRuleStream", "EntityRuleWatch"]


@cache
def _extractor() -> EntityExtractor:
    return EntityExtractor()


class EntityRuleStream:
    """The past runs that share enough names with one new run, step by step."""

    def __init__(self, risk: EntityRuleRisk, scope: str = "") -> None:
        self._risk, self._scope = risk, scope
        self._cursor = _index_of(risk).begin(risk.shared)

    def observe(self, step: SeenStep) -> float:
        """Return the share of matching runs that failed; the base rate where none matches."""
        found = self.match(step)
        return found.failed / found.n if found.n else self._risk.base_rate_

    def match(self, step: SeenStep) -> Support:
        """Take in the next step; return how many past runs match, and the failed among them."""
        return self._cursor.add(self._names(step))

    def _names(self, step: SeenStep) -> Iterable[str]:
        if step.entities:
            return step.entities
        if self._risk.from_texts_:
            return names_in((step.action, step.observation))
        extractor = _extractor()
        mentions = [
            *extractor.mentions(step.action, self._scope, "action"),
            *extractor.mentions(step.observation, self._scope),
        ]
        return {mention.entity.entity_id for mention in mentions}


def _index_of(risk: EntityRuleRisk) -> EntityIndex:
    """Return the inverted index of a fitted rule, made once for each fit."""
    kept: tuple[Any, EntityIndex] | None = getattr(risk, "_live_index", None)
    if kept is None or kept[0] is not risk.whole_:
        run, entity = risk.whole_.nonzero()
        kept = (risk.whole_, EntityIndex.build(risk.names_, run, entity, risk.failed_runs_ == 1))
        risk._live_index = kept
    return kept[1]


class EntityRuleWatch:
    """Follows one run and raises the alarm where SAG's rule says that it will fail.

    The rule's own alarm: at least ``risk.shared`` names in common with some past run, and a
    share of at least ``risk.threshold`` of such runs that failed. It is asked after every step,
    and it promises nothing about false alarms; for an alarm of the same scores at a chosen level
    make a :class:`DeadEndMonitor` of an :class:`Alarm` calibrated with the rule.

    Parameters
    ----------
    risk : EntityRuleRisk
        Fitted: ``model_of("sag-entity-rule").fit(prefixes)``.
    scope : str
        The run's repository, part of the identity of its files.
    vocabulary : Vocabulary, optional
        What makes tokens of steps; that of the model's training runs by default.

    Attributes
    ----------
    seen_ : int
        Steps seen.
    alarm_at_ : int or None
        After how many steps the alarm was raised.
    verdicts_ : list of Verdict
        ``low`` and ``high`` are Wilson's interval of the matching runs' failure rate.
    tokens_ : list of str
    """

    def __init__(
        self, risk: EntityRuleRisk, *, scope: str = "", vocabulary: Vocabulary | None = None
    ) -> None:
        self.risk = risk
        self._stream = risk.begin(scope)
        self._vocabulary = vocabulary or risk.vocabulary_ or Vocabulary()
        self.alarm_at_: int | None = None
        self.verdicts_: list[Verdict] = []
        self.tokens_: list[str] = []

    def __repr__(self) -> str:
        raised = "" if self.alarm_at_ is None else f", alarm after step {self.alarm_at_}"
        return f"EntityRuleWatch({self.seen_} steps{raised})"

    @property
    def seen_(self) -> int:
        """Steps seen."""
        return len(self.verdicts_)

    def observe(self, step: Step | Mapping[str, Any] | SeenStep) -> Verdict:
        """Take in the next step; see :meth:`DeadEndMonitor.observe`."""
        seen = see(step, self._vocabulary)
        n, failed = self._stream.match(seen)
        self.tokens_.append(seen.token)
        if n and failed >= self.risk.threshold * n and self.alarm_at_ is None:
            self.alarm_at_ = self.seen_ + 1
        low, high = wilson(failed, n) if n else (float("nan"), float("nan"))
        share = failed / n if n else self.risk.base_rate_
        said = (
            f"{failed} of {n} past runs that share {self.risk.shared} names or more with this "
            "one failed"
        )
        verdict = Verdict(share, low, high, self.alarm_at_ is not None, said, n, failed)
        self.verdicts_.append(verdict)
        return verdict
