"""Figures as narrow pages show them: one panel below the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

#: Width in inches, and characters of the labels in a line of a legend.
WIDTH, LEGEND_LINE = 4.0, 36


@contextmanager
def stacked(figure: Figure) -> Iterator[None]:
    """Inside the block ``figure`` is ``WIDTH`` inches wide, and its panels are one below the other."""
    panels = [(axes, spec) for axes in figure.axes if axes.get_visible() and (spec := axes.get_subplotspec())]
    before = [
        (axes, spec, axes.get_ylabel(), axes.yaxis.get_tick_params().get("labelleft", True)) for axes, spec in panels
    ]
    width, height = figure.get_size_inches()
    grid = panels[0][1].get_gridspec() if panels else None
    legends = list(figure.legends)
    titles = [text for text in (figure._suptitle, *(axes.title for axes, _ in panels)) if text]  # type: ignore[attr-defined]
    try:
        figure.set_layout_engine("constrained")
        if grid is not None and grid.ncols > 1:
            one_below = GridSpec(len(panels), 1, figure=figure)
            for place, (axes, _) in enumerate(panels):
                axes.set_subplotspec(one_below[place])
                # Panels of a row share the label and the numbers of the first one.
                axes.set_ylabel(axes.get_ylabel() or panels[place - place % grid.ncols][0].get_ylabel())
                axes.tick_params(axis="y", labelleft=True)
            figure.set_size_inches(WIDTH, height * len(panels) / grid.nrows)
        else:
            figure.set_size_inches(WIDTH, height)
        figure.legends.clear()
        for legend in legends:
            labels = [text.get_text() for text in legend.get_texts()]
            columns = max(1, LEGEND_LINE // max(map(len, labels), default=1))
            shown = [handle for handle in legend.legend_handles if handle is not None]
            figure.legend(shown, labels, loc="outside lower center", ncols=min(columns, len(labels)))
        for text in titles:
            text.set_wrap(True)
        yield
    finally:
        figure.set_layout_engine("constrained")
        figure.set_size_inches(width, height)
        for text in titles:
            text.set_wrap(False)
        figure.legends[:] = legends
        for axes, spec, label, numbered in before:
            axes.set_subplotspec(spec)
            axes.set_ylabel(label)
            axes.tick_params(axis="y", labelleft=numbered)
