"""The number of communities that held-out pairs choose."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.errors import InputError
from mmsbgen.graph import split
from mmsbgen.graph.graph import build_graph
from mmsbgen.sampler.choose_k import choose_k


def planted(groups: int, size: int, inside: float, seed: int = 0):
    """Disjoint groups, dense inside, with a few links across."""
    rng = np.random.default_rng(seed)
    n = groups * size
    a, b = np.triu_indices(n, 1)
    linked = rng.random(a.size) < np.where(a // size == b // size, inside, 0.002)
    return build_graph(a[linked], b[linked], np.arange(n), name="planted", directed=False)


def test_the_planted_number_is_found(chain, opencl_device):
    parts = split(planted(12, 20, 0.6), validation=0.1, seed=2)
    said: list[str] = []
    k, tried = choose_k(
        parts,
        lambda k: chain(opencl_device, parts, n_communities=k, mini_batch="block", noise=None),
        seed=1,
        say=said.append,
        asked=lambda: False,
    )
    assert 12 <= k <= 17, "the grid has 12 itself or the next number at a ratio of the square root of 2"
    assert [one.k for one in tried] == sorted({one.k for one in tried})
    assert [text for text in said if text.startswith("Trying")] == said[::2], "each before it is fitted"
    assert len(said) == 2 * len(tried)
    best = max(tried, key=lambda one: one.log_likelihood)
    assert best.standard_error == 0
    chosen = next(one for one in tried if one.k == k)
    assert best.log_likelihood - chosen.log_likelihood <= chosen.standard_error


def test_it_can_be_stopped(chain, pocl_device):
    parts = split(planted(6, 12, 0.7), validation=0.1, seed=2)
    with pytest.raises(KeyboardInterrupt):
        choose_k(
            parts,
            lambda k: chain(pocl_device, parts, n_communities=k, mini_batch="block", noise=None),
            seed=1,
            say=lambda text: None,
            asked=lambda: True,
        )


def test_without_held_out_pairs_nothing_can_choose(middling, pocl_device):
    parts = split(middling.graph, validation=0.0, seed=1)
    with pytest.raises(InputError, match="--validation"):
        choose_k(parts, lambda k: pytest.fail("no chain is needed"), 0, lambda text: None, lambda: False)
