"""Public sets of agent runs: what they are, how they are fetched, and what to cite."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sag_research.errors import UsageError

__all__ = ["Citation", "PublicSet", "bibtex", "cite", "public_set", "public_sets"]

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_HOMES: Final = (_PACKAGE.parent / "datasets", _PACKAGE / "_datasets")
"""In the checkout, and in the installed package."""
_FILE: Final = "registry.toml"
_OURS: Final = "sag_research"


class PublicSet(msgspec.Struct, frozen=True, kw_only=True):
    """A public set of runs, as the registry describes it."""

    name: str = ""
    title: str
    hub: str
    """Repository on the Hugging Face hub."""
    revision: str | None = None
    """The commit that the counts are of; ``None`` if nobody has checked one."""
    revision_from: str = ""
    files: list[str]
    """Patterns of the files that hold the runs."""
    runs: int | None = None
    bytes: int | None = None
    """Of the download, where known."""
    licence: str
    formats: list[str] = []
    """Readers that take the files as they are."""
    agentpile: str | None = None
    """Name of the loader in the package agentpile, for sets that no reader takes."""
    label: str
    """What success means, in the set's own terms."""
    cite: list[str] = []
    note: str = ""

    @property
    def url(self) -> str:
        """Page of the set."""
        return f"https://huggingface.co/datasets/{self.hub}"


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """One work to cite."""

    key: str = ""
    type: str = "misc"
    title: str
    author: str
    year: str
    eprint: str = ""
    url: str = ""
    of: list[str] = []
    """Formats whose runs come from this work."""


class _Registry(msgspec.Struct):
    set: dict[str, PublicSet]
    citation: dict[str, Citation]


def _registry() -> _Registry:
    path = next(home / _FILE for home in _HOMES if (home / _FILE).is_file())
    read = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Registry)
    for name, one in read.set.items():
        read.set[name] = msgspec.structs.replace(one, name=name)
    for key, work in read.citation.items():
        read.citation[key] = msgspec.structs.replace(work, key=key)
    return read


def public_sets() -> dict[str, PublicSet]:
    """Return the public sets by name.

    Examples
    --------
    >>> public_sets()["nebius-swe-agent"].runs
    80036
    """
    return _registry().set


def public_set(name: str) -> PublicSet:
    """Return one public set.

    Raises
    ------
    UsageError
        If there is none of this name; the message names those there are.
    """
    known = public_sets()
    if name not in known:
        raise UsageError(f"no public set is called {name!r}", fix=f"one of {', '.join(known)}")
    return known[name]


def cite(
    sets: Iterable[str], formats: Iterable[str] = (), *, version: str = ""
) -> dict[str, Citation]:
    """Return what to cite for runs of some public sets and formats, by key.

    Parameters
    ----------
    sets : iterable of str
        Names of public sets.
    formats : iterable of str
        Formats of files, for the works behind the agents and benchmarks that write them.
    version : str
        Of this package, which is cited too if it is given.
    """
    read = _registry()
    keys = [key for name in sets for key in read.set[name].cite]
    found = set(formats)
    keys += [key for key, work in read.citation.items() if found & set(work.of)]
    works = {key: read.citation[key] for key in dict.fromkeys(keys)}
    if version:
        works[_OURS] = Citation(
            key=_OURS,
            type="software",
            title=f"sag_research {version}",
            author="{The sag_research authors}",
            year="2026",
        )
    return works


def bibtex(works: Mapping[str, Citation]) -> str:
    """Write works as BibTeX.

    Examples
    --------
    >>> entry = bibtex(cite(["swe-gym"]))
    >>> entry.splitlines()[0], "url = {https://arxiv.org/abs/2412.21139}," in entry
    ('@misc{pan2024swegym,', True)
    """
    return "\n\n".join(_entry(key, work) for key, work in works.items())


def _entry(key: str, work: Citation) -> str:
    fields: dict[str, Any] = {
        "title": f"{{{work.title}}}",
        "author": work.author,
        "year": work.year,
        "eprint": work.eprint,
        "archivePrefix": "arXiv" if work.eprint else "",
        "url": work.url or (f"https://arxiv.org/abs/{work.eprint}" if work.eprint else ""),
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join((f"@{work.type}{{{key},", *lines, "}"))
