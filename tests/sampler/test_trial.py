"""The choice of a start: by trials, by name, or by what is left where nothing can choose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mmsbgen.graph import Split, split
from mmsbgen.graph.building import build_graph
from mmsbgen.sampler.run import start_trials
from mmsbgen.sampler.run.start_trials import SWEEPS, SWEEPS_LARGE, choose, trials_told
from mmsbgen.sampler.starts import start_methods
from mmsbgen.sampler.starts.start_methods import STARTS

COUNTS = ("iteration", "samples", "averaged", "vertex_updates", "clips", "published_evaluations")


@pytest.fixture(scope="module")
def groups() -> Split:
    """60 vertices in 4 groups of 20, each sharing a quarter with the next; a tenth of the links held out."""
    rng = np.random.default_rng(2)
    a, b = np.triu_indices(60, 1)
    together = sum(((a - at) % 60 < 20) & ((b - at) % 60 < 20) for at in (0, 15, 30, 45))
    linked = rng.random(a.size) < np.where(together > 0, 0.6, 0.02)
    graph = build_graph(a[linked], b[linked], np.arange(60), name="groups", directed=False)
    return split(graph, validation=0.1, seed=1)


@pytest.fixture
def blocks(processor, chain):
    def make(parts: Split, **options):
        given = {"n_communities": 4, "mini_batch": "block", "mini_batch_size": 35, "noise": None, **options}
        return chain(processor, parts, **given)

    return make


def everything(sampler) -> dict[str, np.ndarray]:
    pi, sums = sampler.rows(0, sampler.split.graph.n_vertices)
    found = {"pi": pi, "sums": sums, "theta": sampler.state.theta(), "beta": sampler.state.beta()}
    return found | {"published": sampler.chain.published_sum, **{name: getattr(sampler.chain, name) for name in COUNTS}}


def assert_same(one, other) -> None:
    for name, value in everything(one).items():
        assert np.array_equal(value, everything(other)[name]), name


def test_the_start_with_the_best_held_out_log_likelihood_is_taken(blocks, groups):
    sampler = blocks(groups, start="auto")
    choose(sampler)
    trials = sampler.course.trials
    assert [each["start"] for each in trials] == list(STARTS)
    assert sampler.course.start == max(trials, key=lambda each: each["log_likelihood"])["start"]
    assert len({each["log_likelihood"] for each in trials}) == 3
    for each in trials:
        assert each["iterations"] == SWEEPS * sampler.per_sweep == 50
        assert each["sets"] == (
            0 if each["start"] == "random" else len(set(STARTS[each["start"]](groups, 4, 11).communities))
        )
        assert each["own_log_likelihood"] < each["log_likelihood"] < 0
        assert 0 <= each["own_auc"] <= 1
        assert 0.5 < each["auc"] <= 1


@pytest.mark.parametrize("best", STARTS)
def test_each_start_can_win_and_begins_anew(blocks, groups, monkeypatch, best):
    """The chain is that of the start by name: nothing of the trials is left."""
    measure, seen = start_trials.evaluate, []

    def prefer(sampler, burnt_in):
        metrics, after = measure(sampler, burnt_in)
        seen.append((sampler.course.start, sampler.iteration))
        assert (metrics.samples, after.published_evaluations) == (1, 1)
        liked = sampler.course.start == best and sampler.iteration
        # What a start scores by itself does not count.
        value = -0.1 if liked else -0.05 if not sampler.iteration else -0.2
        return replace(metrics, sample_log_likelihood=value), after

    monkeypatch.setattr(start_trials, "evaluate", prefer)
    monkeypatch.setattr(start_trials, "SWEEPS", 4)
    sampler, plain = blocks(groups, start="auto"), blocks(groups, start=best)
    choose(sampler)
    choose(plain)
    assert seen == [(name, iteration) for name in STARTS for iteration in (0, 8)]
    assert sampler.course.start == plain.course.start == best
    assert [each["log_likelihood"] for each in sampler.course.trials] == [
        -0.1 if name == best else -0.2 for name in STARTS
    ]
    assert plain.course.trials == []
    assert [getattr(sampler.chain, name) for name in COUNTS] == [0] * len(COUNTS)
    assert replace(sampler.course, trials=[]) == plain.course
    assert_same(sampler, plain)
    for one in (sampler, plain):
        for _ in range(5):
            one.step()
    assert_same(sampler, plain)


@pytest.mark.parametrize("name", STARTS)
def test_a_named_start_is_taken_without_trials(blocks, groups, monkeypatch, name):
    monkeypatch.setattr(start_trials, "evaluate", lambda *_: pytest.fail("nothing is to be compared"))
    sampler, right = blocks(groups, start=name), blocks(groups, start=name)
    choose(sampler)
    right.initialise(STARTS[name](groups, 4, 11))
    assert sampler.course.start == name
    assert sampler.course.trials == []
    assert trials_told(sampler) == []
    assert_same(sampler, right)


def test_without_held_out_pairs_it_is_leidens_communities(blocks, groups, monkeypatch):
    monkeypatch.setattr(start_trials, "evaluate", lambda *_: pytest.fail("nothing is to be compared"))
    whole = split(groups.graph, validation=0.0, seed=1)
    sampler, right = blocks(whole, start="auto"), blocks(whole, start="communities")
    choose(sampler)
    choose(right)
    assert sampler.course.start == "communities"
    assert sampler.course.trials == []
    assert_same(sampler, right)


def test_large_states_are_tried_shorter_and_not_at_random(blocks, groups, monkeypatch):
    monkeypatch.setattr(start_methods, "_LARGE", 239)
    sampler = blocks(groups, start="auto")
    choose(sampler)
    assert [each["start"] for each in sampler.course.trials] == ["communities", "ego"]
    assert [each["iterations"] for each in sampler.course.trials] == [SWEEPS_LARGE * 2] * 2


def test_one_start_worth_trying_is_not_tried(blocks, groups, monkeypatch):
    """Four ego nets of mean size hold 52 of 60 vertices, two of them 26."""
    monkeypatch.setattr(start_methods, "_LARGE", 0)
    monkeypatch.setattr(start_methods, "MANY", 10)
    assert start_methods.worth_trying(groups, 4) == ["communities", "ego"]
    assert start_methods.worth_trying(groups, 2) == ["communities"]
    monkeypatch.setattr(start_trials, "evaluate", lambda *_: pytest.fail("nothing is to be compared"))
    sampler = blocks(groups, start="auto", n_communities=2)
    choose(sampler)
    assert (sampler.course.start, sampler.course.trials) == ("communities", [])


def test_the_same_choice_twice(blocks, groups, monkeypatch):
    monkeypatch.setattr(start_trials, "SWEEPS", 12)
    first, second = blocks(groups, start="auto"), blocks(groups, start="auto")
    choose(first)
    choose(second)
    assert first.course == second.course
    assert_same(first, second)


@pytest.mark.parametrize("answers", [0, 1, 5, 11])
def test_once_asked_to_stop_nothing_is_decided(blocks, groups, monkeypatch, answers):
    """Half a trial would choose another start than an undisturbed run, whose bits a resumed one is to have."""
    monkeypatch.setattr(start_trials, "SWEEPS", 4)
    sampler = blocks(groups, start="auto")
    left = iter(range(answers))
    with pytest.raises(KeyboardInterrupt):
        choose(sampler, lambda: next(left, None) is None)
    assert sampler.course.trials == []


def test_trials_take_a_quarter_of_a_run_at_most(blocks, groups, monkeypatch):
    """A run too short to try anything begins from Leiden's communities."""
    monkeypatch.setattr(start_trials, "SWEEPS", 6)
    for iterations, each in ((400, 12), (43, 10), (8, 2)):
        sampler = blocks(groups, start="auto", iterations=iterations)
        choose(sampler)
        assert [found["iterations"] for found in sampler.course.trials] == [each] * 3
    sampler = blocks(groups, start="auto", iterations=7)
    choose(sampler)
    assert (sampler.course.start, sampler.course.trials) == ("communities", [])


def test_trials_are_told(blocks, groups, monkeypatch):
    monkeypatch.setattr(start_trials, "SWEEPS", 6)
    sampler = blocks(groups, start="auto")
    choose(sampler)
    (line,) = trials_told(sampler)
    for each in sampler.course.trials:
        assert f"{each['start']} {each['log_likelihood']:.4g}" in line
    assert "after 6 sweeps" in line
    assert line.endswith(f"Going on from {sampler.course.start}.")


def test_one_community_and_more_than_vertices(blocks, groups, monkeypatch):
    monkeypatch.setattr(start_trials, "SWEEPS", 4)
    for k in (1, 70):
        sampler = blocks(groups, start="auto", n_communities=k)
        choose(sampler)
        assert len(sampler.course.trials) == 3
        assert np.all(np.isfinite(sampler.rows(0, 60)[0]))
