"""Held-out pairs: their numbers, their law, and that training never sees them."""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse  # noqa: F401 - its import takes memory
from hypothesis import given
from hypothesis import strategies as st

from mmsbgen.base.errors import InputError
from mmsbgen.graph import EdgeSet, Graph, HeldOut, Split, as_graph, load_edge_list, split
from mmsbgen.graph.split import repeated

DATA = Path(__file__).parents[1] / "data"


def as_set(pairs: np.ndarray) -> set[tuple[int, int]]:
    found = {(int(u), int(v)) for u, v in pairs}
    assert len(found) == len(pairs), "a pair is listed twice"
    return found


def check(part: Split) -> None:
    """What holds for every split."""
    graph = part.graph
    links = as_set(graph.links)
    held: dict[str, set[tuple[int, int]]] = {}
    for name, drawn in (("validation", part.validation), ("test", part.test)):
        pairs = as_set(drawn.pairs)
        assert all(0 <= u < v < graph.n_vertices for u, v in pairs)
        assert {pair for pair, link in zip(map(tuple, drawn.pairs.tolist()), drawn.labels, strict=True) if link} == (
            pairs & links
        )
        assert drawn.n_links + drawn.n_non_links == len(pairs)
        held[name] = pairs
    assert not held["validation"] & held["test"]
    everything = held["validation"] | held["test"]
    assert as_set(part.held_out_pairs) == everything
    assert as_set(part.training_links) == links - everything
    training = part.training_adjacency
    assert training.degrees.sum() == 2 * part.n_training_links
    for a in range(graph.n_vertices):
        partners = {u + v - a for u, v in everything if a in (u, v)}
        assert part.held_out_adjacency.row(a).tolist() == sorted(partners)
        assert part.held_out_degree[a] == len(partners)
        assert not partners & set(training.row(a).tolist())


@pytest.mark.slow
@pytest.mark.parametrize(("validation", "test"), [(0.01, 0.0), (0.1, 0.05), (0.5, 0.4), (0.0, 0.0), (0.0, 0.2)])
def test_real_graph(validation: float, test: float) -> None:
    graph = as_graph(DATA / "netscience.txt.gz")
    part = split(graph, validation=validation, test=test, seed=3)
    check(part)
    for drawn, fraction in ((part.validation, validation), (part.test, test)):
        assert drawn.n_links == drawn.n_non_links == round(fraction * graph.n_links)
        assert drawn.labels.tolist() == [True] * drawn.n_links + [False] * drawn.n_links
    assert bool(part.warnings) == (validation + test > 0.5)


@given(
    graph=st.builds(
        lambda n, p, seed: nx.gnp_random_graph(n, p, seed=seed),
        st.integers(3, 12),
        st.floats(0.3, 1.0),
        st.integers(0, 10**6),
    ).filter(lambda g: g.number_of_edges() >= 5),
    validation=st.floats(0, 0.4),
    test=st.floats(0, 0.4),
    seed=st.integers(0, 2**70),
)
def test_small_dense_graphs(graph: nx.Graph, validation: float, test: float, seed: int) -> None:
    whole = as_graph(graph)
    part = split(whole, validation=validation, test=test, seed=seed)
    check(part)
    wanted = part.validation.n_links + part.test.n_links
    linked = sum(degree > 0 for _, degree in graph.degree)
    there = linked * (linked - 1) // 2 - whole.n_links
    assert np.count_nonzero(whole.degrees()[part.held_out_pairs] == 0) == 0
    assert part.validation.n_non_links + part.test.n_non_links == min(wanted, there)
    assert part.validation.n_non_links == min(part.validation.n_links, there)
    assert bool(part.warnings) == (there < wanted or validation + test > 0.5)


def test_same_seed_same_split() -> None:
    graph = as_graph(DATA / "fb_348.txt.gz")
    one, same, other = (split(graph, validation=0.1, test=0.1, seed=seed) for seed in (1, 1, 2))
    for a, b in ((one.validation, same.validation), (one.test, same.test)):
        assert np.array_equal(a.pairs, b.pairs)
    assert not np.array_equal(one.validation.pairs, other.validation.pairs)
    assert not np.array_equal(
        one.validation.pairs[one.validation.labels], other.validation.pairs[other.validation.labels]
    )


@pytest.mark.parametrize("test", [0.01, 0.3])
def test_validation_is_the_same_whatever_is_held_out_for_test(test: float) -> None:
    graph = as_graph(DATA / "fb_348.txt.gz")
    without, beside = split(graph, validation=0.1, seed=1), split(graph, validation=0.1, test=test, seed=1)
    assert beside.test.n_links == round(test * graph.n_links)
    assert np.array_equal(without.validation.pairs, beside.validation.pairs)
    assert np.array_equal(without.validation.labels, beside.validation.labels)


def test_repeated_splits_keep_the_test_pairs_out() -> None:
    graph = as_graph(DATA / "fb_348.txt.gz")
    first = split(graph, validation=0.2, test=0.2, seed=1)
    splits = repeated(first, 4)
    assert splits[0] is first
    drawn = [{tuple(pair) for pair in one.validation.pairs.tolist()} for one in splits]
    tested = {tuple(pair) for pair in first.test.pairs.tolist()}
    for one, pairs, again in zip(splits, drawn, repeated(first, 4), strict=True):
        assert np.array_equal(one.test.pairs, first.test.pairs)
        assert not pairs & tested
        held = {tuple(pair) for pair in one.held_out_pairs.tolist()}
        assert held == pairs | tested
        assert not held & {tuple(pair) for pair in one.training_links.tolist()}
        assert np.array_equal(again.validation.pairs, one.validation.pairs), "determined by the seed"
    links = [len(pairs & {tuple(pair) for pair in graph.links.tolist()}) for pairs in drawn]
    # Of a fifth of the links, a fifth is in the test set.
    wanted, error = 0.8 * links[0], np.sqrt(links[0] * 0.8 * 0.2)
    assert all(abs(found - wanted) < 5 * error for found in links[1:])
    common = len(drawn[1] & drawn[2])
    assert 0 < common < 0.5 * len(drawn[1]), "drawn independently"


@pytest.mark.slow
def test_every_link_and_non_link_is_equally_likely() -> None:
    """Of five vertices with links, and one without that is in no pair: 5 links, 5 non-links, 2 of each held out."""
    links = [(0, 1), (0, 4), (1, 2), (2, 4), (3, 4)]
    source = nx.Graph(links)
    source.add_node(5)
    graph = as_graph(source)
    order = graph.ids.tolist()
    runs = 4000
    counts: dict[str, Counter[tuple[int, int]]] = {"validation": Counter(), "test": Counter()}
    for seed in range(runs):
        part = split(graph, validation=0.2, test=0.2, seed=seed)
        for name, drawn in (("validation", part.validation), ("test", part.test)):
            assert (drawn.n_links, drawn.n_non_links) == (1, 1)
            counts[name].update((order[u], order[v]) for u, v in drawn.pairs)
    for counter in counts.values():
        for pair in itertools.combinations(range(6), 2):
            share = 0.0 if 5 in pair else 1 / 5
            seen = counter[pair] + counter[pair[::-1]]
            # Five standard deviations of a binomial: 20 counts fail by chance once in 80000 runs.
            assert abs(seen - runs * share) <= 5 * np.sqrt(runs * share * (1 - share)), pair


def test_non_links_span_large_graphs() -> None:
    """Ranks of pairs go beyond 32 bits here; every vertex is about as often the larger as the smaller one."""
    n = 300_000
    graph = as_graph(np.stack([np.arange(n - 1), np.arange(1, n)], axis=1))
    part = split(graph, validation=0.1, seed=0)
    pairs = part.validation.pairs[~part.validation.labels]
    assert len(as_set(pairs)) == 30_000
    assert np.all(pairs[:, 1] - pairs[:, 0] > 1)
    assert pairs.max() < n
    assert abs(pairs.mean() / n - 0.5) < 0.01
    assert abs((pairs[:, 1] - pairs[:, 0]).mean() / n - 1 / 3) < 0.01


def test_held_out_pairs_build_an_edge_set() -> None:
    part = split(as_graph(DATA / "CA-GrQc.txt.gz"), validation=0.05, test=0.05, seed=0)
    held, training = EdgeSet.build(part.held_out_pairs), EdgeSet.build(part.training_links)
    for drawn in (part.validation, part.test):
        assert held.contains(drawn.pairs[:, 1], drawn.pairs[:, 0]).all()
        assert not training.contains(drawn.pairs[:, 0], drawn.pairs[:, 1]).any()
    assert not held.contains(part.training_links[:, 0], part.training_links[:, 1]).any()


def test_complete_graph_has_no_non_links() -> None:
    part = split(as_graph(nx.complete_graph(6)), validation=0.2, seed=0)
    check(part)
    assert (part.validation.n_links, part.validation.n_non_links) == (3, 0)
    assert part.warnings == (
        "all pairs of the graph's 6 vertices are linked: there is no non-link to hold out beside the links, so that "
        "AUC is unknown",
    )


def test_few_non_links_are_all_held_out() -> None:
    graph = nx.complete_graph(6)
    graph.remove_edge(0, 1)
    assert split(as_graph(graph), validation=0.2, seed=0).warnings == (
        "the graph has only 1 pair without a link, and 3 were to be held out beside as many links: all are held out, "
        "1 for validation, and the fit sees none",
    )
    assert split(as_graph(nx.path_graph(2)), validation=0.2, seed=0).warnings == (
        "validation is empty: with 1 link, the last one is for training",
    )


def test_nothing_held_out() -> None:
    part = split(as_graph([[0, 1]]), validation=0, seed=0)
    assert part.training_links.tolist() == [[0, 1]]
    assert part.held_out_pairs.shape == (0, 2)
    assert part.held_out_degree.tolist() == [0, 0]
    assert part.validation.pairs.shape == (0, 2)
    assert part.validation.labels.dtype == np.bool_
    assert isinstance(part.test, HeldOut)


def path(n_links: int) -> Graph:
    return as_graph(np.stack([np.arange(n_links), np.arange(1, n_links + 1)], axis=1))


def test_small_fractions_hold_out_at_least_one_link() -> None:
    part = split(path(5), validation=0.001, test=0.001, seed=0)
    assert (part.validation.n_links, part.test.n_links, part.n_training_links) == (1, 1, 3)
    single = split(path(1), validation=0.01, seed=0)
    assert single.validation.n_links == 0
    assert "validation is empty" in single.warnings[0]
    two = split(path(2), validation=0.01, test=0.01, seed=0)
    assert (two.validation.n_links, two.test.n_links, two.n_training_links) == (1, 0, 1)
    assert "test is empty" in two.warnings[0]


def test_less_than_half_for_training_is_told() -> None:
    part = split(path(100), validation=0.5, test=0.2, seed=0)
    (said,) = part.warnings
    assert said.startswith("validation 0.5 and test 0.2 hold out 70 of 100 links: communities are found from the 30")
    assert split(path(100), validation=0.3, test=0.2, seed=0).warnings == ()


@pytest.mark.parametrize(
    ("validation", "test", "match"),
    [
        (-0.1, 0.0, r"validation fraction -0\.1: give a fraction"),
        (1.0, 0.0, r"validation fraction 1\.0"),
        (0.1, 5, "test fraction 5"),
        (float("nan"), 0.0, "validation fraction nan"),
        (0.6, 0.4, "would hold out 10 of 10 links and leave none for training; lower"),
        (0.97, 0.0, "hold out 10 of 10"),
    ],
)
def test_refused_fractions(validation: float, test: float, match: str) -> None:
    with pytest.raises(InputError, match=match):
        split(path(10), validation=validation, test=test, seed=0)


def test_refused_seed() -> None:
    with pytest.raises(InputError, match="seed -1"):
        split(path(10), seed=-1)


def test_reading_and_splitting_take_little_memory(tmp_path, monkeypatch):
    """At the peak there are 8 bytes a link for the links, the text or the adjacency, and parts of constant size."""
    n_links = 100_000
    for module in ("graph", "building", "ids", "split"):
        monkeypatch.setattr(sys.modules[f"mmsbgen.graph.{module}"], "AT_A_TIME", 1 << 14)
    monkeypatch.setattr("mmsbgen.graph.graph._RANGE_LINKS", 11)
    monkeypatch.setattr("mmsbgen.graph.files.tokens.BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr("mmsbgen.base.user_files._BLOCK", 1 << 14)
    pairs = np.sort(np.random.default_rng(0).integers(0, 5000, (n_links, 2)), axis=1).tolist()
    file = tmp_path / "graph.txt"
    file.write_text("".join(f"{u} {v}\n" for u, v in pairs))
    tracemalloc.start()
    try:
        graph = load_edge_list(file)
        at_reading = tracemalloc.get_traced_memory()[1] / n_links
        tracemalloc.reset_peak()
        parts = split(graph, validation=0.01, test=0.01, seed=0)
        assert parts.training_adjacency.neighbours.size == 2 * parts.n_training_links
        at_splitting = tracemalloc.get_traced_memory()[1] / graph.n_links
    finally:
        tracemalloc.stop()
    assert at_reading < file.stat().st_size / n_links + 32
    assert at_splitting < 40
    assert parts.training_links.dtype == graph.links.dtype == np.uint32
    held = np.concatenate([part.pairs[part.labels] for part in (parts.validation, parts.test)])
    assert as_set(parts.training_links) == as_set(graph.links) - as_set(held)
    assert np.array_equal(
        np.concatenate([parts.training_part(at, 1000) for at in range(0, parts.graph.n_links, 1000)]),
        parts.training_links,
    )
    some = parts.some_training_links(500, np.random.default_rng(1))
    assert len(as_set(some)) == 500
    assert as_set(some) <= as_set(parts.training_links)
