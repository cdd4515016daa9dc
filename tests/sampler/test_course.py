"""The course of a run: when it refines, samples and ends, told synthetic traces."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace

import pytest

from mmsbgen.sampler.options import phases as course_module
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.options.phases import (
    BLIND_SWEEPS,
    CLOSING_SWEEPS,
    MOST_SWEEPS,
    NOISY_SWEEPS,
    REFINE_ROUNDS,
    REFINE_SWEEPS,
    RESTART,
    TOLERANCE,
    WINDOW,
    Phases,
    one_community,
    settled,
)

OPEN = Options(4)
SAMPLING = Options(4, sample_sweeps=50)
PLAIN = Options(4, refine=False)
NOISY = Options(4, noise=True)
GIVEN = Options(4, iterations=100)
STARS = Options(4, mini_batch="random-node", iterations=100)


def rows(values, first: int = 2, every: int = 2) -> list[dict]:
    """A trace with these log-likelihoods, from an iteration on."""
    return [
        {"iteration": first + at * every, "sample_log_likelihood": value, "auc": 0.9} for at, value in enumerate(values)
    ]


def rising(count: int, gain: float = 0.1) -> list[float]:
    return [-10.0 * (1 - gain) ** at for at in range(count)]


FLAT = [-1.0] * 2 * WINDOW


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Runs may end as early as their traces say, but where a test says how early."""
    monkeypatch.setattr(course_module, "LEAST_SWEEPS", 0)


# Settled ------------------------------------------------------------------------------------------------------


def test_a_rising_trace_has_not_settled():
    assert settled(rows(rising(30))) is False


def test_perfect_communities_settle_though_their_relative_gains_never_end():
    """Two cliques: the log-likelihood falls to a tenth of one community's and goes on by .5 % from window to window."""
    trace = rows([-0.06 * 0.999**at for at in range(40)])
    assert settled(trace) is False
    assert settled(trace, one_community=one_community(0.487)) is True
    assert settled(rows(rising(100)), one_community=-10.0) is True, "less than .2 % of a quarter of 10 nats"
    assert settled(rows(rising(30)), one_community=-10.0) is False
    assert decided(PLAIN, trace).end is None
    assert Phases().decided(PLAIN, trace, 80, 1, one_community(0.487)).settled_at == 80


def test_the_log_likelihood_of_one_community():
    assert one_community(0.5) == pytest.approx(-0.6931472)
    assert one_community(0.01) == pytest.approx(0.01 * math.log(0.01) + 0.99 * math.log(0.99))
    assert one_community(1.0) == 0.0


def test_a_flat_or_falling_trace_has_settled():
    assert settled(rows(FLAT)) is True
    assert settled(rows([-1.0 - 0.1 * at for at in range(20)])) is True


def test_what_rose_long_ago_does_not_count():
    assert settled(rows(rising(30) + FLAT)) is True
    assert settled(rows(FLAT + rising(2 * WINDOW))) is False


def test_too_short_a_trace_tells_nothing():
    assert settled([]) is None
    for values in (FLAT[1:], rising(2 * WINDOW - 1)):
        assert settled(rows(values)) is None


def test_a_trace_without_metrics_tells_nothing():
    without = [{"iteration": at, "eps": 0.1} for at in range(50)]
    assert settled(without) is None
    assert settled(without + rows(FLAT)) is True


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize(("gain", "verdict"), [(0.9, True), (1.1, False)])
def test_the_gain_is_relative(scale, gain, verdict):
    """Just below the tolerance a run has settled, just above it has not, whatever the unit."""
    step = gain * TOLERANCE
    assert settled(rows([-scale] * WINDOW + [-scale * (1 - step)] * WINDOW)) is verdict


def test_one_outlier_decides_nothing():
    """Means of windows are compared, not single values."""
    noisy = [-1.0 + (0.01 if at % 2 else -0.01) for at in range(4 * WINDOW)]
    verdicts = {settled(rows(noisy[:stop])) for stop in range(2 * WINDOW, len(noisy), 2)}
    assert len(verdicts) == 1
    assert settled(rows([*FLAT[:-1], -0.5])) is False


def test_windows_have_a_sweep_at_least():
    """Within less most vertices stand still: flat evaluations say nothing then, and rising ones are seen."""
    flat = rows([-1.0] * 40, first=1, every=1)
    assert settled(flat, sweep=82.0) is None, "half a sweep"
    assert settled(flat, sweep=20.5) is None, "not quite two"
    assert settled(flat, sweep=20.0) is True
    slow = rows(rising(40, gain=TOLERANCE / 10), first=1, every=1)
    assert settled(slow, sweep=1.0) is True, "too slow to be seen from five evaluations to the next"
    assert settled(slow, sweep=20.0) is False


@pytest.mark.parametrize(("sweep", "every", "iterations"), [(65.0, 2, 130), (1000 / 3, 10, 667)])
def test_two_sweeps_are_enough_wherever_evaluations_fall(sweep, every, iterations):
    """Of blocks as of stars, whose last evaluation comes at the end of the run and out of step."""
    at = [*range(every, iterations, every), iterations]
    flat = [{"iteration": iteration, "sample_log_likelihood": -1.0} for iteration in at]
    assert settled(flat, sweep) is True
    assert settled(flat, sweep, begin=every) is None
    assert settled(flat[:-1], sweep) is None


def test_frequent_evaluations_end_no_run():
    """An open run that is evaluated in every iteration looks back as many sweeps as it must."""
    slow = rows(rising(60, gain=TOLERANCE / 10), first=1, every=1)
    assert decided(PLAIN, slow, per_sweep=30) == Phases()
    assert decided(PLAIN, slow, per_sweep=1).end == 60 + CLOSING_SWEEPS


# Refinement ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_sweep", [1, 3])
def test_refinement_is_due_after_so_many_sweeps(per_sweep):
    due = REFINE_SWEEPS * per_sweep
    assert not Phases().refines(OPEN, due - 1, per_sweep)
    assert Phases().refines(OPEN, due, per_sweep)
    course = Phases()
    course = course.refined(due + 5, 2, per_sweep)
    assert not course.refines(OPEN, 2 * due + 4, per_sweep)
    assert course.refines(OPEN, 2 * due + 5, per_sweep)


@pytest.mark.parametrize("options", [PLAIN, NOISY, STARS, replace(GIVEN, refine=False)])
def test_some_runs_do_not_refine(options):
    assert not Phases().refines(options, 60, 1)


@pytest.mark.parametrize("options", [OPEN, SAMPLING, GIVEN, Options(4, noise=False)])
def test_runs_that_optimise_do(options):
    assert Phases().refines(options, 40, 1)


def test_no_refinement_once_states_are_averaged():
    """A community that is filled means something else from then on."""
    assert Phases().refines(GIVEN, 49, 1)
    assert not Phases().refines(GIVEN, 50, 1)


def test_no_refinement_near_the_end():
    """What moved has to settle: as many sweeps are left."""
    for options, end in ((replace(GIVEN, burn_in=0.9), 100), (OPEN, MOST_SWEEPS)):
        assert Phases().refines(options, end - REFINE_SWEEPS, 1)
        for late in (end - REFINE_SWEEPS + 1, end - 1, end, end + 100):
            assert not Phases().refines(options, late, 1)


def test_no_refinement_once_the_end_is_known():
    assert not Phases(end=1000).refines(OPEN, 60, 1)
    assert not Phases(end=1000, sampling_from=50).refines(SAMPLING, 60, 1)


def test_refinements_are_limited():
    course = Phases()
    for done in range(REFINE_ROUNDS):
        at = (done + 1) * REFINE_SWEEPS
        assert course.refines(OPEN, at, 1)
        course = course.refined(at, 1, 1)
    assert not any(course.refines(OPEN, at, 1) for at in range(MOST_SWEEPS))
    assert [note["iteration"] for note in course.refinements] == [30, 60, 90]
    assert course.changed_at == 90


def test_a_refinement_that_found_nothing_is_the_last():
    course = Phases()
    course = course.refined(30, 0, 1)
    assert course.refinements == [{"iteration": 30, "filled": 0}]
    assert not any(course.refines(OPEN, at, 1) for at in range(MOST_SWEEPS))
    assert course.changed_at == 0
    assert (course.clock_from, course.clock_at) == (0, 0.0)


def test_a_pruning_is_made_once_when_the_run_has_settled():
    course = Phases().refined(30, 0, 1)
    assert not course.prunes(OPEN, course)
    ends = dataclasses.replace(course, settled_at=100, end=150)
    assert course.prunes(OPEN, ends)
    assert not course.prunes(dataclasses.replace(OPEN, refine=False), ends)
    pruned = course.after_pruning(100, 3, 1)
    assert (pruned.pruned, pruned.changed_at) == ({"iteration": 100, "emptied": 3}, 100)
    assert (pruned.clock_from, pruned.clock_at) == (100, 20.0)
    assert pruned.end is None, "it goes on until it has settled again"
    assert not pruned.prunes(OPEN, dataclasses.replace(pruned, settled_at=140))
    assert not any(pruned.refines(OPEN, at, 1) for at in range(MOST_SWEEPS))


def test_a_refinement_sets_the_clock_back():
    """To 20 sweeps, or to where it stands if it has not come as far."""
    course = Phases()
    course = course.refined(30, 1, per_sweep=3)
    assert (course.clock_from, course.clock_at) == (30, 10.0)
    course = course.refined(51, 1, per_sweep=3)
    assert (course.clock_from, course.clock_at) == (51, 17.0)
    course = course.refined(90, 1, per_sweep=3)
    assert (course.clock_from, course.clock_at) == (90, RESTART)
    course = course.refined(99, 0, per_sweep=3)
    assert (course.clock_from, course.clock_at) == (90, RESTART)


# Decisions ----------------------------------------------------------------------------------------------------


def decided(options: Options, trace: list[dict], course: Phases | None = None, per_sweep: int = 1) -> Phases:
    return (course or Phases()).decided(options, trace, trace[-1]["iteration"], per_sweep)


def test_a_settled_run_ends():
    course = decided(PLAIN, rows(FLAT))
    assert (course.settled_at, course.sampling_from, course.end) == (20, None, 20 + CLOSING_SWEEPS)
    assert course.closing_from == 20
    assert not course.burnt_in(OPEN, 20)
    assert course.burnt_in(OPEN, 21)
    assert course.limit(PLAIN, 1) == course.end
    assert not course.burnt_in(PLAIN, 20)


def test_no_run_ends_in_its_first_sweeps(monkeypatch):
    monkeypatch.setattr(course_module, "LEAST_SWEEPS", 60)
    for iteration, per_sweep, ends in ((58, 1, False), (60, 1, True), (100, 2, False), (120, 2, True)):
        course = decided(PLAIN, rows(FLAT, first=iteration - 18), per_sweep=per_sweep)
        assert course.end == (iteration + CLOSING_SWEEPS * per_sweep if ends else None)


def test_the_start_is_no_evaluation_of_the_run():
    """What a start scores before the first iteration says nothing of how the run goes."""
    assert decided(PLAIN, rows(FLAT, first=0)) == Phases()


def test_a_run_that_still_gains_goes_on():
    course = decided(PLAIN, rows(rising(30)))
    assert course == Phases()
    assert decided(PLAIN, rows(FLAT[1:])) == Phases(), "too little is known"
    assert course.limit(PLAIN, 3) == 3 * MOST_SWEEPS


def test_a_run_refines_before_it_ends():
    """It has settled, but communities may be empty."""
    assert decided(OPEN, rows(FLAT)) == Phases()
    tried = Phases()
    tried = tried.refined(30, 0, 1)
    assert decided(OPEN, rows(FLAT, first=30), tried).end == 48 + CLOSING_SWEEPS
    filled = Phases()
    filled = filled.refined(30, 2, 1)
    assert decided(OPEN, rows(FLAT, first=32), filled).end is None, "another round may find more"


def test_metrics_from_before_a_refinement_do_not_count():
    course = Phases()
    for at in (30, 60, 90):
        course = course.refined(at, 1, 1)
    before = rows([-1.0] * 45)
    assert before[-1]["iteration"] == 90
    assert decided(OPEN, before, course).end is None
    early = before + rows(rising(2 * WINDOW - 1), first=92)
    assert decided(OPEN, early, course).end is None
    late = before + rows(FLAT, first=92)
    assert decided(OPEN, late, course).end == 110 + CLOSING_SWEEPS


@pytest.mark.parametrize("per_sweep", [1, 4])
def test_sampling_follows(per_sweep):
    """Its first fifth enters no mean."""
    options = replace(SAMPLING, refine=False)
    course = decided(options, rows(FLAT), per_sweep=per_sweep)
    assert (course.settled_at, course.sampling_from, course.end) == (20, 20, 20 + 50 * per_sweep)
    assert course.limit(options, per_sweep) == course.end
    begins = 20 + 10 * per_sweep
    assert not course.burnt_in(options, begins - 1)
    assert course.burnt_in(options, begins)
    assert course.burnt_in(options, course.end)
    assert not Phases().burnt_in(options, 10**6)


def test_a_run_with_noise_samples_for_its_means():
    course = decided(NOISY, rows(FLAT), per_sweep=2)
    assert (course.settled_at, course.sampling_from, course.end) == (20, 20, 20 + 2 * NOISY_SWEEPS)
    assert course.burnt_in(NOISY, 20 + 2 * NOISY_SWEEPS // 5)
    assert not course.burnt_in(NOISY, 20 + 2 * NOISY_SWEEPS // 5 - 1)


def test_a_decision_stands():
    course = decided(PLAIN, rows(FLAT))
    before = course.as_dict()
    assert decided(PLAIN, rows(rising(40)), course).as_dict() == before
    assert decided(PLAIN, rows(FLAT, first=200), course).as_dict() == before


@pytest.mark.parametrize("options", [GIVEN, STARS, replace(GIVEN, noise=True)])
def test_a_given_length_is_kept(options):
    course = decided(options, rows(FLAT))
    assert course == Phases()
    assert course.limit(options, 7) == 100
    assert not course.ends_open(options, 10**6, 1)
    assert not course.burnt_in(options, 49)
    assert course.burnt_in(options, 50)


@pytest.mark.parametrize("per_sweep", [1, 5])
def test_a_run_that_never_settles_ends(per_sweep):
    most = MOST_SWEEPS * per_sweep
    course = Phases()
    assert not course.ends_open(PLAIN, most - 1, per_sweep)
    assert course.ends_open(PLAIN, most, per_sweep)
    course = course.decided(PLAIN, rows(rising(20)), most - 1, per_sweep)
    assert course.end is None
    course = course.decided(PLAIN, rows(rising(20)), most, per_sweep)
    assert (course.settled_at, course.sampling_from, course.end) == (None, None, most + CLOSING_SWEEPS * per_sweep)
    assert not course.ends_open(PLAIN, most, per_sweep)


def test_it_samples_too():
    course = Phases()
    course = course.decided(SAMPLING, rows(rising(20)), MOST_SWEEPS - 1, 1)
    assert course == Phases()
    course = course.decided(SAMPLING, rows(rising(20)), MOST_SWEEPS, 1)
    assert (course.settled_at, course.sampling_from, course.end) == (None, MOST_SWEEPS, MOST_SWEEPS + 50)


@pytest.mark.parametrize("per_sweep", [1, 2])
def test_a_run_without_held_out_pairs_ends_after_a_time(per_sweep):
    blind, after = [{"iteration": 0}], BLIND_SWEEPS * per_sweep
    course = Phases()
    course = course.decided(PLAIN, blind, after - 1, per_sweep)
    assert course.end is None
    course = course.decided(PLAIN, blind, after, per_sweep)
    assert (course.settled_at, course.end) == (None, after)


def test_its_time_begins_anew_with_a_refinement():
    course = Phases()
    course = course.refined(90, 1, 1)
    course = course.decided(OPEN, [{"iteration": 0}], 90 + BLIND_SWEEPS - 1, 1)
    assert course.end is None
    course = course.decided(OPEN, [{"iteration": 0}], 90 + BLIND_SWEEPS, 1)
    assert course.end == 90 + BLIND_SWEEPS


def test_a_run_that_can_tell_does_not_end_blindly():
    """Too few evaluations in a hundred sweeps: it goes on until there are enough."""
    trace = rows(rising(4), every=40)
    course = Phases()
    course = course.decided(PLAIN, trace, 120, 1)
    assert course.end is None


# Records ------------------------------------------------------------------------------------------------------


def test_a_course_goes_through_json():
    course = Phases("ego", [{"start": "ego", "log_likelihood": -0.1}])
    for at in (30, 60, 90):
        course = course.refined(at, 2, 1)
    course = decided(SAMPLING, rows(FLAT, first=92), course)
    again = Phases(**json.loads(json.dumps(course.as_dict())))
    assert again == course
    assert again.end == 160
    assert Phases(**Phases().as_dict()) == Phases()


def test_a_record_is_no_view(monkeypatch):
    course = Phases()
    course = course.refined(30, 1, 1)
    record = course.as_dict()
    course = course.refined(60, 1, 1)
    assert len(record["refinements"]) == 1
    monkeypatch.setattr(course_module, "REFINE_ROUNDS", 2)
    assert not course.refines(OPEN, 120, 1)
