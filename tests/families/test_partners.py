"""Weights of partners: exact for every pair, in every mode, on graphs small enough to go through all draws."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from mmsbgen.families.mmsb.numbers import counter_random
from mmsbgen.families.mmsb.numbers.partner_rule import PartnerRule
from mmsbgen.families.mmsb.numbers.row_layout import Purpose
from mmsbgen.families.mmsb.reference import equations

N = 7
#: Vertex 6 is isolated, vertex 0 is linked to all but it; {1, 2} and {3, 6} are held out.
LINKS = {(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (2, 3), (4, 5)}
HELD = {(1, 2), (3, 6)}


def neighbours(vertex: int) -> Any:
    return np.array(sorted({a + b - vertex for a, b in LINKS if vertex in (a, b)}), np.int64)


def held(vertex: int) -> frozenset[int]:
    return frozenset(a + b - vertex for a, b in HELD if vertex in (a, b))


def expected_weights(vertex: int, rule: PartnerRule, monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """The exact expectation of each partner's weight: every draw takes each of its values in turn."""
    degree = max(1, neighbours(vertex).size)
    period = degree * N * (N - 1)
    total: dict[int, float] = defaultdict(float)
    for turn in range(period):

        def below(seed: int, j: Any, owner: Any, iteration: int, purpose: int, bound: int, turn: int = turn) -> Any:
            assert bound in (degree, N, N - 1)
            return np.full(np.size(j), turn % bound)

        with monkeypatch.context() as patch:
            patch.setattr(counter_random, "below", below)
            partners, weights = equations.sample_partners(vertex, N, neighbours(vertex), held(vertex), rule)
        for partner, weight in zip(partners.tolist(), weights.tolist(), strict=True):
            total[partner] += weight / period
    return total


RULES = [
    PartnerRule("uniform", 1),
    PartnerRule("uniform", 4),
    PartnerRule("uniform", N - 1),
    PartnerRule("stratified", 1),
    PartnerRule("stratified", 4, n_link=2),
    PartnerRule("stratified", 5, n_link=1),
    PartnerRule("stratified", N - 1, n_link=3),
    PartnerRule("block", 1),
    PartnerRule("block", 3),
    PartnerRule("shared", 1),
    PartnerRule("shared", 3),
    PartnerRule("shared", N),
    PartnerRule("shared-uniform", 1),
    PartnerRule("shared-uniform", 3),
    PartnerRule("shared-uniform", N),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.n}-{rule.n_link}")
def test_every_eligible_pair_counts_once(rule: PartnerRule, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected weight is 1 for a link, -1 for a non-link, 0 for held-out pairs and the vertex itself."""
    for vertex in range(N):
        found = expected_weights(vertex, rule, monkeypatch)
        linked = set(neighbours(vertex).tolist())
        for other in range(N):
            right = 0.0 if other == vertex or other in held(vertex) else 1.0 if other in linked else -1.0
            assert found.get(other, 0.0) == pytest.approx(right, abs=1e-12), (vertex, other)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.n}-{rule.n_link}")
def test_random_draws_have_that_mean(rule: PartnerRule) -> None:
    """The same with the generator's own draws, within five standard errors."""
    turns = 1500
    for vertex in (0, 3, 6):
        seen = np.zeros((turns, N))
        for iteration in range(turns):
            now = PartnerRule(rule.name, rule.n, rule.n_link, seed=99, iteration=iteration)
            partners, weights = equations.sample_partners(vertex, N, neighbours(vertex), held(vertex), now)
            np.add.at(seen[iteration], partners, weights)
        linked = np.isin(np.arange(N), neighbours(vertex))
        right = np.where(linked, 1.0, -1.0)
        right[[vertex, *held(vertex)]] = 0.0
        error = seen.std(axis=0) / np.sqrt(turns)
        assert np.all(np.abs(seen.mean(axis=0) - right) <= 5 * error + 1e-12), (vertex, rule)


def test_all_others_once_when_there_are_no_more() -> None:
    partners, weights = equations.sample_partners(2, N, neighbours(2), held(2), PartnerRule("uniform", N - 1))
    assert sorted(partners.tolist()) == [0, 1, 3, 4, 5, 6]
    assert dict(zip(partners.tolist(), weights.tolist(), strict=True)) == {0: 1, 1: 0, 3: 1, 4: -1, 5: -1, 6: -1}


def test_block_shares_its_non_links() -> None:
    rule = PartnerRule("block", 5, seed=3, iteration=8)
    drawn = [equations.sample_partners(v, N, neighbours(v), held(v), rule)[0][neighbours(v).size :] for v in range(N)]
    assert all(np.array_equal(drawn[0], other) for other in drawn)


def test_vertices_draw_their_own_partners() -> None:
    rule = PartnerRule("uniform", 40, seed=3)
    big = 10_000
    first, second = (equations.sample_partners(v, big, np.zeros(0, np.int64), frozenset(), rule)[0] for v in (1, 2))
    assert len(set(first.tolist()) & set(second.tolist())) < 5
    assert np.array_equal(first - (first > 1), counter_random.below(3, np.arange(40), 1, 0, Purpose.partner, big - 1))
