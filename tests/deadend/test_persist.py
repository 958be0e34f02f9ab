"""Models and alarms on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sag_research.deadend import Prefixes, StepTable
from sag_research.deadend._alarm import Alarm
from sag_research.deadend._model import RiskModel
from sag_research.deadend._models import MODELS, model_of
from sag_research.deadend._persist import load, save
from sag_research.deadend._stack import PrefixRisk
from sag_research.errors import MissingDataError, SchemaError, UsageError
from sag_research.extract import Vocabulary
from tests.deadend.features import cohort

SMALL = {"trees": 20, "min_leaf": 5}
UNSAVED = {"boosting", "knn"}


def with_entities(prefixes: Prefixes) -> Prefixes:
    """The same runs, each step naming two of five entities."""
    n = len(prefixes.table)
    ids = np.random.default_rng(0).integers(0, 5, 2 * n).astype(np.int32)
    old = prefixes.table
    entities = (np.arange(0, 2 * n + 1, 2), ids, [f"File:{i}" for i in range(5)])
    table = StepTable(old.tokens, old.names, old.columns, entities, Vocabulary())
    return Prefixes(prefixes.runs, prefixes.start, prefixes.stop, table)


@pytest.fixture(scope="module")
def prefixes() -> Prefixes:
    return with_entities(cohort(tasks=36, seed=1))


@pytest.fixture(scope="module")
def stack(prefixes: Prefixes) -> PrefixRisk:
    return PrefixRisk(**SMALL).fit(prefixes)


@pytest.mark.parametrize("name", sorted(set(MODELS) - UNSAVED - {"stack"}))
def test_a_model_comes_back_as_it_was(name: str, prefixes: Prefixes, tmp_path: Path) -> None:
    model = model_of(name)
    if "trees" in model.get_params():
        model.set_params(**SMALL)
    model.fit(prefixes)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert type(again) is type(model)
    assert isinstance(again, RiskModel)
    assert again.predict(prefixes).tolist() == model.predict(prefixes).tolist()
    assert again.get_params().keys() == model.get_params().keys()
    assert again.fitted_runs_ == model.fitted_runs_
    assert again.fitted_tasks_ == model.fitted_tasks_
    assert again.base_rate_ == model.base_rate_


def test_a_stack_comes_back_with_its_explanations(
    stack: PrefixRisk, prefixes: Prefixes, tmp_path: Path
) -> None:
    own = stack.out_of_fold_
    save(stack, tmp_path / "m.json")
    again = load(tmp_path / "m.npz")
    assert isinstance(again, PrefixRisk)
    assert again.predict(prefixes).tolist() == stack.predict(prefixes).tolist()
    assert again.table_.equals(stack.table_)
    some = prefixes.take([3])
    assert again.explain(some).equals(stack.explain(some))
    kept = again.out_of_fold_
    for name in ("scores", "fold", "repeat"):
        assert np.array_equal(getattr(kept, name), getattr(own, name))
    assert kept.failed.tolist() == own.failed.tolist()
    assert again.similar_.n.tolist() == stack.similar_.n.tolist()
    # enough to calibrate an alarm by
    alarms = [Alarm(alpha=0.2).calibrate(risk, prefixes) for risk in (stack, again)]
    assert alarms[0].threshold_ == alarms[1].threshold_


def test_unseen_scores_are_kept_only_if_they_were_asked_for(
    prefixes: Prefixes, tmp_path: Path
) -> None:
    save(PrefixRisk(**SMALL, text=False).fit(prefixes), tmp_path / "m")
    again = load(tmp_path / "m")
    with pytest.raises(UsageError, match="saved without scores"):
        _ = again.out_of_fold_  # type: ignore[union-attr]


def test_an_alarm_comes_back_with_its_model(
    stack: PrefixRisk, prefixes: Prefixes, tmp_path: Path
) -> None:
    alarm = Alarm(alpha=0.2, min_step=2).calibrate(stack, prefixes)
    save(alarm, tmp_path / "m")
    again = load(tmp_path / "m")
    assert isinstance(again, Alarm)
    assert again.table_.equals(alarm.table_)
    assert again.get_params() == alarm.get_params()
    assert again.threshold_ == alarm.threshold_
    assert again.fires(3, 0.999) == alarm.fires(3, 0.999)
    assert again.risk_.predict(prefixes).tolist() == stack.predict(prefixes).tolist()


def test_neither_texts_nor_words_are_saved(stack: PrefixRisk, tmp_path: Path) -> None:
    written = save(stack, tmp_path / "m")
    data = written.read_bytes() + (tmp_path / "m.npz").read_bytes()
    assert b"parser" not in data
    assert b"src/a.py" not in data


def test_nothing_can_be_unpickled(stack: PrefixRisk, tmp_path: Path) -> None:
    save(stack, tmp_path / "m")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)


# --------------------------------------------------------------------------- refusals


@pytest.fixture
def saved(prefixes: Prefixes, tmp_path: Path) -> Path:
    return save(model_of("hazard").fit(prefixes), tmp_path / "m")


def rewrite(path: Path, **change: Any) -> None:
    written = json.loads(path.read_text(encoding="utf-8")) | change
    path.write_text(json.dumps(written), encoding="utf-8")


def test_missing_files(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(MissingDataError, match="no saved model"):
        load(tmp_path / "other")
    saved.with_suffix(".npz").unlink()
    with pytest.raises(MissingDataError, match=r"m\.npz"):
        load(saved)


def test_arrays_of_another_model(saved: Path) -> None:
    numbers = saved.with_suffix(".npz")
    numbers.write_bytes(numbers.read_bytes() + b"x")
    with pytest.raises(SchemaError, match="not the file that"):
        load(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "else"}'])
def test_other_json(saved: Path, text: str) -> None:
    saved.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError):
        load(saved)


def test_a_newer_version(saved: Path) -> None:
    rewrite(saved, version=2)
    with pytest.raises(SchemaError, match="version 2"):
        load(saved)


def test_arrays_that_are_no_arrays(saved: Path) -> None:
    from hashlib import blake2b

    saved.with_suffix(".npz").write_bytes(b"no zip")
    rewrite(saved, arrays=blake2b(b"no zip", digest_size=16).hexdigest())
    with pytest.raises(SchemaError, match="cannot be read"):
        load(saved)


def test_other_tokens_are_refused(prefixes: Prefixes, saved: Path, tmp_path: Path) -> None:
    model = json.loads(saved.read_text(encoding="utf-8"))["model"]
    assert model["vocabulary"] == Vocabulary().version
    rewrite(saved, model=model | {"vocabulary": "tokens-0-00000000"})
    with pytest.raises(UsageError, match="tokens-0-00000000"):
        load(saved)


def test_other_features_are_refused(
    prefixes: Prefixes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save(model_of("behaviour-trees").set_params(**SMALL).fit(prefixes), tmp_path / "b")
    monkeypatch.setattr("sag_research.deadend._forest.behaviour_version", lambda: "behaviour-9")
    with pytest.raises(UsageError, match="fit it again"):
        load(saved)


@pytest.mark.parametrize("name", sorted(UNSAVED))
def test_models_that_cannot_be_saved_say_so(name: str, prefixes: Prefixes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be saved"):
        save(model_of(name).fit(prefixes), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_an_unfitted_model_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not fitted"):
        save(PrefixRisk(), tmp_path / "m")


def test_a_folder_that_is_not_there_is_named(stack: PrefixRisk, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        save(stack, tmp_path / "models" / "first")
