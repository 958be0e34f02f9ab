"""What a format is, and what reading a source gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from sag_research.ingest._source import Source
from sag_research.model import Trajectory

__all__ = ["Format", "Reading"]


class Reading:
    """The trajectories of one source, read while they are iterated over.

    Attributes
    ----------
    version : str
        Version of the format, as far as the source shows it.
    notes : list of str
        What had to be left out inside of runs.
    refused : list of (str, str)
        Where a record stands that could not be read, and why: each would have been a run.

    Notes
    -----
    Both lists are complete once the trajectories are read.
    """

    def __init__(
        self,
        version: str,
        trajectories: Iterator[Trajectory],
        notes: list[str] | None = None,
        refused: list[tuple[str, str]] | None = None,
    ) -> None:
        self.version = version
        self.notes: list[str] = [] if notes is None else notes
        self.refused: list[tuple[str, str]] = [] if refused is None else refused
        self._trajectories = trajectories

    def __iter__(self) -> Iterator[Trajectory]:
        return self._trajectories


class Format(Protocol):
    """A kind of trajectory file: how sure it is, and how it is read.

    Readers give texts as they stand in the source. Lone surrogates (from invalid UTF-8 or
    from half an escape) may be in them; whoever writes to the log repairs them and keeps the
    original beside.
    """

    @property
    def name(self) -> str:
        """Name in kebab-case, as in ``--format swe-agent``."""

    def sniff(self, head: bytes, path: Path) -> float:
        """Say how likely the content is of this format, from 0 to 1.

        ``head`` is the beginning of the content, or all of it if the beginning did not tell.
        The path is a hint at most: files are claimed by content.
        """

    def read(self, source: Source) -> Reading:
        """Read a source.

        Raises
        ------
        FormatError
            If the source cannot be read as this format; also while it is iterated over.
        """
