"""Drawings of a small graph with its communities, or of the communities of a large graph and their connections."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Wedge

from mmsbgen.base.id_text import plain
from mmsbgen.export import Clustering
from mmsbgen.graph import Graph
from mmsbgen.report.run.community_links import links_between
from mmsbgen.report.style import (
    COLOURS,
    INK,
    MUTED,
    PAPER,
    Picture,
    bright,
    log_scale,
    on_scale,
    scale_of_strength,
    single,
)
from mmsbgen.scores.incidence import incidence, shared_members

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Largest graph of which every vertex is drawn.
MOST_VERTICES, MOST_LINKS = 1500, 6000
#: Most vertices that are drawn with their names.
_NAMED = 60
#: Most communities that are drawn, and number of strongest connections drawn for each.
MOST_COMMUNITIES, _STRONGEST = 50, 2
#: Most vertices for which overlapping discs are moved apart.
_APART = 700
#: Distances from the middle of a large component are raised to this power.
_SPREAD = 0.65
#: Most and fewest steps of a layout, and the operations that they may take together: N^2 a step.
_STEPS, _FEWEST_STEPS, _OPERATIONS = 400, 50, 3e7
_PALETTE = COLOURS[:6]


def draw(result: Clustering, graph: Graph | None) -> Picture | None:
    """The drawing of a small known graph, else of its communities; None with fewer than two communities."""
    if graph is not None and graph.n_vertices <= MOST_VERTICES and graph.n_links <= MOST_LINKS:
        return draw_graph(result, graph)
    return draw_communities(result, graph)


def draw_graph(result: Clustering, graph: Graph) -> Picture:
    """The drawing of every vertex that has a link, in the colours of its communities."""
    linked = np.flatnonzero(graph.degrees() > 0)
    renumbered = np.full(graph.n_vertices, -1)
    renumbered[linked] = np.arange(linked.size)
    links = renumbered[graph.links]
    found = incidence(result.cover.members, result.cover.n_vertices)
    sets = [found.indices[found.indptr[v] : found.indptr[v + 1]] for v in linked]
    main = result.labels()[linked]
    shared = [np.intersect1d(sets[u], sets[v]) for u, v in links]
    where = layout(linked.size, links, np.array([1.0 if common.size else 0.25 for common in shared]))
    radius = _radius(where)
    if linked.size <= _APART:
        where = apart(where, np.full(linked.size, radius), 1.0 if linked.size <= _NAMED else 0.15)
    colours = map_colours(result, graph)
    extent = np.ptp(where, axis=0) + 1.0
    figure, axes = single(8.6, float(np.clip(8.6 * extent[1] / extent[0], 4.5, 9.0)))
    inner = [common[0] if common.size else -1 for common in shared]
    lines = LineCollection(
        [(where[u], where[v]) for u, v in links],
        colors=[colours[c] if c >= 0 else MUTED for c in inner],
        linewidths=0.9 if len(links) < 1000 else 0.5,
        alpha=0.55 if len(links) < 1000 else 0.3,
        zorder=1,
    )
    axes.add_collection(lines)
    _dots(axes, where, main, sets, colours, radius)
    _frame(axes, where, 1.6)
    if linked.size <= _NAMED:
        for vertex, (x, y) in zip(linked, where, strict=True):
            axes.text(x, y + radius * 1.2, plain(graph.ids[vertex], 14), fontsize=7, ha="center", va="bottom", zorder=5)
    _tags(axes, where, main, colours)
    several = sum(len(s) > 1 for s in sets)
    axes.legend(
        handles=[
            Line2D([], [], marker="o", linestyle="", color=MUTED, markersize=6, label="in no community"),
            Line2D(
                [], [], marker="o", linestyle="", markersize=7, label="in several (slices)",
                color=COLOURS[0], markerfacecoloralt=COLOURS[1], fillstyle="left", markeredgecolor=INK,
            ),
        ],
        loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2,
    )  # fmt: skip
    alone = graph.n_vertices - linked.size
    caption = (
        "Every vertex in the colour of its community, sliced where it is in several; links inside a community have its "
        "colour. Numbers name the communities; colours come back, neighbours differ."
        + (f" {alone} vertices without a link are left out." if alone else "")
    )
    alt = (
        f"Drawing of the graph: {linked.size} vertices with {len(links)} links in {len(result.cover.members)} "
        f"communities; {several} vertices are in more than one."
    )
    return Picture("graph", "The graph and its communities", caption, alt, figure, whole=True)


def _radius(where: Floats) -> float:
    """The radius of vertices: visible, but small enough to leave room for links."""
    extent = float(np.ptp(where, axis=0).max()) + 1.0
    between = np.hypot(*(where[:, None] - where[None]).transpose(2, 0, 1))
    np.fill_diagonal(between, np.inf)
    nearest = float(np.median(between.min(axis=1))) if len(where) > 1 else extent
    return float(np.clip(0.4 * nearest, 0.0045 * extent, 0.013 * extent))


def map_colours(result: Clustering, graph: Graph | None) -> list[str]:
    """A colour for each community; connected or overlapping communities differ as far as there are colours."""
    count = len(result.cover.members)
    near = shared_members(result.cover.members[:count], result.cover.n_vertices).astype(float)
    if graph is not None:
        near += links_between(result.cover, graph.links, count)
    np.fill_diagonal(near, 0.0)
    taken = np.full(count, -1)
    used = np.zeros(len(_PALETTE))
    for place in range(count):
        cost = np.array([near[place, taken == c].sum() for c in range(len(_PALETTE))]) + 1e-6 * used
        taken[place] = int(np.argmin(cost))
        used[taken[place]] += 1
    return [_PALETTE[c] for c in taken]


def _dots(axes: Axes, where: Floats, main: Ints, sets: list[Ints], colours: list[str], radius: float) -> None:
    wedges, faces = [], []
    for (x, y), first, inside in zip(where, main.tolist(), sets, strict=True):
        slices = [first, *(c for c in inside.tolist() if c != first)][:5]
        step = 360 / len(slices)
        for number, community in enumerate(slices):
            wedges.append(Wedge((x, y), radius, 90 + number * step, 90 + (number + 1) * step))
            faces.append(colours[community] if community >= 0 else MUTED)
    axes.add_collection(PatchCollection(wedges, facecolors=faces, edgecolors=PAPER, linewidths=0.3, zorder=3))


def _tags(axes: Axes, where: Floats, main: Ints, colours: list[str]) -> None:
    """Write the names of communities at the middle of their members, without scattered or overlapping ones."""
    placed: list[tuple[float, float]] = []
    room = 0.035 * float(np.ptp(where, axis=0).max())
    for community in range(min(len(colours), MOST_COMMUNITIES)):
        members = where[main == community]
        if not len(members):
            continue
        middle = np.median(members, axis=0)
        if np.median(np.hypot(*(members - middle).T)) > 4 * room:
            continue  # its members are scattered over the picture
        x, y = members[np.argmin(((members - middle) ** 2).sum(axis=1))].tolist()
        if all(abs(x - a) > room or abs(y - b) > room * 0.7 for a, b in placed):
            placed.append((x, y))
            box = {"boxstyle": "round,pad=0.2", "facecolor": PAPER, "edgecolor": colours[community], "alpha": 0.88}
            axes.text(x, y, str(community), fontsize=8, ha="center", va="center", zorder=6, bbox=box)


def _frame(axes: Axes, where: Floats, room: float) -> None:
    low, high = where.min(axis=0) - room, where.max(axis=0) + room
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")
    axes.axis("off")


def strongest(weights: Floats, each: int) -> list[tuple[int, int]]:
    """Pairs ``i < j`` with a positive weight among the ``each`` largest weights of ``i`` or of ``j``."""
    kept = set()
    for i, row in enumerate(weights):
        for j in np.argsort(-row, kind="stable")[:each].tolist():
            if row[j] > 0 and i != j:
                kept.add((min(i, j), max(i, j)))
    return sorted(kept)


def draw_communities(result: Clustering, graph: Graph | None) -> Picture | None:
    """The drawing of the largest communities as discs, joined by links or, without the graph, shared members."""
    total = len(result.cover.members)
    count = min(MOST_COMMUNITIES, total)
    if count < 2:
        return None
    shared = shared_members(result.cover.members[:count], result.cover.n_vertices).astype(float)
    np.fill_diagonal(shared, 0.0)
    weights = shared if graph is None else links_between(result.cover, graph.links, count).astype(float)
    what = "shared members" if graph is None else "links between the two"
    pairs = strongest(weights, _STRONGEST)
    size = np.array([len(members) for members in result.cover.members[:count]], float)
    radius = 0.85 * np.sqrt(size / size.max())
    radius = np.maximum(radius, 0.16)
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    strength = weights[ends[:, 0], ends[:, 1]]
    relative = np.sqrt(strength / strength.max()) if len(pairs) else strength
    where = layout(count, ends, 0.2 + relative) * 1.1
    where = apart(where, radius, 0.3)
    extent = np.ptp(where, axis=0) + 2.0
    figure, axes = single(7.4, float(np.clip(6.4 * extent[1] / extent[0], 3.0, 7.5)))
    axes.add_collection(
        LineCollection(
            [(where[a], where[b]) for a, b in pairs],
            linewidths=(0.6 + 5.5 * relative).tolist(),
            colors=MUTED,
            alpha=0.5,
            zorder=1,
            capstyle="round",
        )
    )
    faces, brightness = _faces(axes, result, count)
    discs = [Wedge((x, y), r, 0, 360) for (x, y), r in zip(where, radius, strict=True)]
    axes.add_collection(PatchCollection(discs, facecolors=faces, edgecolors=PAPER, linewidths=0.8, zorder=3))
    _frame(axes, where, float(radius.max()) + 0.15)
    for place, ((x, y), r) in enumerate(zip(where, radius, strict=True)):
        inside = r > 0.34
        axes.text(
            x, y if inside else y - r, str(place), zorder=5, ha="center", va="center" if inside else "top",
            fontsize=11 if r > 0.45 or not inside else 9, color=on_scale(brightness[place]) if inside else INK,
        )  # fmt: skip
    left_out = f" The {total - count} smaller communities are left out." if total > count else ""
    caption = (
        f"Discs are communities, their area the number of members (the largest has {size.max():,.0f}); lines are "
        f"{what}, the {_STRONGEST} strongest of each, the thickest {strength.max() if len(pairs) else 0:,.0f}."
        + (" Links inside a community are not counted." if graph is not None else " The graph was not at hand.")
        + left_out
    )
    a, b = pairs[int(np.argmax(strength))] if pairs else (0, 1)
    alt = (
        f"Drawing of the {count} largest communities of {total} with {len(pairs)} connections ({what})."
        + (f" The strongest joins communities {a} and {b}: {strength.max():,.0f}." if pairs else "")
        + left_out
    )
    return Picture("community-graph", "Communities and what leads between them", caption, alt, figure, whole=True)


def _faces(axes: Axes, result: Clustering, count: int) -> tuple[list[object], list[float]]:
    """Colours of discs by strength, and their brightness; adds a colour bar."""
    known = result.strengths[:count]
    top = float(known.max())
    wide = top > 10 * float(known.min()) and top > 0
    norm = LogNorm(max(float(known.min()), top / 1000), top, clip=True) if wide else Normalize(0.0, top)
    scale = scale_of_strength()
    faces = [scale(float(norm(value))) for value in known]
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(ScalarMappable(norm, scale), ax=axes, shrink=0.5, pad=0.01, aspect=25)
    bar.set_label("strength beta of the model")
    bar.outline.set_visible(False)
    if wide:
        log_scale(bar.ax, "y")
        bar.ax.grid(visible=False)
    return list(faces), [bright(face) for face in faces]


def layout(n_vertices: int, links: Ints, weights: Floats) -> Floats:
    """Positions ``[N, 2]`` of vertices: each component by Fruchterman and Reingold, in rows.

    Components with too many vertices for all steps start from eigenvectors of their Laplacian.

    Links of larger ``weights`` ``[E]`` are shorter.  The same graph gets the same positions.
    """
    import networkx

    graph = networkx.empty_graph(n_vertices)
    ends = zip(*links.T.tolist(), weights.tolist(), strict=True)
    graph.add_weighted_edges_from(ends)
    place = np.zeros((n_vertices, 2))
    parts = sorted(map(sorted, networkx.connected_components(graph)), key=len, reverse=True)
    boxes = []
    for part in parts:
        of_part = graph.subgraph(part)
        steps = int(np.clip(_OPERATIONS / len(part) ** 2, _FEWEST_STEPS, _STEPS))
        begin = None
        if steps < _STEPS:
            begin = dict(zip(part, _spectral(networkx.laplacian_matrix(of_part, part)), strict=True))
        found = networkx.spring_layout(of_part, pos=begin, iterations=steps, seed=0, method="force")
        where = _square(np.array([found[vertex] for vertex in part]), len(part))
        place[part] = where
        boxes.append(float(np.ptp(where[:, 0]) if len(part) > 1 else 0.0) + 1.8)
    _pack(place, parts, boxes)
    return place


def _spectral(laplacian: Any) -> Floats:
    """Positions ``[N, 2]`` by two eigenvectors, from which few steps lead to a good layout."""
    from scipy.sparse.linalg import eigsh

    n = laplacian.shape[0]
    _, vectors = eigsh(laplacian.astype(np.float64).tocsc(), 3, sigma=-0.01, v0=np.cos(np.arange(n)))
    where = vectors[:, 1:] / np.abs(vectors[:, 1:]).max(axis=0)
    # Vertices with the same neighbours would stay in one place.
    return np.asarray(where + np.random.default_rng(0).normal(0.0, 0.02, (n, 2)))


def _square(where: Floats, count: int) -> Floats:
    """Positions turned to be widest along x, spread out in the middle, and scaled by the component's size."""
    if count == 1:
        return where * 0.0
    where = where - np.median(where, axis=0)
    if count > 30:  # dense middles with long tails
        distance = np.hypot(*where.T)
        where = where * (np.maximum(distance, 1e-9) / distance.max())[:, None] ** (_SPREAD - 1)
    if count > 2:
        _, _, turn = np.linalg.svd(where - where.mean(axis=0), full_matrices=False)
        where = where @ turn.T
    extent = np.ptp(where, axis=0)
    area = max(float(extent[0] * max(extent[1], 0.6 * extent[0])), 1e-9)
    room = 2.0 + min(4.0, max(0.0, np.log2(count / 8)))
    return np.asarray(where * np.sqrt(room * count / area))


def _pack(place: Floats, parts: list[list[int]], widths: list[float]) -> None:
    """Move components into rows, the largest first, in about the proportions of a page."""
    row_width = max(max(widths), 1.5 * np.sqrt(sum(3.5 * (len(part) + 1) for part in parts)))
    x = y = height = 0.0
    stands_out = 2 * len(parts[0]) > len(place)
    for number, (part, width) in enumerate(zip(parts, widths, strict=True)):
        where = place[part]
        tall = float(np.ptp(where[:, 1])) + 1.8
        if x > 0 and (x + width > row_width * 1.001 or (number == 1 and stands_out)):
            x, y, height = 0.0, y - height, 0.0
        place[part] = where - where.min(axis=0) + (x, y - tall)
        x, height = x + width, max(height, tall)


def apart(where: Floats, radius: Floats, gap: float) -> Floats:
    """Positions ``[V, 2]`` moved apart until discs of ``radius`` ``[V]`` do not overlap, or for 300 steps."""
    found = where.copy()
    for _ in range(300):
        away = found[:, None] - found[None]
        distance = np.hypot(away[..., 0], away[..., 1])
        np.fill_diagonal(distance, np.inf)
        missing = (radius[:, None] + radius[None]) * (1 + gap) - distance
        if (missing <= 1e-9).all():
            break
        push = np.where(missing > 0, missing, 0.0)[..., None] * away / np.maximum(distance, 1e-9)[..., None]
        found += 0.5 * np.where(np.isfinite(push), push, 0.0).sum(axis=1)
    return found
