"""``python -m sag_research.lab.export_job serve DATABASE [PORT]``: the export service."""

from __future__ import annotations

import sys
from pathlib import Path

from sag_research.lab.export_job._host import serve

if __name__ == "__main__":
    if len(sys.argv) not in {3, 4} or sys.argv[1] != "serve":
        sys.exit(__doc__)
    serve(Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) == 4 else 0)
