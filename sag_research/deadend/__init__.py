"""At which step a run was lost: prefixes, estimators of failure, alarms and their evaluation."""

from sag_research.deadend._cohort import read_prefixes
from sag_research.deadend._model import RiskModel, Stream
from sag_research.deadend._prefixes import Looks, Prefixes, StepTable, look_grid

__all__ = ["Looks", "Prefixes", "RiskModel", "StepTable", "Stream", "look_grid", "read_prefixes"]
