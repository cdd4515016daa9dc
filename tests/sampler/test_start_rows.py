"""Starts: the rows that are made of their sets, by the host and by the device."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmsbgen.families.mmsb.reference import equations
from mmsbgen.sampler.starts import start_methods
from mmsbgen.sampler.starts.start_methods import MASS
from mmsbgen.sampler.state import device_state


def shape_of(n: int, k: int, dtype: str = "float64") -> device_state.StateShape:
    return device_state.StateShape(n, k, 1, dtype)


def test_rows_put_their_mass_on_their_sets():
    start = start_methods.of_sets("some", [np.array([1, 3, 4]), np.array([0, 1]), np.array([1, 4])])
    vertices, rows = start.rows(0, 6, shape_of(6, 5))
    assert vertices.tolist() == [0, 1, 3, 4]
    rest = (1 - MASS) / 5
    for row, own in zip(rows, [[1], [0, 1, 2], [0], [0, 2]], strict=True):
        right = np.full(5, rest)
        right[own] += 0.9 / len(own)
        assert row[:5] == pytest.approx(right, abs=1e-15)
    assert rows.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-14)
    assert rows.shape == (4, 16)
    assert not rows[:, 5:].any()


@given(st.sets(st.integers(1, 19), max_size=5))
@settings(deadline=None, max_examples=40)
def test_rows_do_not_depend_on_the_parts_they_are_made_in(cuts):
    start = start_methods.of_sets("some", [np.arange(2, 9), np.arange(5, 14), np.array([0, 17])])
    shape = shape_of(20, 4)
    vertices, whole = start.rows(0, 20, shape)
    assert vertices.tolist() == np.unique(start.vertices).tolist()
    parts = [start.rows(a, b, shape) for a, b in pairwise([0, *sorted(cuts), 20])]
    assert np.array_equal(np.concatenate([found for found, _ in parts]), vertices)
    assert np.array_equal(np.concatenate([rows for _, rows in parts]), whole)


@pytest.mark.parametrize("name", start_methods.STARTS)
def test_a_chain_starts_with_the_rows(processor, chain, middling, monkeypatch, name):
    """Those of sets, and Dirichlet draws for vertices in none; vertices without links are left out."""
    monkeypatch.setattr(device_state, "CHUNK_ROWS", 7)
    sampler = chain(processor, middling, mini_batch="block", mini_batch_size=17, initial_row_sum=2.5, noise=None)
    start = start_methods.STARTS[name](middling, 5, 11)
    sampler.initialise(start)
    pi, sums = (
        np.concatenate(part) for part in zip(*(sampler.rows(*at) for at in sampler.state_chunks()), strict=True)
    )
    right = equations.initial_rows(sampler.options.seed, np.arange(60), 5)[0]
    vertices, rows = start.rows(0, 60, shape_of(60, 5))
    assert (name == "random") == (not vertices.size)
    right[vertices] = rows[:, :5]
    linked = np.delete(np.arange(60), sampler.left_out)
    assert 50 < linked.size < 60
    assert np.isin(vertices, linked).all()
    assert np.array_equal(pi[vertices], right[vertices].astype(np.float32))
    assert pi[linked] == pytest.approx(right[linked], rel=1e-5)
    assert np.all(sums[linked] == 2.5)
    assert sampler.course.start == name


def test_rows_of_a_start_without_a_size_of_its_own_sum_to_that_of_the_prior(processor, chain, middling):
    sampler = chain(processor, middling, mini_batch="block", initial_row_sum=None, noise=None)
    for sets, right in (([np.arange(20)], np.full(60, 5.0)), ([], None)):
        sampler.initialise(start_methods.of_sets("some", sets))
        sums = sampler.rows(0, 60)[1]
        if right is None:
            right = equations.initial_rows(sampler.options.seed, np.arange(60), 5)[1]
        linked = np.delete(np.arange(60), sampler.left_out)
        assert sums[linked] == pytest.approx(right[linked], rel=1e-5)


@pytest.mark.parametrize("name", start_methods.STARTS)
@pytest.mark.parametrize(("k", "dtype"), [(1, "float32"), (7, "float64"), (70, "float32")])
def test_the_device_places_the_rows_that_the_host_makes(processor, chain, middling, name, k, dtype):
    """Bit for bit; vertices in no set have the rows that were drawn, and no other ones are touched."""
    start = start_methods.STARTS[name](middling, k, 2)
    states = []
    for host in (True, False):
        sampler = chain(processor, middling, n_communities=k, mini_batch="block", noise=None, dtype=dtype)
        if host:
            del sampler.kernels["place_rows"]
        sampler.initialise(start)
        # Spare rows are whatever was there before.
        whole = {key: processor.download(value) for key, value in sampler.state.buffers.items()}
        states.append(whole | {key: whole[key][:60] for key in ("pi", "row_sums")})
    for key, value in states[0].items():
        assert np.array_equal(value, states[1][key]), key
    if name == "communities":
        assert len(start.rows(0, 60, sampler.shape)[0]) > 2


def test_rows_of_16_bits_are_placed_by_the_host(processor, chain, middling):
    """It rounds them by the bits of iteration 0."""
    sampler = chain(processor, middling, start="communities", storage="bfloat16")
    assert "place_rows" not in sampler.kernels
    assert "place_rows" in chain(processor, middling, start="communities").kernels
    assert "place_rows" not in chain(processor, middling).kernels
