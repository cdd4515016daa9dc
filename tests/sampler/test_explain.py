"""What communities explain of links, by eq. (3.5), and the rules that rest on it."""

from __future__ import annotations

import numpy as np
import pytest

from mmsbgen.sampler.diagnostics import explained_links
from mmsbgen.sampler.diagnostics.communities import RULES
from mmsbgen.sampler.diagnostics.explained_links import EntryRows, explained, explained_at, link_probabilities
from mmsbgen.sampler.diagnostics.memberships import Memberships, largest

#: So small that across communities nothing is explained: sums of shares are 1 to the last bit.
NEVER = 1e-300


def one_by_one(links, pi, beta, delta) -> tuple[np.ndarray, np.ndarray]:
    """rho_k = pi_ak pi_bk beta_k / Z for k, and the rest of Z of eq. (2.2), by loops in double precision."""
    shares, across = np.zeros((len(links), len(beta))), np.zeros(len(links))
    for row, (a, b) in enumerate(links):
        same = sum(float(pi[a, k]) * float(pi[b, k]) for k in range(len(beta)))
        z = sum(float(pi[a, k]) * float(pi[b, k]) * beta[k] for k in range(len(beta))) + (1 - same) * delta
        for k in range(len(beta)):
            shares[row, k] = float(pi[a, k]) * float(pi[b, k]) * beta[k] / z
        across[row] = (1 - same) * delta / z
    return shares, across


@pytest.fixture(scope="module")
def example():
    rng = np.random.default_rng(8)
    pi, beta = rng.dirichlet(np.full(7, 0.3), 30), rng.uniform(0.01, 0.9, 7)
    links = np.unique(np.sort(rng.integers(0, 30, (90, 2)), axis=1), axis=0)
    return links[links[:, 0] != links[:, 1]], pi, beta


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("delta", [1e-7, 1e-2])
@pytest.mark.parametrize("block", [1, 7, 30, 7 * 64, 1 << 21])
def test_shares_are_those_of_the_equation(example, monkeypatch, dtype, delta, block):
    """However many links are worked on at a time; rows are asked for once a part."""
    links, pi, beta = example
    pi = pi.astype(dtype)
    monkeypatch.setattr(explained_links, "_BLOCK", block)
    asked = []

    def rows(vertices):
        asked.append(vertices)
        return pi[vertices]

    parts = list(explained(links, rows, beta, delta))
    step = max(1, block // 7)
    assert [len(ends) for ends, _ in parts] == [len(links[at : at + step]) for at in range(0, len(links), step)]
    assert np.array_equal(np.concatenate([ends for ends, _ in parts]), links)
    for vertices, (ends, _) in zip(asked, parts, strict=True):
        assert np.array_equal(vertices, np.unique(ends))
    found = np.concatenate([shares for _, shares in parts])
    right, across = one_by_one(links, pi, beta, delta)
    # Products and sums of 7 positive terms in double precision, in any order; 1 - sum cancels to some tens of eps.
    assert found == pytest.approx(right, rel=1e-12)
    assert found.dtype == np.float64
    assert found.sum(axis=1) + across == pytest.approx(np.ones(len(links)), abs=1e-13)


@pytest.mark.parametrize(("dtype", "rel"), [(np.float32, 3e-6), (np.float64, 1e-13)])
@pytest.mark.parametrize("delta", [1e-7, 1e-2])
@pytest.mark.parametrize(("block", "cached"), [(7, 7), (7 * 64, 7 * 5), (1 << 21, 1 << 17)])
def test_shares_of_some_communities_are_those_of_the_equation(example, monkeypatch, dtype, rel, delta, block, cached):
    """Each term of Z has two roundings and the sum of 7 six more: with delta <= beta their sizes add up to 3 Z at most,
    so that 3 x 9 units of 2**-24 are room enough, 1.6e-6, and with those of the quotient 3e-6."""
    links, pi, beta = example
    pi = pi.astype(dtype)
    monkeypatch.setattr(explained_links, "_BLOCK", block)
    monkeypatch.setattr(explained_links, "_CACHED", cached)
    at = largest(pi, 3)[0]
    parts = list(explained_at(links, lambda vertices: pi[vertices], beta, delta, at))
    assert np.array_equal(np.concatenate([ends for ends, _ in parts]), links)
    found = np.concatenate([shares for _, shares in parts])
    right, _ = one_by_one(links, pi, beta, delta)
    for end in (0, 1):
        wanted = np.take_along_axis(right, at[links[:, end]].astype(np.int64), axis=1)
        assert found[:, end] == pytest.approx(wanted, rel=rel, abs=1e-30)


def test_ends_that_agree_leave_nothing_across():
    """Single precision can give rows whose product sums to more than 1: no negative chance comes of it."""
    above = np.float32(1 + 2**-23)
    pi = np.array([[above, 0.0], [above, 0.0], [0.0, 1.0]], np.float32)
    ((_, shares),) = explained(np.array([[0, 1], [0, 2]]), lambda v: pi[v], np.array([0.5, 0.5]), 0.01)
    assert shares.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    # Where a community has no strength at all, Z is what rounding makes of delta - delta.
    ((_, shares),) = explained_at(np.array([[0, 1]]), lambda v: pi[v], np.zeros(2), 0.01, np.array([[0], [0], [1]]))
    assert shares.tolist() == [[[0.0], [0.0]]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unlinked", [[], [0], [3, 4, 29], list(range(30))])
def test_rows_of_unknown_vertices_are_not_read(example, dtype, unlinked):
    """They are 1/K, in the type of the others, wherever they stand and however often."""
    pi, asked = example[1].astype(dtype), []
    wanted = np.array([4, 29, 0, 4, 12, 3, 3, 12])

    def rows(vertices):
        asked.append(vertices.tolist())
        return pi[vertices]

    found = explained_links.as_unknown(rows, np.array(unlinked, np.int64), np.full(7, 1 / 7))(wanted)
    assert asked == [[v for v in wanted.tolist() if v not in unlinked]]
    assert found.dtype == dtype
    right = np.where(np.isin(wanted, unlinked)[:, None], dtype(1 / 7), pi[wanted])
    assert np.array_equal(found, right)


@pytest.mark.parametrize("unknown", [[], [2, 7], list(range(30))])
def test_rows_as_entries_predict_as_whole_rows_do(unknown, monkeypatch):
    """Also in parts, with unused entries, pairs of a vertex with itself, and vertices of which nothing is known."""
    monkeypatch.setattr(explained_links, "_PAIRS", 64)
    rng = np.random.default_rng(3)
    communities = np.argsort(rng.random((30, 12)), axis=1)[:, :4].astype(np.uint32)
    communities[::5, 2:] = 0xFFFFFFFF
    values, scales, common = rng.random((30, 4)), rng.random(30) / 50, rng.random(12)
    right = scales[:, None] * common
    vertex, entry = np.nonzero(communities != 0xFFFFFFFF)
    right[vertex, communities[vertex, entry]] = values[vertex, entry]
    right /= 12 * right.sum(axis=1, keepdims=True).max()
    factor = right[0, communities[0, 0]] / values[0, 0]

    class Source:
        def __call__(self, vertices):
            return self.entry_rows(vertices).dense()

        def entry_rows(self, vertices):
            of = (array[vertices] for array in (communities, values * factor, scales * factor))
            return EntryRows.of(*of, common)

    beta, pairs = rng.random(12), rng.integers(30, size=(200, 2))
    prior = np.full(12, 1 / 12)
    sparse, dense = (
        explained_links.as_unknown(rows, np.array(unknown, np.int64), prior)
        for rows in (Source(), lambda at: right[at])
    )
    assert np.allclose(sparse(pairs[:, 0]), dense(pairs[:, 0]), rtol=1e-12, atol=0)
    found, wanted = (link_probabilities(pairs, rows, beta, 0.01) for rows in (sparse, dense))
    assert np.allclose(found, wanted, rtol=1e-12, atol=0)
    assert link_probabilities(pairs[:0], sparse, beta, 0.01).shape == (0,)


def test_no_links():
    assert list(explained(np.zeros((0, 2), np.int64), lambda v: np.ones((len(v), 2)), np.ones(2), 0.1)) == []


# Rules --------------------------------------------------------------------------------------------------------


def members(pi, links, rule, threshold=None, delta=NEVER, beta=None) -> dict[int, list[int]]:
    k = pi.shape[1]
    m = Memberships(np.arange(len(pi)), *largest(pi, k), np.full(k, 0.5) if beta is None else np.array(beta), delta)
    value = RULES[rule].threshold if threshold is None else threshold
    found = RULES[rule].apply(m, m.rows, np.array(links, np.int64).reshape(-1, 2), value, lambda share: None)
    sets: dict[int, list[int]] = {}
    for vertex, community in sorted(zip(*map(np.ndarray.tolist, found), strict=True)):
        sets.setdefault(community, []).append(vertex)
    return {c: there for c, there in sorted(sets.items()) if len(there) > 1}


def one_hot(*communities: int, k: int = 3) -> np.ndarray:
    return np.eye(k)[list(communities)]


def test_share_wants_links_of_the_community_too():
    """Vertex 6 has a fifth of itself in community 2, but none of its links go there; vertex 0 is in 0 alone."""
    pi = np.concatenate([one_hot(0, 0, 1, 1, 2, 2), [[0.5, 0.3, 0.2]]])
    links = [(0, 1), (2, 3), (4, 5), (0, 6), (1, 6), (2, 6), (3, 6)]
    assert members(pi, links, "share") == {0: [0, 1, 6], 1: [2, 3, 6], 2: [4, 5]}
    assert members(pi, links, "threshold", 0.125) == {0: [0, 1, 6], 1: [2, 3, 6], 2: [4, 5, 6]}


def test_share_wants_a_share_of_the_vertex_too():
    """Community 1 explains half of the links of vertex 4, which is in it by a tenth."""
    pi = np.concatenate([one_hot(0, 0, 1, 1), [[0.9, 0.1, 0.0]]])
    links = [(0, 1), (2, 3), (0, 4), (2, 4)]
    assert members(pi, links, "share") == {0: [0, 1, 4], 1: [2, 3]}
    assert members(pi, links, "share", 0.09) == {0: [0, 1, 4], 1: [2, 3, 4]}


def test_a_link_counts_for_communities_by_what_they_explain():
    """Both ends are half in either; the stronger community explains three quarters of their link."""
    pi, links, beta = np.full((2, 2), 0.5), [(0, 1)], [0.25, 0.75]
    for rule in ("share", "link"):
        assert members(pi, links, rule, 0.49, beta=beta) == {1: [0, 1]}
        assert members(pi, links, rule, 0.76, beta=beta) == {}
    assert members(pi, links, "link", 0.74, beta=beta) == {1: [0, 1]}
    # What else they need holds for both; of most of its links a vertex needs no share.
    assert members(pi, links, "share", 0.2, beta=beta) == {0: [0, 1], 1: [0, 1]}
    assert members(pi, links, "share", 0.22, beta=beta) == {1: [0, 1]}
    # A part of one link is not enough for that, parts that make a whole one are.
    assert members(pi, links, "share", 0.5, beta=beta) == {}
    triangle = [(0, 1), (0, 2), (1, 2)]
    assert members(np.full((3, 2), 0.5), triangle, "share", 0.5, beta=beta) == {1: [0, 1, 2]}
    assert members(np.full((3, 2), 0.5), triangle, "share", 0.5, beta=[0.3, 0.3]) == {}


def test_a_link_across_communities_counts_for_none():
    pi = one_hot(0, 1)
    for rule in ("evidence", "share", "link"):
        assert members(pi, [(0, 1)], rule, delta=0.01) == {}


@pytest.mark.parametrize("rule", ["evidence", "share", "link"])
def test_a_vertex_without_links_is_in_none(rule):
    pi = one_hot(0, 0, 0, 1)
    assert members(pi, [(0, 1)], rule) == {0: [0, 1]}
    assert members(pi, [], rule) == {}


def test_a_seventh_of_the_links_is_too_little():
    """Community 1 explains one whole link of vertex 0: a seventh of seven links, more of six; 0.15 are needed."""
    others = one_hot(*[0] * 6, 1, 1)
    pi = np.concatenate([[[0.5, 0.5, 0.0]], others])
    inside = [(a, b) for b in range(1, 7) for a in range(1, b)] + [(7, 8)]
    seven = [(0, v) for v in range(1, 8)]
    assert members(pi, inside + seven, "share") == {0: [0, 1, 2, 3, 4, 5, 6], 1: [7, 8]}
    assert members(pi, inside + seven[1:], "share") == {0: [0, 1, 2, 3, 4, 5, 6], 1: [0, 7, 8]}


def test_exactly_an_eighth_of_the_vertex_is_too_little():
    pi = np.concatenate([one_hot(0, 0, 1, 1), [[0.875, 0.125, 0.0]]])
    links = [(0, 1), (2, 3), (0, 4), (1, 4), (2, 4), (3, 4)]
    assert members(pi, links, "share") == {0: [0, 1, 4], 1: [2, 3]}
    pi[4] = [0.875 - 2**-20, 0.125 + 2**-20, 0.0]
    assert members(pi, links, "share") == {0: [0, 1, 4], 1: [2, 3, 4]}


def test_most_of_its_links_are_enough():
    """Vertex 6 is by nine tenths where nobody is linked; community 1 explains three of its five or six links."""
    pi = np.concatenate([one_hot(0, 0, 1, 1, 1), [[0.0, 0.0, 1.0]], [[0.05, 0.05, 0.9]]])
    inside = [(0, 1), (2, 3), (2, 4), (3, 4)]
    links = [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6)]
    assert members(pi, inside + links, "share") == {0: [0, 1], 1: [2, 3, 4, 6]}
    assert members(pi, [*inside, *links, (5, 6)], "share") == {0: [0, 1], 1: [2, 3, 4], 2: [5, 6]}


def test_evidence_tells_members_from_chance():
    """Eight cliques of six, one link from each to the next; vertex 0 has as many links to the second as to its own."""
    n, k = 48, 8
    pi = np.eye(k)[np.arange(n) // 6]
    pi[0] = 0.5 * (np.eye(k)[0] + np.eye(k)[1])
    inside = [(a, b) for b in range(n) for a in range(b) if a // 6 == b // 6]
    chance = [(6 * c + 5, (6 * c + 11) % n) for c in range(k)]
    found = members(pi, [*inside, *chance, *((0, v) for v in range(6, 11))], "evidence", delta=1e-4)
    right = {c: list(range(6 * c, 6 * c + 6)) for c in range(k)} | {1: [0, *range(6, 12)]}
    assert found == right
    assert members(pi, [*inside, *chance, (0, 6)], "evidence", delta=1e-4) == right | {1: list(range(6, 12))}


def test_share_agrees_with_a_loop(example, monkeypatch):
    """In small parts, of vertices whose links are in several of them."""
    links, pi, beta = example
    delta = 1e-3
    monkeypatch.setattr(explained_links, "_BLOCK", 7 * 10)
    shares, _ = one_by_one(links, pi, beta, delta)
    right: dict[int, list[int]] = {}
    for k in range(7):
        for v in range(30):
            own = shares[(links == v).any(axis=1), k]
            if (pi[v, k] > 0.125 and own.sum() > 0.15 * len(own)) or own.sum() > 0.5 * len(own):
                right.setdefault(k, []).append(v)
    assert len(right) > 3
    several = {k: there for k, there in right.items() if len(there) > 1}
    assert members(pi, links, "share", delta=delta, beta=beta) == several
