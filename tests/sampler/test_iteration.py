"""One iteration on a device against the NumPy reference, and what repeats bit for bit."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from mmsbgen.families.mmsb.reference import equations
from mmsbgen.families.mmsb.stages.update_phi import UPDATE_PHI
from mmsbgen.graph import Split
from mmsbgen.graph.building import build_graph
from mmsbgen.graph.split import HeldOut
from mmsbgen.sampler.diagnostics.evaluation import evaluate
from mmsbgen.sampler.minibatch import strategies
from mmsbgen.sampler.state import stage_clock
from tests.sampler.host_batches import eligible, host_batch

K = 5
MODES = [
    ("split", True, "uniform", "random-node"),
    ("split", False, "stratified", "random-node"),
    ("split", True, "uniform", "block"),
    ("split", False, "uniform", "block"),
    ("reflected", True, "stratified", "random-node"),
    ("reflected", False, "uniform", "block"),
    ("published", True, "uniform", "random-node"),
    ("published", False, "stratified", "random-node-non-link"),
    ("split", True, "shared", "random-node"),
    ("split", False, "shared-uniform", "random-node"),
    ("reflected", True, "shared-uniform", "random-node-non-link"),
    ("reflected", False, "shared", "random-node-link"),
    ("published", True, "shared", "random-node"),
    ("published", False, "shared-uniform", "random-node"),
]
SHARED = ("shared", "shared-uniform")


def state_of(sampler):
    n = sampler.split.graph.n_vertices
    pi, sums = (part.astype(np.float64) for part in sampler.rows(0, n))
    return pi, sums, sampler.state.theta(), sampler.state.beta()


def neighbours(sampler, vertex):
    held = sampler.split.held_out_adjacency.row(vertex).tolist()
    return sampler.split.training_adjacency.row(vertex).astype(np.int64), frozenset(held)


def batch_of(sampler):
    """The mini-batch of the iteration just made, by its definition on the host."""
    return host_batch(sampler.sources, sampler.iteration)


def run_until_some(sampler):
    """The state before the next batch that is not empty, and that batch."""
    while True:
        before = state_of(sampler)
        if sampler.step().n_vertices > 2:
            return before, batch_of(sampler)


def compare(sampler, before, batch, u):
    """Hold the state after an iteration against the reference's; ``u`` is the unit roundoff."""
    pi, sums, theta, beta = before
    new_pi, new_sums, new_theta, new_beta = state_of(sampler)
    options, real = sampler.options, sampler.shape.real.type
    delta = float(real(options.delta))
    eps = options.step_sizes(sampler.time)
    step = equations.Step(
        options.step,
        float(real(eps / 2)),
        float(real(options.prior)),
        options.noise,
        options.seed,
        sampler.iteration,
        delta,
    )
    rule = dataclasses.replace(sampler.rule, iteration=sampler.iteration)
    flipped = expected_flips = 0.0
    counts = np.zeros((2, *theta.shape))
    for vertex in batch.vertices.tolist():
        near, held = neighbours(sampler, vertex)
        partners, weights = equations.sample_partners(vertex, sampler.split.graph.n_vertices, near, held, rule)
        drift, error = equations.drift(pi[vertex], beta, pi[partners], weights, delta, u)
        of_vertex = np.broadcast_to(pi[vertex], (partners.size, pi.shape[1]))
        counts += np.stack(equations.theta_counts(of_vertex, pi[partners], beta, weights, delta, u))
        end = equations.end_row(pi[vertex] * sums[vertex], pi[vertex], drift, error, vertex, step, u)
        total = end.phi.sum()
        phi_error = end.error + 8 * u * end.phi + 1e-20
        total_error = phi_error.sum() + 16 * u * total
        off = np.abs(new_pi[vertex] - end.phi / total) > (phi_error + end.phi / total * total_error) / total * 1.01
        wrong = off.any() or abs(new_sums[vertex] - total) > total_error
        if wrong and end.flips.sum() > 0:
            flipped += 1
        else:
            assert not wrong, (vertex, new_pi[vertex] - end.phi / total, phi_error / total)
        expected_flips += min(1.0, end.flips.sum())
    assert flipped <= expected_flips + 5 * math.sqrt(expected_flips) + (expected_flips > 1e-3)
    others = np.setdiff1d(np.arange(len(pi)), batch.vertices)
    assert np.array_equal(new_pi[others], pi[others])
    assert np.array_equal(new_sums[others], sums[others])
    if options.block:
        # The same pairs inform theta, each from both of its ends, in one of the blocks of a sweep.
        found = counts * 0.5 * sampler.per_sweep
    else:
        weights = batch.weights.astype(sampler.shape.real).astype(np.float64)
        found = equations.theta_counts(new_pi[batch.pairs_a], new_pi[batch.pairs_b], beta, weights, delta, u)
    compare_theta(sampler, batch, found, theta, (new_theta, new_beta), u, eps)


def compare_theta(sampler, batch, found, theta, new, u, eps):
    options, (counts, error) = sampler.options, found
    name = "gain" if options.block else "published" if options.step == "published" else "reflected"
    size = sampler._theta_step(eps, batch.vertices.size)
    step = equations.ThetaStep(name, size, options.eta, options.noise, options.seed, sampler.iteration)
    right = equations.update_theta(theta, counts, step)
    gain_error = error.sum(axis=0) * (np.maximum(1.0, 1.0 / theta) if name == "published" else 1.0)
    tolerance = size * (gain_error + 1e-15 * counts.sum(axis=0)) + 4 * u * right + 1e-13 * (theta + right)
    assert np.all(np.abs(new[0] - right) <= tolerance), (new[0] - right, tolerance)
    assert np.allclose(new[1], equations.beta_of(new[0]), rtol=8 * u, atol=0)


@pytest.mark.parametrize(("step", "noise", "partners", "mini_batch"), MODES)
def test_iterations_equal_the_reference(processor, chain, middling, step, noise, partners, mini_batch):
    """In double precision from the start and on; random words are those of the reference.

    The kernels have these steps and partners in the covering samples of both platforms, see families/test_device.
    """
    sampler = chain(
        processor,
        middling,
        n_communities=K,
        dtype="float64",
        step=step,
        noise=noise,
        partners=partners,
        mini_batch=mini_batch,
        mini_batch_size=17,
        n_partners=6,
        delta=1e-4,
    )
    sampler.initialise()
    for _ in range(4):
        before, batch = run_until_some(sampler)
        compare(sampler, before, batch, 2.0**-53)


@pytest.mark.parametrize("n_partners", [1, 5, 200])
@pytest.mark.parametrize(("size", "noise"), [(14, False), (5, True)])
def test_blocks_equal_the_definition_with_hub_isolated_and_held_out(processor, chain, awkward, n_partners, size, noise):
    """The reference has an explicit weight for every partner; most are drawn several times here."""
    options = {"mini_batch": "block", "mini_batch_size": size, "n_partners": n_partners, "noise": noise}
    sampler = chain(processor, awkward, dtype="float64", delta=1e-4, **options)
    sampler.initialise()
    for _ in range(4):
        before, batch = run_until_some(sampler)
        compare(sampler, before, batch, 2.0**-53)


@pytest.mark.parametrize("n_partners", [1, 5, 14, 200])
@pytest.mark.parametrize("partners", SHARED)
def test_stars_that_share_equal_the_definition(processor, chain, awkward, partners, n_partners):
    """Hub, isolated and held-out pairs; vertices are partners of the mini-batch they are in; from 14 on all are."""
    options = {"partners": partners, "mini_batch_size": 6, "n_partners": n_partners}
    sampler = chain(processor, awkward, dtype="float64", delta=1e-4, **options)
    assert sampler.rule.n == min(n_partners, 14)
    sampler.initialise()
    drawn, sizes = set(), set()
    for _ in range(12):
        before, batch = run_until_some(sampler)
        compare(sampler, before, batch, 2.0**-53)
        place = sampler.batches.place(sampler.iteration)
        (count,) = sampler.device.download(sampler.values["n_shared"])[[place]]
        found = sampler.device.download(sampler.values["drawn"])[place, :count].tolist()
        assert len(set(found)) == count <= sampler.rule.n
        drawn.update(set(found) & set(batch.vertices.tolist()))
        sizes.add(batch.vertices.size)
    assert drawn
    assert len(sizes) > 1
    assert n_partners < 14 or count == 14


@pytest.mark.parametrize(
    ("noise", "mini_batch", "partners"),
    [
        (True, "random-node", "stratified"),
        (False, "block", "stratified"),
        (True, "random-node", "shared"),
        (False, "random-node", "shared-uniform"),
    ],
)
def test_single_precision_equals_the_reference(processor, chain, middling, noise, mini_batch, partners):
    options = {"noise": noise, "mini_batch": mini_batch, "partners": partners}
    sampler = chain(processor, middling, n_communities=K, delta=1e-4, **options)
    sampler.initialise()
    for _ in range(3):
        before, batch = run_until_some(sampler)
        compare(sampler, before, batch, 2.0**-24)


def test_the_start_is_the_reference_s(processor, chain, middling):
    sampler = chain(processor, middling, dtype="float64", initial_row_sum=None)
    sampler.initialise()
    pi, sums, theta, beta = state_of(sampler)
    rows, total = equations.initial_rows(11, np.arange(60), K)
    np.testing.assert_allclose(pi, rows, rtol=1e-13)
    np.testing.assert_allclose(sums, total, rtol=1e-13)
    np.testing.assert_allclose(beta, theta[1] / theta.sum(axis=0), rtol=1e-14)


def everything(sampler):
    n = sampler.split.graph.n_vertices
    held = sampler.device.download(sampler.held_values["sums"])
    return (*sampler.rows(0, n), sampler.state.theta(), sampler.state.beta(), held)


def repeat(device, chain, parts, **options):
    results = []
    for seed in (4, 4, 5):
        sampler = chain(device, parts, seed=seed, mini_batch_size=20, **options)
        sampler.initialise()
        for _ in range(15):
            sampler.step()
        evaluate(sampler, burnt_in=True)
        results.append(everything(sampler))
    assert all(np.array_equal(x, y) for x, y in zip(results[0], results[1], strict=True))
    assert not np.array_equal(results[0][0], results[2][0])


def test_the_same_seed_gives_the_same_bits(opencl_device, chain, middling):
    repeat(opencl_device, chain, middling, mini_batch="random-node", partners="stratified")


@pytest.mark.parametrize(
    ("mini_batch", "partners"),
    [
        ("block", "stratified"),
        *(("random-node", name) for name in SHARED),
    ],
)
def test_the_same_seed_gives_the_same_bits_in_other_modes(processor, chain, middling, mini_batch, partners):
    repeat(processor, chain, middling, mini_batch=mini_batch, partners=partners)


def test_configurations_agree_after_a_step(processor, chain, middling):
    """Another form, width, block size and kernel split: the same row to rounding, from the same words."""
    plain = {
        "placement": "THREAD",
        "team": "item",
        "vector_width": 1,
        "block_size": 1,
        "rows_in_flight": 1,
        "prefetch": 0,
    }
    other = {
        "placement": "NAIVE",
        "team": "block",
        "vector_width": 4,
        "block_size": 4,
        "rows_in_flight": 2,
        "prefetch": 0,
    }
    configs = [
        plain | {"normalise": True, "reduction": "none"},
        plain | {"normalise": False, "block_size": 48, "reduction": "none"},
        other | {"normalise": True, "reduction": "local"},
    ]
    found = []
    for config in configs:
        assert set(config) == {axis.name for axis in UPDATE_PHI.space.axes}
        sampler = chain(processor, middling, {"update_phi": config}, dtype="float64", delta=1e-4)
        assert ("update_pi" in sampler.kernels) == (not config["normalise"])
        sampler.initialise()
        run_until_some(sampler)
        found.append(everything(sampler))
    for there in found[1:]:
        for x, y in zip(found[0], there, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-18)


@pytest.mark.parametrize("partners", ["uniform", "stratified"])
def test_held_out_pairs_inform_nothing(processor, chain, awkward, partners):
    sampler = chain(processor, awkward, partners=partners, mini_batch_size=6, n_partners=5)
    sampler.initialise()
    device, values = sampler.device, sampler.values
    held = {frozenset(pair) for pair in awkward.held_out_pairs.tolist()}
    links = {frozenset(pair) for pair in awkward.training_links.tolist()}
    met = 0
    for _ in range(25):
        place, size, _ = sampler.step()
        if not size:
            continue
        vertices = device.download(values["vertices"])[place : place + size].astype(np.int64)
        assert np.array_equal(vertices, batch_of(sampler).vertices)
        n = sampler.rule.n
        span = slice(place * n, (place + size) * n)
        partners, weights = (device.download(values[name])[span] for name in ("partners", "weights"))
        for vertex, partner, weight in zip(np.repeat(vertices, n), partners, weights, strict=True):
            pair = frozenset((int(vertex), int(partner)))
            if pair in held or len(pair) == 1:
                met += 1
                assert weight == 0
            elif weight:
                assert (weight > 0) == (pair in links)
    assert met > 0


@pytest.mark.parametrize(
    ("mini_batch", "partners"),
    [("random-node", "stratified"), ("block", "stratified"), ("random-node", "shared"), ("random-node", SHARED[1])],
)
def test_padding_stays_zero_and_every_slot_has_one_row(processor, chain, awkward, mini_batch, partners):
    options = {"mini_batch": mini_batch, "partners": partners, "mini_batch_size": 6, "n_partners": 5}
    sampler = chain(processor, awkward, **options)
    sampler.initialise()
    device, values = sampler.device, sampler.values
    for _ in range(25):
        sampler.step()
    slots, left_out = device.download(values["slots"]), sampler.left_out
    assert (mini_batch == "block") == (left_out.size > 1)
    # Vertices that no block contains have one slot in common, that of the first.
    assert (slots[left_out] == left_out[:1]).all()
    slots[left_out] = left_out
    used = np.concatenate([slots, device.download(values["spares"])])
    assert sorted(used.tolist()) == list(range(sampler.shape.slots))
    pi = device.download(values["pi"])[device.download(values["slots"])]
    assert not pi[:, 5:].any()
    right = np.where(np.isin(np.arange(len(pi)), left_out), 0.0, 1.0)
    np.testing.assert_allclose(pi.sum(axis=1), right, atol=1e-5)


def test_a_step_with_an_empty_batch_changes_nothing(processor, chain, awkward, monkeypatch):

    sampler = chain(processor, awkward, mini_batch="random-node-link")
    sampler.initialise()
    before = everything(sampler)
    # Vertex 12 has no links.
    monkeypatch.setattr(strategies, "_draw", lambda _s, iterations, *_: np.full(iterations.size, 12))
    assert sampler.step().n_vertices == 0
    assert sampler.iteration == 1
    assert all(np.array_equal(x, y) for x, y in zip(before, everything(sampler), strict=True))


def test_times_are_read_before_events_pile_up(processor, chain, awkward, monkeypatch):
    monkeypatch.setattr(stage_clock, "MOST_EVENTS", 20)
    sampler = chain(processor, awkward)
    sampler.initialise()
    for _ in range(30):
        sampler.step()
        assert len(sampler.stages.events) < 20
    assert sampler.stages.seconds()["update_phi"] > 0


@pytest.mark.parametrize("mini_batch", ["random-node", "block"])
def test_no_training_link_and_a_vertex_that_is_held_out_whole(processor, chain, mini_batch):
    """Nothing of vertex 0 may be used, and there is no link at all: rows follow the non-links and the prior."""
    n = 7
    every = np.array([(a, b) for a in range(n) for b in range(a + 1, n)], np.int64)
    first = np.array([1, 2, 3, 4, 5, 6], np.int64)
    graph = build_graph(np.zeros(6, np.int64), first, np.arange(n), name="star", directed=False)
    held = HeldOut(every[:6], np.ones(6, bool))
    nothing = HeldOut(np.zeros((0, 2), np.int64), np.zeros(0, bool))
    parts = Split(graph, 0, held, nothing)
    sampler = chain(processor, parts, mini_batch=mini_batch, dtype="float64", delta=1e-4)
    assert eligible(sampler.sources, 0) == 0
    sampler.initialise()
    for _ in range(12):
        before = state_of(sampler)
        if sampler.step().n_vertices:
            compare(sampler, before, batch_of(sampler), 2.0**-53)
    metrics, _ = evaluate(sampler, burnt_in=True)
    assert math.isnan(metrics.auc)
    assert metrics.perplexity > 1
