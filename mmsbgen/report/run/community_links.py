"""Numbers of links between communities, and layouts of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.sampler.diagnostics.communities import Cover
from mmsbgen.scores.incidence import incidence

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Most links in one step.
_LINKS = 1 << 17
#: Distances from the middle of a large component are raised to this power.
_SPREAD = 0.65
#: Most and fewest steps of a layout, and the operations that they may take together: N^2 a step.
_STEPS, _FEWEST_STEPS, _OPERATIONS = 400, 50, 3e7


def links_between(cover: Cover, links: npt.NDArray[Any], most: int) -> Ints:
    """The number of links between each two of the ``most`` largest communities, int64 ``[C, C]``.

    A link counts for every pair of a community of one end and a community of the other. A link between vertices that
    share a community does not count.
    """
    member = incidence(cover.members[:most], cover.n_vertices)
    between = np.zeros((member.shape[1],) * 2, np.int64)
    for first in range(0, len(links), _LINKS):
        a, b = (member[end] for end in links[first : first + _LINKS].T)
        leads = a.multiply(b).sum(axis=1) == 0
        between += (a[leads].T @ b[leads]).toarray()
    return between + between.T


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
