"""What can be refused before anything is made or written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sag_research.ingest._labels import Labels, read_labels
from sag_research.ingest._walk import LOG_NAME, find
from sag_research.ingest.plugins import available

__all__ = ["check_inputs"]


def check_inputs(
    paths: Iterable[str | os.PathLike[str]],
    *,
    labels: str | os.PathLike[str] | None = None,
    format: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
) -> Labels | None:
    """Look at what an ingest is asked for, before there is a workspace.

    Parameters
    ----------
    paths : iterable of path-like
    labels : path-like, optional
    format : str, optional
        As for :func:`ingest`.
    workspace : path-like, optional
        The folder of the workspace that is written to, which may be among the paths.

    Returns
    -------
    Labels or None
        What the label file says, to be given to :func:`ingest` in its place.

    Raises
    ------
    UsageError
        If a path does not exist or is another workspace, or the format is unknown.
    LabelError
        If the labels cannot be understood.
    """
    find(paths, None if workspace is None else Path(workspace) / LOG_NAME)
    available(format)
    return None if labels is None else read_labels(labels)
