"""Trajectories and labels from files into the log: nothing is lost without being listed."""

from sag_research.ingest._agentpile import agentpile_runs, load_public
from sag_research.ingest._apply import apply_labels
from sag_research.ingest._card import data_card
from sag_research.ingest._check import check_inputs
from sag_research.ingest._copies import Copy, CopyReport, hide, hide_copies, show
from sag_research.ingest._events import step_payload
from sag_research.ingest._fetch import Fetched, fetch, fetched_sets
from sag_research.ingest._format import Format, Reading
from sag_research.ingest._labels import Label, Labels, read_labels
from sag_research.ingest._pipeline import add, ingest, ingest_found
from sag_research.ingest._report import Contradiction, IngestReport, LabelReport
from sag_research.ingest._source import Source
from sag_research.ingest._walk import Found, find
from sag_research.ingest.formats import FORMATS

__all__ = [
    # formats
    "FORMATS",
    "Contradiction",
    # copies
    "Copy",
    "CopyReport",
    # public sets, and cards of one's own
    "Fetched",
    "Format",
    # files to look at
    "Found",
    # what an ingest did
    "IngestReport",
    # labels
    "Label",
    "LabelReport",
    "Labels",
    "Reading",
    "Source",
    "add",
    "agentpile_runs",
    "apply_labels",
    "check_inputs",
    "data_card",
    "fetch",
    "fetched_sets",
    "find",
    "hide",
    "hide_copies",
    # into the log
    "ingest",
    "ingest_found",
    "load_public",
    "read_labels",
    "show",
    "step_payload",
]
