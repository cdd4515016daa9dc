"""The report of a matrix factorisation: its numbers, its learning curve and its settings."""

from __future__ import annotations

from pathlib import Path

from mmsbgen.factorisation import ALS, MatrixFactorization, load_model
from mmsbgen.report.page import HtmlPage, Section, Table, Tile
from mmsbgen.report.style import COLOURS, MUTED, Picture, drawing, panels


@drawing()
def factorisation_page(file: Path) -> HtmlPage:
    """The page of the model in ``file``; raises :class:`InputError` if it is none."""
    fitted = load_model(file)
    model, counts = fitted.model_, fitted.model_.implicit
    best = fitted.history_[fitted.n_iter_ - 1]
    tiles = [
        Tile(f"{model.user_ids.size:,}", "users"),
        Tile(f"{model.item_ids.size:,}", "items"),
        Tile(f"{model.seen_items.size:,}", "ratings" if not counts else "counts"),
        Tile(f"{model.p.shape[1]:,}", "factors"),
        Tile(f"{fitted.n_iter_:,}", "sweeps"),
        Tile(f"{best['seconds']:.3g} s", "to the factors that were kept"),
    ]
    if not counts:
        tiles.append(Tile(f"{best['rmse']:.4f}", "RMSE of the factors that were kept"))
    settings = Table("Settings", ("name", "value"), [(name, str(x)) for name, x in fitted.get_params().items()])
    page = HtmlPage(f"Matrix factorisation {file.name}", f"by {type(fitted).__name__}", tiles=tiles)
    if not counts:
        page.sections.append(Section("Learning", pictures=[_curve(fitted)]))
    page.sections.append(Section("Settings", tables=[settings]))
    return page


def _curve(fitted: MatrixFactorization | ALS) -> Picture:
    figure, ((by_sweep, by_time),) = panels(1, 2, 8.6, 3.4, sharey=True)
    rmse = [each["rmse"] for each in fitted.history_]
    for axes, name in ((by_sweep, "sweep"), (by_time, "seconds")):
        x = [each[name] for each in fitted.history_]
        axes.plot(x, rmse, color=COLOURS[0], linewidth=1.5, marker="o", markersize=3 if len(x) <= 80 else 0)
        axes.axvline(x[fitted.n_iter_ - 1], color=MUTED, linewidth=1)
        axes.set_xlabel(name)
        axes.grid(axis="y")
    by_sweep.set_ylabel("RMSE")
    return Picture(
        "learning",
        "Error as the sweeps went on",
        "Of held-out ratings, or of some that were fitted. Grey line: the factors that were kept.",
        f"RMSE {rmse[0]:.4f} after the first sweep, {rmse[fitted.n_iter_ - 1]:.4f} after sweep {fitted.n_iter_}, whose "
        f"factors were kept, and {rmse[-1]:.4f} after the last of {len(rmse)}.",
        figure,
    )
