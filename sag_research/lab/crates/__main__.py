"""``python -m sag_research.lab.crates generate FOLDER``: the data set of the store room."""

from __future__ import annotations

import sys
from pathlib import Path

from sag_research.lab.crates.generate import generate

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "generate":
        sys.exit(__doc__)
    print(f"{generate(Path(sys.argv[2]))} runs in {sys.argv[2]}")
