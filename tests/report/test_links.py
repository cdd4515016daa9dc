"""Links between communities are those that a look at every link finds, however many are looked at together."""

from __future__ import annotations

from itertools import product

import networkx
import numpy as np
import pytest

from mmsbgen.report.run import community_links as counting
from mmsbgen.report.run.community_links import links_between
from mmsbgen.report.run.network import layout
from mmsbgen.sampler.diagnostics.communities import Cover


@pytest.mark.parametrize("together", [1, 7, 1 << 17])
def test_links_between_communities(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_LINKS", together)
    rng = np.random.default_rng(0)
    members = sorted((np.sort(rng.choice(60, size, replace=False)) for size in (25, 20, 12, 9, 2)), key=len)[::-1]
    links = np.array([(u, v) for u in range(60) for v in range(u + 1, 60) if rng.random() < 0.2])
    expected = np.zeros((4, 4), int)
    for u, v in links.tolist():
        of_u, of_v = ({c for c in range(4) if vertex in members[c]} for vertex in (u, v))
        if not of_u & of_v:
            for a, b in product(of_u, of_v):
                expected[a, b] += 1
                expected[b, a] += 1
    assert np.array_equal(links_between(Cover(tuple(members), 60), links, 4), expected)


def test_without_communities_there_are_none() -> None:
    assert links_between(Cover((), 3), np.array([[0, 1], [1, 2]]), 4).shape == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["path", "star", "groups"])
def test_layouts_of_large_components_are_the_same_every_time(shape: str) -> None:
    graph = {
        "path": networkx.path_graph(300),
        "star": networkx.star_graph(300),
        "groups": networkx.connected_caveman_graph(30, 10),
    }[shape]
    links = np.array(graph.edges)
    where = layout(len(graph), links, np.ones(len(links)))
    assert np.array_equal(where, layout(len(graph), links, np.ones(len(links))))
    assert len(np.unique(where.round(6), axis=0)) == len(graph), "no two vertices are in one place"
    near = np.hypot(*(where[links[:, 0]] - where[links[:, 1]]).T).mean()
    apart = np.hypot(*(where - np.random.default_rng(0).permutation(where)).T).mean()
    assert near < apart
