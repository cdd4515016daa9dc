"""scikit-learn's searches and cross-validations over labelled pairs."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

import mmsbgen
from mmsbgen import MMSB
from mmsbgen.base.errors import InputError
from tests.detection.estimators import fast
from tests.devices import PROCESSOR

pytestmark = pytest.mark.opencl


def labelled(graph: nx.Graph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """All links of a graph and as many of its non-links, shuffled, with their labels."""
    rng = np.random.default_rng(seed)
    links, others = np.array(graph.edges), np.array(list(nx.non_edges(graph)))
    pairs = np.concatenate([links, others[rng.choice(len(others), len(links), replace=False)]])
    order = rng.permutation(len(pairs))
    return pairs[order], (order < len(links)).astype(int)


@pytest.mark.slow
def test_a_grid_search_finds_the_number_of_planted_communities():
    pairs, labels = labelled(nx.planted_partition_graph(4, 15, 0.7, 0.02, seed=1), 0)
    searched = GridSearchCV(
        MMSB(device=PROCESSOR, random_state=0), {"n_communities": [1, 4]}, cv=3, error_score="raise"
    ).fit(pairs, labels)
    assert searched.best_params_ == {"n_communities": 4}
    worse, better = searched.cv_results_["mean_test_score"]
    # Links are half of the pairs, so that a guess gives log(1/2); one community gives all pairs the same, lower p.
    assert worse < np.log(0.5) < better
    assert searched.best_estimator_.n_links_in_ == labels.sum()
    assert searched.score(pairs, labels) == searched.best_estimator_.score(pairs, labels)


def test_a_vertex_that_no_fold_but_one_has_counts_as_one_without_links():
    pairs, labels = labelled(nx.planted_partition_graph(3, 8, 0.9, 0.05, seed=2), 0)
    pairs = np.concatenate([pairs, [[0, 1000]]])
    labels = np.append(labels, 1)
    scores = cross_val_score(fast(3), pairs, labels, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    model, last = fast(3).fit(pairs[:-1], labels[:-1]), ([(0, 1000)], [1])
    with_it = fast(3).fit(pairs[:-1], labels[:-1], vertices=[1000])
    assert model.score(*last) < 0
    assert with_it.score(*last) == pytest.approx(np.log(with_it.predict_link_proba(last[0])[0]))
    with pytest.raises(InputError, match="1000 is no vertex of the graph"):
        model.predict_link_proba(last[0])


def test_labels_say_which_pairs_are_links():
    pairs, labels = labelled(nx.planted_partition_graph(3, 8, 0.9, 0.05, seed=2), 0)
    model = fast(3).fit(pairs, labels)
    plain = fast(3).fit(pairs[labels == 1], vertices=pairs.ravel())
    assert model.n_vertices_in_ == 24
    assert model.communities_ == plain.communities_
    assert np.array_equal(model.fit_predict(pd.DataFrame(pairs), labels.astype(bool)), plain.labels_)
    words = [tuple(f"v{end}" for end in pair) for pair in pairs.tolist()]
    assert set(fast(3).fit(words, labels).ids_) == {f"v{n}" for n in range(24)}
    for graph, y, message in (
        (pairs, labels[:-1], "y of shape"),
        (pairs, labels + 1, "1 for a link and 0 for a non-link"),
        (pairs, 0 * labels, "none of the .* pairs is a link"),
        (nx.path_graph(4), [1, 1, 1], "Graph is no array"),
        ("graph.txt", [1], "str is no array"),
    ):
        with pytest.raises(InputError, match=message):
            fast(3).fit(graph, y)
    with pytest.raises(InputError, match="give ids instead of a file"):
        fast(3).fit(pairs, labels, vertices="ids.txt")


def test_results_show_themselves_in_one_line():
    graph = nx.planted_partition_graph(3, 8, 0.9, 0.05, seed=2)
    model = fast(3, validation=0.1).fit(graph)
    found = model.detection_
    source = mmsbgen.graph.as_graph(graph)
    parts = mmsbgen.graph.split(source, validation=0.1, seed=1)
    shown = [repr(one) for one in (found, found.memberships, found.cover, source, parts, parts.validation)]
    shown += [repr(one) for one in (found.exported(), parts.training_adjacency, model, model._fit)]
    assert shown[0].startswith("<Detection: ")
    assert " communities of 24 vertices, K=3" in shown[0] or " community of 24 vertices, K=3" in shown[0]
    assert shown[1] == "<Memberships: 24 vertices, K=3, 3 of each kept>"
    assert shown[3] == f"<Graph stochastic_block_model: 24 vertices, {graph.number_of_edges()} links>"
    assert shown[4].startswith(f"<Split of {shown[3]} by seed 1: ")
    assert max(map(len, shown)) < 250
    assert not any("\n" in one for one in shown)


def test_memberships_as_dictionaries():
    found = fast(3).fit([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "c")])
    told = found.to_dict()
    assert list(told) == found.ids_.tolist()
    for name, shares in told.items():
        assert set(shares) == {at for at, members in enumerate(found.communities_) if name in members}
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert not shares or sum(shares.values()) == pytest.approx(1)
    assert told == found.detection_.to_dict()
