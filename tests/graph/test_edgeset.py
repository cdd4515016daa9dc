"""The cuckoo hash against a Python set, and against a scalar reading of its documented definition."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsbgen.graph import EdgeSet, EdgeSetError, edgeset
from mmsbgen.graph.edgeset import EMPTY_KEY

LAST = 2**32 - 2  # the largest vertex
MASK = 2**64 - 1

vertices = st.one_of(st.integers(0, 12), st.integers(LAST - 3, LAST), st.integers(0, LAST))
pairs_of_vertices = st.tuples(vertices, vertices).filter(lambda pair: pair[0] != pair[1])


def scalar_bucket(key: int, seed: int, n_buckets: int) -> int:
    x = key ^ seed
    x ^= x >> 33
    x = (x * 0xFF51AFD7ED558CCD) & MASK
    x ^= x >> 33
    x = (x * 0xC4CEB9FE1A85EC53) & MASK
    return ((x >> 32) * n_buckets) >> 32


def scalar_contains(table: EdgeSet, u: int, v: int) -> bool:
    if u == v:
        return False
    key = (min(u, v) << 32) | max(u, v)
    n_buckets = int(table.n_buckets)
    first = table.buckets[scalar_bucket(key, int(table.seeds[0]), n_buckets)].tolist()
    second = table.buckets[n_buckets + scalar_bucket(key, int(table.seeds[1]), n_buckets)].tolist()
    return key in first or key in second


def check(pairs: list[tuple[int, int]]) -> EdgeSet:
    """Compare with a Python set on all pairs, both directions, and on many pairs close to them."""
    table = EdgeSet.build(pairs)
    links = {frozenset(pair) for pair in pairs}
    assert table.n_links == len(links)
    near = [(u + du, v + dv) for u, v in pairs for du in (-1, 0, 1) for dv in (-1, 0, 1)]
    ends = sorted(set(itertools.chain.from_iterable(pairs)))[:25]
    asked = [*pairs, *near, *itertools.product(ends, ends), (0, 0), (0, LAST)]
    asked = [pair for pair in asked if min(pair) >= 0 and max(pair) <= LAST]
    expected = [frozenset(pair) in links for pair in asked]
    u, v = np.array(asked, dtype=np.int64).T
    assert table.contains(u, v).tolist() == expected
    assert table.contains(v, u).tolist() == expected
    return table


@given(pairs=st.lists(pairs_of_vertices, max_size=60))
def test_any_pairs_against_a_python_set(pairs: list[tuple[int, int]]) -> None:
    check(pairs)


@given(pairs=st.lists(pairs_of_vertices, min_size=1, max_size=20), asked=st.lists(pairs_of_vertices, max_size=5))
def test_documented_definition(pairs: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    table = EdgeSet.build(pairs)
    links = {frozenset(pair) for pair in pairs}
    for u, v in [*pairs, *asked]:
        assert scalar_contains(table, u, v) == scalar_contains(table, v, u) == (frozenset((u, v)) in links)


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, v) for v in range(1, 3000)],
        [(LAST, v) for v in range(3000)],
        list(itertools.combinations(range(70), 2)),
        list(itertools.combinations(range(LAST - 59, LAST + 1), 2)),
        [(v, v + 1) for v in range(3000)],
        [(v << 12, (v << 12) + (1 << 11)) for v in range(3000)],
        [(v, LAST - v) for v in range(3000)],
    ],
    ids=["star", "star of the last vertex", "complete", "complete, huge ids", "path", "aligned", "mirrored"],
)
def test_regular_structures(pairs: list[tuple[int, int]]) -> None:
    assert check(pairs).load >= 0.9


@pytest.mark.parametrize("n_links", [1000, 1001, 1234, 5003, 20_000])
def test_load_is_at_least_90_percent_from_1000_links(n_links: int) -> None:
    rng = np.random.Generator(np.random.PCG64(n_links))
    low = rng.integers(0, 300_000, size=n_links)
    pairs = np.unique(np.stack([low, low + rng.integers(1, 300_000, size=n_links)], axis=1), axis=0)
    while len(pairs) < n_links:
        pairs = np.concatenate([pairs, [[600_000, 600_001 + len(pairs)]]])
    table = EdgeSet.build(pairs)
    assert table.n_links == n_links
    assert 0.9 <= table.load <= 1
    assert table.contains(pairs[:, 1], pairs[:, 0]).all()


@pytest.mark.slow
def test_as_many_links_as_com_dblp_has() -> None:
    n_vertices, n_links = 317_080, 1_049_866
    rng = np.random.default_rng(0)
    low, high = np.sort(rng.integers(0, n_vertices, size=(2, 2 * n_links + n_links // 10)), axis=0)
    numbers = np.sort((low * n_vertices + high)[low < high])
    distinct = rng.permutation(numbers[np.diff(numbers, prepend=-1) > 0])
    pairs = np.stack(np.divmod(distinct, n_vertices), axis=1)
    # None of the others is a link.
    links, others = pairs[:n_links], pairs[n_links:]
    assert min(len(links), len(others)) >= n_links
    table = EdgeSet.build(links)
    assert table.n_links == n_links
    assert 0.9 <= table.load <= 1
    assert table.contains(links[:, 1], links[:, 0]).all()
    assert not table.contains(others[:, 0], others[:, 1]).any()


def test_every_small_size_builds() -> None:
    for size in range(120):
        table = EdgeSet.build([(3 * v, 7 * v + 1000) for v in range(size)])
        assert table.n_links == size
        assert table.contains(1000 + 7 * np.arange(size), 3 * np.arange(size)).all()


def test_layout() -> None:
    pairs = list(itertools.combinations(range(50), 2))
    table = EdgeSet.build(pairs)
    assert table.buckets.dtype == np.uint64
    assert table.buckets.shape == (2 * int(table.n_buckets), 4)
    assert table.buckets.flags.c_contiguous
    assert not table.buckets.flags.writeable
    assert table.n_buckets.dtype == np.uint32
    assert table.seeds.dtype == np.uint64
    assert table.seeds.shape == (2,)
    stored = table.buckets[table.buckets != EMPTY_KEY]
    assert sorted(stored.tolist()) == sorted((u << 32) | v for u, v in pairs)
    assert table.load == stored.size / table.buckets.size
    assert int(table.n_buckets) == -(-len(pairs) // (8 * 0.945))


def test_the_same_set_gives_the_same_tables() -> None:
    pairs = np.array(list(itertools.combinations(range(40), 2)))
    shuffled = np.concatenate([pairs[::-1, ::-1], pairs[:9]])
    table, again = EdgeSet.build(pairs), EdgeSet.build(shuffled.astype(np.uint32))
    assert np.array_equal(table.buckets, again.buckets)
    assert np.array_equal(table.seeds, again.seeds)


@pytest.mark.parametrize("pairs", [[], np.empty((0, 2), dtype=np.int64)])
def test_empty_set(pairs: Any) -> None:
    table = EdgeSet.build(pairs)
    assert (table.buckets.shape, table.load, table.n_links) == ((2, 4), 0, 0)
    assert not table.contains(np.arange(5), np.arange(5)[:, None]).any()


def test_a_failed_placement_seeds_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    place = edgeset._place
    seeds_seen: list[Any] = []

    def fail_twice(*args: Any) -> Any:
        seeds_seen.append(args[1])
        return place(*args) if len(seeds_seen) > 2 else None

    monkeypatch.setattr(edgeset, "_place", fail_twice)
    table = EdgeSet.build([(0, 1), (1, 2)])
    assert len({tuple(pair.tolist()) for pair in seeds_seen}) == 3
    assert np.array_equal(table.seeds, seeds_seen[2])
    assert table.contains([1, 2, 0], [0, 1, 2]).tolist() == [True, True, False]


def test_impossible_load_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edgeset, "_LOAD", 1.0)
    monkeypatch.setattr(edgeset, "_ATTEMPTS", 2)
    pairs = np.stack([np.zeros(4000, dtype=np.int64), np.arange(1, 4001)], axis=1)
    with pytest.raises(EdgeSetError, match=r"4000 pairs in 4000 slots \(load 1.0\).*2 pairs of hash"):
        EdgeSet.build(pairs)


def test_contains_takes_any_integer_types_and_shapes() -> None:
    table = EdgeSet.build([(1, 2), (2, 5)])
    assert table.contains(2, 1).shape == ()
    assert bool(table.contains(2, 1))
    assert table.contains(np.uint32(5), np.arange(4, dtype=np.int8)).tolist() == [False, False, True, False]
    assert table.contains(np.array([[1, 2], [3, 5]]), 2).tolist() == [[True, False], [False, True]]
    assert table.contains([], []).shape == (0,)
