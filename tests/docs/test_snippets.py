"""Every example of the documentation is run, page by page, on the data that comes with us."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, RUN, SHOWN, Block, blocks, pages

# What is not run, and why: a page that gains such a block has to be written down here.
NOT_RUN: dict[str, list[str]] = {
    "corpus.md": ["needs Spark"],
    "cypher.md": ["needs Neo4j"],
    "explorer.md": ["cells of a notebook"],
    "laboratory.md": ["needs a browser, a model and its key"],
    "paper.md": [
        "takes minutes; the tests of the paper room build and check studies",
        "what a study prints whose data has changed",
    ],
    "process-mining.md": ["PM4Py is under the AGPL and no dependency of ours"],
}


def run_page(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's examples in a process and a folder of their own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SAG_"))}
    environment = kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "MPLBACKEND": "Agg",
    }
    return subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "tests.docs.run_page", str(path)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
        timeout=170,
    )


def examples(path: Path) -> list[Block]:
    return [block for block in blocks(path) if block.runs and block.language in RUN]


@pytest.mark.parametrize(
    "page", [path.relative_to(DOCS).as_posix() for path in pages() if examples(path)]
)
def test_the_examples_run(page: str, tmp_path: Path) -> None:
    done = run_page(DOCS / page, tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == f"ran {len(examples(DOCS / page))}"


def test_what_is_not_run_is_listed_with_its_reason() -> None:
    found: dict[str, list[str]] = {}
    for path in pages():
        for block in blocks(path):
            if block.reason is not None:
                found.setdefault(path.relative_to(DOCS).as_posix(), []).append(block.reason)
    assert found == NOT_RUN


def check_languages(docs: Path) -> list[str]:
    """List blocks that do not say what they are, and marks that belong to no block."""
    found = []
    for path in pages(docs):
        known = list(blocks(path))
        found += [f"{block.where}: a block of {block.language or 'nothing'}"
                  for block in known if block.language not in RUN | SHOWN | {"before"}]  # fmt: skip
        marks = len(re.findall(r"<!-- not run\b", path.read_text(encoding="utf-8")))
        if marks != sum(block.reason is not None for block in known):
            found.append(f"{path.name}: a mark without a block, or without a reason")
    return found


def test_every_block_says_what_it_is() -> None:
    assert check_languages(DOCS) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("```\nsag runs\n```\n", "page.md:2: a block of nothing"),
        ("```bash\nsag runs\n```\n", "page.md:2: a block of bash"),
        ("<!-- not run: Spark -->\n\ntext\n\n```python\n1\n```\n", "page.md: a mark without"),
        ("<!-- not run -->\n```python\n1\n```\n", "page.md: a mark without"),
        ("- a list\n\n    ```sql\n    select 1\n    ```\n", "page.md:4: a block of sql"),
    ],
)
def test_a_block_that_hides_is_found(tmp_path: Path, text: str, finding: str) -> None:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    [found] = check_languages(tmp_path)
    assert found.startswith(finding)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n",
            "page.md:6: this example fails",
        ),
        ("```python\n>>> 1 + 1\n3\n```\n", "Got:\n    2"),
        ("```python\nraise SystemExit(0)\n```\n", "this example fails"),
        ("```console\n$ echo one\ntwo\n```\n", "it prints:\none"),
        ("```console\n$ false\n```\n", "exit code 1 from: false"),
        ("```console\n$ true   # exit code 3\n```\n", "exit code 0 from: true"),
    ],
)
def test_an_example_that_fails_is_found(tmp_path: Path, text: str, finding: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    done = run_page(page, tmp_path)
    assert finding in done.stdout
    assert not re.search(r"^ran \d", done.stdout, re.MULTILINE)


def test_examples_share_names_and_marked_ones_stay_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- before:\nx = 1\n-->\n```python\n>>> y = x + 1\n```\n"
        "<!-- not run: it asks a service -->\n```python\n1 / 0\n```\n"
        "```python\nassert y == 2\n```\n```console\n$ (exit 3)   # exit code 3\n```\n",
        encoding="utf-8",
    )
    assert run_page(page, tmp_path).stdout == "ran 3\n"
