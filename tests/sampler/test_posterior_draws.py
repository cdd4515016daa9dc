"""What a chain that samples keeps of its states: draws within their cap, and means and deviations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.graph import split
from mmsbgen.sampler.diagnostics import evaluation as evaluations
from mmsbgen.sampler.diagnostics.evaluation import evaluation
from mmsbgen.sampler.posterior import draws as module
from mmsbgen.sampler.posterior.draws import DrawRecorder, Draws, aligned, effective_number, spaced


def recorded(count: int, pairs: int = 3, apart: int = 2) -> DrawRecorder:
    """A recorder that was offered ``count`` states, ``apart`` iterations from one to the next."""
    ends = np.arange(2 * pairs).reshape(-1, 2)
    recorder = DrawRecorder(ends, np.arange(pairs) % 2 == 0, 2)
    for number in range(count):
        if recorder.wants_next():
            recorder.keep(apart * number, -number, float(number), np.full(pairs, number / 1e4), np.full(2, 0.5))
    return recorder


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 100])
def test_draws_stay_within_their_cap_evenly_spaced(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(module, "MOST_DRAWS", 8)
    kept = recorded(count).draws()
    assert len(kept) < 8
    assert len(kept) >= min(count, 4)
    apart = np.unique(np.diff(kept.iterations))
    assert apart.size <= 1, "all as far apart"
    if apart.size:
        assert 2 * count - 2 - kept.iterations[-1] < apart[0], "up to the last state"
        assert kept.iterations[0] == 0
    assert kept.link_probabilities.shape == (len(kept), 3)
    assert kept.link_probabilities.dtype == kept.strengths.dtype == np.float32


def test_a_restored_recorder_goes_on_as_if_nothing_had_been(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DRAWS", 8)
    for at in (0, 5, 8, 13, 20):
        before, after = recorded(at), recorded(0)
        after.restore(before.saved())
        straight = recorded(33)
        for number in range(at, 33):
            if after.wants_next():
                after.keep(2 * number, -number, float(number), np.full(3, number / 1e4), np.full(2, 0.5))
        for name, array in straight.saved().items():
            assert np.array_equal(after.saved()[name], array), (at, name)
    with pytest.raises(ValueError, match="not of this chain"):
        recorded(0, pairs=4).restore(recorded(3).saved())


def test_pairs_are_spaced_over_all() -> None:
    assert spaced(5, 10).tolist() == [0, 1, 2, 3, 4]
    assert spaced(10, 5).tolist() == [0, 2, 4, 6, 8]
    assert spaced(0, 5).tolist() == []
    many = spaced(12345, 1024)
    assert many.size == np.unique(many).size == 1024
    assert many.max() < 12345
    recorder = DrawRecorder(np.zeros((12345, 2), np.int64), np.arange(12345) < 6000, 4)
    recorder.keep(1, 0.0, 1.0, np.arange(12345.0), np.zeros(4))
    kept = recorder.draws()
    assert kept.link_probabilities[0].tolist() == many.tolist()
    assert kept.links.tolist() == (many < 6000).tolist()
    room = DrawRecorder.bytes(12345, 4)
    assert sum(array.nbytes for name, array in kept.arrays().items() if "pairs" not in name) <= room
    assert room == 1024 * (4 * 1024 + 4 * 4 + 24)


def test_chains_of_other_lengths_are_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """One was thinned, the other not yet: draws as far apart, as many, the last ones."""
    monkeypatch.setattr(module, "MOST_DRAWS", 8)
    short, long = recorded(7).draws(), recorded(10).draws()
    assert (short.iterations.tolist(), long.iterations.tolist()) == ([0, 2, 4, 6, 8, 10, 12], [0, 4, 8, 12, 16])
    one, other = aligned([short, long])
    assert (one.iterations.tolist(), other.iterations.tolist()) == ([0, 4, 8, 12], [4, 8, 12, 16])
    assert one.link_probabilities[:, 0].tolist() == [np.float32(n / 1e4) for n in (0, 2, 4, 6)]
    with pytest.raises(InputError, match="--sample-sweeps"):
        aligned([])
    with pytest.raises(InputError, match="there are no draws"):
        aligned([short, recorded(0).draws()])


def test_arrays_that_do_not_fit_are_refused() -> None:
    arrays = recorded(5).draws().arrays()
    assert Draws.of_arrays({}) is None
    for name in arrays:
        with pytest.raises(ValueError, match="do not fit together"):
            Draws.of_arrays(arrays | {name: arrays[name][:1]})
    with pytest.raises(KeyError):
        Draws.of_arrays({name: array for name, array in arrays.items() if name != "draws_links"})


def test_the_effective_number_is_that_of_equal_shares() -> None:
    assert effective_number(np.array([2.0, 2.0, 2.0, 0.0])) == pytest.approx(3)
    assert effective_number(np.array([1.0])) == 1
    assert effective_number(np.zeros(3)) == 0


# Of chains -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"mini_batch": "block", "mini_batch_size": 17, "dtype": "float64", "average": True},
        {"mini_batch": "block", "mini_batch_size": 17},
        {"mini_batch": "random-node"},
        {"mini_batch": "random-node", "storage": "float16"},
        {"mini_batch": "random-node", "storage": "bfloat16", "average": True},
    ],
    ids=lambda o: " ".join(map(str, o.values())),
)
def test_moments_and_draws_are_those_of_the_states(processor, chain, middling, options: dict[str, Any]) -> None:
    """Of every state that is evaluated after the burn-in, as the host makes them."""
    parts = split(middling.graph, validation=0.2, seed=1)
    sampler = chain(processor, parts, iterations=24, evaluate_every=2, burn_in=0.4, delta=1e-3, **options)
    sampler.initialise()
    states, strengths, told = [], [], []
    for _ in range(24):
        sampler.step()
        if sampler.iteration % 2:
            continue
        row = evaluation(sampler, 0.0)
        if sampler.iteration >= 10:
            states.append(sampler.rows(0, 60)[0].astype(np.float64))
            strengths.append(sampler.state.beta())
            told.append(row["sample_log_likelihood"])
    pi, beta = np.array(states), np.array(strengths)
    assert len(pi) == sampler.chain.averaged == 8
    mean, sd = sampler.moments(0, 60)
    u = np.finfo(sampler.shape.real).eps
    np.testing.assert_allclose(mean, pi.mean(axis=0), rtol=16 * u)
    np.testing.assert_allclose(sd, pi.std(axis=0, ddof=1), rtol=1e-4 if u > 1e-10 else 1e-10, atol=16 * u)
    for found, right in zip(sampler.beta_moments(), (beta.mean(axis=0), beta.std(axis=0, ddof=1)), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-10)
    # Memberships are the mean only if that was asked for.
    shown = sampler.rows(0, 60, mean=True)[0]
    assert np.array_equal(shown, mean if options.get("average") else states[-1].astype(shown.dtype))
    assert sampler.averaged == (8 if options.get("average") else 0)

    kept = sampler.draws.draws()
    assert kept.iterations.tolist() == list(range(10, 25, 2))
    np.testing.assert_array_equal(kept.pairs, parts.validation.pairs)
    np.testing.assert_array_equal(kept.links, parts.validation.labels)
    np.testing.assert_allclose(kept.strengths, beta, rtol=1e-6)
    assert kept.log_likelihoods.tolist() == told
    shares = pi.mean(axis=1)
    shares /= shares.sum(axis=1, keepdims=True)
    effective = np.exp(-(shares * np.log(shares)).sum(axis=1))
    np.testing.assert_allclose(kept.effective_communities, effective, rtol=1e-4)
    pi[:, parts.unlinked] = 1 / 5
    a, b = parts.validation.pairs.T
    p = 1e-3 + (pi[:, a] * pi[:, b] * (beta - 1e-3)[:, None]).sum(axis=2)
    np.testing.assert_allclose(kept.link_probabilities, p, rtol=2e-2 if sampler.shape.stored.narrow else 1e-4)


@pytest.mark.opencl
def test_draws_without_held_out_pairs(processor, chain, middling, monkeypatch) -> None:
    """The effective number of communities is left, of some vertices where there are many."""
    monkeypatch.setattr(evaluations, "_WATCHED", 5 * 20)
    parts = split(middling.graph, validation=0.0, seed=1)
    sampler = chain(processor, parts, iterations=4, burn_in_iterations=2, evaluate_every=1)
    sampler.initialise()
    for _ in range(4):
        sampler.step()
        evaluation(sampler, 0.0)
    kept = sampler.draws.draws()
    assert kept.iterations.tolist() == [2, 3, 4]
    assert kept.link_probabilities.shape == (3, 0)
    assert np.isnan(kept.log_likelihoods).all()
    shares = sampler.rows(0, 60)[0][::3].astype(np.float64).mean(axis=0)
    assert kept.effective_communities[-1] == pytest.approx(effective_number(shares), rel=1e-6)


@pytest.mark.opencl
def test_nothing_is_kept_of_a_run_that_optimises(processor, chain, middling) -> None:
    sampler = chain(processor, middling, iterations=4, mini_batch="block", noise=None, average=True)
    sampler.initialise()
    for _ in range(4):
        sampler.step()
        evaluation(sampler, 0.0)
    assert sampler.draws is None
    assert "squares" not in sampler.values
    assert sampler.averaged == 3
