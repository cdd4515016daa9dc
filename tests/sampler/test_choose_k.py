"""The number of communities that held-out pairs choose."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.graph import split
from mmsbgen.graph.graph import build_graph
from mmsbgen.sampler.run.choose_k import _Fit, _KSearch, _sets, choose_k
from mmsbgen.sampler.starts.start_methods import of_sets


def planted(groups: int, size: int, inside: float, seed: int = 0):
    """Disjoint groups, dense inside, with a few links across."""
    rng = np.random.default_rng(seed)
    n = groups * size
    a, b = np.triu_indices(n, 1)
    linked = rng.random(a.size) < np.where(a // size == b // size, inside, 0.002)
    return build_graph(a[linked], b[linked], np.arange(n), name="planted", directed=False)


def test_the_planted_number_is_found(chain, pocl_device):
    parts = split(planted(12, 20, 0.6), validation=0.1, seed=2)
    said: list[str] = []
    k, tried = choose_k(
        parts,
        lambda k, seed: chain(pocl_device, parts, n_communities=k, seed=seed, mini_batch="block", noise=None),
        seed=1,
        say=said.append,
        asked=lambda: False,
    )
    # Eleven of the twelve explain all held-out pairs but those of one group: no more than a standard error worse.
    assert 11 <= k <= 14, "12 itself, or what lies within a ratio of 1.15"
    assert [one.k for one in tried] == sorted({one.k for one in tried})
    single = [text for text in said if not text.endswith("other seeds")]
    assert [text for text in single if text.startswith("Trying")] == single[::2], "each before it is fitted"
    assert len(single) == 2 * len(tried)
    best = max(tried, key=lambda one: one.log_likelihood)
    at = [one.k for one in tried].index(k)
    assert {one.chains for one in (best, tried[at], tried[at - 1])} == {3}, "what decides"
    assert tried[at - 1].k >= k / 1.15 or tried[at - 1].k == k - 1, "nothing that may do is left out below"
    assert best.standard_error == 0
    within = [one for one in tried if best.log_likelihood - one.log_likelihood <= one.standard_error]
    assert k == within[0].k, "the smallest within a standard error"
    (deviation,) = {one.seed_deviation for one in tried}
    assert deviation > 0
    for one in tried:
        if one is not best:
            seeds = deviation * np.sqrt(1 / one.chains + 1 / best.chains)
            assert one.standard_error > seeds, "the pairs held out add to the chains' own noise"


def test_the_noise_of_chains_enters_the_standard_error():
    """Where the pairs held out say the same, the spread of chains that differ in their seed is left."""
    parts = split(planted(6, 12, 0.7), validation=0.1, seed=2)
    search = _KSearch(parts, lambda k, seed: pytest.fail("no chain is needed"), 0, print, lambda: False)
    pairs, nothing = len(parts.validation.pairs), of_sets("none", [])
    for k, values in ((3, [-0.5]), (6, [-0.30, -0.32, -0.34]), (9, [-0.31, -0.33, -0.35])):
        search.fits[k] = [_Fit(nothing, 0.9, np.full(pairs, value), value, nothing) for value in values]
    few, best, many = (search.told(k) for k in (3, 6, 9))
    assert (few.chains, best.chains, many.chains) == (1, 3, 3)
    assert best.seed_deviation == few.seed_deviation == pytest.approx(0.02), "each of two numbers has 0.02"
    assert best.standard_error == 0
    assert many.standard_error == pytest.approx(0.02 * np.sqrt(2 / 3))
    assert few.standard_error == pytest.approx(0.02 * np.sqrt(1 + 1 / 3))
    assert (few.log_likelihood, best.log_likelihood, many.log_likelihood) == pytest.approx((-0.5, -0.32, -0.33))
    assert search.taken == 6
    search.fits[5] = [search.fits[6][0]._replace(value=-0.34, logs=np.full(pairs, -0.34))]
    assert search.taken == 5, "0.02 below the best, with a standard error of 0.023"


def test_sets_of_a_chain(chain, pocl_device, middling):
    """By hand from its rows: a vertex is in the communities that have more than a fifth of it, largest sets first."""
    sampler = chain(pocl_device, middling, n_communities=5, mini_batch="block", noise=None)
    sampler.initialise(of_sets("two", [np.arange(40), np.arange(20, 60)]))
    pi = sampler.rows(0, 60)[0]
    right = [np.flatnonzero(pi[:, k] > 0.2).tolist() for k in range(5)]
    right = sorted((one for one in right if len(one) > 1), key=lambda one: (-len(one), one[0]))
    found = _sets(sampler)
    assert [found.vertices[found.communities == k].tolist() for k in range(len(right))] == right
    assert found.communities.max() + 1 == len(right) >= 2


def test_it_can_be_stopped(chain, pocl_device):
    parts = split(planted(6, 12, 0.7), validation=0.1, seed=2)
    with pytest.raises(KeyboardInterrupt):
        choose_k(
            parts,
            lambda k, seed: chain(pocl_device, parts, n_communities=k, seed=seed, mini_batch="block", noise=None),
            seed=1,
            say=lambda text: None,
            asked=lambda: True,
        )


def test_without_held_out_pairs_nothing_can_choose(middling, pocl_device):
    parts = split(middling.graph, validation=0.0, seed=1)
    with pytest.raises(InputError, match="--validation"):
        choose_k(parts, lambda k, seed: pytest.fail("no chain is needed"), 0, lambda text: None, lambda: False)
