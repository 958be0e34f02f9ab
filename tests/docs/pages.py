"""The examples of a Markdown page.

``python`` and ``console`` blocks are examples and are run. A comment ``<!-- not run: reason -->``
right above a block says that it is not, and why. ``<!-- before: … -->`` holds Python that a page's
examples take for granted, such as the ``ws`` of a reader who has a workspace already.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PARTS = re.compile(
    r"^<!-- before:\n(?P<before>.*?)^-->[ ]*$"
    r"|(?:^[ ]*<!-- not run: (?P<reason>[^>]+?) -->[ ]*\n\s*?)?"
    r"^(?P<indent>[ ]*)(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<source>.*?)^[ ]*(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
RUN = frozenset({"python", "console"})
SHOWN = frozenset({"json", "toml", "text", "bibtex"})  # to be read


@dataclass(frozen=True)
class Block:
    """One fenced block of a page; `language` is ``before`` for what is taken for granted."""

    page: str
    line: int
    language: str
    source: str
    reason: str | None = None

    @property
    def where(self) -> str:
        """The place in the form that editors open."""
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether the block is to be run."""
        return self.reason is None and self.language in RUN | {"before"}


def pages(docs: Path = DOCS) -> list[Path]:
    """List the pages of a documentation folder."""
    return sorted(docs.rglob("*.md"))


def blocks(path: Path) -> Iterator[Block]:
    """Yield the blocks of a page, in order."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    for match in PARTS.finditer(text):
        is_before = match["before"] is not None
        start = match.start("before" if is_before else "source")
        yield Block(
            page=name,
            line=text.count("\n", 0, start) + 1,
            language="before" if is_before else match["language"].strip(),
            source=textwrap.dedent(match["before"] if is_before else match["source"]),
            reason=match["reason"],
        )
