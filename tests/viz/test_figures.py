"""Figures: readable size, numbers that stand in them, and the same bytes twice."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sag_research import viz
from sag_research.errors import NotEnoughDataError, UsageError
from tests.viz.figures import FIGURES, NAMES, runs

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


def texts(ax: Any) -> list[str]:
    """All texts of an axes' figure that are really drawn."""
    figure = ax.get_figure(root=True)
    figure.canvas.draw()
    found = figure.findobj(lambda artist: hasattr(artist, "get_fontsize"))
    return [t.get_text() for t in found if t.get_visible() and t.get_text()]


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    root = Path(__file__).parents[2]
    running = []
    for number, folder in enumerate(folders):
        folder.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": str(number + 1), "PYTHONPATH": str(root)}
        environment.pop("SOURCE_DATE_EPOCH", None)
        # two clocks, so that a date in a file would show
        environment["TZ"] = ("UTC", "Asia/Tokyo")[number]
        command = [sys.executable, "-W", "error", "-m", "tests.viz.figures", str(folder)]
        running.append(subprocess.Popen(command, env=environment, cwd=root))
    assert [process.wait(timeout=150) for process in running] == [0, 0]
    files = sorted(path.name for path in folders[0].iterdir())
    assert len(files) == 3 * len(FIGURES)
    assert files == sorted(path.name for path in folders[1].iterdir())
    for name in files:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_files_carry_no_date_and_no_version(tmp_path: Path) -> None:
    ax = viz.plot_risk([0.1, 0.2])
    pdf, svg, png = (viz.save_figure(ax, tmp_path / f"f.{s}").read_bytes()
                     for s in ("pdf", "svg", "png"))  # fmt: skip
    assert b"CreationDate" not in pdf
    assert b"Matplotlib" not in pdf
    assert b"<dc:date>" not in svg
    assert b"Software" not in png
    ET.fromstring(svg)
    with pytest.raises(UsageError, match=r"\.gif"):
        viz.save_figure(ax, tmp_path / "f.gif")


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_type_is_readable_and_the_width_is_that_of_a_paper(name: str) -> None:
    ax = FIGURES[name]()
    figure = ax.get_figure(root=True)
    width = viz.PAGE if name == "sankey" else viz.COLUMN
    assert figure.get_figwidth() == width
    figure.canvas.draw()
    drawn = figure.findobj(lambda artist: hasattr(artist, "get_fontsize"))
    sizes = [t.get_fontsize() for t in drawn if t.get_visible() and t.get_text()]
    assert sizes
    assert min(sizes) >= 7


def test_axes_that_are_given_are_used_and_the_style_does_not_leak() -> None:
    before = dict(pyplot.rcParams)
    ax = pyplot.subplots()[1]
    assert viz.plot_risk([0.1, 0.9], ax=ax) is ax
    assert dict(pyplot.rcParams) == before


def test_names_from_a_trajectory_are_no_formulas() -> None:
    ax = viz.plot_risk([0.1], title=r"$\frac{a}$")  # broken mathtext would raise when drawn
    assert r"$\frac{a}$" in texts(ax)


def test_risk_marks_alarm_and_fork_at_their_steps() -> None:
    ax = viz.plot_risk([0.1, 0.4, 0.8], threshold=0.5, alarm=2, fork=1, step_set=(1, 2))
    by_label = {line.get_label(): line for line in ax.get_lines()}
    assert by_label["alarm, step 2"].get_xydata().tolist() == [[2.0, 0.8]]
    assert by_label["fork, step 1"].get_xydata().tolist() == [[1.0, 0.4]]
    # looks on a grid: the mark stands on the line between two looks
    ax = viz.plot_risk([0.2, 0.4], step=[0, 4], alarm=3)
    mark = next(line for line in ax.get_lines() if line.get_label() == "alarm, step 3")
    assert mark.get_ydata() == pytest.approx([0.35])


def test_sankey_counts_runs_by_exact_prefix() -> None:
    a, b = [0, 1, 0], [0, 0]
    sequences = [np.array(run) for run in [a] * 6 + [b] * 3 + [[1]] + [a]]
    failed = [1, 1, 1, 0, 0, 0, 1, 0, 0, 0, np.nan]
    ax = viz.plot_prefix_sankey(sequences, failed, NAMES, min_runs=2, depth=3)
    labels = {text.get_text().replace("\n", " ") for text in ax.texts}
    # 10 runs of known outcome, 4 failed; 9 begin with "look", of which 6 go on with "edit"
    assert labels == {
        "all runs 10 · 40%", "look src ok 9 · 44%", "edit src ok 6 · 50%", "look src ok 3 · 33%",
        "look src ok 6 · 50%",
    }  # fmt: skip


def test_sankey_leaves_no_prefix_below_the_least_number_of_runs() -> None:
    ax = viz.plot_prefix_sankey(*runs(), NAMES, min_runs=10)
    rectangles = [p for p in ax.patches if type(p).__name__ == "Rectangle"]
    heights = [p.get_height() for p in rectangles]
    assert len(heights) > 5
    assert max(heights) == 193  # of 200 runs, 7 are of unknown outcome
    assert min(heights) >= 10


def test_lift_divides_the_step_out() -> None:
    # all that are alive at step 1 failed: no token of that step can have a lift
    sequences = [np.array(s) for s in [[0, 1]] * 5 + [[0, 0]] * 5 + [[0]] * 5 + [[1]] * 5]
    failed = [1] * 10 + [0] * 5 + [1] * 5
    ax = viz.plot_lift(sequences, failed, NAMES, steps=2, min_runs=5)
    lift = ax.get_images()[0].get_array()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["look src ok", "edit src ok"]
    # step 0: "look" failed 10 of 15, "edit" 5 of 5, all 15 of 20
    assert lift[:, 0].tolist() == pytest.approx([(10 / 15) / (15 / 20), 1 / (15 / 20)])
    assert lift[:, 1].tolist() == pytest.approx([1.0, 1.0])


def test_too_little_data_is_refused_and_not_drawn() -> None:
    sequences, failed = runs(20)
    with pytest.raises(NotEnoughDataError, match="13 runs of known outcome"):
        viz.plot_prefix_sankey(sequences, failed, NAMES, min_runs=14)
    with pytest.raises(NotEnoughDataError, match="0 failed"):
        viz.plot_prefix_sankey(sequences, np.zeros(20), NAMES)
    with pytest.raises(NotEnoughDataError, match="none has 30 runs"):
        viz.plot_lift(sequences, failed, NAMES, min_runs=30)
    with pytest.raises(UsageError, match="shape"):
        viz.plot_lift(sequences, failed[:-1], NAMES)


def test_incidence_of_competing_ends_cannot_exceed_all_runs() -> None:
    with pytest.raises(UsageError, match="more than all"):
        viz.plot_incidence([1, 2], [0.4, 0.6], [0.3, 0.5])


def test_numbers_of_runs_stand_in_the_figures() -> None:
    drawn = {
        name: texts(FIGURES[name]()) for name in ("auroc", "incidence", "reliability", "leakage")
    }
    assert {"alive", "830"} <= set(drawn["auroc"])
    assert {"alive", "830"} <= set(drawn["incidence"])
    assert {"n", "1", "8"} <= set(drawn["reliability"])
    assert "+0.080" in drawn["leakage"]


def test_an_empty_bin_is_not_drawn_as_a_point() -> None:
    ax = viz.plot_reliability([0.2, 0.8], [0.1, np.nan], [5, 0], [0.0, 0.0], [0.4, 1.0])
    points = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert points[0].get_xydata().tolist() == [[0.2, 0.1]]


def test_random_diagonal_ends_at_what_stopping_all_saves() -> None:
    ax = viz.plot_cost_saved({"m": ([0.0, 0.2], [0.0, 0.1])}, random=0.4)
    line = next(one for one in ax.get_lines() if one.get_label() == "runs picked at random")
    assert line.get_xydata().tolist() == [[0.0, 0.0], [1.0, 0.4]]


def test_stopping_all_pays_up_to_the_prevalence() -> None:
    p = np.array([0.0, 0.25, 0.5])
    ax = viz.plot_decision_curve(p, {}, prevalence=0.25, p_star=0.3)
    line = next(one for one in ax.get_lines() if one.get_label() == "stop all")
    assert line.get_ydata() == pytest.approx([0.25, 0.0, -0.5])
    assert "p* = 0.30" in texts(ax)
    with pytest.raises(UsageError, match="leave out p = 1"):
        viz.plot_decision_curve([1.0], {}, 0.5)


def test_a_table_without_a_column_is_refused() -> None:
    with pytest.raises(UsageError, match="no column auroc"):
        viz.plot_auroc_by_step(pd.DataFrame({"step": [1], "n": [2]}))


def test_importing_the_room_does_not_import_matplotlib() -> None:
    code = "import sys, sag_research.viz; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
