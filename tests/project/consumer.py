"""A program of a stranger: typed against the installed package, then run.

`scripts/package_check.py` checks it with ``mypy --strict``. The line with a wrong argument must be
an error there: were the public names untyped, its ``type: ignore`` would be unused, and that is an
error as well.
"""

from __future__ import annotations

import sag_research as sag


def refused() -> str:
    """Say what happens to a wrong argument."""
    try:
        sag.open(3)  # type: ignore[arg-type]
    except (sag.SagError, TypeError) as error:
        return type(error).__name__
    return "accepted"


def main() -> None:
    """Add one run and read it back."""
    with sag.open(":memory:") as ws:
        step = {"thought": "look", "action": "ls", "observation": "setup.py"}
        ws.add({"task_id": "t-1", "steps": [step], "outcome": "success"})
        runs = ws.runs()
        if len(runs) != 1:
            raise SystemExit(f"expected one run, found {len(runs)}")
    if refused() == "accepted":
        raise SystemExit("a workspace cannot be named 3")


if __name__ == "__main__":
    main()
