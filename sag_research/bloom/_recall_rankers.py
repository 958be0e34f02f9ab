"""Ways to rank past runs for a run so far: recall, and what it is measured against."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sag_research.bloom._recall import similarity
from sag_research.bloom._recall_corpus import Corpus
from sag_research.bloom._recall_embed import SentenceModel
from sag_research.bloom._recall_terms import word_list
from sag_research.errors import MissingDataError, UsageError

__all__ = ["METHODS", "Ranker", "ranker_of"]

Floats = NDArray[np.float64]
SHARED: Final = 2
"""SAG's rule: so many names must be shared."""
_NAME: Final = re.compile(r"(?=.*[0-9]).*[^\W\d_]")
"""A word of letters and digits, as ids are."""
_LAST: Final = 1e-6
"""What tells equal runs apart: less than any difference of scores."""


class Ranker(Protocol):
    """One way to rank all runs of a corpus for a run that has taken some steps."""

    def scores(self, asker: int, seen: int) -> Floats:
        """Score every run for run `asker` after `seen` steps; 0 or less is not returned."""


class RecallRanker:
    """What ``ws.recall(run=…, step=…)`` ranks by."""

    def __init__(self, corpus: Corpus, channels: tuple[str, ...] | None = None) -> None:
        self._corpus, self._channels = corpus, channels

    def scores(self, asker: int, seen: int) -> Floats:
        """Sum the channels' cosines."""
        run = self._corpus.index.runs[asker].run_id
        step = int(self._corpus.steps[asker][seen - 1])
        return similarity(self._corpus.index, run, step, self._channels)


class FullHistory:
    """No retrieval: all past runs, the latest first."""

    def __init__(self, corpus: Corpus) -> None:
        self._n = len(corpus.index)

    def scores(self, asker: int, seen: int) -> Floats:
        """Prefer what was logged last."""
        return np.arange(1, self._n + 1, dtype=np.float64)


class RandomOrder:
    """Chance."""

    def __init__(self, corpus: Corpus) -> None:
        self._n = len(corpus.index)

    def scores(self, asker: int, seen: int) -> Floats:
        """Draw."""
        return np.random.default_rng((asker, seen)).random(self._n) + _LAST


class SharedNames:
    """SAG's rule: every run that shares two names; as a set, or by how many it shares.

    Names are the entities that steps mention, and words of letters and digits (ids): without the
    latter nothing would be shared where the extraction rules know no names. A run counts with all
    its steps.
    """

    def __init__(self, corpus: Corpus, ranked: bool) -> None:
        self._ranked = ranked
        self._of_step = [
            [
                {word for word in word_list(text) if _NAME.search(word)} | entities
                for text, entities in zip(texts, named, strict=True)
            ]
            for texts, named in zip(corpus.texts, corpus.entities, strict=True)
        ]
        self._of_run = [_union(steps) for steps in self._of_step]

    def scores(self, asker: int, seen: int) -> Floats:
        """Count shared names; a set is in an order drawn by chance."""
        chance = np.random.default_rng((asker, seen)).random(len(self._of_run))
        mine = _union(self._of_step[asker][:seen])
        shared = np.array([len(mine & theirs) for theirs in self._of_run], dtype=np.float64)
        order = shared if self._ranked else np.ones(len(shared))
        return np.where(shared >= SHARED, order + chance * _LAST, 0.0)


def _union(sets: Sequence[set[str]]) -> set[str]:
    found: set[str] = set()
    return found.union(*sets)


class BM25:
    """Okapi BM25 over the words of whole runs, by the library ``bm25s`` with its defaults."""

    def __init__(self, corpus: Corpus) -> None:
        try:
            bm25s = import_module("bm25s")
        except ModuleNotFoundError as error:
            raise _missing("bm25s") from error
        self._corpus = corpus
        documents = [word_list("\n".join(texts)) or [""] for texts in corpus.texts]
        self._model = bm25s.BM25()
        self._model.index(documents, show_progress=False)

    def scores(self, asker: int, seen: int) -> Floats:
        """Ask for the words of the steps so far."""
        words = word_list("\n".join(self._corpus.texts[asker][:seen]))
        if not words:
            return np.zeros(len(self._corpus.texts))
        return np.asarray(self._model.get_scores(words), dtype=np.float64)


class Embedding:
    """Sentence embeddings: each seen step's nearest step of a run, the mean over seen steps."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        model = SentenceModel()
        flat = [text for texts in corpus.texts for text in texts]
        self._vectors = model.encode(flat)
        self._stop = np.cumsum([len(texts) for texts in corpus.texts])
        self._start = self._stop - [len(texts) for texts in corpus.texts]

    def scores(self, asker: int, seen: int) -> Floats:
        """Compare steps by the cosine of their vectors."""
        first = int(self._start[asker])
        near = self._vectors[first : first + seen] @ self._vectors.T
        held = self._stop > self._start
        found = np.zeros(len(held))
        found[held] = np.maximum.reduceat(near, self._start[held], axis=1).mean(axis=0) + 1.0
        return found


def _missing(package: str) -> MissingDataError:
    return MissingDataError(f"{package} is not installed", fix="pip install 'sag-research[embed]'")


_MADE: Final[Mapping[str, Callable[[Corpus], Ranker]]] = {
    "recall": RecallRanker,
    "recall-entities": lambda corpus: RecallRanker(corpus, ("entities",)),
    "recall-words": lambda corpus: RecallRanker(corpus, ("words",)),
    "recall-order": lambda corpus: RecallRanker(corpus, ("order",)),
    "bm25": BM25,
    "embedding": Embedding,
    "sag-rule": lambda corpus: SharedNames(corpus, ranked=False),
    "sag-rule-ranked": lambda corpus: SharedNames(corpus, ranked=True),
    "full-history": FullHistory,
    "random": RandomOrder,
}
METHODS: Final = tuple(_MADE)
"""What recall is measured against, itself and its channels included."""


def ranker_of(name: str, corpus: Corpus) -> Ranker:
    """Make the ranker of a name.

    Raises
    ------
    UsageError
        If there is no such method.
    MissingDataError
        If it needs a package that is not installed.
    """
    if name not in _MADE:
        raise UsageError(f"no method {name!r}", fix=f"one of {', '.join(METHODS)}")
    return _MADE[name](corpus)
