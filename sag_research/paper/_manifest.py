"""What a build was made of: versions, commit, data, seed, cohorts, cost."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from sag_research import __version__
from sag_research._text import open_text, repair
from sag_research.paper._data import Found, file_digest
from sag_research.paper._spec import FILE, Source, StudyError
from sag_research.workspace import Workspace

__all__ = [
    "MANIFEST", "RESULTS", "commit_of", "cost_of", "data_of", "own_files", "read_manifest",
    "versions", "write_json",
]  # fmt: skip

RESULTS: Final = "results"
MANIFEST: Final = "manifest.json"
_PACKAGES: Final = (
    "duckdb", "matplotlib", "msgspec", "numpy", "pandas", "polars", "pyarrow", "scikit-learn",
    "scipy",
)  # fmt: skip
_COST: Final = """
    SELECT count(*), coalesce(sum(n_steps), 0)::BIGINT, count(tokens_in),
           sum(tokens_in)::BIGINT, sum(tokens_out)::BIGINT, count(cost_usd), fsum(cost_usd)
    FROM runs WHERE NOT hidden"""


def versions() -> dict[str, str]:
    """Return the version of Python and of each package that results depend on."""
    found = {"sag_research": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "?"
    return found


def commit_of(folder: Path) -> dict[str, Any] | None:
    """Return the commit that a study folder is at, and whether files differ from it."""
    head = _git(folder, "rev-parse", "--verify", "HEAD")
    if head is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--", ".", f":(exclude){RESULTS}",
                   ":(exclude).results-*")  # fmt: skip
    return {"id": head.strip(), "changed": bool(changed is None or changed.strip())}


def _git(folder: Path, *words: str) -> str | None:
    """Ask git without letting the folder's own settings start programs."""
    command = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks", *words]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace",
            timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def own_files(folder: Path) -> dict[str, str]:
    """Fingerprint the study's own declaration and code."""
    paths = [folder / FILE, *sorted(folder.glob("*.py")), *sorted(folder.glob("*.ipynb"))]
    return {path.name: file_digest(path) for path in paths if path.is_file()}


def data_of(source: Source, found: Found, ws: Workspace, runs: list[str]) -> dict[str, Any]:
    """Describe a data source, without the place where it lies on this machine."""
    return {
        "bundled": source.bundled, "path": Path(source.path or source.workspace).name,
        "digest": found.digest, "bytes": found.bytes, "n_runs": len(runs),
        "cohort": ws.digest("run_id IN (SELECT unnest(?))", [runs]), "files": found.files,
    }  # fmt: skip


def cost_of(ws: Workspace) -> dict[str, Any]:
    """Say what the runs of the data took, as far as they say so themselves."""
    runs, steps, with_tokens, tokens_in, tokens_out, with_cost, cost = ws.sql(_COST).rows()[0]
    return {
        "n_runs": runs, "steps": steps, "n_runs_with_tokens": with_tokens, "tokens_in": tokens_in,
        "tokens_out": tokens_out, "n_runs_with_cost": with_cost,
        "cost_usd": None if cost is None else round(float(cost), 6),
    }  # fmt: skip


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON for people and programs, with the same bytes for the same value."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with open_text(path, "w") as file:
        file.write(repair(text) + "\n")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Read the manifest of a folder of results; None where there is none.

    Raises
    ------
    StudyError
        If it is no manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    with open_text(path) as file:
        text = file.read()
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise StudyError(f"{path.name} of the results is damaged", why=str(error)) from error
    if not isinstance(read, dict) or "outputs" not in read:
        raise StudyError(f"{path.name} of the results is no manifest of a study")
    return read
