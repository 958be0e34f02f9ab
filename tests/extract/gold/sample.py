"""Draw the steps that were labelled by hand (seeded, stratified).

``python -m tests.extract.gold.sample``, run from the top of the repository, prints one
JSON line a step. The strata look at texts with
coarse patterns so that rare kinds occur at all; they choose steps, never labels.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.extract.gold.check import model_turns, read_document

SEED = 20240611
LONGEST_OBSERVATION = 6_000
MINI = "mini_swe_agent_v1_gemini3pro_verified/trajs/*.traj.json.gz"


class Stratum(NamedTuple):
    """Which steps to draw, how many, and whether their observation is a long one."""

    name: str
    files: str
    action: str
    observation: str
    wanted: int
    long: bool


STRATA = [
    Stratum("mini-traceback", MINI, "", r"Traceback \(most recent call last\)", 4, False),
    Stratum("mini-tests", MINI, "", r"(?m)^(FAILED|ERROR|Ran \d+ test)|\d+ passed", 3, False),
    Stratum("mini-node-ids", MINI, "", r"(?m)^(FAILED|ERROR) \S+::", 2, False),
    Stratum("mini-git", MINI, r"\bgit (log|show|blame|diff|status)", "", 2, False),
    Stratum("mini-commits", MINI, r"\bgit\b", r"(?m)^(commit )?[0-9a-f]{7,40} ?\S*", 1, False),
    Stratum("mini-heredoc", MINI, r"<<\s*'?EOF", "", 2, False),
    Stratum("mini-grep", MINI, "", r"(?m)^\S+/\S+:\d+:(.*\n){4,25}</output>", 2, False),
    Stratum("mini-system", MINI, "", r"(?i)postgres|redis|mysql|mongo|docker", 3, False),
    Stratum("mini-url", MINI, "", r"(?i)localhost|https?://", 1, False),
    Stratum("mini-variable", MINI, r"\b[A-Z_]{5,}=|environ|\$[A-Z]{4}", "", 1, False),
    Stratum("mini-pip", MINI, r"\bpip3? ", "", 1, False),
    Stratum("mini-long", MINI, "", "", 1, True),
    Stratum("mini-any", MINI, "", "", 1, False),
    Stratum("traj-any", "swe*_*/**/*.traj", "", "", 10, False),
    Stratum("traj-network", "swe*_*/**/*.traj", r"\b(curl|nc|connect_start)\b", "", 2, False),
    Stratum("traj-long", "swe*_*/**/*.traj", "", "", 1, True),
    Stratum("tau", "taubench/*.json.gz", "", "", 5, False),
    Stratum("bash", "intercode/bash/**/*.json.gz", "", "", 3, False),
    Stratum("sql", "intercode/sql/gpt-4/*.json.gz", "", "", 1, False),
    Stratum("sql-human", "intercode/sql/human/*.json.gz", "", "", 1, False),
    Stratum("ctf", "intercode/ctf/*.json.gz", "", "", 3, False),
    Stratum("python", "intercode/python/**/*.json.gz", "", "", 1, False),
    Stratum("mini-2", "mini_swe_agent_v2_tests/github_issue.traj.json", "", "", 1, False),
    Stratum("mini-unittest", MINI, "", r"(?m)^(FAIL|ERROR): test_\w+ \(", 1, False),
    Stratum("mini-verbose", MINI, "", r"(?m)^\S+::\S+ .*PASSED", 1, False),
    Stratum("mini-database", MINI, "", r"\b(PostgreSQL|MySQL|Redis|Docker)\b", 3, False),
]


def _records(document: Any, file: str) -> list[str | int | None]:
    if file.startswith("taubench/"):
        return list(range(len(document)))
    return sorted(document) if file.startswith("intercode/") else [None]


def _candidates(root: Path, path: Path, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield all turns with fields of one file, shuffled."""
    file = path.relative_to(root).as_posix()
    digest, document = read_document(path)
    if file.endswith(".traj") and "trajectory" not in document:
        return
    turns = [
        {"file": file, "digest": digest, "record": record, "step": step, "texts": texts}
        for record in _records(document, file)
        for step, texts in enumerate(model_turns(file, document, record))
        if texts is not None
    ]
    rng.shuffle(turns)
    yield from turns


def _fits(turn: dict[str, Any], stratum: Stratum) -> bool:
    texts = turn["texts"]
    return (
        (len(texts["observation"]) > LONGEST_OBSERVATION) == stratum.long
        and re.search(stratum.action, texts["action"]) is not None
        and re.search(stratum.observation, texts["observation"]) is not None
    )


def _most(path: Path) -> int:
    """Steps that one file may give: many for files that hold many episodes."""
    if path.name.endswith(".traj.json.gz"):
        return 1
    return 2 if path.name.endswith((".traj", ".traj.json")) else 100


def draw(root: Path, stratum: Stratum, taken: Counter[Any]) -> list[Any]:
    """Draw the steps of one stratum: one a file in turn, then a second round."""
    rng = random.Random(f"{SEED} {stratum.name}")
    # Copies of a file under other names are one file.
    unique = {read_document(path)[0]: path for path in sorted(root.glob(stratum.files))}
    paths = list(unique.values())
    rng.shuffle(paths)
    chosen: list[Any] = []
    for path in paths * stratum.wanted:
        if len(chosen) == stratum.wanted:
            break
        for turn in _candidates(root, path, rng):
            digest, step = turn["digest"], (turn["digest"], turn["record"], turn["step"])
            if taken[digest] < _most(path) and not taken[step] and _fits(turn, stratum):
                taken.update([digest, step])
                chosen.append({"stratum": stratum.name, **turn})
                break
    return chosen


def sample(root: Path) -> list[Any]:
    """Return the drawn steps with their texts, stratum by stratum."""
    taken: Counter[Any] = Counter()
    return [turn for stratum in STRATA for turn in draw(root, stratum, taken)]


if __name__ == "__main__":
    folder = os.environ.get("SAG_REAL_DATA")
    if not folder:
        sys.exit("set SAG_REAL_DATA to the folder of real trajectories")
    for drawn in sample(Path(folder)):
        del drawn["texts"]
        print(json.dumps(drawn))
