"""The card of a data set, with a beginning in YAML that the Hugging Face hub reads."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sag_research import __version__
from sag_research._text import clip, visible
from sag_research.deadend import wilson
from sag_research.exchange._round import InterchangeReport, Whole

__all__ = ["Shown", "card"]

_SIZES: Final = (
    (1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"),
)  # fmt: skip
_MANY: Final = 20
_OUTCOMES: Final = ("success", "failure", "unknown")


@dataclass
class Shown:
    """What a card says, counted while the tables are written."""

    title: str
    licence: str
    redacted: bool
    where: str
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Size and SHA-256."""
    formats: Counter[str] = field(default_factory=Counter)
    by_model: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    tasks: set[str] = field(default_factory=set)
    flags: Counter[str] = field(default_factory=Counter)

    def count(self, whole: Whole) -> None:
        """Count a run."""
        label = whole.record.get("outcome") or {}
        self.by_model[whole.record.get("model") or "(not said)"][
            label.get("outcome", "unknown")
        ] += 1
        self.formats[whole.format or "(recorded, not ingested)"] += 1
        self.tasks.add(whole.record["task_id"])
        for step in whole.steps:
            self.flags.update(set(step["flags"]))


def card(
    shown: Shown, report: InterchangeReport, columns: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    """Write the card in Markdown."""
    parts = [
        _front(shown, report, columns),
        f"# {_cell(shown.title)}",
        f"{report.runs:,} runs of {len(shown.tasks):,} tasks by agents: {report.steps:,} steps, "
        f"{report.calls:,} tool calls.",
        _redaction(shown),
        "## Outcomes",
        "Unknown is no failure: nobody said, or sources disagree. Rates are over runs with a known"
        " outcome, with a 95 % Wilson interval, which takes runs of one task for independent.",
        _outcomes(shown),
        "## Where the runs are from",
        _table(("format", "runs"), [[name, n] for name, n in shown.formats.most_common()]),
        "## How it was made",
        _made(shown, report),
        "## Files",
        _table(("file", "bytes", "sha256"),
               [[name, *about] for name, about in shown.files.items()]),
        "## Columns",
        *_columns(columns),
        "## How to read it",
        _EXAMPLE,
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


_EXAMPLE: Final = """```sql
-- DuckDB
SELECT r.model, r.outcome, count(*) AS steps
FROM 'runs.parquet' r JOIN 'steps.parquet' s USING (run_id) GROUP BY ALL;
```

`sag ingest .` takes the folder into a log again."""


def _front(
    shown: Shown, report: InterchangeReport, columns: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    """Write the beginning; JSON texts are YAML, whatever is in them."""
    size = next((name for most, name in _SIZES if report.steps < most), "n>1M")
    lines = [
        "---",
        f"license: {_yaml(shown.licence)}",
        f"pretty_name: {_yaml(shown.title)}",
        "tags:", *(f"- {tag}" for tag in ("agents", "trajectories", "tool-use", "sag_research")),
        "size_categories:", f"- {size}",
        "configs:",
    ]  # fmt: skip
    for number, name in enumerate(columns):
        lines += [f"- config_name: {name}", f"  data_files: {name}.parquet"]
        lines += ["  default: true"] if number == 0 else []
    return "\n".join([*lines, "---"])


def _yaml(text: str) -> str:
    return json.dumps(visible(clip(text, 200)), ensure_ascii=False)


def _redaction(shown: Shown) -> str:
    n = shown.flags["redacted"]
    if shown.redacted:
        return (
            f"Redacted: yes. Keys and passwords that rules found were replaced by tokens; {n:,} "
            "steps have the flag `redacted`. Rules miss what they do not know."
        )
    found = f" {n:,} steps have the flag `redacted` from before." if n else ""
    return f"Redacted: no. Texts are as they were recorded.{found}"


def _outcomes(shown: Shown) -> str:
    total: Counter[str] = sum(shown.by_model.values(), Counter())
    rows = [["all", *_rated(total)]]
    ranked = sorted(shown.by_model.items(), key=lambda one: (-one[1].total(), one[0]))
    return _table(
        ("model", "runs", *_OUTCOMES, "success rate"),
        rows + [[name, *_rated(counts)] for name, counts in ranked],
    )


def _rated(counts: Counter[str]) -> list[Any]:
    good, n = counts["success"], counts["success"] + counts["failure"]
    if not n:
        rate = "-"
    else:
        low, high = wilson(good, n)[:2]
        rate = f"{good / n:.3f} [{low:.3f}, {high:.3f}], n = {n}"
    return [counts.total(), *(counts[name] for name in _OUTCOMES), rate]


def _made(shown: Shown, report: InterchangeReport) -> str:
    lines = [f"`sag export parquet` of sag_research {__version__}."]
    if shown.where != "true":
        lines.append(f"Only runs where `{_cell(shown.where)}`.")
    if report.left_out:
        lines.append(f"{report.left_out:,} hidden runs, copies and extractions were left out.")
    lost = [[name, n] for name, n in report.lost.items()]
    lines.append("In the log and not in these tables:" if lost else "Nothing of the runs was lost.")
    return " ".join(lines) + (
        "\n\n" + _table(("what", "runs or steps"), lost) if lost else ""
    )  # fmt: skip


def _columns(columns: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    found = []
    for table, about in columns.items():
        rows = [[f"`{name}`", kind, said] for name, (kind, said) in about.items()]
        lines = [f"| {name} | {kind} | {said} |" for name, kind, said in rows]
        head = "| column | type | meaning |\n| --- | --- | --- |\n"
        found.append(f"### {table}\n\n" + head + "\n".join(lines))
    return found


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [names, ["---"] * len(names), *rows[:_MANY]]
    text = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
    return text + (f"\n\nand {len(rows) - _MANY} more" if len(rows) > _MANY else "")


def _cell(value: Any) -> str:
    """Write a text that a source chose: it is no markup of this page."""
    if isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", visible(clip(value, 120)))
