"""The export service, and the data set.

``python -m sag_research.lab.export_job serve DATABASE [PORT]``
``python -m sag_research.lab.export_job generate FOLDER``
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(words: list[str]) -> None:
    """Do what the words say."""
    match words:
        case ["serve", path, *port] if len(port) <= 1:
            from sag_research.lab.export_job._host import serve

            serve(Path(path), int(port[0]) if port else 0)
        case ["generate", folder]:
            from sag_research.lab.export_job.generate import generate

            print(f"{generate(Path(folder))} runs in {folder}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
