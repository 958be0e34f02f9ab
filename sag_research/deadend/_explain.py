"""Why the stack says what it says: what each part adds, and the runs behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sag_research.deadend._backoff import BackoffRisk
from sag_research.deadend._forest import BehaviourRisk
from sag_research.deadend._hazard import HazardRisk, shrunk_interval
from sag_research.deadend._markov import MarkovRisk
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Looks, Prefixes
from sag_research.deadend._text_model import TextRisk

if TYPE_CHECKING:
    import pandas as pd

    from sag_research.deadend._stack import PrefixRisk, Similar

__all__ = ["explain"]

COLUMNS = ("risk", "adds", "evidence", "n", "failed", "low", "high")


def explain(model: PrefixRisk, prefixes: Prefixes, looks: Looks) -> pd.DataFrame:
    """Return the table of :meth:`PrefixRisk.explain`."""
    import pandas as pd

    odds = model.odds(prefixes, looks)
    adds = model.weights_.shares(odds)
    frames = []
    for number, (name, part) in enumerate(model.parts_.items()):
        found = _evidence(part, prefixes, looks, odds[:, number], model.part_similar_[number])
        where = {"run_id": prefixes.runs["run_id"].to_numpy()[looks.run], "seen": looks.seen}
        columns = {
            "part": name,
            "risk": 1 / (1 + np.exp(-odds[:, number])),
            "adds": adds[:, number],
        }
        frames.append(pd.DataFrame(where | columns | found).assign(look=np.arange(len(looks.run))))
    table = pd.concat(frames, ignore_index=True)
    order = np.lexsort((-table["adds"].abs(), table["look"]))
    return table.iloc[order][["run_id", "seen", "part", *COLUMNS]].reset_index(drop=True)


def _evidence(
    part: RiskModel, prefixes: Prefixes, looks: Looks, odds: Any, similar: Similar
) -> dict[str, Any]:
    if isinstance(part, HazardRisk):
        n, failed, prior = part.support(prefixes, looks)
        low, high = shrunk_interval(failed, n, prior, part.strength)
        said = [f"went on after {seen} steps" for seen in looks.seen.tolist()]
    elif isinstance(part, BackoffRisk):
        found = part.explain(prefixes, looks)
        n, failed, low, high = (found[name].to_numpy() for name in ("n", "failed", "low", "high"))
        said = [context or "went on as long" for context in found["context"]]
    else:
        n, failed, low, high = similar.at(odds)
        said = _words(part, prefixes, looks)
    return {"evidence": said, "n": n, "failed": failed, "low": low, "high": high}


def _words(part: RiskModel, prefixes: Prefixes, looks: Looks) -> list[str]:
    if isinstance(part, MarkovRisk):
        return [f"log ratio {x:+.1f}" for x in part.log_ratio(prefixes, looks).tolist()]
    if isinstance(part, BehaviourRisk | TextRisk):
        return [", ".join(reasons) for reasons in part.reasons(prefixes, looks)]
    return [""] * len(looks.run)
