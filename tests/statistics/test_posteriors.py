"""Chains that sample, on graphs of up to eight vertices: memberships and strengths have the posterior's law."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.graph import split
from mmsbgen.graph.building import build_graph
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.options.schedule import SAMPLE_STEP, STAR_SCHEDULE
from tests.statistics.laws import Floats, Moments, observe
from tests.statistics.posteriors import Chains, Gibbs, SparseChains, Toy, enumerated, exact, looks
from tests.statistics.toys import Strengths

TRIANGLES = Toy(6, 2, ((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (2, 3)))
CLIQUES = Toy(8, 2, (*((a, b) for s in (0, 4) for a in range(s, s + 4) for b in range(a + 1, s + 4)), (3, 4)))
THREE = Toy(8, 3, ((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (6, 7), (2, 3), (5, 6), (0, 7)))
TOYS = {"two triangles": TRIANGLES, "two cliques": CLIQUES, "three groups": THREE}


# What is compared with ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("toy", [Toy(4, 2, ((0, 1), (1, 2), (0, 2))), Toy(3, 3, ((0, 1),))], ids=["4, 2", "3, 3"])
def test_the_exact_chains_have_the_enumerated_posterior(toy: Toy) -> None:
    found = Moments(0.5)
    gibbs = Gibbs(toy, 2000)
    a, b = np.triu_indices(toy.n, 1)
    for sweep in range(600):
        gibbs.step()
        if sweep >= 100:
            together = (gibbs.pi[:, a] * gibbs.pi[:, b]).sum(axis=2)
            found.add(np.column_stack([gibbs.beta.sum(axis=1), together]))
    mean, sd = enumerated(toy)
    assert np.all(4 * found.mean_error < 0.02 * sd)
    assert np.all(abs(found.mean - mean) < 4 * found.mean_error)
    assert np.all(abs(found.sd - sd) < 4 * found.sd_error)


def test_chains_have_the_gradients_of_the_reference() -> None:
    begin = Gibbs(THREE, 3)
    chains = Chains(THREE, begin)
    drift, counts = chains.gradients(np.ones((3, 8)))
    a, b = np.triu_indices(8, 1)
    signs = 2 * THREE.linked - 1
    for chain, (pi, beta) in enumerate(zip(chains.pi, chains.beta, strict=True)):
        for vertex in range(8):
            others = np.delete(np.arange(8), vertex)
            right, _ = equations.drift(pi[vertex], beta, pi[others], signs[vertex, others], THREE.delta)
            np.testing.assert_allclose(drift[chain, vertex], right, rtol=1e-9, atol=1e-9)
        right, _ = equations.theta_counts(pi[a], pi[b], beta, signs[a, b], THREE.delta)
        np.testing.assert_allclose(counts[:, chain], right, rtol=1e-9)


# The steps ----------------------------------------------------------------------------------------------------


def expect(found: Moments, right: Moments) -> None:
    """Means within .15 of a standard deviation, standard deviations within 10 %, both known well enough to tell."""
    assert np.all(np.hypot(found.mean_error, right.mean_error) < 0.035 * right.sd)
    assert np.all(np.hypot(found.sd_error, right.sd_error) < 0.03 * right.sd)
    assert np.abs((found.mean - right.mean) / right.sd).max() < 0.15
    assert np.abs(found.sd / right.sd - 1).max() < 0.10


@pytest.mark.slow
@pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)
def test_blocks_sample_the_posterior(toy: Toy) -> None:
    """At the step of sampling sweeps, begun in the posterior: four relaxation times of a row, then samples."""
    right, gibbs = exact(toy, 450, 300)
    chains = Chains(toy, gibbs)
    found = Moments(0.5)
    for sweep in range(1800):
        chains.sweep(SAMPLE_STEP)
        if sweep >= 800 and sweep % 25 == 0:
            found.add(chains.looks())
    expect(found, right)


@pytest.mark.slow
def test_sparse_rows_sample_the_posterior() -> None:
    """Rows that keep four of five entries, at the step of sampling sweeps."""
    toy = dataclasses.replace(TRIANGLES, k=5)
    right, gibbs = exact(toy, 360, 300)
    chains = SparseChains(toy, gibbs, SAMPLE_STEP, entries=4, floor=1e-3)
    found = Moments(0.5)
    for sweep in range(1150):
        chains.sweep(SAMPLE_STEP)
        if sweep >= 400 and sweep % 25 == 0:
            found.add(chains.looks())
    assert (chains.mask.sum(axis=2) == 4).mean() > 0.5
    expect(found, right)


@pytest.mark.slow
@pytest.mark.parametrize("toy", [CLIQUES, THREE], ids=["two cliques", "three groups"])
def test_stars_sample_the_posterior(toy: Toy) -> None:
    """By their default steps after two thousand iterations, begun in the posterior."""
    right, gibbs = exact(toy, 450, 300)
    chains = Chains(toy, gibbs)
    scale = 1 / max(1.0, len(toy.links) / toy.k + (toy.n / toy.k) ** 2 / 4)
    found = Moments(0.5)
    for iteration in range(2000, 3800):
        eps = STAR_SCHEDULE(iteration + 1)
        chains.star(eps, eps * scale)
        if iteration >= 2600 and iteration % 25 == 0:
            found.add(chains.looks())
    expect(found, right)


# On a device -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("links", "non_links"), [(30, 70), (3e4, 7e4), (2, 998)])
def test_strengths_of_communities_of_any_size(chain_device: Device, links: float, non_links: float) -> None:
    """theta_end at the step of sampling sweeps: the posterior of beta is Beta(1 + links, 1 + non-links)."""
    law = stats.beta(1 + links, 1 + non_links)
    with Strengths(chain_device, 512, links, non_links, SAMPLE_STEP, seed=34, theta_step="wright-fisher") as chains:
        chains.advance(1200)
        found = Moments([law.mean()])
        observe(chains.advance, lambda: chains.beta()[:, None], found, looks=20, apart=60)
    assert 4 * found.mean_error[0] < 0.12 * law.std()
    assert abs(found.mean[0] - law.mean()) < 0.12 * law.std()
    assert 4 * found.sd_error[0] < 0.08 * law.std()
    assert found.sd[0] == pytest.approx(law.std(), rel=0.10)


def effective(values: Floats) -> Floats:
    """Effective numbers of samples of the columns of ``[T, Q]``, by the variance of twenty batches' means."""
    batches = np.array_split(values, 20)
    means = np.array([batch.mean(axis=0) for batch in batches])
    return np.minimum(len(values), 20 * values.var(axis=0) / means.var(axis=0, ddof=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", [{"sample_sweeps": 4000}, {"noise": True, "iterations": 4400}], ids=["after", "noise"]
)
def test_runs_of_blocks_that_sample(chain_device: Device, monkeypatch: Any, given: dict[str, Any]) -> None:
    """The whole chain, at steps for which some thousand sweeps are enough; strengths hardly moved before.

    The bias at this step is below .3 of a standard deviation.  The rest is within four standard errors.
    """
    monkeypatch.setattr("mmsbgen.sampler.chain.sampler.SAMPLE_STEP", 0.06)
    right, _ = exact(TRIANGLES, 300, 200)
    ends = np.array(TRIANGLES.links)
    parts = split(build_graph(ends[:, 0], ends[:, 1], np.arange(6), name="toy", directed=False), validation=0.0, seed=1)
    options = Options(2, delta=TRIANGLES.delta, start="random", seed=5, burn_in=0.1, **given)
    sampler = Sampler(parts, options, Runtime(chain_device, MMSB))
    try:
        sampler.initialise()
        sampler.iterate(440)
        if "sample_sweeps" in given:
            course = dataclasses.replace(sampler.course, sampling_from=440, closing_from=440, end=4440)
            sampler.chain = sampler.chain._replace(course=course)
        found = []
        for _ in range(1000):
            for _ in range(4):  # from one sweep to the next little changes
                sampler.step()
            pi, beta = sampler.rows(0, 6)[0].astype(np.float64), sampler.state.beta()
            found.append(looks(pi[None], beta[None])[0])
        assert sampler.sampling
        assert sampler.eps == 0.06
    finally:
        sampler.close()
    values = np.array(found)
    shown = right.sd > 0.05
    ess = effective(values)[shown]
    assert np.median(ess) > 40
    off = (values.mean(axis=0) - right.mean)[shown] / right.sd[shown]
    assert np.all(abs(off) < 0.3 + 4 / np.sqrt(ess))
    ratio = values.std(axis=0)[shown] / right.sd[shown]
    assert np.all(abs(ratio - 1) < 0.15 + 4 / np.sqrt(2 * ess))
