"""What the documentation site does beside what MkDocs does: links that lead out of ``docs/``.

On a code host, a page of ``docs/`` may point at ``../RESEARCH.md`` or at a notebook. The site has
no such files, so each one that a page names is put into it, at the same place below the project.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?\[([^\]]*)\]\()([^)\s#]+)((?:#[^)\s]*)?(?:\s[^)]*)?\))")
FENCE = re.compile(r"(^[ ]*(`{3,})[^\n]*\n.*?^[ ]*\2[ ]*$)", re.MULTILINE | re.DOTALL)
PAGES = {"RESEARCH.md": "research.md", "BENCHMARKS.md": "benchmarks.md"}  # in the navigation


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the project's pages, and every file that a page names."""
    for name, uri in PAGES.items():
        if (ROOT / name).is_file():
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for file in list(files.documentation_pages()):
        for target in named(file.src_uri):
            uri = uri_of(target)
            if not uri.startswith("..") and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point the links of a page at where the site has their files."""
    uri = page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        target = resolved(uri, match[3])
        if target is None:
            return match[0]
        if target.is_dir():  # the site has files; of a folder it can only say the name
            return match[2]
        here = os.path.relpath(uri_of(target), Path(uri).parent).replace(os.sep, "/")
        return f"{match[1]}{here}{match[4]}"

    return "".join(
        part if number % 3 else LINK.sub(moved, part)
        for number, part in enumerate(FENCE.split(markdown))
        if number % 3 != 2  # the fence alone
    )


def named(uri: str) -> list[Path]:
    """List the project's files outside ``docs/`` that a page names."""
    text = FENCE.sub("", source_of(uri).read_text(encoding="utf-8"))
    found = (resolved(uri, match[3]) for match in LINK.finditer(text))
    return [path for path in found if path and path.is_file() and not path.is_relative_to(DOCS)]


def source_of(uri: str) -> Path:
    """Return the file that a page of the site is made of."""
    names = {moved: name for name, moved in PAGES.items()}
    if uri in names:
        return ROOT / names[uri]
    return DOCS / uri if (DOCS / uri).is_file() else ROOT / uri


def resolved(uri: str, link: str) -> Path | None:
    """Return the file or folder that a page's link means; None where it is not the project's."""
    if re.match(r"[a-z][a-z0-9+.-]*:|/", link):
        return None
    path = (source_of(uri).parent / link).resolve()
    if (path / "README.md").is_file():
        path = path / "README.md"
    return path if path.exists() and path.is_relative_to(ROOT) else None


def uri_of(path: Path) -> str:
    """Return where the site has a file of the project.

    Examples
    --------
    >>> uri_of(ROOT / "docs" / "native.md"), uri_of(ROOT / "RESEARCH.md")
    ('native.md', 'research.md')
    >>> uri_of(ROOT / "notebooks" / "a.ipynb")
    'notebooks/a.ipynb'
    """
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return PAGES.get(name, name)
