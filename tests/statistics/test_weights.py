"""The expected weight of every pair is 1: by enumeration, of the definitions and of what devices draw.

A device's draws cannot be replaced by chosen ones; but where every value of a draw has been met, each value as often
as chance would have it and always with the same weight, the mean over the values is the exact expectation.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.axes.small_spaces import edge_set_arguments
from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.families.mmsb.stages import stage_workloads
from mmsbgen.graph import EdgeSet, Split, as_graph, split
from mmsbgen.graph.building import build_graph
from mmsbgen.graph.split import HeldOut
from mmsbgen.kernels.build import build, release, traits_of
from mmsbgen.sampler.minibatch import strategies
from mmsbgen.sampler.minibatch.block_partners import theta_scales
from mmsbgen.sampler.minibatch.strategies import Sources
from mmsbgen.sampler.options.options import Options
from tests.sampler.host_batches import MiniBatch, block_of, host_batch, sweeps_of
from tests.statistics.laws import Floats
from tests.statistics.toys import SharingGraph

DATA = Path(__file__).parents[1] / "data"
N = 6
#: Vertex 0 is linked to all but 5, which has no training link; a link and two non-links are held out.
LINKS = np.array([(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 4)])
HELD = np.array([(2, 3), (3, 5), (2, 4)])
PAIRS = list(itertools.combinations(range(N), 2))
#: Each comparison with even frequencies has one chance in a million to fail for a right generator.
CHANCE = 1e-6


@pytest.fixture(scope="module")
def six() -> Split:
    every = np.concatenate([LINKS, HELD[:1]])
    graph = build_graph(every[:, 0], every[:, 1], np.arange(N), name="six", directed=False)
    held = HeldOut(HELD, np.array([True, False, False]))
    return Split(graph, 0, held, HeldOut(np.zeros((0, 2), np.int64), np.zeros(0, bool)))


def sources(parts: Split, size: int, mini_batch: str = "random-node", seed: int = 17) -> Sources:
    options = Options(n_communities=3, seed=seed, mini_batch=mini_batch, mini_batch_size=size, n_partners=4)
    return Sources(parts, EdgeSet.build(parts.training_links), EdgeSet.build(parts.held_out_pairs), options)


def truth(links: bool = True, non_links: bool = True) -> Floats:
    """The weight of every pair, above the diagonal: 1 of a link, -1 of a non-link, 0 where held out."""
    right = -np.triu(np.ones((N, N)), 1) * non_links
    right[tuple(LINKS.T)] = float(links)
    right[tuple(HELD.T)] = 0.0
    return right


def matrix(batch: MiniBatch) -> Floats:
    weights = np.zeros((N, N))
    low, high = np.minimum(batch.pairs_a, batch.pairs_b), np.maximum(batch.pairs_a, batch.pairs_b)
    np.add.at(weights, (low, high), batch.weights)
    return np.triu(weights, 1)


def expect_even(counts: Any) -> None:
    """Frequencies of values that are all equally likely."""
    values = np.asarray(list(counts), float)
    assert values.size == 1 or stats.chisquare(values).pvalue > CHANCE


# Theta's pairs, by their definitions ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize(
    ("name", "links", "non_links"),
    [("random-node", True, True), ("random-node-link", True, False), ("random-node-non-link", False, True)],
)
def test_stars(six: Split, monkeypatch: pytest.MonkeyPatch, name: str, links: bool, non_links: bool, m: int) -> None:
    """Over all centres, both sides of the coin, and all orders in which non-links can come."""
    chosen, total = sources(six, m, name), np.zeros((N, N))
    orders = [np.array(order) for order in itertools.permutations(range(N))]
    for centre, coin in itertools.product(range(N), (0, 1)):
        draws = (centre, coin)
        monkeypatch.setattr(strategies, "_draw", lambda s, i, number, bound, d=draws: np.array([d[number]]))
        # A star of links does not look at the order.
        depends = name == "random-node-non-link" or (name == "random-node" and coin == 0)
        for order in orders if depends else orders[:1]:
            monkeypatch.setattr(counter_random, "permuted", lambda seed, v, i, n, order=order: order)
            share = 1 / (2 * N * (len(orders) if depends else 1))
            total += share * matrix(host_batch(chosen, 1))
    np.testing.assert_allclose(total, truth(links, non_links), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_blocks(six: Split, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Over all shifts of the strata, of which the last may be smaller: a vertex counts once in a sweep's mean block.

    But one without training links is in none.
    A block's counts are linear in its vertices, so that with the next test theta's are right too.
    """
    sweeps = sweeps_of(sources(six, size, "block"))
    scale = 2 * float(theta_scales(sweeps.per_sweep, 1.0, np.dtype(np.float64))["link_scale"])
    every = list(itertools.product(range(sweeps.per_sweep), repeat=sweeps.largest))
    total, swept = np.zeros(N), np.delete(np.arange(N), six.unlinked)
    for shifts in every:
        monkeypatch.setattr(sweeps, "shifts", lambda sweep, shifts=shifts: np.array(shifts))
        total[block_of(sweeps, 1)] += scale / len(every)
        parts = [block_of(sweeps, part + 1) for part in range(sweeps.per_sweep)]
        assert sorted(np.concatenate(parts).tolist()) == swept.tolist()
        assert max(part.size for part in parts) == sweeps.largest <= size
    np.testing.assert_allclose(total, np.isin(np.arange(N), swept), rtol=1e-12)


# What devices draw ----------------------------------------------------------------------------------------------


def launched(device: Device, kernel: str, problem: Any, count: int, values: dict[str, Any], *names: str) -> list[Any]:
    """Some arrays after one launch; the graph's adjacency and edge sets are added to the values."""
    offsets, neighbours = stage_workloads.adjacency(N, LINKS)
    given = edge_set_arguments("link", EdgeSet.build(LINKS))
    given |= edge_set_arguments("held", EdgeSet.build(HELD))
    given |= {"neighbour_offsets": offsets, "neighbours": neighbours, "n_total": np.uint32(N)} | values
    return launch(device, kernel, problem, count, given, *names)


def launch(device: Device, kernel: str, problem: Any, count: int, values: dict[str, Any], *names: str) -> list[Any]:
    spec = MMSB.kernel(kernel)
    bound = build(device, spec, problem, dict(spec.default(problem, traits_of(device.info))))
    placed = {name: device.upload(v) if isinstance(v, np.ndarray) else v for name, v in values.items()}
    try:
        bound.launch(count, placed).wait()
        return [device.download(placed[name]) for name in names]
    finally:
        release(placed)


RULES = [("uniform", 1, 0), ("uniform", 3, 0), ("uniform", 5, 0)]
RULES += [("stratified", 2, 1), ("stratified", 4, 2), ("stratified", 4, 3), ("stratified", 5, 2), ("stratified", 3, 0)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "{}-{}-{}".format(*rule))
def test_partners_drawn_on_the_device(device: Device, rule: tuple[str, int, int]) -> None:
    """Of all vertices in 4000 iterations: every place of a list has all its values, and each of them one weight."""
    name, n, n_link = rule
    rounds = 4000
    problem = MMSB.problem(N=N, m=N, n=n, partners=name)
    values: dict[str, Any] = {
        "vertices": np.tile(np.arange(N, dtype=np.uint32), rounds),
        "sizes": np.full(rounds, N, np.uint32),
        "stride": np.uint32(N),
        "partners": np.zeros((rounds, N, n), np.uint32),
        "weights": np.zeros((rounds, N, n), np.float32),
        "n_vertices": np.uint32(rounds * N),
        "n_partners": np.uint32(n),
        "n_link_partners": np.uint32(n_link),
        "seed": np.uint64(3),
        "iteration": np.uint32(1),
    }
    partners, weights = launched(device, "sample_partners", problem, rounds * N, values, "partners", "weights")
    both = truth() + truth().T
    for vertex in range(N):
        expected = np.zeros(N)
        for place in range(n):
            drawn, weight = partners[:, vertex, place], weights[:, vertex, place].astype(np.float64)
            met = np.unique(drawn)
            expect_even(np.bincount(drawn, minlength=N)[met])
            for value in met:
                assert np.ptp(weight[drawn == value]) == 0
                expected[value] += weight[drawn == value][0] / met.size
        assert expected[vertex] == 0
        np.testing.assert_allclose(expected, both[vertex], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_stars_drawn_on_the_device(device: Device, six: Split, m: int) -> None:
    """6000 stars: all centres and both coins, each star of non-links any of the sets that are possible."""
    rounds, stride = 6000, N
    stars = strategies.random_node(sources(six, m, seed=5), 1, rounds)
    values: dict[str, Any] = {
        "centres": stars.centres.astype(np.uint32),
        "sizes": stars.sizes.astype(np.uint32),
        "star_weights": stars.weights.astype(np.float32),
        "n_rounds": np.uint32(rounds),
        "stride": np.uint32(stride),
        "seed": np.uint64(5),
        "iteration": np.uint32(1),
    }
    values |= {name: np.full((rounds, stride), 99, np.uint32) for name in ("vertices", "pairs_a", "pairs_b")}
    values |= {"pair_weights": np.zeros((rounds, stride), np.float32)}
    names = ("vertices", "pairs_a", "pairs_b", "pair_weights")
    found = launched(device, "draw_stars", MMSB.problem(N=N, m=m), rounds, values, *names)
    sets: dict[tuple[int, bool], dict[tuple[int, ...], int]] = defaultdict(lambda: defaultdict(int))
    weight_of: dict[tuple[int, bool], float] = {}
    for r in range(rounds):
        centre, size, weight = int(stars.centres[r]), int(stars.sizes[r]), float(stars.weights[r])
        pairs = max(0, size - 1)
        vertices, a, b, weights = (array[r] for array in found)
        kind = centre, weight > 0
        if pairs:
            assert vertices[0] == centre
            assert vertices[1 : pairs + 1].tolist() == b[:pairs].tolist()
            assert set(a[:pairs].tolist()) == {centre}
            assert np.all(weights[:pairs] == np.float32(weight))
        sets[kind][tuple(sorted(b[:pairs].tolist()))] += 1
        assert weight_of.setdefault(kind, weight) == weight
    assert len(sets) == 2 * N
    expect_even(sum(of.values()) for of in sets.values())
    total = np.zeros((N, N))
    for (centre, linked), of in sets.items():
        assert not linked or len(of) == 1
        if not linked:
            eligible = sorted(set(itertools.chain(*of)))
            size = min(m, len(eligible))
            assert set(of) == set(itertools.combinations(eligible, size))
            assert len(of) == comb(len(eligible), size)
        expect_even(of.values())
        for others in of:
            for other in others:
                low, high = min(centre, other), max(centre, other)
                total[low, high] += weight_of[centre, linked] / (2 * N * len(of))
    np.testing.assert_allclose(total, truth(), rtol=1e-12, atol=1e-12)


def test_shared_partners_give_the_whole_gradient(device: Device) -> None:
    """A block of all vertices that shares one draw: the mean of gradients and counts over six draws is exact."""
    k = 5
    rng = np.random.default_rng(7)
    pi, beta = rng.dirichlet(np.full(k, 0.5), N), rng.uniform(0.1, 0.9, k)
    pi[1], pi[2] = np.eye(k)[0], np.eye(k)[3]
    whole = np.zeros((N, k))
    both = truth() + truth().T
    for vertex in range(N):
        whole[vertex] = equations.drift(pi[vertex], beta, pi, both[vertex], 1e-4)[0]
    pairs, signs = np.array(PAIRS), truth()[tuple(np.array(PAIRS).T)]
    right, _ = equations.theta_counts(pi[pairs[:, 0]], pi[pairs[:, 1]], beta, signs, 1e-4)
    drawn: dict[int, Floats] = {}
    counts: dict[int, Floats] = {}
    with SharingGraph(
        device, pi, np.ones(N), beta, LINKS, HELD, n=1, step="published", noise=False, alpha=1e3
    ) as block:
        for iteration in range(200):
            phi, partners = block.step(iteration)
            gradient = (phi - pi) / block.tau - 1e3 + pi
            seen = drawn.setdefault(int(partners[0]), gradient)
            assert np.array_equal(seen, gradient)
            counts[int(partners[0])] = block.theta_counts()
    assert sorted(drawn) == list(range(N))
    mean = sum(drawn.values()) / N
    # Gradients of up to |w| / Z = 6 / 1e-4 in sums with alpha / tau of 1e6, in double precision.
    np.testing.assert_allclose(mean, whole, rtol=1e-9, atol=1e-8)
    assert not np.allclose(drawn[0], whole, rtol=1e-3)
    # theta: every pair's responsibilities, half from either end; those of links are the same in every draw.
    np.testing.assert_allclose(sum(counts.values()) / N, right, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(counts[0][1], right[1], rtol=1e-9, atol=1e-12)
    assert not np.allclose(counts[0][0], right[0], rtol=1e-3)


@pytest.mark.parametrize("partners", ["shared", "shared-uniform"])
@pytest.mark.parametrize("n", [1, 2, N])
def test_partners_shared_by_a_star_give_the_whole_gradient(device: Device, partners: str, n: int) -> None:
    """The mean over all draws, each as likely as chance has it, is exact; with n = N one draw is the whole."""
    k = 5
    rng = np.random.default_rng(8)
    pi, beta = rng.dirichlet(np.full(k, 0.5), N), rng.uniform(0.1, 0.9, k)
    pi[1], pi[2] = np.eye(k)[0], np.eye(k)[3]
    both = truth() + truth().T
    whole = np.stack([equations.drift(pi[a], beta, pi, both[a], 1e-4)[0] for a in range(N)])
    options = {"n": n, "partners": partners, "step": "published", "noise": False, "alpha": 1e3}
    drawn: dict[tuple[int, ...], Floats] = {}
    met: dict[tuple[int, ...], int] = defaultdict(int)
    with SharingGraph(device, pi, np.ones(N), beta, LINKS, HELD, **options) as star:
        for iteration in range(1 if n == N else 600):
            phi, distinct = star.step(iteration)
            gradient = (phi - pi) / star.tau - 1e3 + pi
            places = tuple(sorted(distinct.tolist()))
            assert np.allclose(drawn.setdefault(places, gradient), gradient, rtol=1e-9, atol=1e-6)
            met[places] += 1
    if n == N:
        assert list(drawn) == [tuple(range(N))]
        np.testing.assert_allclose(drawn[tuple(range(N))], whole, rtol=1e-9, atol=1e-8)
        return
    # Of n = 2 ordered draws one pair comes from two of them, and a vertex drawn twice from one.
    chance = {places: (2 if len(places) == 2 else 1) / N**n for places in drawn}
    assert sum(chance.values()) == pytest.approx(1.0), "every draw has come up"
    expected = np.array([chance[places] for places in met]) * 600
    assert stats.chisquare(list(met.values()), expected).pvalue > CHANCE
    mean = sum(chance[places] * gradient for places, gradient in drawn.items())
    np.testing.assert_allclose(mean, whole, rtol=1e-9, atol=1e-6)
    if n == 1:
        # Links come with weight 1 each time, or now and then with weight N.
        linked = equations.drift(pi[0], beta, pi[1:5], np.ones(4), 1e-4)[0]
        own = drawn[(0,)][0]
        assert np.allclose(own, linked if partners == "shared" else 0.0, rtol=1e-9, atol=1e-6)


# Look-up --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collaboration() -> Split:
    return split(as_graph(DATA / "CA-GrQc.txt.gz"), validation=0.1, test=0.05, seed=2)


def test_every_training_link_is_found_from_both_ends(device: Device, collaboration: Split) -> None:
    """14,484 links less those held out, from either end; held-out pairs and strangers are not there."""
    links, held = collaboration.training_links, collaboration.held_out_pairs
    n = collaboration.graph.n_vertices
    rng = np.random.default_rng(1)
    others = rng.integers(0, n, (20_000, 2))
    keys = set((links[:, 0] * n + links[:, 1]).tolist())
    right = [bool({a * n + b, b * n + a} & keys) for a, b in others.tolist()]
    asked = np.concatenate([links, links[:, ::-1], held, held[:, ::-1], others])
    answer = np.repeat([1, 0], [2 * len(links), 2 * len(held)]).tolist() + right
    values: dict[str, Any] = edge_set_arguments("link", EdgeSet.build(links))
    values |= {"pairs_a": asked[:, 0].astype(np.uint32), "pairs_b": asked[:, 1].astype(np.uint32)}
    values |= {"found": np.full(len(asked), 7, np.uint32), "n_pairs": np.uint32(len(asked))}
    problem = MMSB.problem(N=n, pairs=len(asked))
    (found,) = launch(device, "edge_lookup", problem, len(asked), values, "found")
    assert np.array_equal(found, np.array(answer, np.uint32))


def test_no_non_link_is_a_link_or_held_out(device: Device, collaboration: Split) -> None:
    """3000 stars and their vertices' partners, as a run draws them ahead, against sets of pairs."""
    parts, n, rounds = collaboration, collaboration.graph.n_vertices, 3000
    chosen = sources(parts, 64)
    stars = strategies.random_node(chosen, 1, rounds)
    stride, n_partners = int(stars.sizes.max()), 8
    offsets, neighbours = stage_workloads.adjacency(n, parts.training_links)
    values: dict[str, Any] = edge_set_arguments("link", chosen.links)
    values |= edge_set_arguments("held", chosen.held)
    values |= {
        "centres": stars.centres.astype(np.uint32),
        "sizes": stars.sizes.astype(np.uint32),
        "star_weights": stars.weights.astype(np.float32),
        "neighbour_offsets": offsets,
        "neighbours": neighbours,
        "n_rounds": np.uint32(rounds),
        "stride": np.uint32(stride),
        "n_total": np.uint32(n),
        "seed": np.uint64(17),
        "iteration": np.uint32(1),
        "pair_weights": np.zeros((rounds, stride), np.float32),
        "n_vertices": np.uint32(rounds * stride),
        "n_partners": np.uint32(n_partners),
        "n_link_partners": np.uint32(n_partners // 2),
    }
    values |= {name: np.zeros((rounds, stride), np.uint32) for name in ("vertices", "pairs_a", "pairs_b")}
    names = ("vertices", "pairs_a", "pairs_b", "pair_weights")
    problem = MMSB.problem(N=n, m=64, n=n_partners, partners="stratified")
    vertices, a, b, weights = launch(device, "draw_stars", problem, rounds, values, *names)
    used = np.arange(stride) < stars.sizes[:, None] - 1
    expect_masks(parts, a[used], b[used], weights[used], allow_masked=False)
    assert np.count_nonzero(weights[used] > 0) > 1000
    values |= {"vertices": vertices, "partners": np.zeros((rounds, stride, n_partners), np.uint32)}
    values |= {"weights": np.zeros((rounds, stride, n_partners), np.float32)}
    for partners in ("uniform", "stratified"):
        problem = problem.replace(partners=partners)
        drawn, w = launch(device, "sample_partners", problem, rounds * stride, values, "partners", "weights")
        there = np.arange(stride) < stars.sizes[:, None]
        own = np.repeat(vertices[there], n_partners)
        strata = np.count_nonzero(w > 0) / w[there].size
        assert strata > 0.1 if partners == "stratified" else strata < 0.01
        expect_masks(parts, own, drawn[there].ravel(), w[there].ravel(), allow_masked=True)


def expect_masks(parts: Split, a: Any, b: Any, weights: Any, allow_masked: bool) -> None:
    """Positive weights are training links, negative ones neither these nor held out; no vertex is its own partner."""
    n = parts.graph.n_vertices
    keys = np.minimum(a, b).astype(np.int64) * n + np.maximum(a, b)
    linked = np.isin(keys, parts.training_links @ [n, 1])
    held = np.isin(keys, parts.held_out_pairs @ [n, 1])
    assert np.all(a != b)
    assert np.all(linked[weights > 0])
    assert not np.any((linked | held)[weights < 0])
    assert np.all((linked | held)[weights == 0])
    assert allow_masked or np.all(weights != 0)
