"""Measures by hand, by their definitions written out, and by what must not change them."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmsbgen.base.errors import InputError
from mmsbgen.graph import load_edge_list
from mmsbgen.scores import Scores, evaluate, measures, read_cover

DATA = Path(__file__).parents[1] / "data"
MEASURES = ("onmi", "onmi_lfk", "average_f1", "omega")
#: Sums of some hundred terms of order one, each good to 2^-53, and differences of them.
EXACT = 1e-12

Sets = list[set[int]]


def of(scores: Scores) -> dict[str, float]:
    return {name: getattr(scores, name) for name in MEASURES}


def test_a_small_example_by_hand():
    # Every community has half of the four vertices, so one bit of entropy. {1, 2} is known exactly; of {2, 3} and
    # {3, 4}, which cross in one vertex, nothing is known. Each cover has 2 bits, of which 1 is shared.
    # F1 of {2, 3} with either community of the other cover: 2 / (2 + 2).
    # Of 6 pairs 2, 3 and 3, 4 disagree; either cover has 2 pairs that share one community and 4 that share none:
    # (4/6 - 20/36) / (1 - 20/36).
    scores = evaluate([[1, 2], [2, 3]], [[1, 2], [3, 4]], [1, 2, 3, 4])
    assert of(scores) == pytest.approx({"onmi": 0.5, "onmi_lfk": 0.5, "average_f1": 0.75, "omega": 0.25}, abs=EXACT)
    assert (scores.vertices, scores.communities, scores.true_communities) == (4, 2, 2)
    assert (scores.coverage, scores.true_coverage) == (0.75, 1.0)
    assert (scores.memberships, scores.true_memberships) == (pytest.approx(4 / 3), 1.0)


def test_omega_counts_how_many_communities_a_pair_shares():
    # Pairs of 1, 2, 3: in the cover 12 shares two communities, 13 and 23 share one; in the truth all share one.
    # Observed 2/3, by chance (0 * 0 + 2 * 3 + 1 * 0) / 9 = 2/3.
    assert evaluate([[1, 2], [1, 2, 3]], [[1, 2, 3]]).omega == pytest.approx(0.0, abs=EXACT)
    # A vertex more, in no community: three pairs more that share none in either. Observed 5/6, by chance
    # (3 * 3 + 2 * 3) / 36 = 15/36.
    assert evaluate([[1, 2], [1, 2, 3]], [[1, 2, 3]], [1, 2, 3, 4]).omega == pytest.approx(15 / 21, abs=EXACT)


def test_one_community_of_all_vertices_on_a_real_graph():
    vertices = load_edge_list(DATA / "fb_348.txt.gz").ids.tolist()
    truth = read_cover(DATA / "fb_348.cmty.txt.gz")
    scores = evaluate([vertices], truth, vertices)
    assert scores.vertices == 227
    assert scores.onmi == pytest.approx(0.0, abs=EXACT)
    assert scores.omega == pytest.approx(0.0, abs=EXACT)
    # Its F1 with the 14 circles is that of their sizes alone.
    f1 = [2 * len(circle) / (len(circle) + 227) for circle in truth]
    assert scores.average_f1 == pytest.approx((max(f1) + sum(f1) / 14) / 2, abs=EXACT)
    assert scores.average_f1 == pytest.approx(0.595, abs=5e-4)
    # Such a community has no entropy that could be known; the authors' program and cdlib count it as unknown.
    assert scores.onmi_lfk == pytest.approx(0.0, abs=EXACT)


def test_vertices_in_no_community_count():
    """Leaving them out is what some libraries do; it lowers the scores."""
    vertices = load_edge_list(DATA / "fb_348.txt.gz").ids.tolist()
    truth = read_cover(DATA / "fb_348.cmty.txt.gz")
    cover = [circle[1:] for circle in truth]
    over_all, over_some = evaluate(cover, truth, vertices), evaluate(cover, truth)
    covered = set().union(*truth)
    assert (over_all.vertices, over_some.vertices) == (227, len(covered))
    assert over_some == evaluate(cover, truth, covered)
    for name in ("onmi", "onmi_lfk", "omega"):
        assert getattr(over_some, name) < getattr(over_all, name) - 1e-3
    assert over_some.average_f1 == pytest.approx(over_all.average_f1, abs=EXACT)


def test_repeated_and_single_communities_of_the_truth_count():
    cover = [[1, 2, 3]]
    scores = evaluate(cover, [[1, 2, 3], [1, 2, 3], [4]])
    # Three true communities, of which {4} matches nothing.
    assert scores.average_f1 == pytest.approx((1 + (1 + 1 + 0) / 3) / 2, abs=EXACT)
    assert scores.true_communities == 3
    assert scores.true_memberships == pytest.approx(7 / 4)


def test_ids_are_compared_as_strings():
    assert of(evaluate([[1, 2], np.array([3, 4])], [["1", "2"], ["3", "4"]])) == dict.fromkeys(MEASURES, 1.0)


@pytest.mark.parametrize(
    ("cover", "truth", "vertices", "message"),
    [
        ([], [[1]], None, "the cover has no community"),
        ([[1]], [], None, "the truth has no community"),
        ([[1], []], [[1]], None, "community 2 of the cover has no member"),
        ([[1, 2]], [[1], [2, 3]], [1, 2], "community 2 of the truth has the id '3', which is no vertex of the graph"),
        (["12"], [[1]], None, "community 1 of the cover, '12', is a string"),
        ("a.txt", [[1]], None, "read a file by mmsbgen.scores.read_cover"),
    ],
)
def test_bad_input(cover: object, truth: object, vertices: object, message: str):
    with pytest.raises(InputError, match=message):
        evaluate(cover, truth, vertices)  # type: ignore[arg-type]


# The definitions once more, in words of their own.


def _h(count: int, n: int) -> float:
    return 0.0 if count == 0 else -count / n * math.log2(count / n)


def _entropy(size: int, n: int) -> float:
    return _h(size, n) + _h(n - size, n)


def _given(one: set[int], other: set[int], n: int) -> tuple[float, float]:
    """H(one | other), and by how much agreeing says more than disagreeing (0 where the sums are equal)."""
    both, mine, yours = len(one & other), len(one - other), len(other - one)
    agree, differ = _h(both, n) + _h(n - both - mine - yours, n), _h(mine, n) + _h(yours, n)
    more = agree - differ
    return agree + differ - _entropy(len(other), n), 0.0 if abs(more) < 1e-14 else more


def _unknown(cover: Sets, truth: Sets, n: int, mgh: bool) -> list[float]:
    """H(one | truth) of every community; where sums are equal McDaid, Greene and Hurley take the pair, LFK do not."""
    found = []
    for one in cover:
        values = [_given(one, other, n) for other in truth if one & other or not mgh]
        taken = [left for left, more in values if more > 0 or (more == 0 and mgh)]
        found.append(min([_entropy(len(one), n), *taken]))
    return found


def mgh(cover: Sets, truth: Sets, n: int) -> float:
    total = [sum(_entropy(len(one), n) for one in side) for side in (cover, truth)]
    if max(total) == 0:
        return 1.0
    left = [sum(_unknown(*sides, n, mgh=True)) for sides in ((cover, truth), (truth, cover))]
    return max(0.0, (sum(total) - sum(left)) / 2 / max(total))


def lfk(cover: Sets, truth: Sets, n: int) -> float:
    directions = []
    for one, other in ((cover, truth), (truth, cover)):
        whole = 0.0 if any(len(community) == n for community in other) else 1.0
        shares = [
            left / _entropy(len(community), n) if len(community) < n else whole
            for community, left in zip(one, _unknown(one, other, n, mgh=False), strict=True)
        ]
        directions.append(sum(shares) / len(shares))
    return 1 - sum(directions) / 2


def average_f1(cover: Sets, truth: Sets, n: int) -> float:
    def best(one: set[int], others: Sets) -> float:
        return max(2 * len(one & other) / (len(one) + len(other)) for other in others)

    directions = [[best(one, others) for one in side] for side, others in ((cover, truth), (truth, cover))]
    return sum(sum(direction) / len(direction) for direction in directions) / 2


def omega(cover: Sets, truth: Sets, n: int) -> float:
    pairs = list(itertools.combinations(range(n), 2))
    shared = [[sum({a, b} <= one for one in side) for a, b in pairs] for side in (cover, truth)]
    counts = [Counter(levels) for levels in shared]
    chance = sum(counts[0][level] * counts[1][level] for level in counts[0])
    if chance == len(pairs) ** 2:
        return 1.0
    observed = sum(a == b for a, b in zip(*shared, strict=True))
    return (observed / len(pairs) - chance / len(pairs) ** 2) / (1 - chance / len(pairs) ** 2)


@st.composite
def pairs_of_covers(draw: st.DrawFn) -> tuple[Sets, Sets, int]:
    n = draw(st.integers(1, 12))
    community = st.sets(st.integers(0, n - 1), min_size=1)
    cover = st.lists(community, min_size=1, max_size=6)
    return draw(cover), draw(cover), n


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(pairs_of_covers())
def test_measures_agree_with_their_definitions(covers: tuple[Sets, Sets, int]):
    cover, truth, n = covers
    expected = {
        "onmi": mgh(cover, truth, n),
        "onmi_lfk": lfk(cover, truth, n),
        "average_f1": average_f1(cover, truth, n),
        "omega": omega(cover, truth, n),
    }
    assert of(evaluate(cover, truth, range(n))) == pytest.approx(expected, abs=EXACT)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(pairs_of_covers(), st.randoms(use_true_random=False))
def test_names_and_order_do_not_matter(covers: tuple[Sets, Sets, int], rng: random.Random):
    cover, truth, n = covers
    names = [f"v{number}" for number in range(n)]
    rng.shuffle(names)
    renamed = [[[names[member] for member in one] for one in side] for side in (cover, truth)]
    for side in renamed:
        rng.shuffle(side)
        for one in side:
            rng.shuffle(one)
    rng.shuffle(names)
    expected = asdict(evaluate(cover, truth, range(n)))
    assert asdict(evaluate(*renamed, names)) == pytest.approx(expected, abs=EXACT)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(pairs_of_covers())
def test_equal_covers_score_one_and_no_measure_has_a_direction(covers: tuple[Sets, Sets, int]):
    cover, truth, n = covers
    assert of(evaluate(cover, cover, range(n))) == pytest.approx(dict.fromkeys(MEASURES, 1.0), abs=EXACT)
    forth, back = (of(evaluate(*sides, range(n))) for sides in ((cover, truth), (truth, cover)))
    assert forth == pytest.approx(back, abs=EXACT)


@pytest.mark.parametrize("block", [1, 40, 1000])
def test_blocks_of_a_large_table_add_up(block: int, monkeypatch: pytest.MonkeyPatch):
    vertices = load_edge_list(DATA / "fb_348.txt.gz").ids.tolist()
    truth = read_cover(DATA / "fb_348.cmty.txt.gz")
    cover = [*truth[3:], truth[0] + truth[1]]
    whole = evaluate(cover, truth, vertices)
    monkeypatch.setattr(measures, "_BLOCK", block)
    assert evaluate(cover, truth, vertices) == whole
