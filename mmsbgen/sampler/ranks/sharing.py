"""Rank 0's part of sweeps that several ranks share.

Every rank holds all rows and sweeps a range of the vertices.  Then the new rows go to all ranks, and the sums over
vertices, which are integers, to rank 0: the chain's bits do not depend on the number of ranks.

Where exchanges are queued, as NCCL's, the next sweep is queued while the devices do this one, so that they do not wait
for the hosts.  Rank 0 keeps the state before each sweep until that is known to have been exchanged everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mmsbgen.backends.base import Buffer, Device, Event
from mmsbgen.backends.ranks.exchanges import Exchange
from mmsbgen.backends.ranks.world import World
from mmsbgen.base.errors import DeviceMemoryError, InputError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.graph import Split
from mmsbgen.graph.graph import by_degree
from mmsbgen.kernels.family import Array
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.space import Config
from mmsbgen.sampler.minibatch.partners import SWEEP, SWEEP_DRAWN, Launch
from mmsbgen.sampler.ranks import ranges
from mmsbgen.sampler.state.arrays import release
from mmsbgen.sampler.state.sparse_state import SparseState
from mmsbgen.sampler.state.stage_clock import StageClock

#: Arrays that all ranks get when rank 0 has changed the rows, those that they get before each sweep and after it.
CHANGED = ("communities", "values", "row_sums")
EACH_SWEEP = ("totals", "beta")
#: Arrays that a sweep and the kernels after it change in place.
IN_PLACE = ("row_sums", "totals", "theta", "beta")
NEW_ROWS = ("new_communities", "new_values", "row_sums")
#: Scalars of the sweeps' kernels that change in every sweep, and those that do not; ``n_vertices`` is of a piece.
STEP = ("half_step", "decay", "spread", "threshold", "iteration")
SCALARS = {
    each.name
    for kernel in (SWEEP, SWEEP_DRAWN)
    for each in MMSB.kernel(kernel).arguments
    if each.role == "scalar" and each.name not in (*STEP, "n_vertices")
}
#: How much longer than the mean the slowest rank may take before ranges are cut anew, and before it is called slow.
_UNEVEN, _SLOW = 1.05, 1.25
#: Seconds after which a device that an exchange still holds is given up.
ABANDON_S = 15.0
#: Fewest sweeps before ranges are first cut anew.
_FEWEST_SWEEPS = 2
#: Largest share of the free memory for the rows that are kept during a sweep that is queued ahead.
_KEPT_SHARE = 0.125


@dataclass
class _Before:
    """The state before a sweep: the turn of its rows, and copies of the arrays that are changed in place."""

    copies: dict[str, Buffer]
    turn: int = 0


@dataclass
class Team:
    """The ranks of a run, as rank 0 sees them, once their devices are open.

    ``reason`` says why GPUs do not exchange rows by NCCL, if they could; ``speeds`` ``[ranks]`` are measured in sweeps.
    """

    world: World
    exchange: Exchange
    reason: str = ""
    speeds: ranges.Floats = field(init=False)
    numbers: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.speeds = np.ones(self.world.size)

    def close(self) -> None:
        """Release the exchange, on all ranks."""
        if not self.world.lost:
            self.world.tell("dissolve")
            self.exchange.close()


class SharedSweeps:
    """The stages 2 and 3 of a chain whose sweeps the ranks share; see :mod:`mmsbgen.sampler.minibatch.partners`.

    ``values`` are the chain's arrays and constant scalars by the kernels' argument names, and ``config`` is the
    configuration of the kernel that sweeps; like devices use it too, whatever their host's database says.  ``undo`` is
    called with the number of sweeps that a loss undoes.  ``samples`` is whether some sweeps have noise, whose random
    words depend on the vertex and not on its rank.

    Raises :class:`DeviceMemoryError` if the rows do not fit on the device of a rank, and :class:`InputError` for a
    graph of fewer vertices than ranks.
    """

    kernels = (SWEEP, "sparse_totals")
    in_place = True
    bytes_each = 0

    def __init__(
        self,
        team: Team,
        split: Split,
        problem: Problem,
        state: SparseState,
        values: Mapping[str, Any],
        config: Config,
        undo: Callable[[int], None],
        samples: bool = False,
    ) -> None:
        self._team, self._world, self._exchange, self._state = team, team.world, team.exchange, state
        self._device, n = state.device, state.shape.n_vertices
        if n < self._world.size:
            raise InputError(f"{self._world.size} ranks for {n} vertices: take as many ranks as vertices at most")
        self._adjacency = split.training_adjacency
        self._work = ranges.work(self._adjacency.offsets)
        self._number = next(team.numbers)
        self._times = StageClock(self._device)
        self._seconds = np.zeros(self._world.size)
        self._sweeps = self._cuts = 0
        self._slow: int | None = None
        self._loss: BaseException | None = None
        self._swept = SweptRange(self._device, self._exchange, self._times)
        self._in_place = {name: values[name] for name in IN_PLACE}
        self._before: list[_Before] = []
        self._begun = 0
        self._undo = undo
        try:
            self._keep()
            self._build(problem, config, {name: values[name] for name in SCALARS}, samples)
            self._cut()
        except BaseException:
            self.close()
            raise

    def _keep(self) -> None:
        """Allocate what keeps the state before a sweep, for as many sweeps as may be queued."""
        device, state, ahead = self._device, self._state, self._exchange.ahead
        rows = state.buffers["communities"].nbytes + state.buffers["values"].nbytes
        if ahead and rows <= _KEPT_SHARE * (device.info.global_memory - device.allocated):
            state.keep_rows()
        else:
            ahead = 0
        for _ in range(ahead + 1):
            self._before.append(_Before({}))
            for name, buffer in self._in_place.items():
                self._before[-1].copies[name] = device.alloc(buffer.shape, buffer.dtype)

    def _build(self, problem: Problem, config: Config, scalars: dict[str, Any], samples: bool) -> None:
        world, links = self._world, len(self._adjacency.neighbours)
        # The others build kernels, and do not answer meanwhile.
        world.has_swept = False
        world.tell("build", self._number, dict(problem), dict(config), self._state.shape, scalars, links, samples)
        for name, refusal in zip(world.names, world.answers(""), strict=True):
            if refusal:
                raise DeviceMemoryError(f"{name}: {refusal}")

    def _cut(self) -> None:
        """Give every rank its range of vertices and their links."""
        world, adjacency, self._since_cut = self._world, self._adjacency, 0
        self._bounds = ranges.bounds(self._work, self._team.speeds)
        pieces = ranges.pieces(self._work, self._bounds, self._exchange.pieces)
        # What may not fit comes first: once they are told, the others wait for their links.
        self._swept.cut(pieces, 0, adjacency.offsets[: self._bounds[1] + 1].astype(np.uint64))
        try:
            world.tell("range", self._number, pieces)
            for at, (first, stop) in enumerate(itertools.pairwise(self._bounds.tolist())):
                offsets = adjacency.offsets[first : stop + 1].astype(np.uint64)
                if at:
                    world.send(offsets, at)
                    world.send(adjacency.neighbours[int(offsets[0]) : int(offsets[-1])], at)
        except BaseException as error:
            world.release(error)
            raise

    def specs(self, rounds: int) -> list[Any]:
        """No arrays but those of the state."""
        return []

    def draw(self, queue: Launch, rounds: int, places: int, values: dict[str, Any]) -> None:
        """Nothing is drawn."""

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """Queue a sweep, the exchange of the new rows, and the sums.

        If a rank is lost, the state is as before the first sweep that was not exchanged, and
        :class:`mmsbgen.backends.ranks.world.LostRankError` is raised.
        """
        world, exchange = self._world, self._exchange
        self._begun = exchange.queued + 1
        before = self._before_sweep(exchange.queued)
        before.turn = self._state.turn
        for name, copy in before.copies.items():
            self._device.copy(copy, values[name])
        try:
            world.tell("sweep", self._number, draws, self._state.changed, *(values[name] for name in STEP))
            if self._state.changed:
                exchange.share([values[name] for name in CHANGED])
                self._state.changed = False
            exchange.share([values[name] for name in EACH_SWEEP])
            kernel = SWEEP_DRAWN if draws else SWEEP
            self._swept.sweep(partial(queue, "update_phi", kernel), values)
        except BaseException as error:
            self._give_up(error)
            raise
        self._sweeps += 1
        queue("update_phi", "sparse_totals", count, values)

    def settle(self, goes_on: bool = False) -> None:
        """Wait until all sweeps have been exchanged; if the chain ``goes_on``, but those that may be queued ahead.

        If a rank is lost, as :meth:`update`.
        """
        if not self._begun or self._world.lost:
            return
        try:
            # The first sweep may take long, as some devices build kernels then.
            self._exchange.settle(len(self._before) - 1 if goes_on and self._world.has_swept else 0)
        except BaseException as error:
            self._give_up(error)
            raise
        self._world.has_swept = True

    def _before_sweep(self, number: int) -> _Before:
        return self._before[number % len(self._before)]

    def _give_up(self, error: BaseException) -> None:
        """End the exchanges, and return to the state before the first sweep that has not ended."""
        world, exchange, device = self._world, self._exchange, self._device
        # The others wait in an exchange that will not come.
        world.release(error)
        self._loss = error
        timer = world.ends_after(ABANDON_S, error)
        # Sweeps behind an exchange that is given up run over any rows, and write neither those before them nor copies.
        ended = exchange.settled
        exchange.abandon()
        if ended < self._begun:
            before = self._before_sweep(ended)
            self._state.exchange(before.turn - self._state.turn)
            for name, copy in before.copies.items():
                device.copy(self._in_place[name], copy)
        device.synchronize()
        self._undo(self._begun - ended)
        timer.cancel()

    def report(self, clips: Callable[[], int]) -> int:
        """Ask all ranks for their times and for the flows that they have bounded since the last report.

        Returns the number of flows; ``clips`` takes those of this rank, while the others take theirs.  Ranges are cut
        anew where the times differ.
        """
        world = self._world
        if world.lost:
            return clips()
        self.settle()
        world.tell("report", self._number)
        seconds, bounded = zip(*world.answers((self._times.take(SWEEP), clips())), strict=True)
        self._since_cut += self._sweeps
        if self._sweeps:
            self._seconds = np.array(seconds) / self._sweeps
            slowest = int(self._seconds.argmax())
            over = self._seconds[slowest] / max(self._seconds.mean(), 1e-9)
            late = world.late
            self._slow = max(late, key=late.__getitem__) if late else slowest if over > _SLOW else None
            world.late = {}
            # A cut sends all links, so each next one takes twice as many sweeps to pay.
            if over > _UNEVEN and self._since_cut >= _FEWEST_SWEEPS << self._cuts:
                self._cuts += 1
                self._team.speeds = np.diff(self._work[self._bounds]) / np.maximum(self._seconds, 1e-9)
                self._cut()
            self._sweeps = 0
        return int(sum(bounded))

    def noted(self) -> dict[str, Any]:
        """What the trace says.

        ``rank_seconds`` are those of a sweep on every rank, ``exchange`` is how rows are exchanged, and ``slow_rank``
        the name of one that is slow.
        """
        exchange = f"{self._exchange.name}: {self._team.reason}" if self._team.reason else self._exchange.name
        slow = {} if self._slow is None else {"slow_rank": self._world.names[self._slow]}
        return {"rank_seconds": self._seconds.tolist(), "exchange": exchange} | slow

    def close(self) -> None:
        """Release the arrays, on all ranks."""
        if self._loss is not None:
            # Not cancelled: what is left of an exchange may hold the device.
            self._world.ends_after(ABANDON_S, self._loss)
        # Memory cannot be released while an exchange holds the device.
        self.settle()
        self._swept.release()
        for before in self._before:
            release(before.copies.values())
        if not self._world.lost:
            self._world.tell("drop", self._number)


class SweptRange:
    """The range of vertices that a rank sweeps, in pieces."""

    def __init__(self, device: Device, exchange: Exchange, times: StageClock) -> None:
        self._device, self._exchange, self._times = device, exchange, times
        self._vertices: list[Buffer] = []

    def cut(self, pieces: ranges.Ints, rank: int, offsets: Array) -> None:
        """Take the pieces of this ``rank`` of those of all, ``[ranks, P + 1]``.

        ``offsets`` ``[V + 1]`` are those of the neighbours of the range's vertices.
        """
        self.release()
        self._pieces, first = pieces, int(pieces[rank, 0])
        for begin, end in itertools.pairwise(pieces[rank].tolist()):
            own = by_degree(offsets[begin - first : end - first + 1]) + np.uint32(begin)
            self._vertices.append(self._device.upload(own))

    def sweep(self, launch: Callable[[int, dict[str, Any]], Event], values: Mapping[str, Any]) -> None:
        """Queue the sweep of every piece, the exchange of the new rows, and the addition of the sums."""
        exchange = self._exchange
        for at, vertices in enumerate(self._vertices):
            if vertices.size:
                piece = {"vertices": vertices, "n_vertices": np.uint32(vertices.size)}
                self._times.launched(SWEEP, launch(vertices.size, {**values, **piece}))
            exchange.gather([values[name] for name in NEW_ROWS], self._pieces[:, at], self._pieces[:, at + 1])
        exchange.add(values["fixed_sums"])
        exchange.mark()

    def release(self) -> None:
        """Release the lists of vertices."""
        for buffer in self._vertices:
            buffer.release()
        self._vertices.clear()
