"""Draw the sample for the README: ``python -m tests.viz.picture docs/images/bloom.png``."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from sag_research.viz import page, scene
from tests.browser import FLAGS, new_offline_page
from tests.support import find_chromium
from tests.viz.sample import graph


def draw(target: Path) -> None:
    """Open the sample's page without a network and save what is seen."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        context = browser.new_context(viewport={"width": 1280, "height": 660})
        offline = new_offline_page(context)
        file = Path(folder, "graph.html")
        file.write_text(page(scene(graph())), encoding="ascii")
        tab = offline.open(file)
        tab.wait_for_function("() => document.documentElement.dataset.painted !== undefined")
        seen = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        # few colours are in it: a palette makes the file a third of the size
        few = seen.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(target, optimize=True)
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
