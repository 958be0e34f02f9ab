"""Taking secrets out of a workspace, or out of a copy of it."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from sag_research.errors import UsageError
from sag_research.ingest.secrets import LogRedaction, redact_log, redact_text, redacted_copy
from sag_research.workspace._base import Base

__all__ = ["Redacting"]


class Redacting(Base):
    """The methods of a workspace that find secrets, and take them out."""

    _folder: TemporaryDirectory[str] | None = None
    """Where a copy is that goes when it is closed."""

    def redact_secrets(self, *, dry_run: bool = False) -> LogRedaction:
        """Take keys, passwords and the like out of the log and the warehouse, for good.

        In the place of each stands a token, ``[secret:github-token:1a2b3c4d]``, and the step has
        the flag ``redacted``. Digests stay, so :meth:`verify` holds, and says how many bodies were
        redacted. Models that were fitted before may hold words of the old texts: fit them anew.

        Parameters
        ----------
        dry_run : bool
            Only say what would be done.

        Returns
        -------
        LogRedaction
            Every place, with kind and token; the secrets are not in it.
        """
        done = redact_log(self.store, dry_run=dry_run)
        if done.events:
            self.sync()
        return done

    def redacted_copy(self, path: str | PathLike[str] | None = None) -> Self:
        """Write this workspace once more without its secrets, to export from it or to give away.

        Runs, positions, forks, labels and clocks are the same. A run whose id holds a secret has
        another id, and what refers to it follows. Digests are new: the old ones would
        let who has the rest of a text test guesses of a short password.

        Parameters
        ----------
        path : path-like, optional
            A folder that does not exist; default: a temporary one, removed when the copy is
            closed.

        Returns
        -------
        Workspace

        Raises
        ------
        UsageError
            If there is something at ``path``.

        Examples
        --------
        >>> import sag_research as sag
        >>> ws = sag.open(":memory:")
        >>> run = ws.add({"task_id": "t", "steps": [{"action": "export DB_PASSWORD=hunter2"}]})
        >>> with ws.redacted_copy() as clean:
        ...     clean.sql("SELECT action, flags FROM steps").rows()
        [('export DB_PASSWORD=[secret:password]', ['redacted'])]
        """
        folder = None if path is not None else TemporaryDirectory(prefix="sag-redacted-")
        place = Path(folder.name) / "workspace" if path is None and folder else Path(path or "")
        if place.exists():
            raise UsageError(f"{place} exists", fix="name a folder that does not")
        place.mkdir(parents=True)
        if self.path is not None and (aliases := self.path / "aliases.toml").exists():
            text = redact_text(aliases.read_text(encoding="utf-8"))
            (place / "aliases.toml").write_text(text, encoding="utf-8")  # names are found as here
        copy = type(self)(place)
        copy._folder = folder
        try:
            redacted_copy(self.store, copy.store)
            copy.sync()
        except BaseException:
            copy.close()
            raise
        return copy

    def close(self) -> None:
        """Close the log and the warehouse; closing twice does nothing."""
        super().close()
        if self._folder is not None:
            self._folder.cleanup()
