"""Style of all pictures: colours, axes, and export to PNG and to SVG that follows the page's theme."""

from __future__ import annotations

import html
import io
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter, NullLocator

from mmsbgen.base.id_text import plain

#: Colours of text and axes, and of the background; in an SVG they are replaced by the page's, dark or light.
INK, PAPER = "#1c1e21", "#fffffe"
#: Legible on dark and light pages.
MUTED = "#757b82"
#: Colours for colour-blind readers (Okabe and Ito), with INK as their black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK, "#999933")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: Number of marks above which an SVG has them as an image.
MANY_MARKS = 1500

_SETTINGS: dict[Any, Any] = {
    "text.parse_math": False,  # names may contain a dollar
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "figure.facecolor": PAPER,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": MUTED,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "svg.fonttype": "none",
}
# Matplotlib's settings are global to the process: one report is drawn at a time.
_LOCK = threading.RLock()
Share = bool | Literal["none", "all", "row", "col"]
#: Invisible characters, and those that change the direction of text.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
#: Most pixels of a page per inch of a figure, so that text has the same size in small pictures.
_PIXELS = 118
#: On narrow pages pictures scroll sideways instead of shrinking below this share, so that their text stays legible.
_LEAST_SHARE = 0.7
_FONTS = "'DejaVu Sans', Verdana, sans-serif"


@dataclass(frozen=True)
class Picture:
    """A figure with its file's ``name``, a ``caption`` on how to read it and a text alternative ``alt``.

    A ``whole`` picture shrinks to the width of a narrow page, others scroll there.
    """

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure
    whole: bool = False

    def png(self, dpi: int = 150) -> bytes:
        """The picture as PNG on a light background."""
        with drawing():
            return _saved(self.figure, "png", dpi=dpi, facecolor=PAPER, metadata={"Software": None})

    def svg(self) -> str:
        """An ``<svg>`` element for an HTML page, with unique identifiers and the page's colours."""
        name = self.name
        with drawing(), matplotlib.rc_context({"svg.hashsalt": name}):
            raw = _saved(self.figure, "svg", dpi=200, facecolor="none", metadata={"Date": None, "Creator": None})
        text = raw.decode("utf-8")
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r"<style\b.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
        for before in ('id="', 'href="#', "url(#"):
            text = re.sub(rf"\b{re.escape(before)}", f"{before}{name}-", text)
        text = text.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
        text = _HIDDEN.sub("\ufffd", text).replace("'DejaVu Sans'", _FONTS)
        text = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", text, count=2)
        width = _PIXELS * self.figure.get_figwidth()
        least = 0 if self.whole else round(_LEAST_SHARE * width)
        style = f"max-width: {round(width)}px; min-width: {least}px"
        words = html.escape(plain(self.alt, 2000))
        return text.replace("<svg ", f'<svg style="{style}" role="img" aria-label="{words}" ', 1)


def some(*pictures: Picture | None) -> list[Picture]:
    """Those of the pictures that there are."""
    return [picture for picture in pictures if picture is not None]


def _saved(figure: Figure, form: Literal["png", "svg"], **how: object) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Browsers have fonts for scripts that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font", category=UserWarning)
        if engine := figure.get_layout_engine():
            # With an engine, each file would be laid out and drawn twice.
            engine.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(buffer, format=form, **how)  # type: ignore[arg-type]
    return buffer.getvalue()


@contextmanager
def drawing() -> Iterator[None]:
    """Use the project's Matplotlib settings instead of the user's inside the block."""
    with _LOCK, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def panels(
    rows: int, columns: int, width: float, height: float, *, sharex: Share = False, sharey: Share = False
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of ``width`` by ``height`` inches with ``rows`` of ``columns`` panels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return figure, [list(row) for row in axes]


def finish_panels(axes: Sequence[Sequence[Axes]], used: int, label: str) -> None:
    """Label the y axes of the first column of panels, and hide the panels after the first ``used``."""
    for row in axes:
        row[0].set_ylabel(label)
    for panel in [panel for row in axes for panel in row][used:]:
        panel.set_visible(False)


def single(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one panel."""
    figure, axes = panels(1, 1, width, height)
    return figure, axes[0][0]


def slug(text: str) -> str:
    """``text`` as a part of a file name: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def colour(number: int) -> str:
    """The colour of a series."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """The marker of a series, so that colour is never the only difference."""
    return MARKERS[number % len(MARKERS)]


def log_scale(axes: Axes, which: Literal["x", "y"], unit: str = "") -> None:
    """Make an axis logarithmic, with labels 0.2, 0.5, 1, 2 ... for short ranges; with ``unit``, 20 µs, 5 ms."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    wide = high / low > 200
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(
        EngFormatter(unit=unit, sep="\N{NO-BREAK SPACE}") if unit else FuncFormatter(lambda value, _: f"{value:,.10g}")
    )
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)) if wide and high / low < 1e5 else NullLocator())
    axes.grid(axis=which)


def powers(axes: Axes, values: Iterable[float]) -> None:
    """Make the x axis logarithmic, labelled at those of ``values`` that are powers of two, or at all if none is."""
    found = sorted(set(values))
    shown = [value for value in found if value == int(value) and not int(value) & (int(value) - 1)] or found
    axes.set_xscale("log", base=2)
    axes.set_xticks(shown, [f"{value:g}" for value in shown])
    axes.minorticks_off()
    if len(found) == 1:
        axes.set_xlim(found[0] / 2, found[0] * 2)
    axes.grid(axis="x", alpha=0.15)


def times(value: float) -> str:
    """A ratio as text, such as ``12.3x``."""
    return f"{value:.0f}x" if value >= 100 else f"{value:.3g}x"


def scale_of_strength() -> Colormap:
    """A perceptually uniform colour map for colour-blind readers, legible on dark and light pages."""
    shades = matplotlib.colormaps["cividis"]([0.18 + 0.82 * i / 255 for i in range(256)])
    return LinearSegmentedColormap.from_list("strength", [tuple(shade) for shade in shades])


def bright(shade: Sequence[float]) -> float:
    """The brightness of a colour, 0 to 1."""
    red, green, blue = shade[:3]
    return 0.3 * red + 0.59 * green + 0.11 * blue


def on_scale(brightness: float) -> str:
    """Black or white, whichever is legible on a colour of this brightness."""
    return "#000000" if brightness > 0.5 else "#ffffff"
