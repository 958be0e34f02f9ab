"""docs/formats.md: its list is that of the formats, and its example is run.

``SAG_UPDATE_DOCS=1 pytest tests/ingest/test_formats_docs.py`` writes the list anew.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

from sag_research.ingest import FORMATS, Source
from sag_research.ingest.conformance import FormatConformance

PAGE = Path(__file__).parents[2] / "docs/formats.md"
BEGIN, END = "<!-- formats: begin -->\n", "<!-- formats: end -->\n"


def section(format_: Any) -> str:
    """A format's name and its documentation, as Markdown."""
    said = inspect.cleandoc(type(format_).__doc__ or "").replace("``", "`")
    said = re.sub(r"(?<=[^\n])\n(\* )", r"\n\1", said)
    return f"### {format_.name}\n\n{said}\n"


def listed() -> str:
    return "\n".join(map(section, sorted(FORMATS, key=lambda one: one.name)))


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page(), re.DOTALL)


def test_the_list_is_that_of_the_formats() -> None:
    before, _, rest = page().partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("SAG_UPDATE_DOCS"):
        PAGE.write_text(before + BEGIN + "\n" + listed() + "\n" + END + after, encoding="utf-8")
        return
    assert shown.strip() == listed().strip(), "write it anew: SAG_UPDATE_DOCS=1 pytest " + __file__


def test_every_format_says_what_it_reads_and_which_traps_it_honours() -> None:
    for one in FORMATS:
        said = inspect.getdoc(type(one)) or ""
        assert ":" in said.splitlines()[0], one.name
        assert len(said.split()) > 30, one.name


def test_the_example_passes_the_suite(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)  # our own page
    suite: FormatConformance = names["TestMyAgent"]()
    checks = [name for name in dir(suite) if name.startswith("test_")]
    assert len(checks) >= 11
    for name in checks:
        (tmp_path / name).mkdir()
        check = getattr(suite, name)
        check(*[tmp_path / name][: check.__code__.co_argcount - 1])
    (path,) = suite.examples(tmp_path)
    (run,) = names["MyAgent"]().read(Source(path))
    assert (run.task_id, run.steps[0].action, run.outcome.outcome) == ("t", "ls", "success")
