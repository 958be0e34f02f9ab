"""What docs/paper.md says is so: its analyses, its declaration, its function, its commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from sag_research.cli import sag
from sag_research.paper import EXAMPLES, build
from sag_research.paper._analyses import FIGURES, OF_BACKTEST, TABLES
from sag_research.paper._spec import read_spec
from tests.paper.study import TOML, write_study

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/paper.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    """Return the page's one code block of a kind."""
    [text] = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def listed(head: str) -> dict[str, str]:
    """Return the analyses that a table of the page lists, with what they are of."""
    rows = PAGE.split(f"| {head} | of | |\n", maxsplit=1)[1].split("\n\n", maxsplit=1)[0]
    found = {}
    for row in rows.splitlines()[1:]:
        names, of, _ = (cell.strip() for cell in row.strip("|").split("|"))
        found |= dict.fromkeys(re.findall(r"`([a-z-]+)`", names), of)
    return found


@pytest.mark.parametrize(("head", "known"), [("table", TABLES), ("figure", FIGURES)])
def test_every_analysis_is_listed(head: str, known: dict[str, object]) -> None:
    found = listed(head)
    assert set(found) == set(known)
    assert {name for name, of in found.items() if of == "backtest"} == OF_BACKTEST & set(known)


def test_the_declaration_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(block("toml"), encoding="utf-8")
    spec = read_spec(tmp_path)
    assert [one.name for one in (*spec.table, *spec.figure)] == ["success", "own", "auroc"]


def test_the_function_runs(tmp_path: Path) -> None:
    more = (
        '[[table]]\nname = "steps"\nfunction = "analysis:steps_by_model"\noptions = { least = 4 }\n'
    )
    toml = TOML.split("[[table]]", maxsplit=1)[0] + more
    folder = write_study(tmp_path / "study", toml, block("python"))
    build(folder)
    text = (folder / "results/tables/steps.csv").read_text(encoding="utf-8")
    assert text.startswith("model,n,median\nm0,")


def test_commands_and_options_exist() -> None:
    group = sag.commands["paper"]
    assert isinstance(group, click.Group)
    for name, rest in re.findall(r"sag paper (\w+)(.*)", PAGE):
        known = {option for one in group.commands[name].params for option in one.opts}
        assert set(re.findall(r"--[a-z-]+", rest.split("`")[0])) <= known
    assert set(re.findall(r"--example ([a-z-]+)", PAGE)) == set(EXAMPLES)
