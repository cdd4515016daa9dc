"""Ranges of vertices for ranks, and what rank 0 makes of the others' times."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Buffer, Device, open_device
from mmsbgen.backends.ranks.world import LostRankError, Released
from mmsbgen.base.errors import LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split, as_graph, split
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.diagnostics.evaluation import evaluation
from mmsbgen.sampler.minibatch.partners import SWEEP, SWEEP_DRAWN
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.ranks import ranges, sharing
from mmsbgen.sampler.ranks.following import follow
from mmsbgen.sampler.ranks.sharing import Team
from mmsbgen.sampler.run.run import run
from mmsbgen.sampler.saved import checkpoint as checkpoints


def test_ranges_share_the_work_by_speed() -> None:
    degrees = np.random.default_rng(0).integers(0, 40, 3000)
    work = ranges.work(np.concatenate([[0], np.cumsum(degrees)]))
    for speeds in ([1.0], [1.0, 1.0], [3.0, 1.0, 2.0], [1.0, 1e-9]):
        cuts = ranges.bounds(work, np.array(speeds))
        assert (cuts[0], cuts[-1]) == (0, 3000)
        assert (np.diff(cuts) > 0).all()
        shares = np.diff(work[cuts]) / work[-1]
        np.testing.assert_allclose(shares, np.array(speeds) / sum(speeds), atol=(40 + 3) / work[-1])


def test_every_rank_has_a_vertex() -> None:
    work = ranges.work(np.array([0, 500, 501, 502]))
    assert ranges.bounds(work, np.ones(3)).tolist() == [0, 1, 2, 3]
    assert ranges.bounds(work[::-1].max() - work[::-1], np.ones(3)).tolist() == [0, 1, 2, 3]


def test_pieces_divide_each_range() -> None:
    work = ranges.work(np.arange(0, 5 * 101, 5))
    cuts = np.array([0, 30, 100])
    pieces = ranges.pieces(work, cuts, 4)
    assert pieces[:, 0].tolist() == [0, 30]
    assert pieces[:, -1].tolist() == [30, 100]
    assert np.ptp(np.diff(pieces, axis=1), axis=1).max() <= 1


def test_ranks_get_every_scalar_of_a_sweep() -> None:
    sent = {*sharing.SCALARS, *sharing.STEP, "n_vertices"}  # the last is of a piece
    for name in (SWEEP, SWEEP_DRAWN):
        assert {each.name for each in MMSB.kernel(name).arguments if each.role == "scalar"} <= sent


class Alone:
    """The world of rank 0 whose only other rank answers at once that it took ``times`` as long."""

    lost, has_swept, size, rank, names = False, False, 2, 0, ("rank 0", "rank 1")

    def __init__(self, times: float) -> None:
        self.times = times
        self.told: list[str] = []
        self.late: dict[int, float] = {}

    def tell(self, what: str, *values: Any) -> None:
        self.told.append(what)

    def send(self, array: Any, to: int) -> None:
        """Nobody is there."""

    def release(self, error: BaseException) -> None:
        self.lost = True

    def ends_after(self, seconds: float, error: BaseException) -> Any:
        return SimpleNamespace(cancel=lambda: None)

    def answers(self, own: Any) -> list[Any]:
        return [own, own if isinstance(own, str) else (own[0] * self.times, 7)]


class NoExchange:
    """An exchange with a rank whose rows stay as they were at the start.

    ``ahead`` as of :class:`mmsbgen.backends.ranks.exchanges.HostExchange`.  The exchange of the sweep ``lost_at``
    does not end; ``last`` is whether that is noticed when the next sweep is queued, and not in a wait.
    """

    name, pieces = "none", 1

    def __init__(self, device: Device, ahead: int = 0, lost_at: int = -1, last: bool = False) -> None:
        self.device, self.ahead, self.lost_at, self.last = device, ahead, lost_at, last
        self.queued = self.settled = 0
        self.most_unsettled = 0
        self.first: list[Any] = []

    def mark(self) -> None:
        self.queued += 1
        self.most_unsettled = max(self.most_unsettled, self.queued - self.settled)

    def settle(self, left: int = 0) -> None:
        ends = self.queued - left
        if self.settled <= self.lost_at < ends and not self.last:
            self.settled = self.lost_at
            raise LostRankError("rank 1 has died")
        self.settled = max(self.settled, ends)

    def share(self, buffers: list[Buffer]) -> None:
        if not self.first:
            self.first = [self.device.download(buffer) for buffer in buffers]
        if self.last and self.queued == self.lost_at + 1 and self.lost_at >= 0:
            raise LostRankError("rank 1 has died")

    def gather(self, buffers: list[Buffer], begins: Any, ends: Any) -> None:
        for buffer, rows in zip(buffers, self.first, strict=True):
            self.device.write(buffer, rows[begins[1] : ends[1]], int(begins[1]))

    def nothing(self, *args: Any) -> None:
        """What the rest is."""

    add = abandon = close = nothing


@pytest.mark.parametrize("alike", [True, False])
def test_a_device_like_that_of_rank_0_takes_its_configuration(alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host of the rank may have another database; an unlike device may not do with that configuration."""
    config = {"table": "direct"}
    told: list[tuple[Any, ...]] = [("build", 0, {}, config, "shape"), ("dissolve",)]
    answers: list[str] = []
    world: Any = SimpleNamespace(hear=lambda: told.pop(0), answers=answers.append)
    runtime: Any = SimpleNamespace(kept={})
    exchange: Any = SimpleNamespace(close=lambda: None, settle=lambda: None)
    monkeypatch.setattr("mmsbgen.sampler.ranks.following._Chain", lambda *args: None)
    follow(world, runtime, exchange, alike)
    assert answers == [""]
    assert runtime.kept == ({"sparse_rows": config} if alike else {})


@pytest.mark.parametrize("error", [Released, LostRankError, LaunchError])
def test_a_rank_that_ends_early_gives_up_its_exchange(error: type[Exception]) -> None:
    """Else its device would wait for a rank that is no more, or the others for this one."""
    done: list[str] = []

    def lost() -> None:
        raise error

    timer = SimpleNamespace(cancel=lambda: done.append("cancel"))
    world: Any = SimpleNamespace(hear=lost, ends_after=lambda seconds, error: done.append("timer") or timer)
    exchange: Any = SimpleNamespace(abandon=lambda: done.append("abandon"))
    with pytest.raises(error):
        follow(world, SimpleNamespace(), exchange, True)  # type: ignore[arg-type]
    assert done == ["timer", "abandon", "cancel"]


@pytest.mark.slow
@pytest.mark.parametrize("lost_at", [6, 12], ids=["in the run", "at its end"])
def test_an_evaluation_that_a_loss_prevented_is_made_on_resume(
    pocl_device: Device, chain: Any, middling: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_at: int
) -> None:
    def made() -> Sampler:
        found: Sampler = chain(pocl_device, middling, iterations=12, evaluate_every=3)
        return found

    straight, whole = made(), list[dict[str, Any]]()
    straight.initialise()
    run(straight, whole)

    def fails(sampler: Sampler, seconds: float) -> dict[str, Any]:
        if sampler.iteration == lost_at:
            raise LostRankError("rank 1 has died")
        return evaluation(sampler, seconds)

    stopped = made()
    stopped.initialise()
    monkeypatch.setattr("mmsbgen.sampler.run.run.evaluation", fails)
    with pytest.raises(LostRankError):
        run(stopped, [], on_checkpoint=lambda *state: checkpoints.save(tmp_path / "c.npz", *state))
    monkeypatch.undo()
    there = checkpoints.load(tmp_path / "c.npz")
    trace = there.trace
    assert trace[-1]["iteration"] == lost_at - 3
    resumed = made()
    checkpoints.restore(there, resumed)
    run(resumed, trace)
    assert [row["auc"] for row in trace] == [row["auc"] for row in whole]
    np.testing.assert_array_equal(resumed.rows(0, 60)[0], straight.rows(0, 60)[0])
    assert resumed.chain.course == straight.chain.course


def two_ranks(device: Device, exchange: NoExchange) -> Sampler:
    pairs = np.random.default_rng(1).integers(0, 400, (2000, 2))
    parts = split(as_graph(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)), validation=0.0, seed=0)
    team = Team(Alone(3.0), exchange)  # type: ignore[arg-type]
    sampler = Sampler(parts, Options(8, rows="sparse"), Runtime(device, MMSB), team=team)
    sampler.initialise()
    return sampler


def whole_state(sampler: Sampler) -> dict[str, Any]:
    names = ("communities", "values", "row_sums", "totals", "theta", "beta")
    return {name: sampler.device.download(sampler.values[name]) for name in names}


@pytest.mark.opencl
@pytest.mark.slow
@pytest.mark.parametrize(("ahead", "lost_at", "last"), [(1, 4, False), (1, 6, False), (1, 4, True), (0, 4, False)])
def test_a_loss_leaves_the_state_before_the_sweep_that_did_not_end(ahead: int, lost_at: int, last: bool) -> None:
    """Also if the next sweep has run behind it, which it does here, over rows that no exchange has completed."""
    with open_device("pocl") as device:
        straight, exchange = two_ranks(device, NoExchange(device)), NoExchange(device, ahead, lost_at, last)
        straight.iterate(lost_at)
        stopped = two_ranks(device, exchange)
        with pytest.raises(LostRankError):
            stopped.iterate(7)
        assert exchange.most_unsettled == 1 + ahead
        n = straight.shape.n_vertices
        assert (stopped.iteration, stopped.chain.vertex_updates) == (lost_at, lost_at * n)
        stopped.settle()
        for name, array in whole_state(stopped).items():
            np.testing.assert_array_equal(array, whole_state(straight)[name], name)
        for held in (stopped.state.buffers, stopped._at_step, stopped.held_values):
            assert held["communities"] is stopped.values["communities"]
        for sampler in (stopped, straight):
            sampler.close()


@pytest.mark.opencl
@pytest.mark.slow
def test_a_slow_rank_is_named_and_gets_less() -> None:
    with open_device("pocl") as device:
        sampler = two_ranks(device, NoExchange(device))
        shared = sampler.shared
        assert shared is not None
        team, world = shared._team, shared._world
        assert world.told == ["build", "range", "report"]
        sampler.iterate(2)
        assert sampler.clipped() >= 7
        assert shared.noted()["slow_rank"] == "rank 1"
        seconds = shared.noted()["rank_seconds"]
        assert seconds[1] == pytest.approx(3 * seconds[0])
        assert world.told[-4:] == ["sweep", "sweep", "report", "range"]
        assert team.speeds[0] == pytest.approx(3 * team.speeds[1], rel=0.1)
        sampler.close()
        assert world.told[-1] == "drop"
