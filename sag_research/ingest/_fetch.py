"""Fetching a public set from the hub: resumed where it stopped, and checked file by file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, cast

from sag_research._text import atomic_write, clip
from sag_research.errors import FormatError, MissingDataError, UsageError
from sag_research.ingest.registry import PublicSet, public_set, public_sets

__all__ = ["CARD", "Fetched", "fetch", "fetched_sets"]

CARD: Final = "sag-dataset.json"
"""Written beside the files: which set, which commit, which content."""
_CHUNK: Final = 2**20
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SPARE: Final = 2**28
"""Bytes that stay free on the disk."""


@dataclass
class Fetched:
    """What a fetch brought.

    Attributes
    ----------
    name : str
    path : Path
    revision : str
        The commit, also where the registry names none.
    pinned : bool
        Whether the registry named it.
    files : list of str
    bytes : int
    kept : int
        Files that were there already, with the right content.
    """

    name: str
    path: Path
    revision: str
    pinned: bool
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    kept: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, as ``sag datasets fetch --json`` prints it."""
        return {**vars(self), "path": str(self.path)}


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    revision: str | None = None,
    files: Sequence[str] = (),
    endpoint: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Fetched:
    """Fetch a public set at its pinned revision.

    Parameters
    ----------
    name : str
        As in :func:`public_sets`.
    folder : path-like, optional
        Where its files go; default ``sag-datasets/NAME`` here.
    revision : str, optional
        Another commit, branch or tag than the registry's.
    files : sequence of str
        Only files that fit one of these patterns, e.g. ``"data/train-00000-*"``.
    endpoint : str, optional
        A mirror of the hub; default ``$HF_ENDPOINT``, else the hub itself.
    progress : callable, optional
        Told of each file.

    Raises
    ------
    MissingDataError
        If huggingface_hub is not installed, the hub cannot be reached or refuses, or the disk is
        too small. What was fetched stays, and the same call goes on from there.
    FormatError
        If a file is not what the hub says it is.

    Notes
    -----
    Nothing is run and nothing is unpacked; every file is compared with the digest that the hub
    has of it. The commit and the digests are written to ``sag-dataset.json`` beside the files.
    """
    known = public_set(name)
    hub = _Hub(known, endpoint)
    target = Path(folder) if folder is not None else Path("sag-datasets") / name
    with hub.errors():
        commit, wanted = hub.listing(revision or known.revision, files or known.files)
    if not wanted:
        raise UsageError(
            f"no file of {known.hub} fits {', '.join(files or known.files)}", fix=f"see {known.url}"
        )
    pinned = revision is None and known.revision is not None
    found = Fetched(name, target, commit, pinned, [one.path for one in wanted])
    found.bytes = sum(one.size for one in wanted)
    _refuse_full_disk(target, wanted)
    for number, one in enumerate(wanted, start=1):
        if one.fits(target):
            found.kept += 1
            continue
        if progress is not None:
            progress(f"{number} of {len(wanted)}: {one.path}, {one.size:,} bytes")
        (target / one.path).unlink(missing_ok=True)  # else it is trusted for its name and time
        with hub.errors():
            hub.download(one.path, commit, target)
        if not one.fits(target):
            (target / one.path).unlink(missing_ok=True)
            raise FormatError(
                f"{one.path} is not what the hub says it is", fix="fetch it again, or elsewhere"
            )
    _write_card(target, known, found, wanted)
    return found


@dataclass(frozen=True)
class _File:
    """A file as the hub lists it."""

    path: str
    size: int
    sha256: str | None
    git: str | None
    """Git's digest, which the hub gives of small files."""

    def fits(self, folder: Path) -> bool:
        path = folder / self.path
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        if self.sha256 is not None:
            return _digest(path, hashlib.sha256()) == self.sha256
        if self.git is not None:
            head = hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
            return _digest(path, head) == self.git
        return True


def _digest(path: Path, state: Any) -> str:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return str(state.hexdigest())


class _Hub:
    """The one place that speaks with the hub."""

    def __init__(self, known: PublicSet, endpoint: str | None) -> None:
        try:
            import huggingface_hub
        except ImportError:
            raise MissingDataError(
                "fetching needs the package huggingface_hub",
                fix="pip install 'sag-research[datasets]'",
            ) from None
        self._known, self._hub = known, huggingface_hub
        self._endpoint = endpoint or os.environ.get("HF_ENDPOINT") or None
        self._api = huggingface_hub.HfApi(endpoint=self._endpoint)

    def listing(self, revision: str | None, patterns: Sequence[str]) -> tuple[str, list[_File]]:
        """Return the commit that is meant, and its files that fit the patterns, by name."""
        info = self._api.dataset_info(
            self._known.hub, revision=revision, files_metadata=True, timeout=60
        )
        found = [_file(one) for one in info.siblings or () if _fits(one.rfilename, patterns)]
        if revision is not None and _COMMIT.fullmatch(revision) and info.sha != revision:
            raise FormatError(
                f"the hub answers with commit {info.sha}", why=f"asked for {revision}",
                fix="is HF_ENDPOINT a mirror that you trust?",
            )  # fmt: skip
        return str(info.sha), sorted(found, key=lambda one: one.path)

    def download(self, path: str, commit: str, folder: Path) -> None:
        self._hub.hf_hub_download(
            self._known.hub,
            path,
            repo_type="dataset",
            revision=commit,
            local_dir=folder,
            endpoint=self._endpoint,
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say in one line what the hub, or the way to it, refused."""
        from huggingface_hub import errors as hub

        known = self._known
        transport = cast("type[Exception]", hub.HfHubHTTPError.__bases__[0])  # of its HTTP library
        go_on = "what was fetched is kept: the same command goes on from there"
        try:
            yield
        except hub.GatedRepoError:
            raise MissingDataError(
                f"{known.hub} is gated",
                fix=f"accept its terms at {known.url}, then `hf auth login`",
            ) from None
        except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError) as error:
            raise MissingDataError(
                f"{known.hub} is not there at this revision", why=clip(error, 160), fix=known.url
            ) from None
        except hub.HfHubHTTPError as error:
            raise MissingDataError("the hub refused", why=clip(error, 160), fix=go_on) from None
        except (transport, OSError) as error:
            if isinstance(error, OSError) and error.errno and not isinstance(error, _NETWORK):
                raise  # of the disk, not of the network
            raise MissingDataError(
                f"{self._endpoint or 'the Hugging Face hub'} cannot be reached",
                why=clip(error, 160),
                fix=f"check the network, or name a mirror in HF_ENDPOINT; {go_on}",
            ) from None


_NETWORK: Final = (ConnectionError, TimeoutError, socket.gaierror)


def _file(entry: Any) -> _File:
    lfs = entry.lfs
    sha256 = None if lfs is None else str(getattr(lfs, "sha256", "") or "") or None
    return _File(entry.rfilename, int(entry.size or 0), sha256, None if lfs else entry.blob_id)


def _fits(path: str, patterns: Sequence[str]) -> bool:
    """Tell whether a file is wanted, and stays in its folder; the hub's word is no path."""
    plain = Path(path)
    if plain.is_absolute() or ".." in plain.parts:
        return False
    return any(fnmatch(path, pattern) for pattern in patterns)


def _refuse_full_disk(folder: Path, wanted: Iterable[_File]) -> None:
    missing = sum(one.size for one in wanted if not (folder / one.path).is_file())
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    free = shutil.disk_usage(place).free
    if missing + _SPARE > free:
        raise MissingDataError(
            f"{missing:,} bytes do not fit on the disk of {folder}",
            why=f"{free:,} are free",
            fix="name another folder with -o, or fewer files with --files",
        )


def _write_card(folder: Path, known: PublicSet, found: Fetched, wanted: Iterable[_File]) -> None:
    card = {
        "name": known.name,
        "hub": known.hub,
        "revision": found.revision,
        "pinned": found.pinned,
        "licence": known.licence,
        "label": known.label,
        "files": {one.path: {"bytes": one.size, "sha256": one.sha256 or ""} for one in wanted},
    }
    with atomic_write(folder / CARD) as file:
        file.write(json.dumps(card, indent=1).encode())


def fetched_sets(folders: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Return the public sets that lie in some folders, with the commit of each."""
    known, found = public_sets(), {}
    for folder in folders:
        path = Path(folder) / CARD
        if not path.is_file():
            continue
        try:
            card = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(card, dict) and card.get("name") in known:
            found[str(card["name"])] = str(card.get("revision") or "")
    return found
