"""What label files are called: short, the same again for one file, and different for two."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import PurePath

from msgspec.structs import replace

from sag_research._text import repair
from sag_research.ingest._labels_model import Labels

__all__ = ["place_of", "with_own_sources"]


def place_of(file: str) -> str:
    """Return what a file is known by again: a digest of its path, as 16 hex digits."""
    return blake2b(file.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def with_own_sources(labels: Labels, places: Mapping[str, str | None]) -> Labels:
    """Give each label file a name that is no other one's.

    Parameters
    ----------
    labels : Labels
    places : mapping of str to (str or None)
        By name of a source that is known: the place of its file, if that was kept.

    Returns
    -------
    Labels
        A file that is known has the name that it had. Another one with the name of a known file
        gets more of its path in front.
    """
    taken = dict(places)
    names = {place: name for name, place in places.items() if place is not None}
    found = []
    for label in labels:
        if label.file is None:
            found.append(label)
            continue
        place, said = place_of(label.file), label.outcome
        if place not in names:
            names[place] = _free_name(said.source, label.file, place, taken)
            taken[names[place]] = place
        outcome = replace(said, source=names[place])
        found.append(label if names[place] == said.source else label._replace(outcome=outcome))
    return Labels(found, labels.notes, labels.refused)


def _free_name(name: str, file: str, place: str, taken: Mapping[str, str | None]) -> str:
    parts = PurePath(repair(file)).parts
    longer = ("/".join(parts[-size:]) for size in range(name.count("/") + 2, len(parts)))
    for one in (name, *longer):
        if taken.get(one) in (None, place):
            return one
    return PurePath(repair(file)).as_posix()
