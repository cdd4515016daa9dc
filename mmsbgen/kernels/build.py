"""Builds a kernel for a problem and a configuration on a device, and checks it against the reference."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmsbgen.backends.base import Buffer, Device, DeviceInfo, Event, Kernel
from mmsbgen.base.errors import CompileError, ConfigError, LaunchError
from mmsbgen.kernels.family import Array, KernelSpec, Workload
from mmsbgen.kernels.host_program import Launches
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import Source, render
from mmsbgen.kernels.space import Config, Traits, describe

_GUARD_BYTES = 4096
_GUARD = 0xA5


def traits_of(info: DeviceInfo) -> Traits:
    """The properties of a device that constraints use."""
    # CUDA limits static shared memory to 48 KiB, even if a block could have more dynamically.
    static = min(info.local_memory, 48 * 1024) if info.backend == "cuda" else info.local_memory
    return Traits(
        dialect="cuda" if info.backend == "cuda" else "opencl",
        kind=info.kind,
        max_block_size=info.max_block_size,
        local_memory=static,
        launch_memory=info.local_memory if info.backend == "cuda" else 0,
        sub_group_size=info.sub_group_sizes[0] if info.sub_group_sizes else 0,
        fp64=info.has_fp64,
        compute_units=info.compute_units,
        warp_groups=info.backend == "cuda" and info.architecture == "sm_90",
        platform=info.platform,
    )


def compiler_options(traits: Traits) -> tuple[str, ...]:
    """The compiler options of every configuration; they are a part of the database key.

    No option relaxes the arithmetic, because the tolerances of the checks cover rounding only, not fast maths.
    """
    if traits.dialect == "cuda":
        return ()
    return ("-cl-std=CL3.0",) if traits.sub_group_size else ("-cl-std=CL1.2",)


@dataclass(eq=False)
class BoundKernel:
    """A compiled kernel with its declaration and configuration; arguments are given by name."""

    spec: KernelSpec
    problem: Problem
    config: Config
    traits: Traits
    source: Source
    device: Device
    kernels: Mapping[str, Kernel]
    """The entry points of the source by name."""
    rounds: tuple[int, int] | None = field(default=None, kw_only=True)
    """The launches of a host program's last call, and the barriers of all blocks inside them."""

    def launch(self, count: int, values: MutableMapping[str, Any]) -> Event:
        """Queue the kernel for ``count`` work units.

        ``values`` may hold more names than the kernel takes; scalars must be NumPy scalars of the declared type.  A
        host program may exchange arrays in it.  Raises :class:`LaunchError` naming kernel and configuration.
        """
        try:
            if self.spec.program is not None:
                taken = self.spec.entry_points(self.config).items()
                entries = {name: [argument.name for argument in arguments] for name, arguments in taken}
                built_for = self.problem, self.config, self.traits
                launches = Launches(self.device, self.kernels, entries, values, count, built_for)
                self.spec.program(launches)
                self.rounds = launches.launched, launches.barriers
                return launches.ended()
            shape = self.spec.launch(self.problem, self.config, count, self.traits)
            args = [values[argument.name] for argument in self.spec.arguments]
            return self.kernels[self.spec.name].launch(*shape.shape, args, shape.shared)
        except LaunchError as error:
            raise type(error)(f"{self.spec.name} ({describe(self.config)}): {error}") from error

    def resources(self) -> dict[str, int]:
        """As :meth:`mmsbgen.backends.base.Kernel.resources`; of several entry points, what the neediest one uses."""
        found: dict[str, int] = {}
        for kernel in self.kernels.values():
            for name, value in kernel.resources().items():
                most = min if name == "max_block_size" else max
                found[name] = most(found.get(name, value), value)
        return found


def build(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, source: Source | None = None
) -> BoundKernel:
    """Render, unless there is a ``source``, and compile one configuration on a device.

    Raises:
        ConfigError: The configuration is refused.
        CompileError: It does not compile; the message has kernel, configuration and the compiler's log.
    """
    return compiled(device, spec, problem, config, source)()


def compiled(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, source: Source | None = None
) -> Callable[[], BoundKernel]:
    """As :func:`build`, but the returned function does what uses the device."""
    traits = traits_of(device.info)
    source = source or render(spec, problem, config, traits)
    names = list(spec.entry_points(config))
    with _naming(spec, config):
        load = device.loader(source.program, names, compiler_options(traits))

    def loaded() -> BoundKernel:
        with _naming(spec, config):
            program = load()
            kernels = {name: program.kernel(name) for name in names}
        for kernel in kernels.values():
            kernel.configuration = describe(config)
        return BoundKernel(spec, problem, config, traits, source, device, kernels)

    return loaded


def compiled_small(
    device: Device, spec: KernelSpec, problem: Problem, config: Config, source: Source
) -> Callable[[BoundKernel], BoundKernel]:
    """As :func:`compiled`, for the small problem that :func:`check_built` takes.

    The returned function takes the kernel of ``source``, and returns the same one if its source has no sizes.
    """
    problem = spec.check_problem(problem)
    try:
        small = render(spec, problem, config, traits_of(device.info))
    except ConfigError as error:
        raise ConfigError(f"at the sizes of the check, {describe(problem)}: {error}") from None
    # The comments that begin the two may take different numbers of lines.
    if small.program.strip() == source.program.strip():
        return lambda bound: replace(bound, problem=problem)
    load = compiled(device, spec, problem, config, small)
    return lambda bound: load()


@contextlib.contextmanager
def _naming(spec: KernelSpec, config: Config) -> Iterator[None]:
    try:
        yield
    except CompileError as error:
        raise CompileError(f"{spec.name} ({describe(config)}) does not compile: {error}") from error


def compile_side_by_side(device: Device, cases: Iterable[tuple[KernelSpec, Problem, Config]]) -> None:
    """Compile configurations in parallel into the device's cache, if it supports that, ahead of :func:`build`."""
    if device.side_by_side:
        traits = traits_of(device.info)
        sources = [render(spec, problem, config, traits).program for spec, problem, config in cases]
        device.compile_ahead(sources, compiler_options(traits))


def upload(device: Device, workload: Workload) -> dict[str, Any]:
    """Copies a workload's arrays into device buffers; returns all arguments by name, scalars unchanged."""
    placed: dict[str, Any] = {}
    try:
        for name, value in workload.arguments.items():
            placed[name] = device.upload(value) if isinstance(value, np.ndarray) else value
    except BaseException:
        release(placed)
        raise
    return placed


def release(placed: Mapping[str, Any]) -> None:
    """Release the buffers of :func:`upload`."""
    for value in placed.values():
        if isinstance(value, Buffer):
            value.release()


def check(device: Device, spec: KernelSpec, problem: Problem, config: Config, seed: int = 0) -> str | None:
    """Run a configuration on the small problem and compare its outputs with the reference.

    Returns an error message, or None when every output agrees within the derived tolerance.  Raises what
    :func:`build` raises, and :class:`LaunchError`.
    """
    return check_built(device, build(device, spec, spec.check_problem(problem), config), seed)


def check_built(device: Device, bound: BoundKernel, seed: int = 0, workload: Workload | None = None) -> str | None:
    """Check a built kernel, whose problem must be small enough for the reference; it makes the workload, if not given.

    Every array is followed by guard bytes; a kernel that changes them or an input fails the check.  Returns an error
    message, or None.
    """
    workload = (workload or bound.spec.workload(bound.problem, seed)).prepared(bound.config)
    arrays = {name: value for name, value in workload.arguments.items() if isinstance(value, np.ndarray) and value.ndim}
    placed = upload(device, replace(workload, arguments=workload.arguments | _guarded(arrays)))
    try:
        bound.launch(workload.count, placed).wait()
        got = {name: device.download(placed[name]) for name in arrays}
    finally:
        release(placed)
    written = bound.spec.written
    kept = [one.name for one in bound.spec.arguments if one.role == "kept"]
    outputs = {name: got[name][: len(arrays[name])] for name in got if name in written}
    return workload.verify(outputs, bound.config) or _trespass(arrays, got, (*written, *kept))


def _guarded(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays, each followed by at least 4096 guard bytes in whole rows."""
    guarded = {}
    for name, array in arrays.items():
        row_bytes = array.itemsize * math.prod(array.shape[1:])
        if row_bytes == 0:
            guarded[name] = array
            continue
        guard = np.full(-(-_GUARD_BYTES // row_bytes) * row_bytes, _GUARD, np.uint8)
        guarded[name] = np.concatenate([array, guard.view(array.dtype).reshape(-1, *array.shape[1:])])
    return guarded


def _trespass(arrays: Mapping[str, Array], got: Mapping[str, Array], written: Collection[str]) -> str | None:
    """A message about an overwritten guard or input, or None."""
    for name, array in arrays.items():
        inside, behind = got[name][: len(array)], got[name][len(array) :]
        spoilt = np.flatnonzero(np.ascontiguousarray(behind).view(np.uint8).ravel() != _GUARD)
        if spoilt.size:
            return f"{spoilt.size} bytes behind the end of {name} were overwritten, the first at +{spoilt[0]}"
        if name not in written and inside.tobytes() != np.ascontiguousarray(array).tobytes():
            return f"the input {name} was overwritten"
    return None
