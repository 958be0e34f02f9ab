"""Names from other people's files are text in LaTeX, Markdown and CSV, whatever they hold."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest

from sag_research.errors import UsageError
from sag_research.paper._escape import csv_text, latex, markdown
from sag_research.paper._table import csv_table, has_counts, latex_table, markdown_table

HOSTILE = [
    r"\input{/etc/passwd}", r"\write18{id}", "a_b & 50% #1 $x$ ~ ^ {}", "<script>alert(1)</script>",
    "![x](http://evil.example/x.png)", "[a](javascript:alert(1))", "| a | b |",
    "`x` **y** @someone",
    "x\\\\[3em] y", "a--b---c", "\x1b[31mred\u202e", "=cmd|' /C calc'!A0", "line\nbreak",
    "中文 ≤ é",
    "\ud800", "https://evil.example www.evil.example", "]] }} %% \\end{tabular}",
]  # fmt: skip
COMMANDS = {
    "textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar",
    "textquotedbl", "textasciigrave", "textquotesingle", "textendash", "textemdash", "ldots",
    "textperiodcentered", "leq", "geq", "times", "alpha", "pm",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_holds_no_command_but_ours(text: str) -> None:
    shown = latex(text)
    left = re.sub(r"\$\\(leq|geq|times|alpha|pm)\$", "", shown)
    commands = re.findall(r"\\([A-Za-z]+)", left)
    assert set(commands) <= COMMANDS
    bare = re.sub(r"\\[A-Za-z]+\{\}|\\[{}$&#%_]", "", left)
    assert not re.search(r"[\\$&#%_~^<>|\"`]", bare)
    assert bare.count("{") == bare.count("}")
    assert "--" not in shown
    assert "\n" not in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_holds_no_markup(text: str) -> None:
    shown = markdown(text)
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", shown)
    assert not re.search(r"[<>|`*\[\]]", bare)
    assert "://" not in shown
    assert "www." not in shown
    assert "@" not in shown
    assert "\n" not in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_is_one_cell_and_no_formula(text: str) -> None:
    frame = pd.DataFrame([[text, 1]], columns=["name", "n"], dtype=object)
    [_, row] = list(csv.reader(io.StringIO(csv_table(frame))))
    assert len(row) == 2
    assert not row[0].startswith(("=", "+", "-", "@"))
    assert csv_text("plain-name") == "plain-name"


@pytest.mark.parametrize("text", HOSTILE)
def test_columns_of_a_table_stay_apart(text: str) -> None:
    columns = pd.Index([text[:20], "n"], dtype=object)
    frame = pd.DataFrame([[text, 1], ["b", 2]], columns=columns, dtype=object)
    rows = [line for line in latex_table(frame).splitlines() if line.endswith(r"\\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [1, 1, 1]
    lines = markdown_table(frame).splitlines()
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [3, 3, 3, 3]


def test_numbers_stand_with_their_interval_and_n() -> None:
    frame = pd.DataFrame({
        "model": ["a", "b"], "n": [1234, 5], "rate": [0.5, np.nan], "low": [0.25, np.nan],
        "high": [0.75, np.nan], "x": [-0.0001, 2.0], "x_low": [-1, 1.0], "x_high": [1, np.nan],
        "m": [None, 3],
    })  # fmt: skip
    assert markdown_table(frame, "T").splitlines() == [
        "**T**", "", "| model | n | rate | x | m |", "|---|---|---|---|---|",
        "| a | 1,234 | 0.500 [0.250, 0.750] | 0.000 [-1.000, 1.000] | – |",
        "| b | 5 | – | 2.000 | 3.000 |",
    ]  # fmt: skip
    assert "a & 1,234 & 0.500 [0.250, 0.750] & 0.000 [-1.000, 1.000] & -- \\\\" in latex_table(
        frame
    )
    assert csv_table(frame).splitlines()[1] == "a,1234,0.5,0.25,0.75,-0.0001,-1,1,"
    assert has_counts(frame)
    assert not has_counts(frame.drop(columns="n"))
    assert has_counts(pd.DataFrame({"n_runs": [1]}))


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["n", "n"])
    with pytest.raises(UsageError, match="two columns"):
        latex_table(frame)
