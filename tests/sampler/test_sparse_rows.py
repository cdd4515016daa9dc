"""Chains with sparse rows: tables of candidates, what a row keeps, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.families.mmsb.numbers.sparse_rows import NONE, THRESHOLD, totals
from mmsbgen.graph import Split, split
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.state_rows import SparseRows, best_communities
from mmsbgen.sampler.options.options import FEWEST_SPARSE, Options
from mmsbgen.sampler.run import prune
from mmsbgen.sampler.run import refine as refine_module
from mmsbgen.sampler.run.refine import refine
from mmsbgen.sampler.saved import checkpoint as checkpoints
from mmsbgen.sampler.starts.start_methods import of_sets
from mmsbgen.sampler.state.sparse_state import SparseState
from tests.sampler.conftest import graph_of

pytestmark = pytest.mark.opencl
SPARSE = {"mini_batch": "block", "noise": None, "rows": "sparse"}


@pytest.fixture(scope="module")
def planted() -> Split:
    """Twelve cliques of ten vertices with some links between them."""
    rng = np.random.default_rng(2)
    inside = [(10 * c + a, 10 * c + b) for c in range(12) for a in range(10) for b in range(a)]
    across = [tuple(sorted(pair)) for pair in rng.integers(0, 120, (60, 2)).tolist() if pair[0] != pair[1]]
    return split(graph_of(120, sorted({*map(tuple, map(sorted, inside)), *across})), validation=0.1, seed=1)


def entries(sampler: Sampler) -> tuple[np.ndarray, np.ndarray]:
    assert isinstance(sampler.state, SparseState)
    return sampler.state.entries()


def run(sampler: Sampler, sets: list[np.ndarray], sweeps: int) -> None:
    sampler.initialise(of_sets("communities", sets))
    for _ in range(sweeps):
        sampler.step()


CLIQUES = [np.arange(10 * c, 10 * c + 10) for c in range(12)]


def test_a_start_in_parts_is_the_same(processor: Device, planted: Split, chain, monkeypatch) -> None:
    """Rows are placed some at a time; vertices without a set, and those of several, are on both sides of a cut."""
    sampler = chain(processor, planted, n_communities=40, entries=8, **SPARSE)
    sets = of_sets("some", [np.arange(20, 70), np.arange(63, 90), np.array([5, 64, 65, 119]), np.arange(60, 70)])
    sampler.initialise(sets)
    whole = *entries(sampler), sampler.device.download(sampler.values["totals"])
    monkeypatch.setattr("mmsbgen.sampler.state.sparse_state._ELEMENTS", 56)
    monkeypatch.setattr("mmsbgen.families.mmsb.numbers.sparse_rows._ROWS", 3)
    sampler.initialise(sets)
    for right, found in zip(whole, (*entries(sampler), sampler.device.download(sampler.values["totals"])), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)
    assert entries(sampler)[0][64].tolist() == [0, 1, 2, 3, *4 * [NONE]]


def test_communities_that_shrink_in_parts_are_the_same(processor: Device, planted: Split, chain, monkeypatch) -> None:
    """And so are sums by community of what entries explain best."""
    sampler = chain(processor, planted, n_communities=40, entries=8, **SPARSE)
    run(sampler, CLIQUES, 2)
    before, gone, rows = entries(sampler), np.array([1, 11]), SparseRows(sampler)
    found = []
    for elements in (1 << 22, 56):
        monkeypatch.setattr("mmsbgen.sampler.state.sparse_state._ELEMENTS", elements)
        monkeypatch.setattr("mmsbgen.sampler.diagnostics.state_rows._ROWS", elements // 8)
        sampler.state.set_entries(*before)
        counts = rows.best_of(rows.best_links(), rows.communities())
        sampler.state.shrink(gone, 1e-3)
        found.append([counts, *entries(sampler)])
    assert all(np.array_equal(whole, parts) for whole, parts in zip(*found, strict=True))
    assert found[0][0].sum() > planted.n_training_links
    for vertices in (CLIQUES[1], CLIQUES[11]):
        assert not np.isin(found[0][1][vertices, 0], gone).any()


@pytest.mark.parametrize("least", [0.0, 4e-3], ids=["", "large graphs"])
def test_rows_keep_descending_entries_that_add_up(
    processor: Device, planted: Split, chain, monkeypatch, least: float
) -> None:
    if least:
        monkeypatch.setattr("mmsbgen.families.mmsb.sparse.sparse_sizes._READ_ALL", 0)
    sampler = chain(processor, planted, n_communities=40, entries=8, **SPARSE)
    assert sampler.values["least_pi"] == np.float32(least)
    run(sampler, CLIQUES, 5)
    communities, values = entries(sampler)
    there = communities != NONE
    floor = sampler.shape.floor
    sums = values.sum(axis=1, dtype=np.float64) + (40 - there.sum(axis=1)) * floor
    np.testing.assert_allclose(sums, 1.0, rtol=1e-5)
    assert (np.diff(values, axis=1) <= 0).all()
    np.testing.assert_array_equal(communities[:, 0], np.repeat(np.arange(12), 10), "each clique is a community")
    column_sums = sampler.device.download(sampler.values["totals"])[:40]
    np.testing.assert_allclose(column_sums, totals(communities, values, 40, floor), rtol=1e-5)
    rows, _ = sampler.rows(0, 120)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-5)


def test_more_candidates_than_a_hash_table_has_slots(opencl_device: Device, chain) -> None:
    """A star of 300 leaves, each in a community of its own: its vertex is left over, and its row is the same."""
    star = [(0, v) for v in range(1, 301)]
    parts = split(graph_of(301, star), validation=0.0, seed=1)
    sets = [np.array([v]) for v in range(301)]
    found = []
    for table, slots in (("direct", 64), ("hash", 64)):
        config = {"table": table, "team": "item", "slots": slots, "block_size": 1, "rows_in_flight": 1}
        sampler = chain(opencl_device, parts, {"sparse_rows": config}, n_communities=301, entries=8, **SPARSE)
        run(sampler, sets, 3)
        found.append((*entries(sampler), sampler.state.theta(), sampler.row_sums()))
        assert dict(sampler.kernels["sparse_rows"].config) == config
    for direct, hashed in zip(*found, strict=True):
        np.testing.assert_array_equal(direct, hashed)


def test_a_clique_larger_than_a_hash_table(opencl_device: Device, chain) -> None:
    clique = [(a, b) for a in range(90) for b in range(a)]
    parts = split(graph_of(90, clique), validation=0.0, seed=1)
    config = {"table": "hash", "team": "item", "slots": 64, "block_size": 4, "rows_in_flight": 1}
    sampler = chain(opencl_device, parts, {"sparse_rows": config}, n_communities=90, entries=8, **SPARSE)
    run(sampler, [np.array([v]) for v in range(90)], 60)
    communities, values = entries(sampler)
    assert np.unique(communities[:, 0]).size < 10, "vertices that are linked to all move together"
    assert np.isfinite(values).all()


def test_the_same_seed_gives_the_same_bits(opencl_device: Device, planted: Split, chain) -> None:
    states = []
    for _ in range(2):
        sampler = chain(opencl_device, planted, n_communities=40, **SPARSE)
        run(sampler, CLIQUES[:6], 20)
        states.append((*entries(sampler), sampler.state.theta()))
    for one, other in zip(*states, strict=True):
        np.testing.assert_array_equal(one, other)


def test_samples_by_any_table_and_their_moments(processor: Device, planted: Split, chain, tmp_path: Path) -> None:
    """Posterior means and deviations are those of the rows; tables of either kind draw the same, and resumed chains."""
    found = []
    for table, slots in (("direct", 64), ("hash", 128)):
        config = {"table": table, "team": "item", "slots": slots, "block_size": 4, "rows_in_flight": 1}
        options = {"n_communities": 100, "entries": 8, "start": "random", "sample_sweeps": 6, **SPARSE}
        sampler = chain(processor, planted, {"sparse_rows": config}, **options)
        run(sampler, CLIQUES, 4)
        assert dict(sampler.kernels["sparse_draws"].config) == config
        course = dataclasses.replace(sampler.course, sampling_from=4, closing_from=4, end=11)
        sampler.chain = sampler.chain._replace(course=course)
        rows = []
        for _ in range(6):
            sampler.step()
            sampler.accumulate()
            rows.append(sampler.rows(0, 120)[0].astype(np.float64))
        assert sampler.sampling
        mean, sd = sampler.moments(0, 120)
        np.testing.assert_allclose(mean, np.mean(rows, axis=0), rtol=1e-5)
        np.testing.assert_allclose(sd, np.std(rows, axis=0, ddof=1), rtol=1e-3, atol=1e-6)
        communities, values = entries(sampler)
        phi = np.where(communities != NONE, values, 1.0) * sampler.row_sums()[:, None]
        assert phi.min() > 0.99 * THRESHOLD * sampler.eps / 2
        found.append((communities, values, sampler.state.theta()))
    for direct, hashed in zip(*found, strict=True):
        np.testing.assert_array_equal(direct, hashed)
    checkpoints.save(tmp_path / "checkpoint.npz", sampler, [], 0.0)
    other = chain(processor, planted, {"sparse_rows": config}, **options)
    checkpoints.restore(checkpoints.load(tmp_path / "checkpoint.npz"), other)
    for one in (sampler, other):
        one.step()
        one.accumulate()
    for here, there in zip(
        (*entries(sampler), *sampler.moments(0, 9)), (*entries(other), *other.moments(0, 9)), strict=True
    ):
        np.testing.assert_array_equal(here, there)


def test_entries_move_as_whole_rows_do(processor: Device, planted: Split, chain) -> None:
    """Also from and to communities that a row does not keep, of rows without room, and of a vertex several times."""
    sampler = chain(processor, planted, n_communities=40, entries=8, **SPARSE)
    run(sampler, CLIQUES, 3)
    before, floor = sampler.rows(0, 120)[0].astype(np.float64), sampler.shape.floor
    kept = before > 1.5 * floor
    rng = np.random.default_rng(4)
    vertices = rng.integers(60, size=150)
    sources = np.where(rng.random(150) < 0.7, before[vertices].argmax(axis=1), rng.integers(40, size=150))
    targets = rng.integers(40, size=150)
    sampler.state.move(vertices, sources, targets, 0.1)
    after = sampler.rows(0, 120)[0]
    untouched = np.setdiff1d(np.arange(120), vertices)
    np.testing.assert_array_equal(after[untouched], before[untouched].astype(np.float32))
    expected = before.copy()
    for vertex, source, target in zip(vertices, sources, targets, strict=True):
        expected[vertex, source], amount = 0.1 * expected[vertex, source], 0.9 * expected[vertex, source]
        expected[vertex, target] += amount
    np.testing.assert_allclose(after.sum(axis=1), 1.0, rtol=1e-5)
    # What is dropped, and what a small entry is raised to, is little of a row.
    assert np.abs(after - expected).max() < 0.05
    assert (kept.sum(axis=1) == 8).any()
    communities, values = entries(sampler)
    assert (np.diff(values, axis=1) <= 0).all()
    for row in communities:
        used = row[row != NONE]
        assert np.unique(used).size == used.size > 0


def test_losses_by_entries_are_those_of_whole_rows(processor: Device, planted: Split, chain) -> None:
    sampler = chain(processor, planted, n_communities=40, entries=16, **SPARSE)
    run(sampler, CLIQUES, 10)
    order = np.concatenate([np.arange(12, 40), np.arange(12)])
    links = np.asarray(planted.validation.labels, bool)
    for linked in (True, False):
        pairs = planted.validation.pairs[links == linked]
        whole = prune._losses(sampler, pairs, linked, order)
        sparse = prune._sparse_losses(sampler, pairs, linked, order)
        # Without c communities that a pair does not keep, both of its rows are divided by 1 - c floor.
        removed = np.arange(29)
        each = -2 * np.log1p(-removed * sampler.shape.floor)
        assert (np.abs(sparse[0] - whole[0])[:29] <= len(pairs) * each + 0.01 * np.abs(whole[0][:29]) + 1e-6).all()
        most = np.sqrt(np.abs(whole[1][:29]) * len(pairs))
        assert (np.abs(sparse[1] - whole[1])[:29] <= 2 * each * most + len(pairs) * each**2 + 1e-6).all()
        # Without the communities of the pairs, links are lost.
        if linked:
            assert sparse[0][30:36].min() > 1.0


def test_which_rows_a_run_has() -> None:
    sized = Options(n_communities=FEWEST_SPARSE).sized_for(1000, 5000)
    assert sized.sparse
    assert (sized.size, sized.draws) == (1000, 1000)
    for dense in (
        Options(n_communities=FEWEST_SPARSE - 1),
        Options(n_communities=FEWEST_SPARSE, dtype="float64"),
        Options(n_communities=FEWEST_SPARSE, mini_batch="random-node"),
        Options(n_communities=FEWEST_SPARSE, sample_sweeps=10),
        Options(n_communities=FEWEST_SPARSE, mini_batch_size=100),
        Options(n_communities=FEWEST_SPARSE, rows="dense"),
    ):
        assert not dense.sized_for(1000, 5000).sparse


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mini_batch": "random-node"}, "mini_batch='random-node'"),
        ({"sample_sweeps": 5, "n_communities": 65, "alpha": 0.2}, "sample_sweeps=5 and alpha=0.2"),
        ({"noise": True}, "noise=True"),
        ({"average": True}, "average=True"),
        ({"step": "reflected"}, "step='reflected'"),
        ({"entries": 12}, "entries=12"),
    ],
)
def test_what_does_not_go_with_sparse_rows_is_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Options(**{"n_communities": 10, "rows": "sparse", **options})


def test_sizes_do_not_go_with_sparse_rows() -> None:
    with pytest.raises(InputError, match="mini_batch_size=10"):
        Options(n_communities=10, rows="sparse", mini_batch_size=10).sized_for(100, 300)


def test_refinement_parts_what_one_community_holds(processor: Device, planted: Split, chain) -> None:
    sampler = chain(processor, planted, n_communities=40, entries=8, **SPARSE)
    run(sampler, [np.concatenate(CLIQUES[:2]), *CLIQUES[2:]], 4)
    first, second = CLIQUES[:2]
    assert leading(sampler, first) == leading(sampler, second)
    assert refine(sampler) >= 1
    for _ in range(10):
        sampler.step()
    assert leading(sampler, first) != leading(sampler, second)


def test_links_that_an_entry_explains_best_are_counted_on_the_device(processor: Device, planted: Split, chain) -> None:
    """As link by link; with members, only links between them."""
    sampler = chain(processor, planted, n_communities=40, entries=8, **SPARSE)
    run(sampler, [np.concatenate(CLIQUES[:2]), *CLIQUES[2:]], 4)
    links, communities = planted.training_links, entries(sampler)[0]
    best = best_communities(sampler, links)[0]
    members = np.random.default_rng(0).random(communities.shape) < 0.7
    right = np.zeros((2, *communities.shape))
    for (a, b), community in zip(links.tolist(), best.tolist(), strict=True):
        for own, other in ((a, b), (b, a)):
            at = np.flatnonzero(communities[own] == community)
            right[0, own, at] += 1
            right[1, own, at] += (members[other] & (communities[other] == community)).any()
    rows = SparseRows(sampler)
    assert right[1].sum() < right[0].sum() > len(links)
    assert np.array_equal(rows.best_links(), right[0])
    assert np.array_equal(rows.best_links(members), right[1])


def test_members_are_those_of_the_links_one_by_one(processor: Device, chain) -> None:
    """Where both ends keep the community that explains a link best: links are within cliques."""
    inside = [(10 * c + b, 10 * c + a) for c in range(12) for a in range(10) for b in range(a) if (a + b + c) % 3]
    parts = split(graph_of(120, inside), validation=0.05, seed=1)
    sampler = chain(processor, parts, n_communities=40, entries=8, **SPARSE)
    run(sampler, [np.concatenate(CLIQUES[:2]), *CLIQUES[2:]], 4)
    best = best_communities(sampler, parts.training_links)[0]
    right = prune.members_by_links(parts.training_links, best, parts.training_adjacency.degrees, 40)
    sets, used = prune.members(sampler)
    assert np.count_nonzero(prune.evidence(right, parts.training_adjacency)) >= 11
    assert np.array_equal(sets.toarray(), right.toarray())
    assert np.array_equal(np.flatnonzero(used), np.unique(best))


@pytest.mark.parametrize("most", [10, 75, 1 << 25])
def test_parts_of_the_largest_communities_are_sought(
    processor: Device, planted: Split, chain, monkeypatch, most
) -> None:
    sampler = chain(processor, planted, n_communities=40, entries=8, **SPARSE)
    run(sampler, [np.concatenate(CLIQUES[:2]), *CLIQUES[2:]], 4)
    monkeypatch.setattr(refine_module, "MOST_SPLIT", most)
    empty, links, labels = refine_module._clear_links(sampler)
    best, shares = best_communities(sampler, planted.training_links)
    sizes = np.bincount(best, minlength=40)
    assert np.array_equal(empty, np.flatnonzero(sizes < 3))
    if most == 10:
        assert len(links) == 0
    elif most == 75:  # that of two cliques alone has more
        assert sizes[0] == sizes.max() > most
        assert np.unique(labels).tolist() == [1 + sizes[1:].argmax()]
    else:
        assert np.array_equal(links, planted.training_links[shares > 0.5])


def leading(sampler: Sampler, vertices: np.ndarray) -> int:
    """The community that most of the vertices have their largest entry in."""
    return int(np.bincount(entries(sampler)[0][vertices, 0]).argmax())
