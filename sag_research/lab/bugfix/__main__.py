"""``python -m sag_research.lab.bugfix --out FOLDER``: generate the data set."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sag_research.errors import SagError
from sag_research.lab.bugfix.generate import ATTEMPTS, generate


def main() -> int:
    """Parse the command line and generate."""
    parser = argparse.ArgumentParser(prog="python -m sag_research.lab.bugfix")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--task", action="append", help="only this task; may be repeated")
    parser.add_argument("--attempts", type=int, help="runs per task and model, instead of 4, 3, 3")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--force", action="store_true", help="replace an earlier data set")
    options = parser.parse_args()
    attempts = dict.fromkeys(ATTEMPTS, options.attempts) if options.attempts else ATTEMPTS
    try:
        rows = generate(
            options.out,
            seed=options.seed,
            tasks=options.task,
            attempts=attempts,
            jobs=options.jobs,
            force=options.force,
        )
    except SagError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    failed = sum(not row.success for row in rows)
    print(f"{len(rows)} files, {failed} of failed runs, in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
