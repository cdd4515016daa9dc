"""Metrics against values worked out by hand, and when their running means begin."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mmsbgen.families.mmsb import reference
from mmsbgen.sampler import heldout
from mmsbgen.sampler.run import evaluation


def test_auc_counts_ties_by_half():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.integers(0, 5, 30) / 7.0
        links = rng.random(30) < 0.4
        pairs = itertools.product(p[links], p[~links])
        brute = np.mean([1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs])
        assert heldout.auc(p, links) == pytest.approx(brute)
    assert math.isnan(heldout.auc(np.ones(2), np.array([True, True])))


def test_formulas():
    assert heldout.perplexity(math.log(0.5) * 3, math.log(0.5) * 2, 5) == pytest.approx(2.0)
    assert heldout.perplexity(-1e9, 0.0, 1) == pytest.approx(math.exp(700))
    assert heldout.weighted(-6.0, -0.5, 3, 5, 0.25) == pytest.approx(0.25 * -2.0 + 0.75 * -0.1)
    assert heldout.weighted(-6.0, 0.0, 3, 0, 0.25) == pytest.approx(-0.5)
    means, links = np.array([0.5, 0.0, 0.2]), np.array([True, True, False])
    right = math.exp(-(math.log(0.5) + math.log(1e-30) + math.log(0.8)) / 3)
    assert heldout.published(means, links) == pytest.approx(right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_means_begin_after_burn_in_and_published_ones_at_the_start(opencl_device, chain, middling, dtype):
    sampler = chain(opencl_device, middling, dtype=dtype, iterations=8, evaluate_every=1, burn_in=0.5, delta=1e-4)
    sampler.initialise()
    pairs, links = middling.validation.pairs, middling.validation.labels
    count, density = len(pairs), middling.graph.n_links / (60 * 59 / 2)
    assert links.sum() == count // 2
    samples, published = [], []
    rel = 1e-4 if dtype == "float32" else 1e-12
    for iteration in range(9):
        if iteration:
            sampler.step()
        got = evaluation(sampler, 0.0)
        pi = sampler.rows(0, 60)[0].astype(np.float64)
        p, without = reference.held_out(pi[pairs[:, 0]], pi[pairs[:, 1]], sampler.state.beta(), 1e-4)
        published.append(np.where(links, without, p))
        samples = [*samples, p] if iteration > 4 else [p]
        mean = np.mean(samples, axis=0)

        def sums(q, links=links):
            return np.log(q[links]).sum(), np.log1p(-q[~links]).sum()

        assert got["samples"] == len(samples) == max(1, iteration - 3)
        assert got["burnt_in"] == (iteration >= 4)
        assert got["perplexity"] == pytest.approx(math.exp(-sum(sums(mean)) / count), rel=rel)
        assert got["sample_perplexity"] == pytest.approx(math.exp(-sum(sums(p)) / count), rel=rel)
        a, b = sums(mean)
        right = density * a / links.sum() + (1 - density) * b / (~links).sum()
        assert got["log_likelihood"] == pytest.approx(right, rel=rel)
        assert got["auc"] == pytest.approx(heldout.auc(mean, links), abs=2e-3)
        a, b = sums(np.maximum(np.mean(published, axis=0), 1e-30))
        assert got["published_perplexity"] == pytest.approx(math.exp(-(a + b) / count), rel=rel)


def test_the_posterior_mean_is_that_of_the_samples(opencl_device, chain, middling):
    sampler = chain(opencl_device, middling, dtype="float64", iterations=6, evaluate_every=1, burn_in=0.5, average=True)
    sampler.initialise()
    rows, strengths = [], []
    for iteration in range(7):
        if iteration:
            sampler.step()
        evaluation(sampler, 0.0)
        if iteration >= 3:
            rows.append(sampler.rows(0, 60)[0])
            strengths.append(sampler.state.beta())
    assert sampler.averaged == 4
    np.testing.assert_allclose(sampler.rows(0, 60, mean=True)[0], np.mean(rows, axis=0), rtol=1e-12)
    np.testing.assert_allclose(sampler.beta(), np.mean(strengths, axis=0), rtol=1e-12)
