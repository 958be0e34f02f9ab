"""What is asked wrongly, damaged or empty is refused in words, or answered; it never lies."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sag_research.deadend import (
    Alarm,
    DeadEndMonitor,
    Looks,
    Prefixes,
    PrefixRisk,
    backtest,
    calibrate_steps,
    load,
    locate,
    model_of,
    save,
)
from sag_research.deadend._model import RiskModel
from sag_research.deadend._prefixes import Floats
from sag_research.deadend._step import see
from sag_research.errors import NotEnoughDataError, SchemaError, UsageError
from sag_research.extract import Vocabulary
from tests.deadend.evaluation import Constant, Share
from tests.deadend.features import cohort

A, B, C = "look|src|ok", "edit|src|ok", "test|test|test-fail"


def short(tokens: list[str], **more: Any) -> Prefixes:
    """Forty runs with the same tokens, ten tasks."""
    tasks = [f"t{i // 4}" for i in range(40)]
    return Prefixes.from_tokens([tokens] * 40, ["failure", "success"] * 20, tasks, **more)


@pytest.mark.parametrize("name", ["repeat-3", "knn", "counts-logistic", "hazard", "backoff"])
def test_no_run_to_score_gives_no_score(name: str) -> None:
    model = model_of(name).fit(short([A, B, C]))
    assert model.predict(short([A]).take([])).shape == (0,)


@pytest.mark.parametrize("tokens", [[], [A]])
def test_runs_without_a_decision_point(tokens: list[str]) -> None:
    runs = short(tokens)
    assert model_of("knn").fit(runs).predict(short([A, B])).tolist() == [0.5] * 80
    with pytest.raises(NotEnoughDataError, match="no decision point"):
        backtest(runs, ["hazard"], folds=2)
    with pytest.raises(NotEnoughDataError, match="no run of this cohort has a look"):
        Alarm(alpha=0.2).calibrate(model_of("hazard").fit(short([A, B])), renamed(runs))


def test_outcomes_that_are_known_at_once_leave_nothing_to_test() -> None:
    with pytest.raises(NotEnoughDataError, match="no decision point"):
        backtest(short([A, B, C], known_at_step=[0] * 40), ["hazard"], folds=2)


def renamed(runs: Prefixes) -> Prefixes:
    """The same runs under other names, which no model has seen."""
    named = runs.runs.assign(run_id="new " + runs.runs["run_id"], task_id="n" + runs.runs.task_id)
    return Prefixes.of(named, runs.start, runs.stop, runs.table)


# ------------------------------------------------------------------------ cohorts and looks


def test_looks_and_masks_that_do_not_fit_are_refused() -> None:
    runs = short([A, B, C])
    for points in ([0], [-1, 2]):
        with pytest.raises(UsageError, match="1 is after the first step"):
            runs.looks(points)
    with pytest.raises(UsageError, match="mask of shape"):
        runs.take([True, False])
    with pytest.raises(UsageError, match="run 0 stops before it starts"):
        Prefixes.of(runs.runs, runs.stop, runs.start, runs.table)


@pytest.mark.parametrize(("run", "seen"), [(0, 0), (0, 4), (-1, 1), (40, 1)])
def test_a_look_beyond_its_run_reads_no_other_run(run: int, seen: int) -> None:
    runs = short([A, B, C])
    model = model_of("backoff").fit(runs)
    looks = Looks(np.array([0, run]), np.array([3, seen]))
    with pytest.raises(UsageError, match=f"no look at run {run} after {seen} steps"):
        model.predict(runs, looks)


# ------------------------------------------------------------------------ models of others


class Broken(RiskModel):
    """Gives something else than one number a look."""

    name = "broken"

    def __init__(self, how: str = "nan") -> None:
        self.how = how

    def _fit(self, prefixes: Prefixes, looks: Looks, failed: Floats, weight: Floats) -> None:
        pass

    def _predict(self, prefixes: Prefixes, looks: Looks) -> Any:
        n = len(looks.run)
        given = {"nan": np.full(n, math.nan), "longer": np.zeros(n + 1), "column": np.zeros((n, 1)),
                 "none": None, "one": 0.5, "words": ["high"] * n}  # fmt: skip
        return given[self.how]


@pytest.mark.parametrize("how", ["nan", "longer", "column", "none", "one", "words"])
def test_a_model_that_gives_no_scores_is_refused_everywhere(how: str) -> None:
    runs = short([A, B, C])
    model, new = Broken(how).fit(runs), renamed(runs)
    uses: list[Callable[[], object]] = [
        lambda: model.predict(new),
        lambda: Alarm(alpha=0.2).calibrate(model, new),
        lambda: locate(model, new, 0),
        lambda: calibrate_steps(model, new, [1] * 40),
        lambda: backtest(runs, [Broken(how)], baselines=False, folds=2),
    ]
    for use in uses:
        with pytest.raises(UsageError, match="model 'broken' gave"):
            use()


def test_models_are_told_by_name_or_given() -> None:
    runs = short([A, B, C])
    settings: dict[str, Any] = {"baselines": False, "folds": 2, "draws": 20}
    with pytest.raises(UsageError, match="no model to judge"):
        backtest(runs, [], **settings)
    for wrong in ([3], [PrefixRisk]):
        with pytest.raises(UsageError, match="is no model"):
            backtest(runs, wrong, **settings)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="0 repeats"):
        backtest(runs, ["hazard"], repeats=0, **settings)
    with pytest.raises(UsageError, match="no probability below 1"):
        backtest(runs, ["hazard"], p_star=1.5, **settings)
    found = backtest(runs, {"mine": "hazard"}, **settings | {"baselines": "cap-p75"})  # type: ignore[dict-item]
    assert list(found.judged) == ["mine", "cap-p75", "cap-p75 (own alarm)"]
    assert "2 models" in repr(found)  # an own alarm is no further model


def test_what_is_not_fitted_says_so() -> None:
    runs, model = short([A, B, C]), model_of("hazard")
    uses: list[Callable[[], object]] = [
        lambda: Alarm(alpha=0.2).calibrate(model, runs),
        lambda: locate(model, runs, 0),
        lambda: calibrate_steps(model, runs, [1] * 40),
    ]
    for use in uses:
        with pytest.raises(UsageError, match="is not fitted"):
            use()


# ------------------------------------------------------------------------ alarms


def test_an_alarm_that_stops_all_late_runs_says_so() -> None:
    # of 40 successes one is alive after 12 steps: at alpha = .1 every run may be stopped there
    lengths = [20] * 20 + [20] + [5] * 39
    outcomes = ["failure"] * 20 + ["success"] * 40
    runs = Prefixes.from_tokens([[A] * n for n in lengths], outcomes)
    model = Constant().fit(short([A, B]))
    alarm = Alarm(alpha=0.1, rule="split", min_step=12).calibrate(model, renamed(runs))
    row = alarm.table_.iloc[0]
    assert alarm.fires(12, 0.0)
    assert (row["alpha_used"], row["n_alarms"], row["recall"]) == (0.1, 21, 1.0)
    assert row["false_aborts"] == pytest.approx(1 / 40)


@pytest.mark.parametrize("p_star", [-1.0, 7.0, math.nan])
def test_a_p_star_that_is_no_probability_acts_on_nothing(p_star: float) -> None:
    runs = renamed(short([A, B, C]))
    model = Share().fit(short([A, B]))
    with pytest.raises(UsageError, match="is no probability"):
        Alarm(alpha=0.2, mode="intervene", p_star=p_star).calibrate(model, runs)


# ------------------------------------------------------------------------ steps


@pytest.mark.parametrize("code", [pd.NA, "boom", [1], 10**400, None, math.nan])
def test_an_exit_code_that_is_no_number_is_unknown(code: object) -> None:
    seen = see({"action": "ls", "observation": "a", "exit_code": code}, Vocabulary())
    assert math.isnan(seen.exit_code)
    assert seen.token == see({"action": "ls", "observation": "a"}, Vocabulary()).token


def test_the_exit_code_is_that_of_the_last_call() -> None:
    calls = [{"name": "bash", "exit_code": 0}, {"name": "bash", "exit_code": 2}]
    assert see({"action": "ls", "calls": calls}, Vocabulary()).exit_code == 2
    assert math.isnan(see({"action": "ls", "calls": []}, Vocabulary()).exit_code)


@pytest.mark.parametrize("nothing", [None, math.nan, pd.NA, b"ls", ["ls"]])
def test_a_text_that_is_no_text_is_empty(nothing: object) -> None:
    step = {"thought": nothing, "action": nothing, "observation": nothing}
    assert see(step, Vocabulary())[:4] == see({}, Vocabulary())[:4]


@pytest.mark.parametrize("step", [None, "ls", b"ls", 3, ["ls"]])
def test_what_is_no_step_is_refused_and_not_counted(stack: PrefixRisk, step: Any) -> None:
    monitor = DeadEndMonitor(Alarm(alpha=0.2).calibrate(stack, known()))
    with pytest.raises(UsageError, match="a step is no"):
        monitor.observe(step)
    assert (monitor.seen_, monitor.verdicts_) == (0, [])


# ------------------------------------------------------------------------ saved models


def known() -> Prefixes:
    return cohort(tasks=30, seed=1)


@pytest.fixture(scope="module")
def stack() -> PrefixRisk:
    return PrefixRisk(text=False, trees=5, min_leaf=5, folds=3).fit(known())


@pytest.fixture(scope="module")
def saved(stack: PrefixRisk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    alarm = Alarm(alpha=0.2).calibrate(stack, known())
    return save(alarm, tmp_path_factory.mktemp("models") / "good")


def changed(saved: Path, tmp_path: Path, change: Callable[[Any], object]) -> Path:
    """A copy of a saved alarm whose JSON was edited."""
    told = json.loads(saved.read_text(encoding="utf-8"))
    change(told)
    (tmp_path / "m.json").write_text(json.dumps(told), encoding="utf-8")
    (tmp_path / "m.npz").write_bytes(saved.with_suffix(".npz").read_bytes())
    return tmp_path / "m"


CHANGES: dict[str, Callable[[Any], object]] = {
    "no model": lambda x: x.pop("model"),
    "no alarm": lambda x: x.pop("alarm"),
    "model is a list": lambda x: x.update(model=[]),
    "name is a dict": lambda x: x["model"].update(name={}),
    "strange parameter": lambda x: x["model"]["parameters"].update(zzz=1),
    "no base rate": lambda x: x["model"].update(base_rate="?"),
    "nothing learnt": lambda x: x["model"].update(learnt=None),
    "no parts": lambda x: x["model"]["learnt"].update(parts=[]),
    "no runs": lambda x: x["model"].update(runs=None),
    "threshold a word": lambda x: x["alarm"]["numbers"].update(threshold_="high"),
    "threshold NaN": lambda x: x["alarm"]["numbers"].update(threshold_="nan"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_edited_model_is_refused_in_words(name: str, saved: Path, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="do not hold what save"):
        load(changed(saved, tmp_path, CHANGES[name]))


def test_json_that_nests_too_deep_is_refused(saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path, lambda x: None)
    path.with_suffix(".json").write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(SchemaError, match="cannot be read"):
        load(path)


def packed(data: bytes, saved: Path, tmp_path: Path) -> Path:
    """Other arrays, with a JSON file that vouches for them."""
    digest = blake2b(data, digest_size=16).hexdigest()
    path = changed(saved, tmp_path, lambda x: x.update(arrays=digest))
    path.with_suffix(".npz").write_bytes(data)
    return path


def test_damaged_arrays_are_refused(saved: Path, tmp_path: Path) -> None:
    good = saved.with_suffix(".npz").read_bytes()
    plain = io.BytesIO()
    np.save(plain, np.zeros(3))
    for data in (b"", good[: len(good) // 2], plain.getvalue()):
        with pytest.raises(SchemaError):
            load(packed(data, saved, tmp_path))
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        first = archive.infolist()[0]
    at = first.header_offset + 30 + len(first.filename) + len(first.extra) + 20
    refused = 0
    for place in range(at, at + 60):
        flipped = good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :]
        try:
            load(packed(flipped, saved, tmp_path))
        except SchemaError:
            refused += 1
    assert refused >= 1


def test_arrays_that_are_missing_or_of_another_shape(saved: Path, tmp_path: Path) -> None:
    with np.load(saved.with_suffix(".npz"), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    without = {k: v for k, v in arrays.items() if k != "weights_coef"}
    for wrong in (without, arrays | {"weights_coef": np.zeros(1)}):
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **wrong)
        with pytest.raises(SchemaError, match="do not hold what save"):
            load(packed(content.getvalue(), saved, tmp_path))
