"""Chances of membership by the links that communities explain, on counts drawn from the two laws."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.sampler.diagnostics import member_odds
from mmsbgen.sampler.diagnostics.member_odds import member_chances

N, K = 2000, 20


def drawn(memberships: int, mixing: float, degree: int, seed: int = 0):
    """Vertices ``[M]``, communities, counts and whether they are members, of all pairs with a link; degrees ``[N]``.

    Every vertex has ``degree`` links: a share ``mixing`` falls on communities at random, the others on its own.
    """
    rng = np.random.default_rng(seed)
    own = np.zeros((N, K), bool)
    np.put_along_axis(own, rng.permuted(np.tile(np.arange(K), (N, 1)), axis=1)[:, :memberships], True, axis=1)
    p = (1 - mixing) * own / memberships + mixing / K
    counts = rng.multinomial(degree, p)
    vertices, communities = np.nonzero(counts)
    at = vertices, communities
    return vertices, communities, counts[at].astype(float), own[at], np.full(N, degree), own


def test_chances_are_right_on_average():
    """Of pairs from the two laws with chances of about p a share p are members.

    To four standard errors and a step of the law of shares; below one half chances are up to a tenth too high, as the
    fit ends early.
    """
    rng = np.random.default_rng(3)
    for shares, size, degree in (([0.525], 50, 20), ([0.275, 0.925], 80, 20), ([0.175], 250, 40)):
        member = rng.random((N, K)) < size / N
        share = rng.choice(shares, (N, K))
        # The share of all link ends that members have in a community.
        by_chance = size / N * np.mean(shares)
        counts = rng.binomial(degree, np.where(member, share, by_chance))
        vertices, communities = np.nonzero(counts)
        there = vertices, communities
        given = vertices, communities, counts[there].astype(float), np.full(N, degree), K
        chances = member_chances(*given, residual=False)
        for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.01)):
            some = (chances >= low) & (chances < high)
            if np.count_nonzero(some) < 100:
                continue
            expected = chances[some].mean()
            error = np.sqrt((chances[some] * (1 - chances[some])).sum()) / some.sum()
            slack = 4 * error + (0.1 if low == 0.1 else 0.05)
            assert member[there][some].mean() == pytest.approx(expected, abs=slack), (shares, low)


def test_chances_are_the_same_with_any_threads(monkeypatch, set_cores):
    """Sums of many parts are added up in one order."""
    monkeypatch.setattr(member_odds, "_PART", 300)
    vertices, communities, counts, _, degrees, _ = drawn(2, 0.3, 20)
    assert vertices.size > 1000
    found = []
    for cores in (1, 3):
        set_cores(cores)
        for residual in (False, True):
            found.append(member_chances(vertices, communities, counts, degrees, K, residual))
    assert np.array_equal(found[0], found[2])
    assert np.array_equal(found[1], found[3])


def test_the_bar_follows_overlap_and_mixing():
    """Four of twenty links are chance where members have half of theirs, and membership where they have a sixth."""

    def fewest(memberships: int, mixing: float) -> int:
        vertices, communities, counts, member, degrees, _ = drawn(memberships, mixing, 20)
        chances = member_chances(vertices, communities, counts, degrees, K, residual=False)
        found = chances > 0.5
        assert np.count_nonzero(found & member) > 0.7 * member.sum()
        assert np.count_nonzero(found & ~member) < 0.1 * found.sum()
        return int(counts[found].min())

    assert fewest(1, 0.5) > 4 >= fewest(4, 0.1)


def test_what_no_community_explains_is_left_to_chance():
    """Two communities have half of all vertices each, and few links are chance: a third of the links is evidence."""
    rng = np.random.default_rng(5)
    degree, both = 24, 60
    share = np.zeros((N, 2))
    share[: N // 2, 0] = share[N // 2 :, 1] = 0.95
    share[:both] = 0.6, 0.35
    counts = rng.binomial(degree, np.maximum(share, 0.02))
    vertices, communities = np.nonzero(counts)
    given = vertices, communities, counts[vertices, communities].astype(float), np.full(N, degree), 2
    member = share[vertices, communities] > 0
    strict, found = (member_chances(*given, residual=residual) > 0.5 for residual in (False, True))
    assert not strict[member & (share[vertices, communities] == 0.35)].any(), "half of all link ends lie there"
    assert np.count_nonzero(found & member) > 0.98 * member.sum()
    assert np.count_nonzero(found & ~member) < 0.01 * N


def test_the_first_round_hardly_matters(monkeypatch):
    vertices, communities, counts, _, degrees, _ = drawn(3, 0.3, 20)
    chances = member_chances(vertices, communities, counts, degrees, K, residual=False)
    for first in (0.05, 0.25):
        monkeypatch.setattr(member_odds, "_FIRST", first)
        other = member_chances(vertices, communities, counts, degrees, K, residual=False)
        assert np.count_nonzero((other > 0.5) != (chances > 0.5)) < 0.01 * np.count_nonzero(chances > 0.5)


@pytest.mark.parametrize("residual", [False, True])
def test_limits(residual):
    """No candidates, one community of all vertices, and two cliques, whose members have all of their links in one."""
    nothing = np.zeros(0, np.int64)
    assert member_chances(nothing, nothing, np.zeros(0), np.zeros(5, np.int64), 3, residual).size == 0
    everyone = np.arange(5)
    chances = member_chances(everyone, np.zeros(5, np.int64), np.full(5, 4.0), np.full(5, 4), 1, residual)
    assert np.isfinite(chances).all()
    eight = np.arange(8)
    chances = member_chances(eight, eight // 4, np.full(8, 3.0), np.full(8, 3), 2, residual)
    assert (chances > 0.5).all()
