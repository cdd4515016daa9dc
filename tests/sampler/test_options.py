"""Options: what is refused, what is settled for a graph, and the way through JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from mmsbgen.base.declared_options import options_of
from mmsbgen.base.errors import InputError
from mmsbgen.sampler.chain.chain_problem import partner_rule
from mmsbgen.sampler.diagnostics.communities import RULES
from mmsbgen.sampler.minibatch.strategies import STARS
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.options.schedule import Schedule
from mmsbgen.sampler.saved.result_options import ResultOptions
from mmsbgen.tuner.measure.measurer import TrialLimits
from mmsbgen.tuner.measure.roofs import BUFFER_BYTES
from mmsbgen.tuner.run.tune_options import TuneOptions


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_communities": 0},
        {"n_communities": 2.5},
        {"n_communities": "5"},
        {"n_communities": None},
        {"iterations": -1},
        {"iterations": 2**32},
        {"mini_batch_size": 0},
        {"n_partners": 0},
        {"evaluate_every": 0},
        {"step": "euler"},
        {"partners": "all"},
        {"nonlink_weight": "none"},
        {"dtype": "float16"},
        {"storage": "float8"},
        {"storage": "bfloat16"},
        {"storage": "float16", "mini_batch": "random-node", "dtype": "float64"},
        {"storage": "float16", "mini_batch": "random-node", "partners": "shared"},
        {"products": "half", "mini_batch": "random-node"},
        {"products": "half", "mini_batch": "random-node", "partners": "shared", "dtype": "float64"},
        {"partners": "shared-uniform", "mini_batch": "block"},
        {"alpha": 0.0},
        {"alpha": float("nan")},
        {"initial_row_sum": -1.0},
        {"theta_scale": float("inf")},
        {"eta": (0.0, 1.0)},
        {"eta": (1.0,)},
        {"delta": 0.0},
        {"delta": 0.7},
        {"burn_in": 1.5},
        {"start": "somewhere"},
        {"start": "auto", "mini_batch": "random-node"},
        {"burn_in": float("nan")},
        {"seed": -1},
        {"seed": 2**64},
        {"seed": "x"},
        {"refine": 1},
        {"average": "yes"},
        {"seed": True},
        {"alpha": True},
        {"mini_batch": "stars"},
        {"mini_batch": []},
    ],
)
def test_wrong_values_name_the_option(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Options(**{"n_communities": 4, **wrong})


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 0.5), (1.0, 0.0, 0.5), (1.0, 1.0, -0.1), (float("inf"), 1.0, 0.5)])
def test_wrong_schedules(wrong):
    with pytest.raises(InputError, match="schedule"):
        Schedule(*wrong)


def test_the_declared_choices_and_defaults_are_those_that_there_are():
    assert set(options_of(Options)["mini_batch"].choices) == {*STARS, "block"}
    assert options_of(ResultOptions)["rule"].choices == tuple(RULES)
    limits = TuneOptions().keywords()["limits"]
    assert (limits, TuneOptions().roof_mib << 20) == (TrialLimits(), BUFFER_BYTES)
    for declaration in (Options, ResultOptions, TuneOptions):
        for one in options_of(declaration).values():
            assert one.help.endswith("."), one.name


def test_integers_of_numpy_survive_json():
    options = Options(np.int64(4), iterations=np.int32(7), seed=np.uint64(2**64 - 1), schedule=Schedule(0.1, 2.0, 0.6))
    again = Options.from_dict(json.loads(json.dumps(asdict(options))))
    assert again == options
    assert type(again.seed) is int


def test_what_depends_on_the_graph_and_the_length_is_settled():
    sized = Options(4, iterations=500, mini_batch="random-node").sized_for(1000)
    assert (sized.size, sized.draws, sized.interval, sized.burn_in_end) == (125, 32, 10, 250)
    assert sized.sized_for(10) == sized
    assert Options(4, iterations=0).burn_in_end == 1
    assert Options(4, iterations=10, burn_in=0.0).burn_in_end == 1


def test_stars_that_share_have_more_partners():
    for partners in ("shared", "shared-uniform"):
        options = Options(4, mini_batch="random-node", partners=partners)
        assert options.shares
        assert options.sized_for(1000).draws == 256
        rule = partner_rule(100, options.sized_for(100))
        assert (rule.name, rule.n, rule.shared) == (partners, 100, True)
    assert not Options(4, mini_batch="random-node").shares


def test_blocks_leave_their_end_open_and_take_delta_from_the_density():
    sized = Options(4).sized_for(10**6, 5 * 10**6)
    assert (sized.size, sized.draws, sized.start) == (32768, 512, "auto")
    assert (sized.iterations, sized.burn_in_end) == (None, None)
    assert sized.interval == 2 * 31
    assert sized.delta == pytest.approx(1e-7, rel=1e-5)
    assert sized.sized_for(10**6, 5 * 10**6) == sized
    assert Options(4, mini_batch="random-node").sized_for(100, 50).delta == 1e-7
    assert Options(4).sized_for(100, 4000).delta == 1e-3


@pytest.mark.parametrize(
    ("vertices", "size"), [(100, 4096), (100_000, 6250), (262_143, 16383), (262_144, 32768), (10**7, 32768)]
)
def test_blocks_grow_with_the_graph(vertices, size):
    assert Options(4).sized_for(vertices, vertices).size == size


@pytest.mark.parametrize(("links", "share"), [(10, 0.05), (20_000, 0.025), (10**6, 0.01), (10**7, 0.002)])
def test_few_links_hold_out_a_larger_share_and_many_a_smaller_one(links, share):
    assert Options(4).held_out_share(links) == share
    assert Options(4, validation=0.2).held_out_share(links) == 0.2


@pytest.mark.parametrize("more", [{"mini_batch": "random-node"}, {"noise": True}, {"noise": False}, {"iterations": 10}])
def test_sampling_follows_an_optimum_that_ends_by_itself(more):
    with pytest.raises(InputError, match="sample_sweeps"):
        Options(4, sample_sweeps=5, **more)


def test_schedule():
    assert Schedule(0.5, 4.0, 0.5)(12) == pytest.approx(0.25)


@pytest.mark.parametrize(("links", "share"), [(10**7, 0.002), (10**6, 0.01), (1000, 0.01), (999, 0.0), (0, 0.0)])
def test_a_hundredth_of_the_links_is_for_test_where_that_says_anything(links, share):
    assert Options(4).test_share(links) == share
    assert Options(4, validation=0.2).test_share(links) == share
    assert Options(4, validation=0.0).test_share(links) == 0.0
    assert Options(4, test=0.2).test_share(links) == 0.2
    assert Options(4, validation=0.0, test=0.2).test_share(links) == 0.2


def test_numpy_scalars_become_pythons_own():
    """So that a run record and a checkpoint can be written."""
    given = Options(np.int64(4), delta=np.float32(0.01), average=np.bool_(True), eta=(1, np.float32(2)))
    assert json.loads(json.dumps(asdict(given))) == asdict(given) | {"eta": [1.0, 2.0]}
    assert Options.from_dict(asdict(given)) == given
