"""A card for a set of one's own: what is in it, in numbers that add up."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sag_research._text import clip, visible

__all__ = ["data_card"]

Rows: TypeAlias = list[tuple[Any, ...]]
_MANY: Final = 12

_COUNTS: Final = """
    SELECT count(*) AS runs, count(DISTINCT task_id) AS tasks, count(DISTINCT model) AS models,
           count(DISTINCT agent) AS agents, coalesce(sum(n_steps), 0) AS steps,
           count(*) FILTER (hidden) AS hidden, count(*) FILTER (copy_of IS NOT NULL) AS copies,
           count(*) FILTER (parent_id IS NOT NULL) AS forks, min(n_steps), median(n_steps),
           max(n_steps), count(tokens_in), count(cost_usd)
    FROM runs WHERE ({where}) AND kind <> 'extraction'"""
_OUTCOMES: Final = """
    SELECT {by} AS name, count(*) AS runs, count(*) FILTER (outcome = 'success') AS success,
           count(*) FILTER (outcome = 'failure') AS failure,
           count(*) FILTER (outcome = 'unknown') AS unknown,
           success / nullif(success + failure, 0) AS rate,
           wilson_low(success, success + failure) AS low,
           wilson_high(success, success + failure) AS high
    FROM runs WHERE ({where}) AND NOT hidden AND parent_id IS NULL AND kind <> 'extraction'
    GROUP BY ALL ORDER BY runs DESC, name"""
_DETAILS: Final = """
    SELECT outcome, coalesce(detail, '') AS detail, count(*) AS runs
    FROM runs WHERE ({where}) AND NOT hidden AND parent_id IS NULL AND kind <> 'extraction'
    GROUP BY ALL ORDER BY outcome, runs DESC, detail"""
_LABELS: Final = """
    SELECT source, count(*) AS labels, count(DISTINCT run_id) AS runs FROM outcomes
    WHERE run_id IN (SELECT run_id FROM runs WHERE ({where}))
    GROUP BY source ORDER BY labels DESC, source"""
_FILES: Final = """
    SELECT status, coalesce(format, '') AS format, coalesce(format_version, '') AS version,
           count(*) AS files, coalesce(sum(n_runs), 0) AS runs, coalesce(sum(bytes), 0) AS bytes
    FROM sources GROUP BY ALL ORDER BY status DESC, files DESC, format, version"""


def data_card(
    query: Callable[[str], Rows],
    *,
    digest: str,
    title: str,
    licence: str = "",
    where: str = "true",
    sets: Mapping[str, str] | None = None,
    version: str = "",
) -> str:
    """Write a data card in Markdown.

    Parameters
    ----------
    query : callable
        Answers SQL over the stable views with rows.
    digest : str
        Fingerprint of the cohort.
    title, licence : str
    where : str
        A condition on ``runs``.
    sets : mapping of str to str, optional
        Public sets that are in it, with their commits.
    version : str
        Of this package.
    """

    def ask(text: str, **names: str) -> Rows:
        return query(text.format(where=where, **names))

    counts = ask(_COUNTS)[0]
    parts = [
        f"# {_cell(title)}",
        _summary(counts, digest, licence, where, version),
        "## Outcomes",
        "Rates are over runs with a known outcome, with a 95 % Wilson interval; they take runs"
        " of one task for independent. Forks, copies and hidden runs are left out.",
        _outcomes(ask(_OUTCOMES, by="'all'") + ask(_OUTCOMES, by="coalesce(model, '(not said)')")),
        _table(("outcome", "why", "runs"), ask(_DETAILS)),
        "Labels come from:",
        _table(("source", "labels", "runs"), ask(_LABELS)),
        "## Files",
        _table(("what became of it", "format", "version", "files", "runs", "bytes"), ask(_FILES)),
    ]
    if sets:
        rows = [(name, commit or "not recorded") for name, commit in sorted(sets.items())]
        parts += ["## Public sets in it", _table(("set", "commit"), rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(counts: Sequence[Any], digest: str, licence: str, where: str, version: str) -> str:
    runs, tasks, models, agents, steps, hidden, copies, forks, low, mid, high, tokens, cost = counts
    lines = [
        f"{runs:,} runs of {tasks:,} tasks by {models:,} models and {agents:,} agents",
        f"{steps:,} steps" + (f"; {low} to {high} a run, median {mid:g}" if runs else ""),
        f"{copies:,} copies and {hidden - copies:,} other hidden runs, {forks:,} forks:"
        " counted above, left out below",
        f"tokens known of {tokens:,} runs, cost of {cost:,}",
        f"licence: {_cell(licence) or 'not stated'}",
        f"cohort digest: `{digest}`" + ("" if where == "true" else f", where `{_cell(where)}`"),
    ]
    lines += [f"made with sag_research {version}"] if version else []
    return "\n".join(f"- {line}" for line in lines)


def _outcomes(rows: Rows) -> str:
    """Say each rate with its n and interval."""
    shown = [
        (
            name, runs, success, failure, unknown,
            "-" if rate is None else f"{rate:.3f} [{low:.3f}, {high:.3f}], n = {success + failure}",
        )
        for name, runs, success, failure, unknown, rate, low, high in rows
    ]  # fmt: skip
    return _table(("model", "runs", "success", "failure", "unknown", "success rate"), shown)


def _table(columns: Sequence[str], rows: Rows) -> str:
    if not rows:
        return "(none)"
    lines = [columns, ["---"] * len(columns), *rows[:_MANY]]
    text = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
    return text + (f"\n\nand {len(rows) - _MANY} more" if len(rows) > _MANY else "")


def _cell(value: Any) -> str:
    """Write a text that the source chose: it is no markup of this page."""
    if isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", visible(clip(value, 120)))
