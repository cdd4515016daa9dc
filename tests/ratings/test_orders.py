"""Orders that are made in threads are those of NumPy; random ones are equally likely."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mmsbgen.base import processes
from mmsbgen.ratings import orders


@pytest.mark.parametrize("most", [3, 255, 70_000, 2**32])
@pytest.mark.parametrize("size", [0, 5, 5000])
def test_orders_in_pieces_are_stable(most: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_ITEMS", 700)
    keys = np.random.default_rng(0).integers(0, most, size).astype(np.uint32)
    assert np.array_equal(orders.order_by(keys), np.argsort(keys, kind="stable"))
    if most <= 70_000:
        assert np.array_equal(orders.counted(keys, most), np.bincount(keys, minlength=most))
    groups = [places for _, places in orders.grouped(keys)]
    assert sorted(itertools.chain.from_iterable(each.tolist() for each in groups)) == list(range(size))
    assert all(keys[a].max() < keys[b].min() for a, b in itertools.pairwise(groups))


def test_random_orders_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_ITEMS", 2)
    monkeypatch.setattr(orders, "_GROUPS", 3)  # or else most items are alone in theirs
    draws, of = 1200, {order: 0 for order in itertools.permutations(range(4))}
    for seed in range(draws):
        of[tuple(orders.random_order([seed, 9], 4).tolist())] += 1
    expected = draws / len(of)
    # Chi-square of 23 degrees of freedom is above 52.6 once in 2500 tests; the seeds are always these.
    assert sum((count - expected) ** 2 / expected for count in of.values()) < 52.6
    found = orders.random_order([1, 9], 50)
    monkeypatch.setattr(processes, "cores", lambda: 1)
    assert np.array_equal(found, orders.random_order([1, 9], 50)), "the same on any number of cores"
