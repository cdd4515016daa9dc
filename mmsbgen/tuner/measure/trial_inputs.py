"""The inputs of one kernel on a device, for the calls of one configuration after another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mmsbgen.backends import Device, Event
from mmsbgen.base.errors import DeviceMemoryError
from mmsbgen.kernels.build import BoundKernel, release, upload
from mmsbgen.kernels.family import KernelSpec, Workload
from mmsbgen.kernels.problem import Problem, Value


def most_bytes(spec: KernelSpec, workload: Workload) -> int:
    """The most bytes that the arrays of a workload take on a device, without those that ``prepare`` makes."""
    copies = {name: workload.arguments[name] for name in spec.written}
    several = (workload.arguments, copies, *workload.rotations)
    return sum(int(array.nbytes) for arrays in several for array in arrays.values())


class TrialInputs:
    """Copies the arrays of a workload to the device; :meth:`release` frees them.

    Attributes:
        placed: Arguments by name, arrays as buffers.
        turn: The turn of the last call.

    Raises :class:`mmsbgen.base.errors.InputError` if they do not fit, or if the workload does not say what it must.
    """

    def __init__(self, device: Device, spec: KernelSpec, problem: Problem, workload: Workload) -> None:
        spec.check_workload(workload)
        self.spec, self.problem, self.workload = spec, problem, workload
        self.turn = 0
        self._device = device
        self._touched = False
        self._initial: dict[str, Any] = {}
        """Copies on the device of what the kernel writes, as it is at first."""
        self._prepared: dict[tuple[Value, ...], tuple[dict[str, Any], float]] = {}
        """Inputs by the values of the axes on which they depend, and the seconds that they took."""
        self._rotations: list[dict[str, Any]] = [{}]
        self.placed = upload(device, workload)
        try:
            for turn in workload.rotations:
                self._rotations.append({name: device.upload(array) for name, array in turn.items()})
            # A GPU copies within its own memory much faster than from the host's.
            written = {name: workload.arguments[name] for name in spec.written}
            size = sum(array.nbytes for array in written.values())
            if device.info.kind == "gpu" and size < device.info.global_memory // 4:
                with contextlib.suppress(DeviceMemoryError):
                    self._initial = upload(device, replace(workload, arguments=written))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the memory."""
        for held in (self.placed, self._initial, *self._rotations, *(made for made, _ in self._prepared.values())):
            release(held)
        self._prepared = {}

    @property
    def batched(self) -> bool:
        """Whether calls can be queued back to back."""
        return self.spec.program is None and self.workload.repeats != "restored"

    @property
    def turns(self) -> int:
        """Number of different inputs through which calls go."""
        return len(self._rotations)

    def nbytes(self, bound: BoundKernel) -> int:
        """Bytes of the arguments of a call."""
        return sum(int(one.nbytes) for one in (self.placed | self.prepare(bound)[0]).values())

    def launcher(self, bound: BoundKernel) -> Callable[[int], Event]:
        """A function that calls a configuration with the inputs of a turn; it restores them before, if needed."""
        count, inputs = self.workload.count, [self.placed | turn for turn in self._rotations]
        self._touched = True

        def launch(turn: int) -> Event:
            self.turn = turn
            return bound.launch(count, inputs[turn % len(inputs)])

        def anew(turn: int) -> Event:
            if self.workload.repeats == "restored":
                self.restore()
            self.turn, self._touched = turn, True
            replaced = self._rotations[turn % len(self._rotations)] | self.prepare(bound)[0]
            values = self.placed | replaced
            event = bound.launch(count, values)
            # The arrays that a host program has exchanged.
            self.placed.update({name: values[name] for name in self.placed.keys() - replaced.keys()})
            return event

        return launch if self.batched and self.workload.prepare is None else anew

    def prepare(self, bound: BoundKernel) -> tuple[dict[str, Any], float | None]:
        """The inputs that depend on the configuration, on the device, and the seconds to make and copy them."""
        if self.workload.prepare is None:
            return {}, None
        values = tuple(bound.config[axis] for axis in self.workload.prepared_by)
        if values not in self._prepared:
            if self._device.allocated > self._device.info.global_memory // 2:
                for made, _ in self._prepared.values():
                    release(made)
                self._prepared = {}
            begin = time.perf_counter()
            arrays = dict(self.workload.prepare(bound.config))
            made = upload(self._device, replace(self.workload, arguments=arrays))
            self._prepared[values] = made, time.perf_counter() - begin
        return self._prepared[values]

    def restore(self) -> None:
        """Reset what the kernel writes: every configuration gets the same inputs, and no one's results."""
        if not self._touched:
            return
        for name in self.spec.written:
            if name in self._initial:
                self._device.copy(self.placed[name], self._initial[name])
            else:
                self._device.write(self.placed[name], self.workload.arguments[name])
        self._device.synchronize()
        self._touched = False
