"""The part of the other ranks in sweeps that several ranks share: they do what rank 0 tells."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from mmsbgen.backends.base import Buffer
from mmsbgen.backends.ranks.exchanges import Exchange
from mmsbgen.backends.ranks.world import World, short
from mmsbgen.base.errors import LaunchError, MmsbgenError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.minibatch.partners import SWEEP, SWEEP_DRAWN
from mmsbgen.sampler.ranks import ranges
from mmsbgen.sampler.ranks.sharing import ABANDON_S, CHANGED, EACH_SWEEP, STEP, SweptRange
from mmsbgen.sampler.state.arrays import bytes_by_purpose, largest, release, take_counts
from mmsbgen.sampler.state.device_state import StateShape
from mmsbgen.sampler.state.memory_needs import MemoryNeeds, require
from mmsbgen.sampler.state.sparse_state import SparseState
from mmsbgen.sampler.state.stage_clock import StageClock


def follow(world: World, runtime: Runtime, exchange: Exchange, alike: bool) -> None:
    """Do what rank 0 tells until it dissolves the team; ``alike`` is whether the device is like that of rank 0."""
    try:
        _follow(world, runtime, exchange, alike)
    except BaseException as error:
        # NCCL's kernels wait for a rank that is no more, and the device for them.
        timer = world.ends_after(ABANDON_S, error)
        with suppress(LaunchError):  # where the device has failed
            exchange.abandon()
        timer.cancel()
        raise


def _follow(world: World, runtime: Runtime, exchange: Exchange, alike: bool) -> None:
    chains: dict[int, _Chain] = {}
    while True:
        what, *values = world.hear()
        if what != "sweep":
            # All else waits for the device, and such a wait could not be left when a rank is lost.
            exchange.settle()
        if what == "dissolve":
            return exchange.close()
        number, *values = values
        if what == "build":
            text = ""
            try:
                problem, config, *rest = values
                if alike:
                    runtime.kept[SWEEP] = config
                chains[number] = _Chain(world, runtime, exchange, problem, *rest)
            except MmsbgenError as error:
                text = str(error)
            world.answers(short(text))
        elif what == "drop":
            if number in chains:
                chains.pop(number).close()
        elif what == "range":
            chains[number].range(*values)
        elif what == "sweep":
            chains[number].sweep(*values)
        elif what == "report":
            chains[number].report()


class _Chain:
    """The rows of a chain on this rank's device, and the kernel that sweeps a range of them."""

    def __init__(
        self,
        world: World,
        runtime: Runtime,
        exchange: Exchange,
        problem: dict[str, Any],
        shape: StateShape,
        scalars: dict[str, Any],
        links: int,
        samples: bool,
    ) -> None:
        self._world, self._exchange, self._device = world, exchange, runtime.device
        n, device = shape.n_vertices, runtime.device
        own = 4 * links // world.size
        needs = bytes_by_purpose(shape.arrays()) | {"adjacency": 8 * n + own, "mini-batch": 8 * n}
        most = max(largest(shape.arrays()), ("adjacency", own), key=lambda item: item[1])
        require(MemoryNeeds(needs, {"graph": 8 * n + own}, most), device.info, device.allocated)
        self._buffers: dict[str, Buffer] = {}
        self._times = StageClock(device)
        self._swept = SweptRange(device, exchange, self._times)
        self._state = SparseState(device, shape)
        try:
            self._buffers["neighbour_offsets"] = device.zeros(n + 1, np.uint64)
            self._buffers["clip_counts"] = device.zeros(n, np.uint32)
            self._buffers["no_sums"] = device.zeros((3, shape.row), np.uint64)
            sizes = MMSB.problem(**problem)
            self._kernels = {False: runtime.kernel(SWEEP, sizes)}
            if samples:
                self._kernels[True] = runtime.variant(SWEEP, sizes, SWEEP_DRAWN)
        except BaseException:
            self.close()
            raise
        self._scalars = scalars

    def range(self, pieces: ranges.Ints) -> None:
        """Take the links of this rank's range."""
        rank = self._world.rank
        first, stop = int(pieces[rank, 0]), int(pieces[rank, -1])
        offsets = np.empty(stop - first + 1, np.uint64)
        self._world.receive(offsets)
        neighbours = np.empty(int(offsets[-1] - offsets[0]), np.uint32)
        self._world.receive(neighbours)
        if "neighbours" in self._buffers:
            self._buffers.pop("neighbours").release()
        self._buffers["neighbours"] = self._device.upload(neighbours if neighbours.size else np.zeros(1, np.uint32))
        self._device.write(self._buffers["neighbour_offsets"], offsets - offsets[0], first)
        self._swept.cut(pieces, rank, offsets)

    def sweep(self, draws: bool, changed: bool, *step: Any) -> None:
        """Sweep the range, with noise if it ``draws``, and exchange rows and sums."""
        exchange, held = self._exchange, self._state.buffers
        values = held | self._buffers | self._scalars | dict(zip(STEP, step, strict=True))
        if changed:
            exchange.share([held[name] for name in CHANGED])
            self._state.copy_rows()
        exchange.share([held[name] for name in EACH_SWEEP])
        self._swept.sweep(self._kernels[draws].launch, values)
        self._device.copy(held["fixed_sums"], self._buffers["no_sums"])
        self._state.exchange()
        exchange.settle(exchange.ahead)

    def report(self) -> None:
        """Tell the seconds of the sweeps since the last report, and the flows bounded in them."""
        found = take_counts(self._device, self._buffers["clip_counts"])
        self._world.answers((self._times.take(SWEEP), found))

    def close(self) -> None:
        """Release the arrays."""
        self._swept.release()
        self._state.release()
        release(self._buffers.values())
