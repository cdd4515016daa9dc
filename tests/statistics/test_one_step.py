"""One step without noise is the reference's to 1e-5 in single precision, and no launch changes what is drawn."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.partner_rule import PartnerRule
from mmsbgen.families.mmsb.numbers.row_layout import row_length
from mmsbgen.families.mmsb.reference import equations
from mmsbgen.kernels.build import build, check_built, release, traits_of, upload
from tests.statistics.laws import Floats
from tests.statistics.toys import ListedRows, SharingGraph

#: Vertex 0 is linked to all others but held-out and isolated ones, 19 has no link at all.
N = 20
TAU, DELTA = 0.01, 1e-4
RTOL = 1e-5
SIZES = [1, 3, 17, 100, 257, 1024]
#: Teams of fewer work-items than a row has vectors, vectors that do not divide K, and rows that stay whole.
CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "block": {"placement": "NAIVE", "team": "block", "vector_width": 2, "block_size": 32, "reduction": "local"},
    "item": {"placement": "GLOBAL", "team": "item", "vector_width": 4, "block_size": 32, "reduction": "none"},
}


def graph() -> tuple[Any, Any]:
    """Links ``[E, 2]`` and held-out pairs."""
    rng = np.random.default_rng(4)
    links = {(0, v) for v in range(1, N - 1)} | {tuple(sorted(p)) for p in rng.choice(np.arange(1, N - 1), (12, 2))}
    held = np.array([(0, 7), (3, 4), (2, 19)])
    kept = sorted(pair for pair in links - set(map(tuple, held.tolist())) if pair[0] != pair[1])
    return np.array(kept), held


def state(k: int) -> tuple[Floats, Floats, Floats]:
    """Memberships ``[N, K]``, one of them one-hot, sums and strengths, all exact in single precision."""
    rng = np.random.default_rng(k)
    pi = rng.dirichlet(np.full(k, max(0.2, 2 / k)), N)
    pi[3] = np.eye(k)[0]
    given = pi, rng.uniform(0.7, 2.0, N), rng.uniform(0.05, 0.95, k)
    pi, sums, beta = (each.astype(np.float32).astype(np.float64) for each in given)
    return pi, sums, beta


def signs(vertex: int) -> Floats:
    """1 of a link, -1 of a non-link, 0 where held out, for all other vertices in ascending order."""
    links, held = graph()
    right = np.full(N, -1.0)
    for pairs, value in ((links, 1.0), (held, 0.0)):
        ends = pairs[(pairs == vertex).any(axis=1)]
        right[ends.sum(axis=1) - vertex] = value
    return np.delete(right, vertex)


def one_step(k: int, vertex: int, partners: Any, weights: Any, step: str) -> Floats:
    pi, sums, beta = state(k)
    u = np.float32
    how = equations.Step(step, float(u(TAU)), float(u(1 / k)), noise=False, delta=float(u(DELTA)))
    drift, _ = equations.drift(pi[vertex], beta, pi[partners], weights, how.delta)
    return equations.end_row(pi[vertex] * sums[vertex], pi[vertex], drift, drift * 0, vertex, how).phi


@pytest.mark.parametrize(
    ("k", "form"), [*((k, "default") for k in SIZES), *itertools.product((3, 17, 257), ("block", "item"))]
)
def test_rows_without_noise(device: Device, k: int, form: str) -> None:
    """update_phi, every vertex: all others as partners, and one alone.

    Other forms have each of these sizes in the covering samples, see families/test_device.
    """
    pi, sums, beta = state(k)
    others = np.array([np.delete(np.arange(N), vertex) for vertex in range(N)])
    every = np.array([signs(vertex) for vertex in range(N)])
    for step, (partners, weights) in itertools.product(
        ("split", "reflected"), ((others, every), (others[:, 4:5], every[:, 4:5] * 3))
    ):
        config = CONFIGS[form] and CONFIGS[form] | {"rows_in_flight": 1, "prefetch": 0, "normalise": True}
        given: dict[str, Any] = {"anchors": pi, "beta": beta, "step": step, "noise": False, "delta": DELTA}
        with ListedRows(
            device, pi, sums, 2 * TAU, partners=partners, weights=weights, config=config, **given
        ) as chains:
            chains.advance(1)
            found = chains.phi()
        for vertex in range(N):
            right = one_step(k, vertex, partners[vertex], weights[vertex], step)
            np.testing.assert_allclose(found[vertex], right, rtol=RTOL, err_msg=f"{step}, vertex {vertex}")


@pytest.mark.parametrize(("k", "n"), [*((k, 7) for k in SIZES), *itertools.product((17, 257), (1, 100))])
def test_blocks_without_noise(device: Device, k: int, n: int) -> None:
    """The block of all vertices, with one shared draw, with some, and with more than there are vertices.

    The covering samples have few and many draws with each K, see families/test_device.
    """
    pi, sums, beta = state(k)
    links, held = graph()
    rule = PartnerRule("block", n, seed=5, iteration=6)
    with SharingGraph(
        device, pi, sums, beta, links, held, n=n, noise=False, delta=DELTA, tau=TAU, dtype="float32", seed=5
    ) as block:
        found, _ = block.step(6)
    for vertex in range(N):
        ends = [links[links[:, 1 - side] == vertex, side] for side in (0, 1)]
        closed = [held[held[:, 1 - side] == vertex, side] for side in (0, 1)]
        near, out = np.sort(np.concatenate(ends)), frozenset(np.concatenate(closed).tolist())
        partners, weights = equations.sample_partners(vertex, N, near, out, rule)
        right = one_step(k, vertex, partners, weights, "split")
        np.testing.assert_allclose(found[vertex], right, rtol=RTOL, err_msg=f"vertex {vertex}")


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("n_pairs", [1, 37])
def test_strengths_without_noise(device: Device, k: int, n_pairs: int) -> None:
    """theta_partial and theta_end on links and non-links of the same vertices."""
    pi, _, beta = state(k)
    rng = np.random.default_rng([k, n_pairs])
    a = rng.integers(0, N, n_pairs)
    b = (a + rng.integers(1, N, n_pairs)) % N
    weights = np.where(rng.random(n_pairs) < 0.5, 1.5, -2.0)
    theta = (np.stack([1 - beta, beta]) * rng.uniform(1, 3, k)).astype(np.float32).astype(np.float64)
    length, groups, step = row_length(k), 8, 1e-3
    rows, strengths = np.zeros((N, length), np.float32), np.full(length, 0.5, np.float32)
    both = np.ones((2, length), np.float32)
    rows[:, :k], strengths[:k], both[:, :k] = pi, beta, theta
    values: dict[str, Any] = {
        "pi": rows,
        "slots": np.arange(N, dtype=np.uint32),
        "beta": strengths,
        "pairs_a": a.astype(np.uint32),
        "pairs_b": b.astype(np.uint32),
        "pair_weights": weights.astype(np.float32),
        "counts": np.full((groups, 2, length), np.nan, np.float32),
        "theta": both,
        "first_pair": np.uint64(0),
        "n_pairs": np.uint32(n_pairs),
        "n_groups": np.uint32(groups),
        "delta": np.float32(DELTA),
        "step": np.float64(step),
        "eta_0": np.float64(1.0),
        "eta_1": np.float64(1.0),
        "seed": np.uint64(1),
        "iteration": np.uint32(1),
    }
    problem = MMSB.problem(K=k, N=N, m=4 * groups, noise="off", theta_step="reflected")
    placed = {name: device.upload(v) if isinstance(v, np.ndarray) else v for name, v in values.items()}
    try:
        for name, count in (("theta_partial", groups), ("theta_end", length)):
            spec = MMSB.kernel(name)
            bound = build(device, spec, problem, dict(spec.default(problem, traits_of(device.info))))
            bound.launch(count, placed).wait()
        found, new = (device.download(placed[name]).astype(np.float64) for name in ("theta", "beta"))
    finally:
        release(placed)
    counts, _ = equations.theta_counts(pi[a], pi[b], beta, weights, float(np.float32(DELTA)))
    right = equations.update_theta(theta, counts, equations.ThetaStep("reflected", step, noise=False))
    np.testing.assert_allclose(found[:, :k], right, rtol=RTOL)
    np.testing.assert_allclose(new[:k], equations.beta_of(right), rtol=RTOL)


# Launches -------------------------------------------------------------------------------------------------------


def test_words_do_not_depend_on_the_launch(device: Device) -> None:
    """Bit for bit those of Philox4x32-7, whatever the block size and the type of the reals."""
    spec, traits = MMSB.kernel("draws"), traits_of(device.info)
    configs = spec.space.configs(MMSB.problem(), traits)
    sizes = sorted({int(config["block_size"]) for config in configs})
    chosen = [c for c in configs if c["block_size"] in (sizes[0], sizes[len(sizes) // 2], sizes[-1])]
    assert len({config["block_size"] for config in chosen}) == 3
    for config, dtype in itertools.product(chosen, ("float32", "float64")):
        problem = MMSB.problem(pairs=1000, dtype=dtype)
        workload = spec.workload(problem, 0)
        bound, placed = build(device, spec, problem, config), upload(device, workload)
        bound.launch(workload.count, placed).wait()
        words = device.download(placed["words"])
        release(placed)
        expected = counter_random.philox(int(workload.arguments["seed"]), np.arange(1000), 12345, 7, 9 << 24)
        assert np.array_equal(words, np.stack(expected, axis=1).astype(np.uint32)), config


@pytest.mark.cuda
@pytest.mark.parametrize("kernel", ["update_phi", "block_links"])
@pytest.mark.parametrize("step", ["split", "reflected"])
def test_configurations_agree_on_a_step(cuda_device: Device, kernel: str, step: str) -> None:
    """Noise on, one state: each placement and team is within its derived bound of the reference.

    For OpenCL that is families/test_device: test_every_pair_of_values_that_kernels_allow.
    """
    spec, traits = MMSB.kernel(kernel), traits_of(cuda_device.info)
    problem = spec.check_problem(MMSB.problem(K=100, step=step))
    valid = spec.space.configs(problem, traits)
    generator = np.random.default_rng(1)
    kinds = sorted({(config["placement"], config["team"]) for config in valid})
    assert len(kinds) > 2
    for kind in kinds:
        group = [config for config in valid if (config["placement"], config["team"]) == kind]
        config = group[generator.integers(len(group))]
        assert check_built(cuda_device, build(cuda_device, spec, problem, config), seed=3) is None, config
