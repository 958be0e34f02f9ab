"""Trajectories and labels from files into the log: nothing is lost without being listed."""

from sag_research.ingest._apply import apply_labels
from sag_research.ingest._events import step_payload
from sag_research.ingest._format import Format, Reading
from sag_research.ingest._labels import Label, Labels, read_labels
from sag_research.ingest._pipeline import add, ingest
from sag_research.ingest._report import Contradiction, IngestReport, LabelReport
from sag_research.ingest._source import Source
from sag_research.ingest.formats import FORMATS

__all__ = [
    # formats
    "FORMATS",
    "Contradiction",
    "Format",
    # what an ingest did
    "IngestReport",
    # labels
    "Label",
    "LabelReport",
    "Labels",
    "Reading",
    "Source",
    "add",
    "apply_labels",
    # into the log
    "ingest",
    "read_labels",
    "step_payload",
]
