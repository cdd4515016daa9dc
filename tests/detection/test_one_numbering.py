"""Communities, memberships, labels, strengths and files of a result agree, and share one numbering."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmsbgen import MMSB, detect
from mmsbgen.export.run_folder import read_run
from mmsbgen.graph import as_graph
from mmsbgen.scores import read_cover
from tests.devices import PROCESSOR

pytestmark = [pytest.mark.opencl, pytest.mark.slow]
DATA = Path(__file__).parents[1] / "data"


def random_graph(n: int, p: float) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.argwhere(np.triu(rng.random((n, n)) < p, 1))


def cliques(*sizes: int) -> np.ndarray:
    starts = np.cumsum([0, *sizes])
    return np.concatenate([start + random_graph(size, 1.0) for start, size in zip(starts, sizes, strict=False)])


GRAPHS = {
    "netscience": (DATA / "netscience.txt.gz", 40),
    "email-Eu-core": (DATA / "email-Eu-core.txt.gz", 20),
    "noise": (random_graph(300, 0.03), 8),
    "more components than K": (cliques(9, 8, 7, 6, 5, 4, 3, 2), 3),
    "one community": (random_graph(40, 0.4), 1),
    "a path": (np.stack([np.arange(29), np.arange(1, 30)], axis=1), 4),
}


@pytest.mark.filterwarnings("ignore:.*a directed graph:mmsbgen.graph.GraphWarning")
@pytest.mark.parametrize("name", GRAPHS)
def test_they_agree(name: str, tmp_path: Path) -> None:
    source, k = GRAPHS[name]
    graph = as_graph(source)
    options: dict[str, Any] = {"device": PROCESSOR, "random_state": 2}
    found = detect(graph, k, out=tmp_path / "run", **options)
    model = MMSB(k, **options).fit(graph)
    assert model.communities_ == found.communities == model.get_communities()
    sizes = [len(members) for members in found.communities]
    assert sizes == sorted(sizes, reverse=True)
    assert model.memberships_.shape == (graph.n_vertices, len(sizes))
    assert model.strengths_.shape == (len(sizes),)

    inside = np.zeros(model.memberships_.shape, bool)
    for community, members in enumerate(found.cover.members):
        inside[members, community] = True
    covered = inside.any(axis=1)
    assert np.array_equal(model.memberships_ > 0, inside)
    assert np.allclose(model.memberships_.sum(axis=1), covered)
    assert np.array_equal(model.labels_, np.where(covered, model.memberships_.argmax(axis=1), -1))
    for community in found.cover.background:
        assert (inside[inside[:, community]].sum(axis=1) == 1).all(), "a background is nobody's second community"
        assert model.strengths_[community] <= 2 * graph.n_links / (graph.n_vertices * (graph.n_vertices - 1))
    # With a community in its component, no vertex is without one.
    ends = covered[graph.links]
    assert (ends[:, 0] == ends[:, 1]).all()

    read = read_run(tmp_path / "run")[0]
    lines = read_cover(tmp_path / "run" / "communities.txt")
    assert [list(map(str, line)) for line in lines] == [list(map(str, one)) for one in found.communities]
    assert np.array_equal(read.labels(), model.labels_)
    assert np.allclose(read.strengths, model.strengths_)
    record = found.record["communities"]
    assert (record["count"], record["sizes"]) == (len(sizes), sizes)
    with open(found.export(tmp_path / "long.csv"), newline="") as file:
        rows = {(row["id"], int(row["community"])): float(row["share"]) for row in csv.DictReader(file)}
    names = list(map(str, model.ids_.tolist()))
    expected = {(names[v], int(c)): model.memberships_[v, c] for v, c in zip(*np.nonzero(inside), strict=True)}
    assert rows == pytest.approx(expected)
    # What is saved predicts what the chain does.
    pairs = model.ids_[np.random.default_rng(5).integers(0, graph.n_vertices, (2000, 2))]
    p, saved = model.predict_link_proba(pairs), found.predict_links(pairs)
    assert np.abs(p - saved).max() < 0.02
    assert np.abs(np.log(saved / p)).mean() < 0.05
