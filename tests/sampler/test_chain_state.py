"""A chain's state is a value: it is given, changed as a copy, and taken back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mmsbgen.families.mmsb.blocks.link_kernels import links_groups
from mmsbgen.sampler.diagnostics.evaluation import evaluate, evaluation
from mmsbgen.sampler.minibatch.block_partners import LINKS
from mmsbgen.sampler.options.phases import Phases
from mmsbgen.sampler.state.chain_state import ChainState


def test_an_evaluation_counts_once_its_state_is_restored(processor, chain, middling):
    sampler = chain(processor, middling, mini_batch_size=20)
    sampler.initialise()
    sampler.iterate(3)
    before = sampler.chain
    (first, after), (second, _) = evaluate(sampler, burnt_in=True), evaluate(sampler, burnt_in=True)
    assert sampler.chain is before
    assert first == second, "the second one knows nothing of the first"
    sampler.chain = after
    third, _ = evaluate(sampler, burnt_in=True)
    assert (first.samples, third.samples) == (1, 2)


def test_a_restored_state_goes_on_as_it_would_have(processor, chain, middling):
    """Iterations draw by their number: what the arrays hold is the same, and so is the chain."""
    one, other = (chain(processor, middling, mini_batch_size=20) for _ in range(2))
    for sampler in (one, other):
        sampler.initialise()
        sampler.iterate(4)
        evaluation(sampler, 0.0)
    state = other.chain
    other.chain = ChainState.first(len(middling.validation.pairs), 5)
    assert other.iteration == 0
    other.chain = state
    for sampler in (one, other):
        sampler.iterate(4)
    assert np.array_equal(one.rows(0, 60)[0], other.rows(0, 60)[0])
    assert (one.chain.iteration, one.chain.vertex_updates) == (other.chain.iteration, other.chain.vertex_updates)


def test_means_begin_anew_where_a_run_gets_a_length():
    course = Phases("ego", settled_at=20, closing_from=20, end=70)
    state = ChainState(np.ones(3), np.ones(2), np.ones(2), iteration=30, samples=4, averaged=4, course=course)
    after = state.to_given_length()
    assert (after.iteration, after.samples, after.averaged, after.course) == (30, 0, 0, Phases("ego"))
    assert after.beta_sum.tolist() == [0, 0]
    assert state.beta_sum.tolist() == [1, 1], "the state before is as it was"


def test_theta_sums_the_groups_of_the_configuration_that_ran(processor, chain, middling, monkeypatch):
    """The first launch of block_links may replace a configuration that fails by one with other groups."""
    sampler = chain(processor, middling, mini_batch="block", mini_batch_size=20)
    sampler.initialise()
    replaced = SimpleNamespace(config={"groups": 3}, launch=lambda *_: pytest.fail("launched by its own name"))
    update, launched = sampler.partners.update, {}

    def replace_links(*given):
        update(*given)
        sampler.kernels[LINKS] = replaced

    monkeypatch.setattr(sampler.partners, "update", replace_links)
    monkeypatch.setattr(
        sampler, "launch", lambda _stage, kernel, _count, values: launched.update({kernel: dict(values)})
    )
    sampler.step()
    assert launched["theta_end"]["n_groups"] == links_groups(replaced.config)
