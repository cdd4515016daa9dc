"""Scores on several graphs of the same vertices: dense solutions, the bound, what is refused."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from mmsbgen.algorithms import ConvergenceError, manifold_ranking, multimodal_ranking
from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.graph import as_arcs


def some_layers(n: int, count: int, seed: int) -> list[nx.Graph]:
    """Random graphs with weights 1 to 9, loops, and vertices that others lack."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        made = nx.gnp_random_graph(n, 0.04, seed=seed + number)
        made = nx.relabel_nodes(made, {v: f"v{v + 10 * number}" for v in made})
        made.add_edge(f"v{10 * number}", f"v{10 * number}")
        nx.set_edge_attributes(made, {edge: float(rng.integers(1, 10)) for edge in made.edges}, "km")
        found.append(made)
    return found


def divided(layer: nx.Graph, ids: list[Any], weight: str | None) -> NDArray[np.float64]:
    """D^-1 W over all vertices, ``[N, N]``."""
    layer = layer.copy()
    layer.add_nodes_from(ids)
    w = nx.to_numpy_array(layer, nodelist=ids, weight=weight)
    total = w.sum(axis=1, keepdims=True)
    return np.divide(w, total, out=np.zeros_like(w), where=total > 0)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, "km"])
def test_scores_solve_their_systems(weights: str | None, processor: Device) -> None:
    layers, on = some_layers(120, 3, 1), processor.info.spec
    found = manifold_ranking(layers, "v30", tolerance=1e-10, weights=weights, device=on)
    ids = found.ids.tolist()
    start = np.array([name == "v30" for name in ids], float)
    parts = [divided(layer, ids, weights) for layer in layers]
    for column, part in enumerate(parts):
        exact = np.linalg.solve(np.eye(len(ids)) - 0.85 * part, 0.15 * start)
        assert found.values[:, column] == pytest.approx(exact, abs=1e-8)
        rough = manifold_ranking(layers, "v30", tolerance=1e-4, weights=weights, device=on).values[:, column]
        assert np.abs(rough - exact).max() <= 0.85 / 0.15 * 1e-4
    shares = [0.5, 0.1, 0.3]
    fused = sum(share * part for share, part in zip(shares, parts, strict=True))
    seeds = ["v30", ["v1", "v2"], {"v100": 1.0, "v5": 3.0}]
    rows = np.array([start, np.isin(ids, ["v1", "v2"]) / 2, [{"v100": 0.25, "v5": 0.75}.get(v, 0.0) for v in ids]]).T
    exact = np.linalg.solve(np.eye(len(ids)) - fused, 0.1 * rows)
    scores = multimodal_ranking(layers, seeds, shares, tolerance=1e-10, weights=weights, device=on)
    assert scores.ids.tolist() == ids
    assert scores.values == pytest.approx(exact, abs=1e-8)
    rough = multimodal_ranking(layers, seeds, shares, tolerance=1e-4, weights=weights, device=on).values
    assert np.abs(rough - exact).max() <= 0.9 / 0.1 * 1e-4


def test_odd_layers(processor: Device) -> None:
    on = processor.info.spec
    # A vertex without links in a layer keeps what it starts with there.
    found = manifold_ranking([nx.path_graph(3), nx.empty_graph(1)], 0, tolerance=1e-9, device=on)
    assert found.values[:, 1] == pytest.approx([0.15, 0, 0])
    assert found.values[0, 0] > found.values[1, 0] > found.values[2, 0] > 0
    alone = multimodal_ranking([nx.path_graph(3)], "0", [0.85], tolerance=1e-9, device=on)
    assert alone.values[:, 0] == pytest.approx(found.values[:, 0], abs=1e-8)
    with pytest.raises(ConvergenceError, match="allow more rounds by max_rounds"):
        manifold_ranking([nx.path_graph(30)], 0, tolerance=1e-9, max_rounds=3, device=on)


@pytest.mark.parametrize(
    ("layers", "changes", "message"),
    [
        ([], {}, "give a list of 1 to 1024 graphs"),
        ([nx.DiGraph([(0, 1)])], {}, "is directed"),
        ([nx.path_graph(3)], {"seed": 7}, "7 is no vertex of 1 layer;"),
        ([nx.path_graph(3)], {"alpha": 1.0}, r"alpha=1\.0: give a number above 0 and below 1"),
        ([nx.path_graph(3)], {"tolerance": -1.0}, r"tolerance=-1\.0: give a number of 0 or more"),
    ],
)
def test_what_has_no_scores_is_refused(layers: list[Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        manifold_ranking(layers, **{"seed": 0, **changes})


def test_weights_of_all_layers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [as_arcs(nx.path_graph(3)), as_arcs(nx.path_graph(4))]
    monkeypatch.setattr("mmsbgen.base.host_memory.available_host_memory", lambda: (90, "a limit"))
    with pytest.raises(InputError, match="weights of 6 arcs on 2 layers take 96 B, and a limit leaves 90 B: give few"):
        multimodal_ranking(layers, [0], [0.5, 0.1])


@pytest.mark.parametrize("shares", [[0.5], [0.5, 0.5], [-0.1, 0.5], [0.0, 0.0], [float("nan"), 0.1]])
def test_shares_that_do_not_fit_are_refused(shares: list[float]) -> None:
    with pytest.raises(InputError, match=r"shares=.*for each of 2 layers, and a sum above 0 and below 1"):
        multimodal_ranking([nx.path_graph(3), nx.path_graph(2)], [0], shares)
