"""What two workspaces hold, told by the log and the views alone: no exporter is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sag_research as sag
from sag_research.exchange import (
    InterchangeReport,
    export_atif,
    export_jsonl,
    export_otlp,
    export_parquet,
)
from sag_research.log import canonical_digest

EXPORTS: dict[str, tuple[Callable[..., InterchangeReport], str]] = {
    "jsonl": (export_jsonl, "runs.jsonl"),
    "atif": (export_atif, "trajectories"),
    "otlp": (export_otlp, "traces.jsonl"),
    "parquet": (export_parquet, "set"),
}
CLOCKS = ("started", "seconds")

ABOUT = """
    SELECT r.run_id, task_id, r.outcome, r.detail, r.score, o.source, o.known_at_step, dataset,
           repo, agent, model, goal, exit_status, end_type, n_steps, tokens_in, tokens_out, cost_usd
    FROM runs r LEFT JOIN outcomes o USING (run_id)
    WHERE kind <> 'extraction' AND ({where})"""


def steps_of(ws: sag.Workspace, run_id: str) -> tuple[str, ...]:
    """The digests of a run's steps, clocks apart, without the blobs of texts before repair."""
    found = []
    for event in ws.store.read(run_id, types={"agent.step"}):
        said = {name: value for name, value in event.payload.items() if name != "raw"}
        clocks = [said.pop(name, None) for name in CLOCKS]
        found.append(canonical_digest(said) + json.dumps(clocks))
    return tuple(found)


def told(ws: sag.Workspace, where: str = "true") -> Counter[Any]:
    """Every run with its label, its end, its configuration and the digests of its steps."""
    found: Counter[Any] = Counter()
    for run_id, *about in ws.sql(ABOUT.replace("{where}", where)).rows():
        run = ws.store.get_run(run_id)
        end = [
            event.payload.get("submission")
            for event in ws.store.read(run_id)
            if event.type.startswith("run.") and event.type not in ("run.created", "run.forked")
        ]
        config = json.dumps(run.config, sort_keys=True)
        found[(*about, run.attempt, config, *end, steps_of(ws, run_id))] += 1
    return found


@contextmanager
def there_and_back(
    ws: sag.Workspace, format: str, folder: Path
) -> Iterator[tuple[InterchangeReport, sag.Workspace]]:
    """Export, and ingest the export into another workspace."""
    write, name = EXPORTS[format]
    report = write(ws, folder / name)
    with sag.open(":memory:") as other:
        done = other.ingest(folder / name)
        assert not done.rejected, done
        assert not done.refused_records, done
        yield report, other
