"""Runs of open length as the defaults have them: they find what is planted, end by themselves, and go on as before."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import mmsbgen
from mmsbgen.base.errors import InputError
from mmsbgen.detection.detect import Detection, Request, perform
from mmsbgen.sampler.options.phases import BLIND_SWEEPS, CLOSING_SWEEPS, MOST_SWEEPS, NOISY_SWEEPS, WARM_UP
from mmsbgen.sampler.options.schedule import SAMPLE_STEP
from tests.devices import PROCESSOR

pytestmark = pytest.mark.opencl


def planted(
    n: int, k: int, counts: Sequence[int], p_in: float, p_out: float, seed: int
) -> tuple[list[set[int]], np.ndarray]:
    """Communities and links [E, 2]: each vertex in as many communities at random as drawn from ``counts``.

    Two vertices are linked by chance ``p_in`` in each community that they share, and by ``p_out`` anyway.
    """
    rng = np.random.default_rng(seed)
    inside = np.zeros((n, k), bool)
    for vertex in range(n):
        inside[vertex, rng.choice(k, rng.choice(counts), replace=False)] = True
    a, b = np.triu_indices(n, 1)
    shared = (inside[a] & inside[b]).sum(axis=1)
    linked = rng.random(a.size) < 1 - (1 - p_in) ** shared * (1 - p_out)
    return [set(np.flatnonzero(column).tolist()) for column in inside.T], np.stack([a[linked], b[linked]], axis=1)


def jaccard(found: list[list[int]], right: list[set[int]]) -> float:
    """The mean over both covers of every community's best Jaccard index in the other."""

    def one_way(these, those):
        return np.mean([max(len(x & y) / len(x | y) for y in those) for x in these])

    sets = [set(members) for members in found]
    return float(one_way(sets, right) + one_way(right, sets)) / 2


def plain(trace: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in trace]


def assert_same(one: Detection, other: Detection) -> None:
    for name in ("indices", "values", "beta"):
        assert np.array_equal(getattr(one.memberships, name), getattr(other.memberships, name)), name
    assert one.communities == other.communities
    assert plain(one.trace) == plain(other.trace)
    assert one.record["course"] == other.record["course"]


GROUPS, LINKS = planted(200, 4, (1, 1, 2), p_in=0.4, p_out=0.005, seed=0)


@pytest.fixture(scope="module")
def defaults() -> Detection:
    return mmsbgen.detect(LINKS, 4, device=PROCESSOR)


def test_defaults_find_four_overlapping_groups(defaults):
    assert len(defaults.communities) == 4
    assert jaccard(defaults.communities, GROUPS) > 0.9


def test_the_run_ends_by_itself(defaults):
    record = defaults.record
    course, end = record["course"], record["iterations"]
    assert record["options"]["iterations"] is None
    assert 0 < end < MOST_SWEEPS, "all 200 vertices are one block, so that an iteration is a sweep"
    assert course["settled_at"] + CLOSING_SWEEPS == course["end"] == end == defaults.trace[-1]["iteration"]
    assert course["sampling_from"] is None
    means = [row["samples"] for row in defaults.trace if row["iteration"] > course["closing_from"]]
    assert means == list(range(1, CLOSING_SWEEPS // 2 + 1)), "an evaluation every second sweep"
    assert not defaults.interrupted
    assert not record["interrupted"]
    assert defaults.checkpoint is None
    assert {row["phase"] for row in defaults.trace} == {"optimise"}
    assert defaults.trace[0]["iteration"] == 0, "trials count for nothing"
    assert [row["iteration"] for row in defaults.trace] == list(range(0, end + 1, 2))


def test_its_start_is_the_best_of_three(defaults):
    course = defaults.record["course"]
    assert len(course["trials"]) == 3
    assert course["start"] == max(course["trials"], key=lambda each: each["log_likelihood"])["start"]


def test_the_same_seed_gives_the_same_bits(defaults):
    assert_same(mmsbgen.detect(LINKS, 4, device=PROCESSOR), defaults)
    other = mmsbgen.detect(LINKS, 4, device=PROCESSOR, random_state=1)
    assert not np.array_equal(other.memberships.values, defaults.memberships.values)
    assert jaccard(other.communities, GROUPS) > 0.9


def test_sampling_follows_the_optimum(defaults):
    """The optimum is that of the run without; the mean over the samples finds the groups as well."""
    found = mmsbgen.detect(LINKS, 4, device=PROCESSOR, sample_sweeps=20, average=True)
    course, begin = found.record["course"], defaults.record["course"]["settled_at"]
    assert (course["settled_at"], course["sampling_from"], course["end"]) == (begin, begin, begin + 20)
    assert found.record["iterations"] == begin + 20
    optimised = [row for row in found.trace if row["iteration"] <= begin]
    sampled = [row for row in found.trace if row["iteration"] > begin]
    assert plain(optimised) == plain(defaults.trace[: len(optimised)])
    assert {row["phase"] for row in sampled} == {"sample"}
    # Evaluations every second iteration; the first fifth of the samples enters no mean.
    assert [row["burnt_in"] for row in sampled] == [row["iteration"] >= begin + WARM_UP * 20 for row in sampled]
    assert [row["samples"] for row in sampled] == [1, *range(1, 10)]
    assert found.record["samples_averaged"] == 9
    pi = found.memberships.dense()
    assert pi.shape == (200, 4)
    # A mean of 9 rows in single precision, each normalised with some roundings.
    assert pi.sum(axis=1) == pytest.approx(np.ones(200), abs=1e-5)
    assert not np.array_equal(pi, defaults.memberships.dense())
    assert jaccard(found.communities, GROUPS) > 0.9


def test_noise_from_the_start_samples_for_a_time_too():
    found = mmsbgen.detect(LINKS, 4, device=PROCESSOR, noise=True, start="communities")
    course = found.record["course"]
    assert course["sampling_from"] <= MOST_SWEEPS
    assert found.record["iterations"] == course["end"] == course["sampling_from"] + NOISY_SWEEPS
    assert course["refinements"] == []
    assert {row["phase"] for row in found.trace} == {"sample"}
    begins = course["sampling_from"] + WARM_UP * NOISY_SWEEPS
    assert [row["burnt_in"] for row in found.trace] == [row["iteration"] >= begins for row in found.trace]
    assert found.trace[-1]["samples"] > 30


def test_without_held_out_pairs_it_ends_after_a_time():
    found = mmsbgen.detect(LINKS, 4, device=PROCESSOR, validation=0.0)
    course = found.record["course"]
    changed = max((note["iteration"] for note in course["refinements"] if note["filled"]), default=0)
    assert (course["settled_at"], found.record["iterations"]) == (None, changed + BLIND_SWEEPS)
    assert (course["start"], course["trials"]) == ("communities", [])
    assert jaccard(found.communities, GROUPS) > 0.9


# Interrupted --------------------------------------------------------------------------------------------------

#: Leiden joins most of these: each vertex is in two or three of them, a fifth of all each.
_, DENSE = planted(240, 12, (2, 3), p_in=0.5, p_out=0.002, seed=0)
OPTIONS = {
    "n_communities": 12,
    "start": "communities",
    "mini_batch_size": 115,
    "sample_sweeps": 20,
    "average": True,
}


def go(out: Path, options: dict, until: int | None = None, resume: Path | None = None) -> Detection:
    """Run to the end, or until Ctrl-C after an iteration."""

    def press(sampler, trace) -> None:
        if sampler.iteration == until:
            os.kill(os.getpid(), signal.SIGINT)

    return perform(DENSE, Request(options, device=PROCESSOR, out=out, resume=resume, on_progress=press))


@pytest.mark.parametrize("options", [{"n_communities": 12}, OPTIONS], ids=["by defaults", "with samples"])
def test_an_interrupted_open_run_goes_on_bit_for_bit(tmp_path, options):
    """Stopped right before and right after a refinement, at the optimum, and between evaluations after it."""
    straight = go(tmp_path / "straight", options)
    course = straight.record["course"]
    first, end = course["refinements"][0], course["end"]
    assert first["filled"] > 0
    if "sample_sweeps" in options:
        assert straight.record["samples_averaged"] > 1
        after = course["sampling_from"]
        assert end == after + 20 * 3
    else:
        assert len(course["trials"]) == 3, "it begins from the best of them"
        after = course["closing_from"]
        assert end == after + CLOSING_SWEEPS

    out, given = tmp_path / "stopped", options
    for at in (first["iteration"] - 1, first["iteration"], after, after + 31):
        stopped = go(out, given, at, None if given else out / "checkpoint.npz")
        given = {}
        assert stopped.interrupted
        assert stopped.checkpoint == out / "checkpoint.npz"
        assert stopped.record["iterations"] == at
        assert len(stopped.record["course"]["refinements"]) == sum(
            note["iteration"] <= at for note in course["refinements"]
        )
        assert stopped.record["course"]["end"] == (end if at >= after else None)
    found = go(out, {}, resume=out / "checkpoint.npz")
    assert not found.interrupted
    assert found.checkpoint is None
    assert_same(found, straight)
    for name in ("communities.txt", "memberships.npz"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


# Regression ---------------------------------------------------------------------------------------------------


def test_many_overlapping_communities_are_found():
    """Like LFR graphs of 1000 vertices and 28 communities of about 90: every start leaves some to refinement."""
    right, links = planted(1000, 28, (2, 3), p_in=0.35, p_out=0.002, seed=0)
    found = mmsbgen.detect(links, 28, device=PROCESSOR)
    assert sum(note["filled"] for note in found.record["course"]["refinements"]) > 0
    assert jaccard(found.communities, right) > 0.95


@pytest.mark.parametrize("seed", [1, 2])
def test_few_large_communities_are_found(seed):
    """A quarter of all vertices each: what the prior leaves in empty ones must not hide that they are empty."""
    right, links = planted(300, 10, (2, 3), p_in=0.4, p_out=0.002, seed=seed)
    assert jaccard(mmsbgen.detect(links, 10, device=PROCESSOR, random_state=seed).communities, right) > 0.9


def test_an_open_run_can_go_on_to_a_given_length(tmp_path):
    """What it averaged since its optimum is left behind: means begin where those of such a run begin."""
    saved = tmp_path / "checkpoint.npz"
    options = {"n_communities": 4, "average": True}
    first = perform(LINKS, Request(options, device=PROCESSOR, out=tmp_path, keep_checkpoint=True))
    done = first.record["iterations"]
    said: list[str] = []
    length = 2 * done + 60
    asked = Request({"iterations": length}, device=PROCESSOR, resume=saved, out=tmp_path, on_message=said.append)
    found = perform(LINKS, asked)
    assert found.record["iterations"] == length
    assert f"means begin at iteration {length // 2}" in " ".join(said)
    averaged = [row for row in found.trace if row["iteration"] >= length // 2]
    assert found.record["samples_averaged"] == len(averaged) == averaged[-1]["samples"]
    assert {row["phase"] for row in found.trace if row["iteration"] > done} == {"optimise"}
    assert found.memberships.dense().sum(axis=1) == pytest.approx(np.ones(200), abs=1e-4)


@pytest.mark.parametrize("given", [{"sample_sweeps": 20}, {"noise": True}], ids=["after the optimum", "throughout"])
def test_a_run_that_samples_goes_on_sampling(tmp_path, given):
    """To any later iteration; its means go on, and its chain is that of a run which was to sample for longer."""
    saved, said = tmp_path / "checkpoint.npz", []
    options = {"n_communities": 4, "start": "communities", "average": True, **given}
    first = perform(LINKS, Request(options, device=PROCESSOR, out=tmp_path, keep_checkpoint=True))
    done = first.record["iterations"]
    asked = Request({"iterations": done + 20}, device=PROCESSOR, resume=saved, out=tmp_path, on_message=said.append)
    found = perform(LINKS, asked)
    assert found.record["iterations"] == done + 20
    assert f"The run goes on sampling to iteration {done + 20}." in said
    after = [row for row in found.trace if row["iteration"] > done]
    assert {(row["phase"], row["eps"], row["burnt_in"]) for row in after} == {("sample", SAMPLE_STEP, True)}
    assert found.record["samples_averaged"] == first.record["samples_averaged"] + len(after)
    if "sample_sweeps" in given:
        straight = perform(LINKS, Request(options | {"sample_sweeps": 40}, device=PROCESSOR))
        told = ("iteration", "mean_row_sum", "sample_log_likelihood")
        assert [[row[name] for name in told] for row in found.trace] == [
            [row[name] for name in told] for row in straight.trace
        ]


def test_a_run_that_has_yet_to_sample_gets_no_length(tmp_path):
    """It would optimise to there, and never sample."""
    options = {"n_communities": 4, "start": "communities", "sample_sweeps": 20}
    stopped = go(tmp_path, options, until=5)
    assert stopped.interrupted
    with pytest.raises(InputError, match="has yet to find the optimum after which it samples for 20 sweeps"):
        perform(DENSE, Request({"iterations": 90}, device=PROCESSOR, resume=tmp_path / "checkpoint.npz"))


def test_auto_k_is_for_new_runs(tmp_path):
    with pytest.raises(InputError, match="leave -k out"):
        perform(LINKS, Request({"n_communities": "auto"}, resume=tmp_path / "x.npz"))
