"""Pictures of communities: sizes, strengths, overlaps, and memberships of vertices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import PercentFormatter, StrMethodFormatter
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from mmsbgen.export import Clustering
from mmsbgen.report.style import (
    COLOURS,
    MANY_MARKS,
    MUTED,
    Picture,
    bright,
    log_scale,
    on_scale,
    panels,
    scale_of_strength,
    single,
)
from mmsbgen.scores.incidence import shared_members

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Most communities in a matrix, and in one with a number in every cell.
SHOWN, NUMBERED = 40, 16


def sizes(result: Clustering) -> Picture | None:
    """The picture of sizes by rank, and strength over size; None without communities."""
    count = np.array([len(members) for members in result.cover.members], float)
    if not count.size:
        return None
    strengths = result.strengths
    figure, ((left, right),) = panels(1, 2, 8.6, 3.3)
    rank = np.arange(1, count.size + 1)
    if count.size <= 80 and count.max() / count.min() <= 200:
        left.bar(rank, count, color=COLOURS[0], width=0.8)
        left.set_xlim(0.3, count.size + 0.7)
        if count.size <= 12:
            left.set_xticks(rank)
    else:
        left.plot(rank, count, color=COLOURS[0], linewidth=2, marker="o", markersize=3 if count.size <= 80 else 0)
        log_scale(left, "y")
        if count.size > 80:
            log_scale(left, "x")
    left.grid(axis="y")
    left.set_xlabel("rank by size, from 1")
    left.set_ylabel("members (vertices)")
    many = count.size > MANY_MARKS
    size = 30 if count.size <= 100 else 12 if not many else 5
    right.scatter(count, strengths, s=size, color=COLOURS[0], alpha=0.75, linewidths=0, rasterized=many)
    if count.max() / count.min() > 5:
        log_scale(right, "x")
    if strengths.max() / max(strengths.min(), 1e-12) > 20:
        log_scale(right, "y")
    else:
        right.set_ylim(bottom=0)
    right.grid()
    right.set_xlabel("members (vertices)")
    right.set_ylabel("strength beta of the model")
    caption = (
        "Members of every community, the largest first; and each community's strength in the model, which "
        "tells strong ones from weak ones and is no calibrated probability."
    )
    alt = (
        f"{count.size} communities of {count.min():.0f} to {count.max():.0f} members, median {np.median(count):g}; "
        f"strengths {strengths.min():.3g} to {strengths.max():.3g}."
    )
    return Picture("sizes", "Sizes and strengths of communities", caption, alt, figure)


def memberships(result: Clustering) -> Picture | None:
    """The picture of memberships per vertex, and of vertices' largest shares; None without communities."""
    if not result.cover.members:
        return None
    n_of = np.bincount(
        np.concatenate([np.zeros(0, np.int64), *result.cover.members]), minlength=result.cover.n_vertices
    )
    counts = np.bincount(n_of)
    figure, ((left, right),) = panels(1, 2, 8.6, 2.9)
    shown = counts[:11].astype(float)
    names = [str(i) for i in range(len(shown))]
    if counts.size > 11:
        shown[10] += counts[11:].sum()
        names[10] = "10+"
    bars = left.bar(names, shown, color=[MUTED, *([COLOURS[0]] * (len(shown) - 1))], width=0.75)
    left.bar_label(bars, [f"{value:,.0f}" if value else "" for value in shown], fontsize=8, padding=1)
    left.margins(y=0.12)
    for panel in (left, right):
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    left.set_xlabel("communities that a vertex is in")
    left.set_ylabel("vertices")
    left.grid(axis="y")
    found = result.affiliations
    largest = found.shares[np.unique(found.vertices, return_index=True)[1]]
    right.hist(largest, bins=np.linspace(0, 1, 26).tolist(), color=COLOURS[2], linewidth=0)
    right.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_xlim(0, 1)
    right.set_xlabel("share of a vertex's largest community")
    right.set_ylabel("vertices")
    right.grid(axis="y")
    overlapping = int(counts[2:].sum())
    caption = (
        "In how many of the communities that the rule made each vertex is (grey: none); and the largest share of each "
        "vertex in its communities: 100 % for a vertex in one community."
    )
    alt = (
        f"{int(counts[0])} vertices are in no community, {int(counts[1:2].sum())} in one and {overlapping} in two or "
        f"more; the median of the largest share is {np.median(largest):.2f}."
    )
    return Picture("memberships", "Memberships of vertices", caption, alt, figure)


def side_by_side(likeness: Floats) -> Ints:
    """An order ``[C]`` with similar communities next to each other, of their tree by average linkage."""
    far = 1.0 - (likeness + likeness.T) / 2
    np.fill_diagonal(far, 0.0)
    order: Ints = leaves_list(linkage(squareform(far), "average", optimal_ordering=True)).astype(np.int64)
    return order


def overlaps(result: Clustering) -> Picture | None:
    """The picture of the shares of a community's members that are in another one too; None if none are shared."""
    count = min(SHOWN, len(result.cover.members))
    if count < 2:
        return None
    shared = shared_members(result.cover.members[:SHOWN], result.cover.n_vertices)
    size = shared.diagonal().astype(float)
    share = shared / size[:, None]
    np.fill_diagonal(share, 0.0)
    total = len(result.cover.members)
    left_out = f" The {total - count} smaller communities are left out." if total > count else ""
    if not share.any():
        return None
    order = side_by_side(share)
    shown = share[np.ix_(order, order)]
    names = [str(place) for place in order.tolist()]
    side = 3.2 + 0.115 * count
    figure, axes = single(side + 1.2, side)
    masked = np.ma.masked_where(shown <= 0, shown)
    top = float(shown.max())
    scale = scale_of_strength()
    image = axes.imshow(masked, cmap=scale, vmin=0.0, vmax=top, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, shrink=0.75, format=PercentFormatter(1.0, decimals=None if top < 0.03 else 0))
    bar.set_label("of the row's members also in the column's community")
    bar.outline.set_visible(False)
    axes.set_xticks(range(count), names, rotation=90, fontsize=8 if count <= 25 else 7)
    axes.set_yticks(range(count), names, fontsize=8 if count <= 25 else 7)
    axes.set_xlabel("community")
    axes.set_ylabel("community")
    axes.set_xticks(np.arange(count + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    axes.grid(which="minor", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    if count <= NUMBERED:
        for i, j in zip(*np.nonzero(shown), strict=True):
            shade = on_scale(bright(scale(float(shown[i, j]) / top)))
            axes.text(j, i, f"{shown[i, j]:.0%}", ha="center", va="center", fontsize=7.5, color=shade)
    i, j = np.unravel_index(int(np.argmax(shown)), shown.shape)
    pairs = int((np.triu(shared, 1) > 0).sum())
    caption = (
        "Which part of a community's members (row) is in another one (column) too. Empty: they share no vertex. "
        f"Communities that share vertices stand next to each other.{left_out}"
    )
    alt = (
        f"{pairs} of the {count * (count - 1) // 2} pairs among {count} communities share members; the most: "
        f"{shown[i, j]:.0%} of community {names[i]} are in {names[j]}.{left_out}"
    )
    return Picture("overlaps", "Overlap of communities", caption, alt, figure)
