"""The texts of all remembered runs, for what has no index of its own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from sag_research.bloom._recall_index import RecallIndex, texts_of

__all__ = ["Corpus"]

CLIP = 8_000
"""Of each text of a step, so many characters, as the index has it."""


@dataclass(frozen=True)
class Corpus:
    """Runs in the order of the index, with their own steps.

    Attributes
    ----------
    index : RecallIndex
    texts : list of list of str
        Each run's steps: thought, action and observation.
    entities : list of list of set of str
        The entities that each step mentions.
    steps : list of ndarray of int64
        The numbers of each run's steps.
    """

    index: RecallIndex
    texts: list[list[str]]
    entities: list[list[set[str]]]
    steps: list[NDArray[np.int64]]

    @classmethod
    def read(cls, index: RecallIndex) -> Corpus:
        """Read everything that the index remembers."""
        index.refresh()
        n = len(index)
        texts: list[list[str]] = [[] for _ in range(n)]
        entities: list[list[set[str]]] = [[] for _ in range(n)]
        steps: list[list[int]] = [[] for _ in range(n)]
        where = {
            "runs": [run.run_id for run in index.runs], "numbers": list(range(n)), "clip": CLIP,
        }  # fmt: skip
        rows = index.query(_sql("recall_steps"), where).arrow()
        places: dict[tuple[int, int], set[str]] = {}
        columns = (rows.column("run"), rows.column("step"), texts_of(rows))
        for run, step, text in zip(*(column.to_pylist() for column in columns), strict=True):
            names: set[str] = set()
            places[run, step] = names
            texts[run].append(text)
            entities[run].append(names)
            steps[run].append(step)
        del where["clip"]
        found = index.query(_sql("recall_step_names"), where).arrow()
        wanted = [found.column(name).to_pylist() for name in ("run", "step", "entity_id")]
        for run, step, entity in zip(*wanted, strict=True):
            if (run, step) in places:
                places[run, step].add(entity)
        return cls(index, texts, entities, [np.array(s, dtype=np.int64) for s in steps])


def _sql(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
