"""Notebooks as `jupyter nbconvert --to html` exports them: what was alive stands there, drawn.

The browser has no network. Nbconvert links scripts of its own to the page (require.js, MathJax,
the widget manager); its options leave them out, so that nothing at all is asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Frame

from tests.browser import OfflinePage
from tests.project.source import ROOT

SHOTS = Path(__file__).parents[1] / "screenshots"
PATIENCE = 60_000
NOTHING_LINKED = (
    "--HTMLExporter.require_js_url=", "--HTMLExporter.jquery_url=",
    "--HTMLExporter.mathjax_url=", "--HTMLExporter.widget_renderer_url=",
)  # fmt: skip
NOTEBOOKS = ("03_fork_and_replay", "05_steps_and_prefixes", "16_explorer")


def export(name: str, folder: Path) -> Path:
    """Export a committed notebook, unexecuted, as its readers would."""
    folders = {f"JUPYTER_{kind}_DIR": str(folder) for kind in ("CONFIG", "DATA", "RUNTIME")}
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "html", *NOTHING_LINKED,
         "--output-dir", str(folder), str(ROOT / "notebooks" / f"{name}.ipynb")],
        env=os.environ | folders, check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    return folder / f"{name}.html"


def copies(name: str) -> int:
    """Count the drawings that are saved in a notebook."""
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    outputs = [one for cell in notebook["cells"] for one in cell.get("outputs", [])]
    return sum("srcdoc=" in "".join(one.get("data", {}).get("text/html", "")) for one in outputs)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_saved_drawings_stand_on_a_page_without_a_network(
    name: str, tmp_path: Path, offline_page: OfflinePage
) -> None:
    page = offline_page.open(export(name, tmp_path))
    frames = page.locator("iframe[srcdoc]")
    assert frames.count() == copies(name) > 0
    for number in range(frames.count()):
        frame = frames.nth(number)
        frame.scroll_into_view_if_needed()
        inner = frame.element_handle().content_frame()
        inner.wait_for_selector("html[data-painted]", timeout=PATIENCE, state="attached")
        SHOTS.mkdir(exist_ok=True)
        frame.screenshot(path=SHOTS / f"static-{name[:2]}-{number}.png")
        assert says_something(inner)
    offline_page.assert_quiet()


def says_something(frame: Frame) -> bool:
    """Whether a drawing can be seen: ink on its canvas, or shapes in its SVG."""
    return bool(
        frame.evaluate(
            """() => {
                const canvas = document.querySelector("canvas");
                if (!canvas) return document.querySelectorAll("svg rect, svg path").length > 3;
                const { width, height } = canvas;
                const ink = canvas.getContext("2d").getImageData(0, 0, width, height).data;
                return new Set(new Uint32Array(ink.buffer)).size > 10;
            }"""
        )
    )
