"""Kernels of block mini-batches: together they are the definition with its explicit masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.blocks import block_kernels, link_kernels
from mmsbgen.families.mmsb.numbers import row_layout
from mmsbgen.families.mmsb.numbers.partner_rule import PartnerRule
from mmsbgen.families.mmsb.reference import block_equations, equations
from mmsbgen.families.mmsb.stages.stage_workloads import adjacency
from mmsbgen.kernels.build import build, check_built, release, traits_of

N, K, SEED, ITERATION, DELTA = 23, 20, 77, 5, 1e-4
#: Vertex 0 is linked to most, 17 to 22 have no link; links and non-links are held out, of the hub too.
LINKS = np.array([(0, v) for v in range(1, 15)] + [(1, 2), (2, 3), (3, 4), (5, 16), (7, 8), (8, 9), (15, 16)])
HELD = np.array([(0, 15), (0, 17), (1, 3), (4, 9), (16, 22)])
BLOCK = np.array([0, 2, 8, 16, 17, 22, 5])


def state() -> tuple[Any, Any, Any]:
    """Memberships ``[N, K]``, their sums, strengths; two vertices act in one strong community alone."""
    rng = np.random.default_rng(3)
    pi = rng.dirichlet(np.full(K, 0.2), N)
    pi[[2, 3]] = np.eye(K)[4]
    beta = rng.uniform(0.01, 0.9, K)
    beta[4] = 1 - 1e-6
    return pi, rng.uniform(0.5, 2.0, N), beta


def ends(pairs: Any, vertex: int) -> Any:
    return np.array(sorted(int(a + b - vertex) for a, b in pairs if vertex in (a, b)), np.int64)


def by_definition(vertex: int, n: int, u: float = 0.0) -> tuple[Any, Any]:
    """D_k and its rounding bound, from every partner with its explicit weight."""
    pi, _, beta = state()
    rule = PartnerRule("block", n, seed=SEED, iteration=ITERATION)
    held = frozenset(ends(HELD, vertex).tolist())
    partners, weights = equations.sample_partners(vertex, N, ends(LINKS, vertex), held, rule)
    return equations.drift(pi[vertex], beta, pi[partners], weights, DELTA, u)


@pytest.mark.parametrize("n", [1, 6, 40, 300])
@pytest.mark.parametrize("vertex", BLOCK)
def test_the_references_make_up_the_definition(vertex: int, n: int) -> None:
    pi, _, beta = state()
    _, distinct, times = block_equations.shared_partners(n, N, SEED, ITERATION)
    assert distinct.size == np.unique(distinct).size
    assert times.sum() == n
    masked = np.concatenate([[vertex], ends(LINKS, vertex), ends(HELD, vertex)])
    weights = np.where(np.isin(distinct, masked), 0.0, times * N / n)
    acc, _ = block_equations.shared_sum(pi[vertex], beta, pi[distinct], weights, DELTA)
    drift, _ = block_equations.link_drift(pi[vertex], beta, acc, pi[ends(LINKS, vertex)], DELTA)
    right, _ = by_definition(int(vertex), n)
    np.testing.assert_allclose(drift, right, rtol=1e-12, atol=1e-12 * np.abs(right).max())


def arguments(n: int) -> dict[str, Any]:
    """All that the kernels take, in double precision; rows are not in the order of vertices."""
    pi, sums, beta = state()
    m, length = BLOCK.size, -(-K // 16) * 16
    slots = np.random.default_rng(1).permutation(N + m).astype(np.uint32)
    rows, row_sums, strengths = np.zeros((N + m, length)), np.zeros(N + m), np.full(length, 0.5)
    rows[slots[:N], :K], row_sums[slots[:N]], strengths[:K] = pi, sums, beta
    room = row_layout.room(MMSB.problem(n=n))
    values: dict[str, Any] = {
        "pi": rows,
        "row_sums": row_sums,
        "slots": slots[:N].copy(),
        "spares": slots[N:].copy(),
        "beta": strengths,
        "vertices": BLOCK.astype(np.uint32),
        "clip_counts": np.zeros(m, np.uint32),
        "counts": np.zeros((row_layout.MOST_GROUPS, 2, length)),
        "places": np.zeros(N, np.uint32),
        "shared_weights": np.zeros(room),
        "n_shared": np.zeros(1, np.uint32),
    }
    values |= {name: np.zeros(room, np.uint32) for name in ("draws", "times", "drawn", "shared")}
    for pairs, names in ((LINKS, ("neighbour_offsets", "neighbours")), (HELD, ("held_offsets", "held_neighbours"))):
        values |= dict(zip(names, adjacency(N, pairs), strict=True))
    scalars: dict[str, Any] = {"half_step": 0.01, "decay": np.exp(-0.01), "spread": -np.expm1(-0.01)}
    scalars |= {"alpha": 1 / K, "delta": DELTA, "non_link_scale": 1.0, "link_scale": 1.0}
    values |= {name: np.float64(value) for name, value in scalars.items()}
    counts = {"n_partners": n, "n_total": N, "n_vertices": m, "first_vertex": 0, "iteration": ITERATION}
    return values | {name: np.uint32(value) for name, value in counts.items()} | {"seed": np.uint64(SEED)}


@pytest.mark.parametrize("n", [1, 6, 300])
@pytest.mark.parametrize("team", ["item", "block"])
@pytest.mark.parametrize("noise", ["on", "off"])
def test_one_iteration_equals_the_definition_with_explicit_masks(
    opencl_device: Device, n: int, team: str, noise: str
) -> None:
    """More draws than vertices give multiplicities; iterations follow each other in the same buffers."""
    traits = traits_of(opencl_device.info)
    problem = MMSB.problem(K=K, N=N, m=BLOCK.size, n=n, dtype="float64", noise=noise)
    tile = {"team": team, "tile": 2, "partners_in_flight": 2, "panel": 64}
    tile |= {"vector_width": 4, "block_size": 1 if team == "item" else 8}
    given = arguments(n)
    placed = {
        name: opencl_device.upload(value) if isinstance(value, np.ndarray) else value for name, value in given.items()
    }
    try:
        for iteration in (ITERATION - 1, ITERATION):
            for spec, count, config in (
                (block_kernels.SHARED_PARTNERS, 1, {"block_size": 1 if team == "item" else 32}),
                (block_kernels.BLOCK_SHARED, BLOCK.size, tile),
                (link_kernels.BLOCK_LINKS, BLOCK.size, link_kernels.BLOCK_LINKS.default(problem, traits)),
            ):
                bound = build(opencl_device, spec, problem, config)
                bound.launch(count, placed | {"iteration": np.uint32(iteration)}).wait()
        rows, sums = (opencl_device.download(placed[name])[given["spares"]] for name in ("pi", "row_sums"))
    finally:
        release(placed)
    pi, before, _ = state()
    step = equations.Step("split", 0.01, 1 / K, noise == "on", SEED, ITERATION, DELTA)
    for i, vertex in enumerate(BLOCK.tolist()):
        drift, error = by_definition(vertex, n, 2.0**-53)
        end = equations.end_row(pi[vertex] * before[vertex], pi[vertex], drift, error, vertex, step, 2.0**-53)
        phi = rows[i, :K] * sums[i]
        assert not rows[i, K:].any()
        np.testing.assert_allclose(rows[i].sum(), 1.0, rtol=1e-14)
        assert np.all(np.abs(phi - end.phi) <= 4 * end.error + 1e-14 * end.phi + 1e-20), (vertex, phi - end.phi)


def test_a_vertex_is_not_confused_with_what_an_earlier_iteration_left(opencl_device: Device) -> None:
    """places holds whatever it held for vertices that were not drawn; drawn tells them apart."""
    problem = MMSB.problem(K=K, N=N, m=BLOCK.size, n=6, dtype="float64")
    placed = {
        name: opencl_device.upload(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments(6).items()
    }
    bound = build(opencl_device, block_kernels.SHARED_PARTNERS, problem, {"block_size": 16})
    try:
        for iteration in range(40):
            bound.launch(1, placed | {"iteration": np.uint32(iteration)}).wait()
            names = ("n_shared", "drawn", "places", "times")
            (count,), drawn, places, times = (opencl_device.download(placed[name]) for name in names)
            _, distinct, counts = block_equations.shared_partners(6, N, SEED, iteration)
            assert np.array_equal(drawn[:count], distinct)
            assert np.array_equal(times[:count], counts)
            found = [vertex for vertex in range(N) if places[vertex] < count and drawn[places[vertex]] == vertex]
            assert found == sorted(distinct.tolist())
    finally:
        release(placed)


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"tile": 8, "partners_in_flight": 8}, "64 sums a work-item; at most 32"),
        ({"tile": 1, "partners_in_flight": 2, "vector_width": 8}, "sums of 2 pairs do not fill vectors of 8"),
        ({"panel": 1024}, "holds all 32 partners"),
        ({"team": "block", "block_size": 64, "vector_width": 16}, "64 work-items for rows of 2 vectors"),
    ],
)
def test_tiles_are_refused_with_a_reason(opencl_device: Device, axes: dict[str, Any], reason: str) -> None:
    tile = {"team": "item", "tile": 4, "partners_in_flight": 4, "panel": 64}
    tile |= {"vector_width": 4, "block_size": 1}
    space, problem = block_kernels.BLOCK_SHARED.space, MMSB.problem(K=K, n=32)
    traits = traits_of(opencl_device.info)
    assert space.refusal(tile, problem, traits) is None
    assert reason in str(space.refusal(tile | axes, problem, traits))


def test_tuning_takes_what_a_run_uses() -> None:
    lists = ("update_phi", "sample_partners", "draw_stars", "update_pi")
    blocks = ("block_shared", "block_links", "shared_partners")
    stars = ("star_shared", "star_rows", "draw_shared", "draw_stars")
    every = {*lists, *blocks, *stars}
    ways = {"uniform": lists, "stratified": lists, "block": blocks, "shared": stars, "shared-uniform": stars}
    for partners, used in ways.items():
        names = MMSB.worth_tuning(MMSB.problem(partners=partners))
        assert set(used) == every & set(names)
        assert names[0] == used[0]
        assert ("theta_partial" in names) == (partners != "block")
    sparse = {name for name in MMSB.kernels if name.startswith("sparse_")}
    sparse -= {"sparse_totals", "sparse_gather", "sparse_replace"}
    sparse -= {"sparse_draws", "sparse_moments"}  # a sweep with noise has the configuration of sparse_rows
    assert set(MMSB.worth_tuning(MMSB.problem(partners="all"))) == {*sparse, "theta_end", "update_beta"}
    half = MMSB.worth_tuning(MMSB.problem(partners="shared", products="half"))
    assert half[:4] == ("star_factors", "star_scales", "star_sums", "star_rows")
    assert "star_shared" not in half


@pytest.mark.parametrize("team", ["item", "block"])
@pytest.mark.parametrize("groups", [16, 64])
def test_a_group_goes_through_several_vertices(opencl_device: Device, team: str, groups: int) -> None:
    """There and back among them: two and a half rounds, counts of all added up."""
    spec = link_kernels.BLOCK_LINKS
    problem = MMSB.problem(K=20, N=203, m=groups * 5 // 2, n=6, partners="block", noise="off")
    config = dict(spec.default(problem, traits_of(opencl_device.info))) | {"groups": groups}
    if team == "block":
        config |= {"placement": "NAIVE", "team": "block", "vector_width": 4, "block_size": 8, "reduction": "local"}
    assert check_built(opencl_device, build(opencl_device, spec, problem, config), seed=3) is None
