"""Cohorts for the tests of features and models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sag_research.deadend._prefixes import Prefixes
from sag_research.deadend._step import SeenStep

TOKENS = [
    "look|src|ok", "search|src|empty", "edit|src|ok", "test|test|test-fail", "test|test|test-pass",
    "run|repro|traceback", "create|repro|ok", "think|none|none", "odd", "juggle|balls|dropped",
]  # fmt: skip
WORDS = ["maybe", "fixed", "error", "look", "at", "the", "parser", "wait", "great", "issue"]
PATHS = ["src/a.py", "tests/test_a.py", "repro.py", "README.md", "lib/deep/b.py"]


def cohort(
    tasks: int = 30,
    runs: int = 2,
    seed: int = 0,
    text: bool = True,
    signal: float = 1.0,
    longest: int = 12,
) -> Prefixes:
    """Runs of random steps; failed ones edit less and say "error" more, by `signal`."""
    rng = np.random.default_rng(seed)
    tokens, outcomes, names, texts = [], [], [], []
    for run in range(tasks * runs):
        failed = rng.random() < 0.5
        weight = np.ones(len(TOKENS))
        weight[2 if failed else 3] /= 1 + 3 * signal
        steps = int(rng.integers(2, longest))
        tokens.append([TOKENS[i] for i in rng.choice(len(TOKENS), steps, p=weight / weight.sum())])
        outcomes.append("failure" if failed else "success")
        names.append(f"task-{run % tasks:03d}")
        texts += [said(rng, failed and rng.random() < signal) for _ in range(steps)]
    columns = pa.table({n: [t[n] for t in texts] for n in texts[0]}) if text else None
    return Prefixes.from_tokens(tokens, outcomes, names, columns)


def said(rng: np.random.Generator, failed: bool) -> dict[str, str | int | None]:
    """Texts of one step."""
    words = rng.choice(WORDS, 6).tolist() + (["error", "still"] if failed else [])
    action = f"cat {rng.choice(PATHS)} {rng.integers(3)}"
    seen = "line\n" * int(rng.integers(0, 5)) + ("Traceback: " if failed else "")
    code = None if rng.random() < 0.3 else int(rng.random() < 0.2)
    return {"thought": " ".join(words), "action": action, "observation": seen, "exit_code": code}


def seen_steps(prefixes: Prefixes, run: int) -> list[SeenStep]:
    """The steps of a run as a monitor sees them."""
    rows = range(int(prefixes.start[run]), int(prefixes.stop[run]))
    table = prefixes.table
    texts = [table.text(name) for name in ("thought", "action", "observation")]
    code = table.number("exit_code")
    return [
        SeenStep(table.names[table.tokens[i]], *(text[i] for text in texts), float(code[i]))
        for i in rows
    ]


def of_texts(actions: Sequence[str], tokens: Sequence[str], **texts: Sequence[str]) -> Prefixes:
    """A cohort of one run."""
    empty = [""] * len(actions)
    columns = {"thought": empty, "action": list(actions), "observation": empty} | texts
    return Prefixes.from_tokens([list(tokens)], ["unknown"], columns=pa.table(columns))
