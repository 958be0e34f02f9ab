"""Fitted models and alarms as two files: arrays as ``.npz``, all else as ``.json``."""

from __future__ import annotations

import io
import json
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sag_research import __version__
from sag_research._text import atomic_write
from sag_research.deadend._alarm import Alarm
from sag_research.deadend._model import RiskModel
from sag_research.deadend._models import MODELS
from sag_research.errors import MissingDataError, SchemaError, UsageError
from sag_research.extract import Vocabulary

__all__ = ["load", "save"]

FORMAT = "sag-deadend"
VERSION = 1
_NOT_AS_WRITTEN = (KeyError, TypeError, ValueError, IndexError, AttributeError)

Arrays = dict[str, NDArray[Any]]
Meta = dict[str, Any]


def save(model: RiskModel | Alarm, path: str | PathLike[str]) -> Path:
    """Write a fitted model, or a calibrated alarm with its model.

    Parameters
    ----------
    model : RiskModel or Alarm
    path : path-like
        Name without ending: ``NAME.npz`` and ``NAME.json`` are written. Nothing in them is code.

    Returns
    -------
    Path
        The ``.json`` file.

    Raises
    ------
    UsageError
        If it is not fitted, is of a kind that cannot be saved, or its folder does not exist.
    """
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"no folder {str(Path(path).parent)!r}", fix="make it first")
    alarm, risk = (model, model.risk_) if isinstance(model, Alarm) else (None, model)
    if risk is None:
        raise UsageError(
            "an alarm without a model cannot be saved", fix="calibrate(risk, prefixes)"
        )
    arrays, meta = pack(risk)
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    data = content.getvalue()
    written = {
        "format": FORMAT,
        "version": VERSION,
        "package": __version__,
        "arrays": blake2b(data, digest_size=16).hexdigest(),
        "model": meta,
        "alarm": None if alarm is None else _pack_alarm(alarm),
    }
    numbers, text = _files(path)
    text_bytes = json.dumps(written, ensure_ascii=True, indent=1, allow_nan=False).encode()
    for target, content_bytes in ((numbers, data), (text, text_bytes)):
        with atomic_write(target) as file:
            file.write(content_bytes)
    return text


def load(path: str | PathLike[str], vocabulary: Vocabulary | None = None) -> RiskModel | Alarm:
    """Read what :func:`save` wrote.

    Parameters
    ----------
    path : path-like
        Name, with or without ending.
    vocabulary : Vocabulary, optional
        What makes tokens, if it was not the shipped one.

    Returns
    -------
    RiskModel or Alarm
        What was saved.

    Raises
    ------
    MissingDataError
        If a file is missing.
    SchemaError
        If the files are of another kind or version, damaged, or do not belong together.
    UsageError
        If the tokens would not be those that the model was fitted on.
    """
    numbers, text = _files(path)
    for file in (numbers, text):
        if not file.is_file():
            raise MissingDataError(
                f"no saved model at {file}", fix="fit one with `sag deadend fit`"
            )
    written = _read_meta(text)
    data = numbers.read_bytes()
    if blake2b(data, digest_size=16).hexdigest() != written.get("arrays"):
        raise SchemaError(
            f"{numbers.name} is not the file that {text.name} was written with",
            why="one of the two is damaged or from another model",
            fix="save the model again",
        )
    arrays = _read_arrays(data, numbers)
    try:
        risk = unpack(arrays, written["model"], vocabulary)
        alarm = None if written["alarm"] is None else _unpack_alarm(written["alarm"], risk)
    except _NOT_AS_WRITTEN as error:
        raise SchemaError(
            f"{text.name} and {numbers.name} do not hold what save() writes",
            why=f"{type(error).__name__}: {error}",
            fix="save the model again",
        ) from error
    return risk if alarm is None else alarm


def _files(path: str | PathLike[str]) -> tuple[Path, Path]:
    base = Path(path)
    if base.suffix in {".json", ".npz"}:
        base = base.with_suffix("")
    return base.with_name(base.name + ".npz"), base.with_name(base.name + ".json")


def _read_meta(path: Path) -> Meta:
    try:
        written = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path} cannot be read", why=str(error), fix="save it again") from error
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        raise SchemaError(f"{path} is no saved model", fix="pass what save() returned")
    if written.get("version") != VERSION:
        raise SchemaError(
            f"{path} has version {written.get('version')!r}",
            why=f"this package reads version {VERSION}",
            fix="fit the model again",
        )
    return written


_DAMAGED = (
    ValueError, OSError, EOFError, NotImplementedError, RuntimeError, MemoryError, SyntaxError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError,
)  # fmt: skip
"""What numpy and zipfile raise for a file that is not as it was written."""


def _read_arrays(data: bytes, path: Path) -> Arrays:
    try:
        file = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise SchemaError(f"{path} holds one array, not several", fix="save it again")
        with file:
            return {name: file[name] for name in file.files}
    except _DAMAGED as error:
        raise SchemaError(f"{path} cannot be read", why=str(error), fix="save it again") from error


# --------------------------------------------------------------------------- models


def pack(model: RiskModel) -> tuple[Arrays, Meta]:
    """Return a fitted model as arrays and as JSON."""
    model._check_fitted()
    if MODELS.get(model.name) is not type(model):
        raise UsageError(
            f"a model of class {type(model).__name__} cannot be saved", why="the package has none"
        )
    arrays, learnt = model._state()
    vocabulary = model.vocabulary_
    meta = {
        "name": model.name,
        "parameters": model.get_params(deep=False),
        "base_rate": model.base_rate_,
        "runs": sorted(model.fitted_runs_),
        "tasks": sorted(map(str, model.fitted_tasks_)),
        "vocabulary": None if vocabulary is None else vocabulary.version,
        "learnt": learnt,
    }
    return arrays, meta


def unpack(arrays: Arrays, meta: Meta, vocabulary: Vocabulary | None = None) -> RiskModel:
    """Make the model of what :func:`pack` returned."""
    if meta["name"] not in MODELS:
        raise SchemaError(f"no model {meta['name']!r} in this version of the package")
    model = MODELS[meta["name"]](**meta["parameters"])
    model.base_rate_ = float(meta["base_rate"])
    model.fitted_runs_, model.fitted_tasks_ = frozenset(meta["runs"]), frozenset(meta["tasks"])
    model.vocabulary_ = _checked_vocabulary(meta["vocabulary"], vocabulary)
    model._restore(arrays, meta["learnt"])
    return model


def _checked_vocabulary(version: str | None, given: Vocabulary | None) -> Vocabulary | None:
    if version is None:
        return given
    vocabulary = given or Vocabulary()
    if vocabulary.version != version:
        raise UsageError(
            f"the model reads tokens {version!r}, these would be {vocabulary.version!r}",
            fix="pass the vocabulary it was fitted with, or fit it again",
        )
    return vocabulary


def pack_parts(parts: Mapping[str, RiskModel]) -> tuple[Arrays, list[Meta]]:
    """Return several models, whose arrays are told apart by the part's number."""
    arrays: Arrays = {}
    metas = []
    for number, part in enumerate(parts.values()):
        own, meta = pack(part)
        # what the parts share with the whole is stored once
        metas.append({name: meta[name] for name in ("name", "parameters", "learnt")})
        arrays |= {f"part{number}_{name}": array for name, array in own.items()}
    return arrays, metas


def unpack_parts(arrays: Arrays, metas: list[Meta], whole: RiskModel) -> dict[str, RiskModel]:
    """Return the models of :func:`pack_parts`, fitted on the same runs as the whole."""
    parts = {}
    for number, meta in enumerate(metas):
        head = f"part{number}_"
        own = {k.removeprefix(head): v for k, v in arrays.items() if k.startswith(head)}
        shared = {"base_rate": whole.base_rate_, "runs": whole.fitted_runs_}
        part = unpack(own, meta | shared | {"tasks": whole.fitted_tasks_, "vocabulary": None})
        part.vocabulary_ = whole.vocabulary_
        parts[meta["name"]] = part
    return parts


# --------------------------------------------------------------------------- alarms

ALARM_NUMBERS = ("threshold_", "alpha_")


def _pack_alarm(alarm: Alarm) -> Meta:
    """Return the alarm's state; numbers as text, because a threshold may be infinite."""
    return {
        "parameters": alarm.get_params(deep=False),
        "numbers": {name: repr(float(getattr(alarm, name))) for name in ALARM_NUMBERS},
        "acts": bool(alarm.acts_),
        "tried": {name: repr(float(x)) for name, x in alarm._tried.items()},
    }


def _unpack_alarm(meta: Meta, risk: RiskModel) -> Alarm:
    alarm = Alarm(**meta["parameters"])
    for name in ALARM_NUMBERS:
        setattr(alarm, name, float(meta["numbers"][name]))
    if math.isnan(alarm.threshold_):
        raise ValueError("the threshold is no number")
    alarm.acts_ = bool(meta["acts"])
    tried = {name: float(x) for name, x in meta["tried"].items()}
    alarm._tried = {k: int(x) if k.startswith("n_") else x for k, x in tried.items()}
    alarm.risk_ = risk
    return alarm
