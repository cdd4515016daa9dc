"""The estimator goes on: partial fits, fits that fail or are interrupted, and seeds."""

from __future__ import annotations

import copy
import os
import signal
import threading
import time

import networkx as nx
import numpy as np
import pytest
import sklearn.base

from mmsbgen import MMSB
from mmsbgen.base.errors import InputError, ParameterError
from mmsbgen.estimator.mmsb import InterruptedFit
from mmsbgen.sampler.options.schedule import Schedule
from tests.detection.estimators import RING, fast, of_four_shares
from tests.devices import PROCESSOR

pytestmark = pytest.mark.opencl


@pytest.fixture(scope="module")
def fitted() -> MMSB:
    return of_four_shares()


COURSE = {"evaluate_every": 4, "burn_in_iterations": 5, "test": 0.1, "random_state": 2}


@pytest.mark.parametrize(
    "extra",
    [{}, {"mini_batch": "random-node"}, {"noise": True, "average": True}],
    ids=["block", "stars", "block with noise, averaged"],
)
def test_partial_fit_gives_the_bits_of_a_longer_run(extra):
    options = {**COURSE, **extra}
    straight = fast(4, **options, iterations=21).fit(RING)
    parts = fast(4, **options, iterations=10).fit(RING)
    assert parts.partial_fit(iterations=4) is parts
    assert parts.n_iter_ == 14
    parts.partial_fit(RING, iterations=7)
    assert parts.n_iter_ == straight.n_iter_ == 21
    assert np.array_equal(parts.memberships_, straight.memberships_)
    assert np.array_equal(parts.strengths_, straight.strengths_)
    assert parts.communities_ == straight.communities_
    without_time = [[{k: v for k, v in row.items() if k != "seconds"} for row in m.trace_] for m in (parts, straight)]
    assert without_time[0] == without_time[1]
    assert parts.score() == straight.score()


def test_partial_fit_goes_on_sampling():
    model = MMSB(3, device=PROCESSOR, start="random", sample_sweeps=5, average=True).fit(RING)
    done = model.n_iter_
    assert model.partial_fit(iterations=7).n_iter_ == done + 7
    assert model.partial_fit().n_iter_ == done + 7 + 50
    assert {row["phase"] for row in model.trace_ if row["iteration"] > done} == {"sample"}


def test_partial_fit_begins_goes_on_and_adds_what_it_should(tmp_path):
    model = fast(3).partial_fit(RING)
    assert np.array_equal(model.memberships_, fast(3).fit(RING).memberships_)
    assert model.partial_fit().n_iter_ == 12, "as many as fit makes"
    assert model.partial_fit(iterations=0).n_iter_ == 12
    assert fast(3).partial_fit(RING, iterations=2).n_iter_ == 2
    open_run = MMSB(3, device=PROCESSOR, start="random").fit(RING)
    end = open_run.n_iter_
    assert open_run.partial_fit().n_iter_ == end + 50, "30 vertices are one block"
    with pytest.raises(InputError, match="goes on with the graph that was fitted, list; for another one call fit"):
        model.partial_fit([(0, 1), (1, 2)])
    for bad in (-1, "x", 2.5):
        with pytest.raises(InputError, match=f"iterations={bad!r}"):
            model.partial_fit(iterations=bad)
    model.set_params(alpha=0.5, rule="threshold", threshold=0.9)
    with pytest.raises(ParameterError, match="alpha was None when the model was fitted and is 0.5 now"):
        model.partial_fit()
    assert model.n_iter_ == 12
    assert model.set_params(alpha=None).partial_fit().n_iter_ == 18
    assert model.communities_ == model.get_communities("threshold", 0.9)


def test_a_number_chosen_by_held_out_pairs_stays():
    model = MMSB(device=PROCESSOR, random_state=1).fit(nx.disjoint_union(nx.complete_graph(12), nx.complete_graph(12)))
    k = model.n_communities_
    assert model.record_["tried"]
    assert model.partial_fit(iterations=3).n_communities_ == k
    assert model.n_communities == "auto"


def test_a_fit_that_fails_leaves_the_one_before(fitted):
    model = copy.deepcopy(fitted)
    for graph, params, words in (
        (np.zeros((3, 3)), {}, "third column"),
        (RING, {"alpha": -1}, "alpha=-1"),
        (RING, {"schedule": 3}, "schedule=3: give three numbers"),
        (RING, {"eta": "x"}, "eta='x'"),
        (RING, {"random_state": "x"}, "random_state='x': give an integer"),
        (RING, {"n_communities": 0}, "n_communities=0"),
        (RING, {"n_communities": "many"}, "n_communities='many'"),
        (RING, {"rule": "best"}, "rule 'best'"),
        (RING, {"top": 0}, "top=0"),
        (RING, {"top": 2.5}, "top=2.5"),
        (RING, {"alpha": "x"}, "alpha='x': it must be a number"),
        (RING, {"validation": []}, r"validation=\[\]: it must be a number"),
        (RING, {"threshold": "x"}, "threshold 'x' of rule share: it must be a number"),
        (RING, {"device": "toaster"}, "toaster"),
    ):
        with pytest.raises(InputError, match=words):
            sklearn.base.clone(model).set_params(**params).fit(graph)
        with pytest.raises(InputError, match=words):
            model.set_params(**params).fit(graph)
        assert np.array_equal(model.memberships_, fitted.memberships_)
        model.set_params(**fitted.get_params())
    assert model.partial_fit(iterations=1).n_iter_ == 7


def test_random_states():
    by_generator = fast(3, random_state=np.random.default_rng(4))
    first, second = by_generator.fit(RING).seed_, by_generator.fit(RING).seed_
    assert first != second
    again = fast(3, random_state=first).fit(RING)
    by_generator.set_params(random_state=np.random.default_rng(4)).fit(RING)
    assert np.array_equal(again.memberships_, by_generator.memberships_)
    assert by_generator.partial_fit(iterations=1).seed_ == first
    assert fast(3, random_state=np.random.RandomState(1)).fit(RING).seed_ > 0
    assert fast(3).fit(RING).seed_ == 0
    numpy_numbers = fast(np.int64(3), alpha=np.float32(0.5), schedule=(0.2, 100, 0.6), random_state=np.uint8(7)).fit(
        RING
    )
    same = fast(3, alpha=0.5, schedule=Schedule(0.2, 100, 0.6), random_state=7).fit(RING)
    assert np.array_equal(numpy_numbers.memberships_, same.memberships_)


def test_an_interrupted_fit_can_go_on():
    straight = fast(4, iterations=500, evaluate_every=50, refine=False).fit(RING)
    model = fast(4, iterations=500, evaluate_every=50, refine=False)
    before, end = signal.getsignal(signal.SIGINT), time.monotonic() + 60

    def interrupt() -> None:
        # Until the run listens, the signal would end the tests.
        while signal.getsignal(signal.SIGINT) == before:
            if time.monotonic() > end:
                return
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.warns(InterruptedFit, match=r"interrupted after iteration \d+; partial_fit\(\) goes on"):
        model.fit(RING)
    thread.join()
    assert model.interrupted_
    assert model.n_iter_ < 500
    assert model.partial_fit().n_iter_ == 500
    assert not model.interrupted_
    assert np.array_equal(model.memberships_, straight.memberships_)
