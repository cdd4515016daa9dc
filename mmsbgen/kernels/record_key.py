"""Keys of the tuning database, for the tuner that writes records and the runtime that looks them up."""

from __future__ import annotations

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.records.tuning_records import PROGRAM, DeviceRecord, KernelRecord, Key, ProblemRecord, ToolchainRecord
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Config, Traits

#: What a device and its record have alike.
_SAME = ("backend", "platform", "vendor", "name", "architecture", "driver", "kind", "compute_units")


def device_record(info: DeviceInfo) -> DeviceRecord:
    """The database record of a device; its limits go into ``extra``, which is not part of the key."""
    return DeviceRecord(
        **{name: getattr(info, name) for name in _SAME},
        memory_bytes=info.global_memory,
        extra={
            "local_memory": info.local_memory,
            "max_block_size": info.max_block_size,
            "sub_group_sizes": list(info.sub_group_sizes),
            "vector_width_float": info.vector_width_float,
        },
    )


def toolchain_record(info: DeviceInfo) -> ToolchainRecord:
    """The record of the device's compiler and the options of every configuration.

    ``DeviceInfo.compiler`` is a name and, after its last space, a version.
    """
    name, _, version = info.compiler.rpartition(" ")
    return ToolchainRecord(name or version, version if name else "", " ".join(compiler_options(traits_of(info))))


def problem_record(spec: KernelSpec, problem: Problem) -> ProblemRecord:
    """The part of a problem on which this kernel depends."""
    return ProblemRecord(problem.family, dict(problem.only(spec.parameters)))


def key_of(info: DeviceInfo, spec: KernelSpec, problem: Problem) -> Key:
    """The key of a kernel's results for a problem on a device with its present compiler.

    A result also depends on its program, whose digest is stored in the trial; see :func:`program_digest`.
    """
    return Key(
        device_record(info),
        toolchain_record(info),
        KernelRecord(problem.family, spec.name, PROGRAM),
        problem_record(spec, problem),
    )


def program_digest(kernels: KernelFamily, key: Key, config: Config) -> str:
    """The token digest of the program that a recorded configuration renders to in this version.

    A record whose stored digest differs is a miss.  The result is empty if the program cannot be rendered: the kernel,
    a parameter or an axis no longer exists, or a constraint refuses the configuration.  Takes 1 to 3 ms.
    """
    try:
        spec, problem = kernels.kernel(key.kernel.name), kernels.problem(**key.problem.params)
        return render(spec, problem, dict(config), recorded_traits(key.device)).digest
    except (MmsbgenError, KeyError, TypeError, ValueError):  # records of other versions may have any content
        return ""


def recorded_traits(device: DeviceRecord) -> Traits:
    """The traits of a device from its database record."""
    extra = device.extra
    return traits_of(
        DeviceInfo(
            **{name: getattr(device, name) for name in _SAME},
            index=0,
            compiler="",
            global_memory=device.memory_bytes,
            max_allocation=device.memory_bytes,
            local_memory=int(extra.get("local_memory", 0)),
            max_block_size=int(extra.get("max_block_size", 1024)),
            sub_group_sizes=tuple(extra.get("sub_group_sizes", ())),
            vector_width_float=int(extra.get("vector_width_float", 1)),
        )
    )
