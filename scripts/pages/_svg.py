"""A drawing of boxes, lines and words as an SVG file; the same calls give the same bytes."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

#: Told apart by colour-blind readers (Okabe and Ito), and light enough for black words on them.
BLUE, GREEN, YELLOW = "#56B4E9", "#66CDAA", "#F0E442"
INK, PALE = "#222222", "#777777"
_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


class Drawing:
    """Shapes on a white page of ``width`` by ``height`` points; y goes down."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """A rectangle."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{INK}"/>'
        )

    def words(
        self, x: float, y: float, text: str, size: float = 13, anchor: str = "start", bold: bool = False, ink: str = INK
    ) -> None:
        """One line of text; ``anchor`` is start, middle or end of it, at (x, y) on its base line."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" fill="{ink}"{weight}>'
            f"{escape(text)}</text>"
        )

    def label(self, x: float, y: float, width: float, height: float, text: str, fill: str) -> None:
        """A rectangle with a word in its middle."""
        self.box(x, y, width, height, fill)
        self.words(x + width / 2, y + height / 2 + 13 * 0.35, text, 13, "middle")

    def line(self, points: list[tuple[float, float]]) -> None:
        """A line through points, with a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        shape = f'points="{path}" fill="none" stroke="{INK}" stroke-width="1.3" marker-end="url(#head)"'
        self.parts.append(f"<polyline {shape}/>")

    def save(self, path: Path) -> None:
        """Write the file."""
        text = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" font-family="{_FONT}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0L10,5L0,10z" fill="{INK}"/></marker></defs>\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )
        path.write_text(text, encoding="utf-8")
