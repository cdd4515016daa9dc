"""Metrics against values worked out by hand, and when their running means begin."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mmsbgen.families.mmsb.reference import equations
from mmsbgen.graph import HeldOut, Split, split
from mmsbgen.graph.building import build_graph
from mmsbgen.sampler.diagnostics import held_out
from mmsbgen.sampler.diagnostics.evaluation import of_result
from mmsbgen.sampler.run.run import evaluation
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.saved.results import memberships
from mmsbgen.sampler.starts.start_methods import of_sets


def test_auc_counts_ties_by_half():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.integers(0, 5, 30) / 7.0
        links = rng.random(30) < 0.4
        pairs = itertools.product(p[links], p[~links])
        brute = np.mean([1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs])
        assert held_out.auc(p, links) == pytest.approx(brute)
    assert math.isnan(held_out.auc(np.ones(2), np.array([True, True])))


def test_formulas():
    assert held_out.perplexity(math.log(0.5) * 3, math.log(0.5) * 2, 5) == pytest.approx(2.0)
    assert held_out.perplexity(-1e9, 0.0, 1) == pytest.approx(math.exp(700))
    assert held_out.weighted(-6.0, -0.5, 3, 5, 0.25) == pytest.approx(0.25 * -2.0 + 0.75 * -0.1)
    assert held_out.weighted(-6.0, 0.0, 3, 0, 0.25) == pytest.approx(-0.5)
    means, links = np.array([0.5, 0.0, 0.2]), np.array([True, True, False])
    right = math.exp(-(math.log(0.5) + math.log(1e-30) + math.log(0.8)) / 3)
    assert held_out.published(means, links) == pytest.approx(right)


@pytest.mark.slow
def test_standard_errors_are_those_of_repeated_draws():
    """Of 4000 sets of 40 links and 60 non-links; an sd of that many is known to 1.1 %, its mean estimate to less."""
    rng = np.random.default_rng(1)
    links, density = np.arange(100) < 40, 0.3
    draws = 1 / (1 + np.exp(-rng.normal(np.where(links, 1.0, -0.5), 1.0, (4000, 100))))
    areas, errors, weighted, weighted_errors = [], [], [], []
    for p in draws:
        areas.append(held_out.auc(p, links))
        errors.append(held_out.auc_error(p, links))
        logs = held_out.log_likelihoods(p, links)
        weighted.append(held_out.weighted(logs[links].sum(), logs[~links].sum(), 40, 60, density))
        weighted_errors.append(held_out.weighted_error(logs, links, density))
    assert np.mean(np.square(errors)) == pytest.approx(np.var(areas), rel=5 * math.sqrt(2 / 4000))
    # Log-likelihoods have long tails: their variance varies twice as much as that of normal numbers.
    assert np.mean(np.square(weighted_errors)) == pytest.approx(np.var(weighted), rel=10 * math.sqrt(2 / 4000))


def test_standard_errors_where_a_class_is_missing():
    two = np.array([0.2, 0.4])
    assert math.isnan(held_out.auc_error(two, np.array([True, True])))
    assert math.isnan(held_out.auc_error(two, np.array([True, False])))
    assert held_out.weighted_error(two, np.array([True, False]), 0.5) == 0.0
    assert held_out.weighted_error(two, np.array([True, True]), 0.5) == pytest.approx(0.5 * 0.1)
    assert held_out.log_likelihoods(np.array([0.0, 1.0, 0.5]), np.array([True, False, True])) == pytest.approx(
        [math.log(1e-300), math.log(2**-53), math.log(0.5)]
    )


@pytest.mark.parametrize("average", [False, True])
def test_results_are_evaluated_on_pairs_that_nothing_else_sees(processor, chain, middling, monkeypatch, average):
    """By eq. (2.2) of the rows that the run reports, a part at a time, and alike for validation and test."""
    monkeypatch.setattr("mmsbgen.sampler.diagnostics.explained_links._BLOCK", 5 * 7)
    parts = split(middling.graph, validation=0.1, test=0.2, seed=1)
    sampler = chain(processor, parts, iterations=6, evaluate_every=1, delta=1e-4, dtype="float64", average=average)
    sampler.initialise()
    for _ in range(6):
        sampler.step()
        last = evaluation(sampler, 0.0)
    pi, beta = sampler.rows(0, 60, mean=True)[0], sampler.beta()
    pi[parts.unlinked] = 1 / 5
    for pairs in (parts.validation, parts.test):
        found = of_result(sampler, pairs)
        links = pairs.labels
        p = np.array([(pi[a] * pi[b] * beta).sum() + 1e-4 * (1 - pi[a] @ pi[b]) for a, b in pairs.pairs])
        right = parts.density * np.log(p[links]).mean() + (1 - parts.density) * np.log1p(-p[~links]).mean()
        assert (found["links"], found["non_links"]) == (pairs.n_links, pairs.n_non_links)
        assert found["log_likelihood"] == pytest.approx(right, rel=1e-10)
        assert found["auc"] == pytest.approx(held_out.auc(p, links))
        assert found["perplexity"] == pytest.approx(math.exp(-np.log(np.where(links, p, 1 - p)).mean()), rel=1e-10)
        assert 0 < found["auc_error"] < 0.2
        assert found["log_likelihood_error"] > 0
    if not average:
        found = of_result(sampler, parts.validation)
        assert found["log_likelihood"] == pytest.approx(last["sample_log_likelihood"], rel=1e-10)
        assert found["perplexity"] == pytest.approx(last["sample_perplexity"], rel=1e-10)
    assert of_result(sampler, split(middling.graph, validation=0.1, seed=1).test) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_means_begin_after_burn_in_and_published_ones_at_the_start(processor, chain, middling, dtype):
    sampler = chain(processor, middling, dtype=dtype, iterations=8, evaluate_every=1, burn_in=0.5, delta=1e-4)
    sampler.initialise()
    pairs, links = middling.validation.pairs, middling.validation.labels
    count, n = len(pairs), np.count_nonzero(middling.graph.degrees())
    density = middling.graph.n_links / (n * (n - 1) / 2)
    assert links.sum() == count // 2
    samples, published = [], []
    rel = 1e-4 if dtype == "float32" else 1e-12
    for iteration in range(9):
        if iteration:
            sampler.step()
        got = evaluation(sampler, 0.0)
        pi = sampler.rows(0, 60)[0].astype(np.float64)
        p, without = equations.held_out(pi[pairs[:, 0]], pi[pairs[:, 1]], sampler.state.beta(), 1e-4)
        published.append(np.where(links, without, p))
        pi[middling.unlinked] = 1 / 5
        p, _ = equations.held_out(pi[pairs[:, 0]], pi[pairs[:, 1]], sampler.state.beta(), 1e-4)
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
        assert got["auc"] == pytest.approx(held_out.auc(mean, links), abs=2e-3)
        a, b = sums(np.maximum(np.mean(published, axis=0), 1e-30))
        assert got["published_perplexity"] == pytest.approx(math.exp(-(a + b) / count), rel=rel)


def test_the_posterior_mean_is_that_of_the_samples(processor, chain, middling):
    sampler = chain(processor, middling, dtype="float64", iterations=6, evaluate_every=1, burn_in=0.5, average=True)
    sampler.initialise()
    rows, strengths = [], []
    for iteration in range(7):
        if iteration:
            sampler.step()
        evaluation(sampler, 0.0)
        if iteration >= 3:
            rows.append(sampler.rows(0, 60)[0])
            strengths.append(sampler.state.beta())
    assert sampler.chain.averaged == 4
    np.testing.assert_allclose(sampler.rows(0, 60, mean=True)[0], np.mean(rows, axis=0), rtol=1e-12)
    np.testing.assert_allclose(sampler.beta(), np.mean(strengths, axis=0), rtol=1e-12)


@pytest.mark.parametrize("mini_batch", ["block", "random-node"])
def test_a_vertex_all_of_whose_links_are_held_out_is_unknown_not_unlinked(processor, chain, mini_batch):
    """Two cliques of 20, and a vertex with links to five of the first that the fit does not see.

    The chain puts it where nobody is linked, so that its links would rank below every non-link.
    """
    links = [(a, b) for first in (0, 20) for b in range(first, first + 20) for a in range(first, b)]
    hidden = [(a, 40) for a in range(5)]
    every = np.array(links + hidden)
    graph = build_graph(every[:, 0], every[:, 1], np.arange(41), name="small", directed=False)
    others = [(a, b) for a in range(5) for b in range(30, 35)]
    labels = np.arange(len(hidden) + len(others)) < len(hidden)
    pairs = HeldOut(np.array(hidden + others), labels)
    parts = Split(graph, 0, pairs, HeldOut(np.zeros((0, 2), np.int64), np.zeros(0, bool)))
    assert parts.unlinked.tolist() == [40]
    sampler = chain(processor, parts, mini_batch=mini_batch, noise=False, n_communities=6, delta=1e-5)
    sampler.initialise()
    for _ in range(60):
        sampler.step()
    pi, beta = sampler.rows(0, 41)[0].astype(np.float64), sampler.state.beta()
    found = [evaluation(sampler, 0.0), of_result(sampler, pairs)]
    pi[40] = 1 / 6
    p, _ = equations.held_out(pi[pairs.pairs[:, 0]], pi[pairs.pairs[:, 1]], beta, 1e-5)
    for metrics in found:
        assert metrics["auc"] == held_out.auc(p, labels) > 0.95
        assert metrics["perplexity"] == pytest.approx(math.exp(-np.log(np.where(labels, p, 1 - p)).mean()), rel=1e-4)
    m = memberships(sampler, 6)
    assert m.link_probabilities(pairs.pairs) == pytest.approx(p, rel=1e-5)
    # Sweeps leave the vertex out, and its memberships are the prior's; with stars they are the chain's.
    assert m.rows(np.array([40])) == pytest.approx(pi[40:] if mini_batch == "block" else sampler.rows(40, 41)[0])


@pytest.mark.parametrize("rows", ["dense", "sparse"])
def test_vertices_without_links_take_no_community(processor, chain, tmp_path, rows):
    """Six planted communities stay what they are beside 1000 such vertices; in sparse rows bit for bit.

    Of the same links, strengths differ by draws of partners only: by less than two standard errors that a strength has
    itself, as the share of 780 pairs.
    """
    rng, home = np.random.default_rng(3), np.repeat(np.arange(6), 40)
    a, b = np.triu_indices(240, 1)
    linked = rng.random(a.size) < np.where(home[a] == home[b], 0.3, 0.01)
    found = []
    for n in (240, 1240):
        graph = build_graph(a[linked], b[linked], np.arange(n), name="planted", directed=False)
        parts, given = split(graph, validation=0.05, seed=1), {"mini_batch": "block", "noise": None, "delta": 1e-4}
        first, resumed = (chain(processor, parts, n_communities=6, rows=rows, **given) for _ in range(2))
        first.initialise(of_sets("communities", np.split(np.arange(240), 6)))
        for _ in range(40):
            first.step()
        checkpoints.save(tmp_path / "checkpoint.npz", first, [], 0.0)
        checkpoints.restore(checkpoints.load(tmp_path / "checkpoint.npz"), resumed)
        for sampler in (first, resumed):
            sampler.step()
        own, again = ((*sampler.rows(0, n), sampler.state.theta()) for sampler in (first, resumed))
        assert all(map(np.array_equal, own, again))
        assert (own[0][:240].argmax(axis=1) == home).mean() > 0.98
        found.append((own[0][:240], own[2], first.state.beta()))
        m = memberships(first, 6)
        assert m.values[240:] == pytest.approx(1 / 6)
        assert m.spread.sum() < 240
    assert rows == "dense" or all(map(np.array_equal, *found))
    assert found[1][2] == pytest.approx(found[0][2], abs=2 * math.sqrt(0.3 * 0.7 / 780))
