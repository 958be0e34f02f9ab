"""Where the data sets that come with the package are."""

from __future__ import annotations

from pathlib import Path

from sag_research.errors import MissingDataError

__all__ = ["bundled"]

_PACKAGE = Path(__file__).resolve().parent.parent


def bundled(name: str) -> Path:
    """Folder of a bundled data set, in the source checkout or in the installed package.

    Parameters
    ----------
    name : str
        For example ``"bugfix"``.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    MissingDataError
        If there is no such data set; the message names those there are.

    Examples
    --------
    >>> bundled("bugfix").joinpath("labels.csv").exists()
    True
    """
    homes = (_PACKAGE.parent / "datasets", _PACKAGE / "_datasets")
    plain = Path(name).name == name and not name.startswith(".")
    for home in homes if plain and name else ():
        if (home / name / "README.md").is_file():
            return home / name
    there = sorted(path.parent.name for home in homes for path in home.glob("*/README.md"))
    raise MissingDataError(
        f"no bundled data set {name!r}",
        why=f"there are: {', '.join(there)}" if there else "none was installed",
        fix="install the wheel of sag-research, or work in a source checkout with `datasets/`",
    )
