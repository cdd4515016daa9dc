"""Fused mode: many iterations of stars in one launch of a persistent kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmsbgen.backends.base import Buffer, Device, Event
from mmsbgen.base.errors import CompileError, ConfigError, LaunchError
from mmsbgen.families.mmsb.stars.star_loop import STAGES, StarLoop, fitted, star_loop
from mmsbgen.kernels.build import BoundKernel
from mmsbgen.kernels.space import describe
from mmsbgen.sampler.minibatch.drawn_ahead import DrawnAhead

#: eps of phi and the step of theta in an iteration.
Steps = Callable[[int], tuple[float, float]]


def fused_by_default(backend: str, mini_batch: str) -> bool:
    """Whether iterations are fused by default.

    On an H200 (docs/reports/iteration.md) fused iterations of links take 0.28 to 0.36 of the time of separate launches,
    of the mixture 1.01 to 1.03, but 1.04 to 1.06 for mini-batches of non-links only.  The
    choice is not timed at run time, so that a seed gives one chain.
    """
    return backend == "cuda" and mini_batch != "random-node-non-link"


class Loop:
    """The persistent kernel of a chain.

    The constructor raises :class:`ConfigError` if the device does not support it.  :class:`CompileError` and
    :class:`LaunchError` name the kernel and the configurations of its stages.
    """

    def __init__(
        self,
        device: Device,
        kernels: Mapping[str, BoundKernel],
        values: Mapping[str, Any],
        ahead: DrawnAhead,
        real: np.dtype[Any],
    ) -> None:
        phi = kernels["update_phi"]
        specs = {name: kernels[name].spec for name in STAGES}
        configs = fitted(specs, phi.problem, {name: kernels[name].config for name in STAGES}, phi.traits)
        self.rendered: StarLoop = star_loop(specs, phi.problem, configs, phi.traits)
        self._device, self._values, self._ahead, self._real = device, values, ahead, real
        stages = ", ".join(f"{name}: {describe(config)}" for name, config in configs.items())
        self._named = f"star_loop ({stages})"
        try:
            self._kernel = device.compile(self.rendered.source.text, ["star_loop"]).kernel("star_loop")
            self._kernel.configuration = stages
            self.grid = self._kernel.resident_blocks(self.rendered.block_size)
        except CompileError as error:
            raise CompileError(f"{self._named} does not compile: {error}") from error
        except LaunchError as error:
            raise LaunchError(f"{self._named}: {error}") from error
        if not self.grid:
            raise ConfigError(f"{device.info.name} does not tell how many blocks it holds at once")
        self._own: dict[str, Buffer] = {}
        try:
            self._own["schedule"] = device.zeros((ahead.count, 3), real)
            self._own["theta_steps"] = device.zeros(ahead.count, np.float64)
            self._own["arrived"] = device.zeros(1, np.uint32)
        except BaseException:
            self.release()
            raise

    def run(self, iteration: int, count: int, steps: Steps) -> Event:
        """Queue ``count`` iterations from ``iteration`` on; their mini-batches must have been drawn in advance.

        Raises :class:`LaunchError` naming the kernel and the configurations of its stages.
        """
        first = self._ahead.place(iteration)
        sizes = [steps(iteration + i) for i in range(count)]
        rows = [(eps / 2, math.exp(-eps / 2), -math.expm1(-eps / 2)) for eps, _ in sizes]
        device, own = self._device, self._own
        device.write(own["schedule"], np.array(rows, self._real), first)
        device.write(own["theta_steps"], np.array([step for _, step in sizes]), first)
        device.write(own["arrived"], np.zeros(1, np.uint32))
        values = {
            **self._values,
            **own,
            "first_round": np.uint32(first),
            "n_rounds": np.uint32(count),
            "first_iteration": np.uint32(iteration),
            "stride": np.uint32(self._ahead.stride),
        }
        arguments = [values[argument.name] for argument in self.rendered.arguments]
        try:
            return self._kernel.launch((self.grid,), (self.rendered.block_size,), arguments)
        except LaunchError as error:
            raise type(error)(f"{self._named}: {error}") from error

    def release(self) -> None:
        """Release the device memory."""
        for buffer in self._own.values():
            buffer.release()
