"""Figures as narrow pages show them: one panel below the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

#: Width in inches, and most columns of a legend.
WIDTH, LEGEND_COLUMNS = 4.0, 2


@contextmanager
def stacked(figure: Figure) -> Iterator[None]:
    """Inside the block ``figure`` is ``WIDTH`` inches wide, and its panels are one below the other."""
    shown = [axes for axes in figure.axes if axes.get_subplotspec() is not None and axes.get_visible()]
    specs = [axes.get_subplotspec() for axes in shown]
    width, height = figure.get_size_inches()
    first = specs[0].get_gridspec() if specs and specs[0] is not None else None
    stacks = first is not None and first.ncols > 1
    legends = [(legend, legend._ncols) for legend in figure.legends]  # type: ignore[attr-defined]
    title = figure._suptitle  # type: ignore[attr-defined]
    labels = [(axes, axes.get_ylabel()) for axes in shown]
    wraps = [text for text in (title, *(axes.title for axes in shown)) if text is not None and not text.get_wrap()]
    try:
        if stacks and first is not None:
            grid = GridSpec(len(shown), 1, figure=figure)
            for place, axes in enumerate(shown):
                axes.set_subplotspec(grid[place])
                axes.tick_params(labelleft=True)
                # Panels of a row share the label of the first one.
                axes.set_ylabel(axes.get_ylabel() or shown[place - place % first.ncols].get_ylabel())
            height *= len(shown) / first.nrows
        for legend, columns in legends:
            legend.set_ncols(min(columns, LEGEND_COLUMNS))
        for text in wraps:
            text.set_wrap(True)
        figure.set_size_inches(WIDTH, height)
        yield
    finally:
        figure.set_size_inches(width, height if not stacks or first is None else height * first.nrows / len(shown))
        for text in wraps:
            text.set_wrap(False)
        for legend, columns in legends:
            legend.set_ncols(columns)
        for (axes, label), spec in zip(labels, specs, strict=True):
            axes.set_subplotspec(spec)
            axes.set_ylabel(label)
