"""At which step a run was lost: prefixes, estimators of failure, alarms and their evaluation."""

from sag_research.deadend._agreement import Agreement, Kappa, agreement, cohen_kappa
from sag_research.deadend._alarm import Alarm, SmallSampleWarning
from sag_research.deadend._backtest import Backtest, backtest
from sag_research.deadend._backtest_run import BASELINES
from sag_research.deadend._ceiling import hindsight, identity_ceiling, observability_ceiling
from sag_research.deadend._changepoint import StepSets, calibrate_steps
from sag_research.deadend._cohort import read_prefixes
from sag_research.deadend._compare import Comparison, compare, pass_at_k
from sag_research.deadend._crossfit import OutOfFold, cross_fit
from sag_research.deadend._entity_rule import EntityRuleWatch
from sag_research.deadend._forkset import ForkSet, calibrate_forks
from sag_research.deadend._index import PrefixIndex
from sag_research.deadend._intervene import break_even, pilot
from sag_research.deadend._locate import Where, fork_point, locate
from sag_research.deadend._metrics import (
    auroc,
    beta_interval,
    cumulative_incidence,
    net_benefit,
    reliability,
    wilson,
)
from sag_research.deadend._model import RiskModel, Stream
from sag_research.deadend._models import MODELS, model_of
from sag_research.deadend._monitor import DeadEndMonitor, Verdict
from sag_research.deadend._persist import load, save
from sag_research.deadend._prefixes import Looks, Prefixes, StepTable, look_grid
from sag_research.deadend._splits import LeakWarning, make_folds
from sag_research.deadend._sql import prefix_counts
from sag_research.deadend._stack import PrefixRisk
from sag_research.deadend._step import SeenStep, prefixes_of_steps

__all__ = [
    "BASELINES",
    "MODELS",
    "Agreement",
    "Alarm",
    "Backtest",
    "Comparison",
    "DeadEndMonitor",
    "EntityRuleWatch",
    "ForkSet",
    "Kappa",
    "LeakWarning",
    "Looks",
    "OutOfFold",
    "PrefixIndex",
    "PrefixRisk",
    "Prefixes",
    "RiskModel",
    "SeenStep",
    "SmallSampleWarning",
    "StepSets",
    "StepTable",
    "Stream",
    "Verdict",
    "Where",
    "agreement",
    "auroc",
    "backtest",
    "beta_interval",
    "break_even",
    "calibrate_forks",
    "calibrate_steps",
    "cohen_kappa",
    "compare",
    "cross_fit",
    "cumulative_incidence",
    "fork_point",
    "hindsight",
    "identity_ceiling",
    "load",
    "locate",
    "look_grid",
    "make_folds",
    "model_of",
    "net_benefit",
    "observability_ceiling",
    "pass_at_k",
    "pilot",
    "prefix_counts",
    "prefixes_of_steps",
    "read_prefixes",
    "reliability",
    "save",
    "wilson",
]
