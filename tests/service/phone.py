"""What a page must hold at the width of a telephone."""

from __future__ import annotations

from playwright.sync_api import Page

_BROKEN = """() => {
  const broken = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (!text.parentElement.checkVisibility()) continue;
    for (const word of text.data.matchAll(/[^\\s\\/-]+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((one) => Math.round(one.top))).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""
"""The words that are broken across lines."""
_BEYOND = """() => [...document.querySelectorAll("input, select, button, p, .panel *")]
  .filter((one) => one.checkVisibility() && !one.closest(".wide"))
  .filter((one) => {
    const [own, around] = [one, one.closest(".panel") ?? document.body].map((two) => two.getBoundingClientRect());
    return own.right > around.right;
  })
  .map((one) => one.outerHTML.slice(0, 80))"""
"""What sticks out of its panel or of the page."""


def fits(page: Page, width: int = 360) -> None:
    """Nothing is cut off or wraps inside a word at the width of a telephone."""
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_function(f"document.documentElement.scrollWidth === {width}")  # charts are drawn anew after a moment
    assert page.evaluate(_BROKEN) == []
    assert page.evaluate(_BEYOND) == []
    page.set_viewport_size({"width": 1280, "height": 900})
