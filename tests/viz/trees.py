"""What the tests of both trees look with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser import OfflinePage

SHOTS = Path(__file__).parents[1] / "screenshots"
PAINTED = "document.documentElement.dataset.painted !== undefined"
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    '<a href="javascript:alert(1)">x</a>',
    "gnp\u202eexe",
    "\x1b[31mred\x1b[0m",
    "half\ud800char",
    "a\nb\tc",
    "1" * 1_000_000,
    "日本語 💥",
)

# The least contrast of all texts that are seen, each against what it stands on.
CONTRAST = """() => {
  const numbers = (text) => text.match(/[-\\d.]+(e-?\\d+)?/g).map(Number);
  const parse = (text) => {
    const parts = numbers(text.replace("color(srgb", "("));
    const scale = text.startsWith("color(") ? 1 : 255;
    return [...parts.slice(0, 3).map((part) => part / scale), parts[3] ?? 1];
  };
  const light = (parts) => parts.slice(0, 3)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const solid = (element, name) => {
    const found = parse(getComputedStyle(element)[name]);
    return found[3] === 0 ? null : found;
  };
  const ground = (element) => {
    const box = element.parentElement.querySelector(":scope > rect.box");
    const inside = element.tagName === "text" && box && !element.closest("[data-stop]");
    if (inside) return solid(box, "fill");
    for (let at = element; at; at = at.parentElement) {
      if (at instanceof SVGElement) continue;
      const found = solid(at, "backgroundColor");
      if (found) return found;
    }
    return [1, 1, 1, 1];
  };
  let worst = [99, ""];
  for (const element of document.querySelectorAll(".sag-tree *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.getClientRects().length || element.closest(".sag-said")) continue;
    if (getComputedStyle(element).visibility === "hidden") continue;
    const ink = solid(element, element instanceof SVGElement ? "fill" : "color");
    const [a, b] = [light(ink), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.textContent];
  }
  return worst;
}"""


def open_page(offline: OfflinePage, path: Path, *, dark: bool = False) -> Any:
    """Open an exported page and wait until it is drawn."""
    offline.page.set_viewport_size({"width": 1280, "height": 720})
    offline.page.emulate_media(color_scheme="dark" if dark else "light")
    page = offline.open(path)
    page.wait_for_function(PAINTED)
    return page


def shoot(page: Any, name: str) -> None:
    """Keep what is seen, for someone to look at."""
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")
