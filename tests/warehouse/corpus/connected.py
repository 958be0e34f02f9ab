"""Ask every query of a Spark Connect server; in a process of its own, for a process has one Spark.

python connected.py CORPUS
"""

from __future__ import annotations

import json
import sys
import warnings

import sag_research as sag
from sag_research.warehouse.corpus import queries


def main() -> None:
    """Print which queries give other rows than DuckDB, and what kind of session asked."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    corpus = sag.Corpus(sys.argv[1])
    with sag.engine("spark", remote="local[2]") as spark, sag.engine() as duck:
        others = [
            name
            for name in queries()
            if not spark.ask(name, corpus).arrow().equals(duck.ask(name, corpus).arrow())
        ]
        kind = type(spark.session).__module__  # type: ignore[attr-defined]
    print(json.dumps({"asked": len(queries()), "others": others, "session": kind}))


if __name__ == "__main__":
    main()
