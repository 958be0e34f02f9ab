"""The shapes of reports: told by the types of their values, never by their names alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sag_research.ingest._labels_csv import of_table
from sag_research.ingest._labels_model import (
    EMPTY,
    ERROR,
    FAILURE,
    INCOMPLETE,
    INFRA,
    NO_APPLY,
    SUCCESS,
    UNKNOWN,
    Label,
    Verdict,
    as_id,
    is_flag,
)
from sag_research.ingest._labels_trials import is_trial, of_trial, of_trials
from sag_research.ingest.formats._shared import word
from sag_research.model import Outcome

__all__ = ["counters", "labels_in"]

_JUDGED: Final = r"completed|generated|with_logs|applied"
"""Lists of what was judged, whatever came out."""
_LISTS: Final[tuple[tuple[str, Verdict], ...]] = (
    (r"resolved", SUCCESS),
    (r"error|failed|install_fail|reset_failed|no_logs|test_errored|test_timeout", ERROR),
    (r"infra|infrastructure_error", INFRA),
    (r"incomplete|pending", INCOMPLETE),
    (r"empty_patch|empty_error_patch|no_generation", EMPTY),
    (r"no_apply", NO_APPLY),
    (r"unresolved", FAILURE),
    (_JUDGED, FAILURE),
)
"""What it means to stand in a list of this name; of several, the first is believed."""
_ORDER: Final = [verdict for _, verdict in _LISTS]

_FLAGS: Final[tuple[tuple[str, bool, Verdict], ...]] = (
    ("error_eval", True, ERROR),
    ("test_timeout", True, ERROR),
    ("empty_generation", True, EMPTY),
    ("patch_is_None", True, EMPTY),
    ("patch_exists", False, EMPTY),
    ("failed_apply_patch", True, NO_APPLY),
)
"""What a flag beside ``resolved: false`` makes of it; the first that is set is believed."""


def labels_in(value: Any, name: str, path: Path) -> list[Label] | None:
    """Read a report that was decoded; None if it is none.

    Parameters
    ----------
    value : object
        The decoded JSON.
    name : str
        The label source's name.
    path : Path
        Where the file is: the report of one instance may be named after it.
    """
    if isinstance(value, list):
        return _of_records(value, name)
    if not isinstance(value, dict):
        return None
    if is_trial(value):
        return [of_trial(value, name, path.absolute().parent)]
    if (trials := of_trials(value, name, path.absolute().parent)) is not None:
        return trials
    if (lists := _id_lists(value)) is not None:
        return _of_lists(lists, name, _model(value))
    if (said := _said(value)) is not None:
        return _of_instance(_own_id(value, path), said, name)
    if isinstance(value.get("instances"), list):
        return _of_records(value["instances"], name)
    return _of_mapping(value, name)


def counters(value: Any) -> Iterator[str]:
    """Say where a report counts otherwise than its own lists of ids do.

    Examples
    --------
    >>> list(counters({"submitted_instances": 3, "submitted_ids": ["a", "b"]}))
    ['submitted_instances says 3, but 2 ids are listed']
    >>> list(counters({"resolved": 1, "ids_resolved": ["a"]}))
    []
    """
    if not isinstance(value, dict):
        return
    for key, ids in value.items():
        status = re.sub(r"^ids_|_ids$", "", key)
        if status == key or not isinstance(ids, list):
            continue
        listed = len(set(filter(None, map(as_id, ids))))
        for counter in (status, f"{status}_instances"):
            said = value.get(counter)
            if type(said) is int and said != listed:
                yield f"{counter} says {said}, but {listed} ids are listed"


def _said(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Find ``resolved`` and the flags beside it: in a record, its report, or its attempts."""
    inner = value.get("test_result")
    places = (value, value.get("report"), inner.get("report") if isinstance(inner, dict) else None)
    told = [one for one in places if isinstance(one, dict) and is_flag(one.get("resolved", ""))]
    if not told:
        return _of_attempts(value)
    known = {bool(one["resolved"]) for one in told if one["resolved"] is not None}
    first = next((one for one in told if one["resolved"] is not None), told[0])
    return {**value, **first, **({"contradicted": True} if len(known) > 1 else {})}


def _of_attempts(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the attempts of a record without a verdict of its own: the one that was handed in."""
    attempts = value.get("all_results")
    if not isinstance(attempts, list):
        return None
    told = [one for one in attempts if isinstance(one, dict) and is_flag(one.get("resolved", ""))]
    if not told:
        return None
    patch = value.get("model_patch")
    chosen = [one for one in told if patch is not None and one.get("model_patch") == patch]
    verdicts = {_verdict(one["resolved"]) for one in chosen or told}
    if len(verdicts) > 1:
        return {**value, "resolved": None, "undecided": True}
    return {**value, "resolved": (chosen or told)[0]["resolved"]}


def _verdict(value: Any) -> Verdict:
    if value is None:
        return UNKNOWN
    return SUCCESS if value else FAILURE


def _label(
    task_id: str, verdict: Verdict, name: str, model: str | None = None, place: str = ""
) -> Label:
    outcome = Outcome(outcome=verdict.outcome, detail=verdict.detail, source=name)
    return Label("task_id", task_id, outcome, model=model, place=place)


def _model(value: Mapping[str, Any]) -> str | None:
    return next(
        filter(None, (word(value.get(key)) for key in ("model_name_or_path", "model"))), None
    )


def _own_id(value: Mapping[str, Any], path: Path) -> str:
    """Find the instance in the report, in its file's name, or in its folder's."""
    named = as_id(value.get("instance_id"))
    stem = re.sub(r"(\.(gz|zst|json|report))+$", "", path.name)
    return named or (stem if stem not in ("report", "results") else path.absolute().parent.name)


def _of_instance(task_id: str, said: Mapping[str, Any], name: str) -> list[Label]:
    """Read what a report says of one instance: two labels where it contradicts itself."""
    verdict, model = _verdict(said["resolved"]), _model(said)
    fitting = ((key, one) for key, when, one in _FLAGS if said.get(key) is when)
    flag, flagged = next(fitting, ("", None))
    if said.get("contradicted"):
        both = (SUCCESS, FAILURE)
        return [_label(task_id, one, name, model) for one in both]
    if verdict is SUCCESS and flagged is not None:
        return [
            _label(task_id, verdict, name, model, "resolved"),
            _label(task_id, flagged, name, model, flag),
        ]
    if said.get("undecided"):
        verdict = Verdict("unknown", "several attempts")
    elif verdict is FAILURE and flagged is not None:
        verdict = flagged
    return [_label(task_id, verdict, name, model)]


def _of_records(values: list[Any], name: str) -> list[Label] | None:
    """Read a list of ``{"instance_id", "resolved"}``; other entries make it no report."""
    if (table := of_table(values, name)) is not None:
        return table
    labels: list[Label] = []
    for value in values:
        said = _said(value) if isinstance(value, dict) else None
        if said is None or not (task_id := as_id(value.get("instance_id"))):
            return None
        labels += _of_instance(task_id, said, name)
    return labels or None


def _of_mapping(value: Mapping[str, Any], name: str) -> list[Label] | None:
    """Read ``{id: {"resolved": …}}``; other objects make it no report, counters do not."""
    labels: list[Label] = []
    for task_id, one in value.items():
        if not isinstance(one, (dict, list)):
            continue
        said = _said(one) if isinstance(one, dict) else None
        if said is None:
            return None
        labels += _of_instance(task_id, said, name)
    return labels or None


def _id_lists(value: Mapping[str, Any]) -> dict[str, list[str]] | None:
    """Find the lists of ids of an aggregate report, by their status; counters are passed over."""
    lists: dict[str, list[str]] = {}
    for key, ids in value.items():
        status = re.sub(r"^ids_|_ids$", "", key)
        if isinstance(ids, list) and any(re.fullmatch(names, status) for names, _ in _LISTS):
            lists.setdefault(status, []).extend(filter(None, map(as_id, ids)))
    return lists if {"resolved", "unresolved"} & set(lists) else None


def _of_lists(lists: Mapping[str, list[str]], name: str, model: str | None) -> list[Label]:
    """Recount from the ids. An id that is resolved, and something else as well, gives all labels.

    To be among those that were judged at all contradicts nothing.
    """
    statuses: dict[str, dict[str, Verdict]] = {}
    for status, ids in lists.items():
        for task_id in ids:
            statuses.setdefault(task_id, {})[status] = _verdict_of(status)
    labels = []
    for task_id, found in statuses.items():
        told = {status: one for status, one in found.items() if not re.fullmatch(_JUDGED, status)}
        if "resolved" in told and len(told) > 1:
            labels += [_label(task_id, one, name, model, status) for status, one in told.items()]
        else:
            first = min(found.values(), key=_ORDER.index)
            labels.append(_label(task_id, first, name, model))
    return labels


def _verdict_of(status: str) -> Verdict:
    return next(verdict for names, verdict in _LISTS if re.fullmatch(names, status))
