"""The number of communities that held-out pairs choose."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mmsbgen.graph import split
from mmsbgen.graph.building import build_graph
from mmsbgen.sampler.run.choose_k import choose_k


def planted(groups: int, size: int, inside: float, seed: int = 0):
    """Disjoint groups, dense inside, with a few links across."""
    rng = np.random.default_rng(seed)
    n = groups * size
    a, b = np.triu_indices(n, 1)
    linked = rng.random(a.size) < np.where(a // size == b // size, inside, 0.002)
    return build_graph(a[linked], b[linked], np.arange(n), name="planted", directed=False)


def test_the_planted_number_is_found(chain, processor):
    parts = split(planted(8, 20, 0.6), validation=0.1, seed=2)
    said: list[str] = []
    k, tried = choose_k(
        parts,
        lambda of, k: chain(processor, of, n_communities=k, mini_batch="block", noise=None),
        seed=1,
        say=said.append,
        asked=lambda: False,
    )
    assert 8 <= k <= 16, "fewer cannot explain all groups; what is more stays empty"
    assert [one.k for one in tried] == sorted({one.k for one in tried})
    assert [text for text in said if text.startswith("Trying")] == said[::2], "each before it is fitted"
    assert len(said) == 2 * len(tried)
    best = max(tried, key=lambda one: one.log_likelihood)
    assert best.k == k
    assert best.standard_error == 0
    ratios = np.array([b.k / a.k for a, b in pairwise(tried)])
    assert ratios.max() <= 2.1, "a grid of factors of two"
    at = [one.k for one in tried].index(k)
    assert ratios[max(0, at - 1) : at + 1].max() < 1.3, "finer beside the best"
    fewest = tried[0]
    assert best.log_likelihood - fewest.log_likelihood > fewest.standard_error > 0, "the grid has gone below"


def test_empty_communities_are_not_chosen(chain, processor):
    """Vertices of two groups have more links: with each empty community that rows share in, held-out pairs gain."""
    rng = np.random.default_rng(0)
    n = 200
    own = np.zeros((n, 4), bool)
    for drawn in rng.integers(0, 4, (2, n)):
        own[np.arange(n), drawn] = True
    a, b = np.triu_indices(n, 1)
    linked = rng.random(a.size) < 1 - 0.995 * 0.4 ** (own[a] & own[b]).sum(axis=1)
    parts = split(
        build_graph(a[linked], b[linked], np.arange(n), name="overlap", directed=False), validation=0.1, seed=2
    )
    k, tried = choose_k(
        parts,
        lambda of, k: chain(processor, of, n_communities=k, mini_batch="block", noise=None),
        seed=1,
        say=lambda text: None,
        asked=lambda: False,
    )
    best = max(tried, key=lambda one: one.log_likelihood)
    assert 3 < k < best.k, "one community is empty, and no more than one"
    assert best.k == tried[-1].k < 12, "the grid ends there"


@pytest.mark.parametrize(("refine", "stops_at"), [(True, ""), (False, "Trying K=12")])
def test_it_can_be_stopped(chain, processor, refine, stops_at):
    parts = split(planted(6, 12, 0.7), validation=0.1, seed=2)
    said = [""]
    with pytest.raises(KeyboardInterrupt):
        choose_k(
            parts,
            lambda of, k: chain(processor, of, n_communities=k, mini_batch="block", noise=None, refine=refine),
            seed=1,
            say=said.append,
            asked=lambda: said[-1].startswith(stops_at),
        )


def test_without_held_out_pairs_leiden_says_how_many():
    parts = split(planted(6, 12, 0.7), validation=0.0, seed=1)
    said: list[str] = []
    assert choose_k(parts, lambda *of: pytest.fail("no chain is needed"), 0, said.append, lambda: False) == (6, [])
    assert said == [], "nothing was tried; `detect` says how K was chosen"
