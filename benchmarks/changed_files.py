"""How many files of the real final patches are found as changed by the actions of their runs.

Needs ``SAG_REAL_DATA``; reads the mini-swe-agent set and its ``preds.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path

import sag_research as sag

RESULTS = Path(__file__).parent / "results" / "changed_files.json"
HEADER = re.compile(r"^diff --git a/(\S+) b/", re.MULTILINE)
BYCATCH = re.compile(r"(?:^|/)(?:setup\.py|tox\.ini|pyproject\.toml)$|(?:^|/)build/")


def main() -> None:
    """Count, print, and write ``results/changed_files.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the same; it is quick")
    parser.parse_args()
    if "SAG_REAL_DATA" not in os.environ:
        print("set SAG_REAL_DATA to the folder of real trajectories; nothing measured")
        return
    folder = Path(os.environ["SAG_REAL_DATA"]) / "mini_swe_agent_v1_gemini3pro_verified"
    patches = json.loads((folder / "preds.json").read_text(encoding="utf-8"))
    with sag.open(":memory:") as ws:
        ws.ingest(folder / "trajs", progress=False)
        query = """
            SELECT task_id, list(DISTINCT name) FILTER (role = 'MUTATED') AS changed
            FROM runs LEFT JOIN mentions m USING (run_id) GROUP BY task_id"""
        changed = {task: set(names or ()) for task, names in ws.sql(query).rows()}
    found = total = without = 0
    for task, names in changed.items():
        wanted = {p for p in HEADER.findall(patches[task]["model_patch"]) if not BYCATCH.search(p)}
        total += len(wanted)
        found += len(wanted & names)
        without += bool(wanted) and not wanted & names
    result = {"files": total, "found": found, "runs": len(changed), "runs_with_none": without}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{found} of {total} files found; in {without} of {len(changed)} runs none")


if __name__ == "__main__":
    main()
