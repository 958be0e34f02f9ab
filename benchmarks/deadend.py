"""How well failure is seen coming: on worlds whose truth is known, and on real runs.

    SAG_REAL_DATA=... python benchmarks/deadend.py [--seeds 10] [--repeats 5] [--parts traps tau]

Worlds (``sag_research.lab.synthetic``, 500 tasks x 4 runs, grouped by task): every model and the
oracle, with alarms at alpha = .05 by two rules, and where failed runs were lost. Shift: families
of tasks held out. Real runs, where ``SAG_REAL_DATA`` names a folder of them: tau-bench by task and
by a random split, and mini-swe-agent with the share of the outcome that prefixes can tell at all.
Numbers are means over seeds with their standard error; on real runs, intervals resample tasks.
Nothing is timed. Written to ``benchmarks/results/deadend.json`` after each seed and part.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import sag_research as sag
from sag_research.deadend import (
    Prefixes,
    RiskModel,
    backtest,
    calibrate_steps,
    locate,
    observability_ceiling,
)
from sag_research.deadend._backtest_run import (
    AlarmPlan,
    Judged,
    Units,
    first_alarms,
    judge,
    thresholds_of,
    units_of,
)
from sag_research.deadend._backtest_table import alarms_of
from sag_research.deadend._crossfit import fresh
from sag_research.deadend._locate import first_error, last_repeat
from sag_research.deadend._metrics import auroc, brier, holm, wilson
from sag_research.deadend._models import model_of
from sag_research.deadend._splits import Fold, LeakWarning, make_folds
from sag_research.lab.synthetic import WORLDS, OracleRisk, SyntheticSet, generate

RESULT = Path(__file__).resolve().parent / "results" / "deadend.json"
ALPHA = 0.05
RULES = ("split", "fold-safe")
BASELINES = ("majority", "hazard", "cap-p75", "repeat-3", "prior", "sag-entity-rule", "trie",
             "backoff", "markov", "counts-logistic", "behaviour-trees", "knn")  # fmt: skip
REAL = ("stack", "hazard", "characters", "cap-p75", "repeat-3", "prior", "sag-entity-rule", "trie",
        "backoff", "markov", "counts-logistic", "behaviour-trees", "text-tfidf", "knn")  # fmt: skip
COMPARED = ("hazard", "sag-entity-rule", "counts-logistic")
KEPT = ("auroc", "auroc_5", "auroc_10", "auroc_20", "max_auroc_10", "auprc", "brier", "ece",
        "false_aborts", "recall", "precision", "steps_saved", "random_steps_saved",
        "random_false_aborts", "net_benefit")  # fmt: skip
ALPHA_SET = 0.1  # share of step sets that may miss the true step
NEAR = 2  # steps

Row = dict[str, Any]


# ---------------------------------------------------------------- worlds


def by_rules(
    model: RiskModel, known: Prefixes, folds: Sequence[Fold], group_by: str, seed: int
) -> dict[str, Judged]:
    """Score runs by models that have not seen them; the same scores with alarms by each rule."""
    plan = AlarmPlan(ALPHA, RULES[0], 1, group_by, group_by, seed)
    judged, units = judge(model, known, folds, plan), units_of(folds)
    found = {}
    for rule in RULES:
        thresholds = thresholds_of(judged.calibrations, plan._replace(rule=rule))
        values = np.array([threshold.value for threshold in thresholds])
        stop = first_alarms(judged.scores, units, values)
        found[rule] = judged._replace(thresholds=thresholds, stop=stop)
    if judged.own_stop is not None:
        found["own"] = judged.by_own_rule(judged.own_stop)
    return found


def numbers(judged: Mapping[str, Judged], units: Units) -> Row:
    """What one model did in one world and seed."""
    scores = judged[RULES[0]].scores
    row: Row = {"auroc": auroc(scores.failed, scores.scores, scores.weight, scores.fold)}
    if judged[RULES[0]].model.calibrated:
        row["brier"] = brier(scores.failed, scores.scores, scores.weight)
        row["brier_looks"] = brier(scores.failed, scores.scores)
    for rule, found in judged.items():
        alarms = alarms_of(found, units)
        good = alarms.failed == 0
        stopped = alarms.stopped
        by_fold = [stopped[good & (units.fold == f)].mean() for f in np.unique(units.fold)]
        row[rule] = {
            "false_aborts": stopped[good].mean(),
            "false_aborts_mean_of_folds": np.mean(by_fold),
            "false_aborts_worst_fold": max(by_fold),
            "recall": stopped[~good].mean(),
            "precision": (~good)[stopped > 0].mean() if stopped.any() else math.nan,
            "steps_saved": alarms.saved[:, 0].sum() / alarms.total[:, 0].sum(),
            "random_steps_saved": alarms.random_saved[:, 0].sum() / alarms.total[:, 0].sum(),
        }
    return row


def world(name: str, seeds: Sequence[int], options: argparse.Namespace) -> Iterator[Row]:
    """Every model in one world; what is known after each seed."""
    rows: dict[str, list[Row]] = {}
    found: list[pd.DataFrame] = []
    for seed in seeds:
        made = generate(name, tasks=options.tasks, runs=4, seed=seed)
        folds = make_folds(made.prefixes, "group", "task_id", options.folds, 1, seed)
        models = {"oracle": OracleRisk(name), "stack": model_of("stack")}
        models |= {baseline: model_of(baseline) for baseline in options.models}
        for which, model in models.items():
            judged = by_rules(model, made.prefixes, folds, "task_id", seed)
            rows.setdefault(which, []).append(numbers(judged, units_of(folds)))
            print(f"{name} seed {seed}: {which} done", flush=True)
        if (made.lost_at >= 0).any():
            found.append(located(made, fresh(model_of("stack"), seed), folds[0]))
        result = {"seeds": seed + 1, "models": {k: summary(v) for k, v in rows.items()}}
        yield result | ({"located": nearness(pd.concat(found))} if found else {})


def summary(rows: Sequence[Mapping[str, Any]]) -> Row:
    """Mean and standard error over seeds, level by level."""
    return {
        key: summary([row[key] for row in rows])
        if isinstance(rows[0][key], Mapping)
        else mean_se([float(row[key]) for row in rows])
        for key in rows[0]
    }


def mean_se(values: Sequence[float]) -> Row:
    """Mean over seeds, and its standard error where there are two or more."""
    known = np.array([v for v in values if not math.isnan(v)])
    if not len(known):
        return {"mean": None, "n": 0}
    se = float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else None
    return {"mean": rounded(known.mean()), "se": None if se is None else rounded(se),
            "n": len(known)}  # fmt: skip


def rounded(value: float) -> float | None:
    """Four digits; nothing where unknown."""
    return None if value is None or math.isnan(value) else round(float(value), 4)


# ---------------------------------------------------------------- where runs were lost


def located(made: SyntheticSet, model: RiskModel, fold: Fold) -> pd.DataFrame:
    """Where lost test runs are said to have been lost, by us and by two plain rules.

    The size of the step sets is set by the lost test runs of every other task, and all is tried on
    those of the others.
    """
    model.fit(made.prefixes.take(fold.train))
    tested, lost_at = made.prefixes.take(fold.test), made.lost_at[fold.test]
    known = tested.groups() % 2 == 0
    sets = calibrate_steps(model, tested.take(known), lost_at[known], ALPHA_SET)
    rows = []
    for run in np.flatnonzero((lost_at >= 0) & ~known).tolist():
        where, one = locate(model, tested, run, sets=sets), tested.take([run])
        row = {
            "truth": int(lost_at[run]),
            "n_steps": int(one.n_steps[0]),
            "fork": where.fork_step,
            "change": where.change_step,
            "first_error": first_error(one),
            "last_repeat": last_repeat(one),
        }
        row |= {"covered": row["truth"] in where.step_set, "size": len(where.step_set)}
        rows.append(row)
    return pd.DataFrame(rows)


def nearness(table: pd.DataFrame) -> Row:
    """Share of guesses within two steps of the truth, and coverage of the set."""
    result: Row = {"runs": len(table), "median_steps": float(table["n_steps"].median())}
    table = table.assign(middle=table["n_steps"] // 2)
    for name in ("fork", "change", "first_error", "last_repeat", "middle"):
        guess = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
        off = np.abs(guess - table["truth"].to_numpy(float))
        hits = int((off <= NEAR).sum())
        low, high = wilson(hits, len(table))
        result[name] = {
            "within_2": rounded(hits / len(table)),
            "low": rounded(low),
            "high": rounded(high),
            "no_answer": int(np.isnan(guess).sum()),
            "median_distance": rounded(float(np.nanmedian(off))),
        }
    low, high = wilson(int(table["covered"].sum()), len(table))
    result["step_set"] = {
        "coverage": rounded(table["covered"].mean()),
        "low": rounded(low),
        "high": rounded(high),
        "median_size": float(table["size"].median()),
        "mean_share_of_run": rounded((table["size"] / table["n_steps"]).mean()),
    }
    return result


# ---------------------------------------------------------------- shift


def shift(seeds: Sequence[int], options: argparse.Namespace) -> Iterator[Row]:
    """Alarms on families of tasks that were not trained on; what is known after each seed."""
    rows: dict[str, list[Row]] = {}
    for seed in seeds:
        made = generate("traps", tasks=options.tasks, runs=4, seed=seed, shift=1.0)
        folds = make_folds(made.prefixes, "group", "repo", options.folds, 1, seed)
        models = {"oracle": OracleRisk("traps", 1.0), "stack": model_of("stack")}
        models |= {name: model_of(name) for name in ("backoff", "counts-logistic")}
        for which, model in models.items():
            if which == "stack":
                model.set_params(group_by="repo")
            judged = by_rules(model, made.prefixes, folds, "repo", seed)
            rows.setdefault(which, []).append(numbers(judged, units_of(folds)))
        print(f"shift seed {seed} done", flush=True)
        yield {"seeds": seed + 1, "models": {k: summary(v) for k, v in rows.items()}}


# ---------------------------------------------------------------- real runs


def cohort(paths: Sequence[Path], labels: Path | None) -> Prefixes:
    """Read real runs, and the entities that they name."""
    with sag.open(":memory:") as ws:
        ws.ingest(*paths, labels=labels, progress=False)
        return ws.prefixes("outcome <> 'unknown'")


def shown(table: pd.DataFrame) -> Row:
    """The numbers of a backtest's table, with intervals."""
    rows: Row = {}
    for record in table.to_dict("records"):
        kept = {k: [rounded(record[f"{k}{end}"]) for end in ("", "_low", "_high")]
                for k in KEPT if k in record}  # fmt: skip
        counts = {k: int(record[k]) for k in record if k.startswith("n_") or k == "n"}
        kept |= {"counts": counts, "worst_fold": rounded(record["false_aborts_worst_fold"])}
        rows[record["model"]] = kept
    return rows


def real(prefixes: Prefixes, splits: Sequence[str], options: argparse.Namespace) -> Row:
    """One data set under each split."""
    result: Row = {"cohort": repr(prefixes)}
    for split in splits:
        found = backtest(
            prefixes, REAL, folds=5, repeats=options.repeats, seed=0, split=split,
            allow_leak=split == "random", alpha=ALPHA, baselines=("majority",),
        )  # fmt: skip
        result[split] = {"table": shown(found.table_), "left_out": found.left_out}
        if split == "group":
            paired = found.paired("stack").query("other in @COMPARED")
            paired = paired.assign(p_holm=holm(paired["p"]))  # over the three that were asked for
            result["paired"] = json.loads(paired.to_json(orient="records", double_precision=4))
        print(f"{split} split done", flush=True)
    if len(splits) > 1:
        one, other = (result[s]["table"] for s in ("random", "group"))
        result["leak"] = {m: rounded(one[m]["auroc"][0] - other[m]["auroc"][0]) for m in one}
    return result


def tau(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """tau-bench, airline: 50 tasks x 4 runs."""
    yield real(cohort([folder / "taubench"], None), ("group", "random"), options)


def mini(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """mini-swe-agent on SWE-bench Verified: one run a task."""
    home = folder / "mini_swe_agent_v1_gemini3pro_verified"
    prefixes = cohort([home / "trajs"], home / "reports")
    result = real(prefixes, ("group",), options)
    table = observability_ceiling(prefixes)
    yield result | {"ceiling": json.loads(table.to_json(orient="records", double_precision=4))}


# ---------------------------------------------------------------- what was asked for


def targets(result: Mapping[str, Any]) -> Row:
    """Each target as asked, what was measured, and whether it was met."""
    found: Row = {}
    if "traps" in result:
        models = result["traps"]["models"]
        value = lambda model, *keys: at(models[model], *keys)  # noqa: E731
        stack, oracle = value("stack", "auroc"), value("oracle", "auroc")
        best = max((value(m, "auroc"), m) for m in models if m not in ("oracle", "stack"))
        gap = value("stack", "brier") - value("oracle", "brier")
        found["AUROC within .06 of the oracle"] = verdict(oracle - stack, oracle - stack <= 0.06)
        found[f"AUROC above every baseline (best: {best[1]})"] = verdict(
            stack - best[0], stack > best[0]
        )
        found["Brier within .02 of the oracle"] = verdict(gap, gap <= 0.02)
        for rule, least in (("split", 0.12), ("fold-safe", 0.08)):
            saved = value("stack", rule, "steps_saved")
            aborts = value("stack", rule, "false_aborts")
            found[f"{rule}: steps saved >= {least}"] = verdict(saved, saved >= least)
            found[f"{rule}: mean false aborts <= .06"] = verdict(aborts, aborts <= 0.06)
    if "shift" in result:
        rules = result["shift"]["models"]["stack"]
        safe = rules["fold-safe"]["false_aborts"]
        limit = ALPHA + (safe["se"] or 0.0)
        found["shift: fold-safe mean false aborts <= alpha + 1 SE"] = verdict(
            safe["mean"], safe["mean"] <= limit
        )
        plain = at(rules, "split", "false_aborts")
        found["shift: plain split overshoots alpha"] = verdict(plain, plain > ALPHA)
    if "tau" in result:
        value = result["tau"]["group"]["table"]["stack"]["auroc"][0]
        found["tau-bench: AUROC by task >= .65"] = verdict(value, value >= 0.65)
    return found


def at(row: Mapping[str, Any], *keys: str) -> float:
    """A mean, some levels down."""
    for key in keys:
        row = row[key]
    return float(row["mean"])


def verdict(value: float, met: bool) -> Row:
    """A number, and whether it is what was asked for."""
    return {"value": rounded(value), "met": bool(met)}


def write(result: Row, options: argparse.Namespace) -> None:
    """Write what is known so far."""
    measured = {k: v for k, v in result.items() if isinstance(v, dict)}
    result["targets"] = targets(measured)
    result["settings"] = {
        "alpha": ALPHA,
        "tasks": options.tasks,
        "runs": 4,
        "folds": options.folds,
        "repeats": options.repeats,
        "python": platform.python_version(),
    }
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the parts and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="of the folds of real runs")
    parser.add_argument("--models", nargs="*", default=list(BASELINES))
    parser.add_argument("--parts", nargs="*", default=[*WORLDS, "shift", "tau", "mini"])
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    warnings.simplefilter("ignore", LeakWarning)
    seeds = range(options.seeds)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        name: lambda name=name: world(name, seeds, options)
        for name in WORLDS  # type: ignore[misc]
    } | {"shift": lambda: shift(seeds, options)}
    folder = os.environ.get("SAG_REAL_DATA")
    if folder:
        parts["tau"] = lambda: tau(Path(folder), options)
        parts["mini"] = lambda: mini(Path(folder), options)
    result: Row = (
        json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    )
    for name in options.parts:
        if name not in parts:
            result[name] = "skipped: SAG_REAL_DATA is not set"
            continue
        for found in parts[name]():
            result[name] = found
            write(result, options)
    print(json.dumps(result.get("targets", {}), indent=1))


if __name__ == "__main__":
    main()
