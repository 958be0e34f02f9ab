"""From runs to a paper: a study folder whose tables and figures come out of one command.

>>> import tempfile
>>> from sag_research.paper import init
>>> with tempfile.TemporaryDirectory() as home:
...     folder = init(f"{home}/study", "failure-prefixes")
...     sorted(path.name for path in folder.glob("[!.]*"))
['Makefile', 'README.md', 'analysis.py', 'paper.tex', 'references.bib', 'study.toml']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sag_research.paper._init import EXAMPLES, init
from sag_research.paper._spec import StudyError

if TYPE_CHECKING:
    from sag_research.paper._build import Built, build
    from sag_research.paper._check import Checked, Difference, check
    from sag_research.paper._study import Cohort

__all__ = [  # noqa: RUF022
    # make, run, run again
    "init",
    "build",
    "check",
    # what they return, and what own functions are given
    "Built",
    "Checked",
    "Difference",
    "Cohort",
    # what there is
    "EXAMPLES",
    "StudyError",
]

_LATER = {
    "build": "_build",
    "Built": "_build",
    "check": "_check",
    "Checked": "_check",
    "Difference": "_check",
    "Cohort": "_study",
}
"""Names by module that are imported when first used: analyses take their time."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
