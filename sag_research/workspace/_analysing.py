"""Analysing a workspace: prefixes of a cohort, comparisons between models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sag_research.workspace._base import shown
from sag_research.workspace._looking import Looking

if TYPE_CHECKING:
    from sag_research.deadend import Comparison, Prefixes
    from sag_research.extract import Vocabulary
    from sag_research.warehouse.corpus import Corpus

__all__ = ["Analysing"]


class Analysing(Looking):
    """The methods of a workspace that compute results of a cohort."""

    def prefixes(
        self,
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        vocabulary: Vocabulary | None = None,
        texts: bool = True,
        entities: bool = True,
    ) -> Prefixes:
        """Read a cohort for failure-prefix analysis: tokens, groups and labels of its runs.

        Parameters
        ----------
        where : str
            An SQL condition over the view ``runs``, e.g. ``"dataset = ?"``.
        parameters : sequence or mapping, optional
            Values for the condition.
        vocabulary : Vocabulary, optional
            How a step becomes a token; the shipped one by default.
        texts, entities : bool
            Keep the texts, and the entities each step mentions, for the models that read them.

        Returns
        -------
        Prefixes
            Forks, copies and runs without steps are left out and counted in ``left_out``.
        """
        from sag_research.deadend import read_prefixes  # scikit-learn takes a second to import

        return read_prefixes(
            self.warehouse, where, parameters, vocabulary=vocabulary, texts=texts, entities=entities
        )

    def corpus(
        self,
        place: str | Path,
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> Corpus:
        """Write a cohort as a corpus: Parquet of runs and tokens that DuckDB and Spark query.

        Parameters
        ----------
        place : str or path
            A folder that does not exist yet.
        where : str
            An SQL condition over the view ``runs``.
        parameters : sequence or mapping, optional
            Values for the condition.

        Returns
        -------
        Corpus
            Forks, copies and runs without steps are left out and counted in
            ``about["left_out"]``. For :func:`sag_research.engine`, and for
            ``Prefixes.from_corpus``.
        """
        from sag_research.warehouse.corpus import write_corpus

        return write_corpus(self.warehouse, place, where, parameters)

    def compare(
        self,
        by: str = "model",
        where: str = "true",
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        ks: Sequence[int] = (1, 2, 4),
        seed: int = 0,
    ) -> Comparison:
        """Compare success between the values of a column: rates, pass@k, paired differences.

        Parameters
        ----------
        by : str
            A column of the view ``runs``, e.g. ``model``, ``agent`` or ``repo``.
        where : str
            An SQL condition over ``runs``. Forks, whose first steps are another run's, are left
            out unless it speaks of ``parent_id``, and copies unless it speaks of ``hidden``.
        parameters : sequence or mapping, optional
            Values for the condition.
        ks : sequence of int
            For pass@k.
        seed : int
            Of the resamples of tasks.

        Returns
        -------
        Comparison
            ``.table_`` and ``.paired_``, with intervals clustered by task.
        """
        from sag_research.deadend import compare

        kept = "true" if "parent_id" in where else "parent_id IS NULL"
        return compare(
            self.runs(f"({shown(where)}) AND kind <> 'extraction' AND {kept}", parameters),
            by=by,
            ks=tuple(ks),
            seed=seed,
        )
