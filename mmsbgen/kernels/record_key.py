"""The key under which the tuning database keeps what a kernel did on a device.

It is made in one place, so that the tuner that writes records and the runtime that looks them up cannot disagree.
"""

from __future__ import annotations

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.base.errors import MmsbgenError
from mmsbgen.db.records.tuning_records import PROGRAM, DeviceRecord, KernelRecord, Key, ProblemRecord, ToolchainRecord
from mmsbgen.kernels.build import compiler_options, traits_of
from mmsbgen.kernels.family import KernelFamily, KernelSpec
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.render import render
from mmsbgen.kernels.space import Config, Traits

__all__ = [
    "device_record",
    "key_of",
    "problem_record",
    "program_digest",
    "recorded_traits",
    "toolchain_record",
]


def device_record(info: DeviceInfo) -> DeviceRecord:
    """The database's view of a device; its limits go into ``extra``, which takes no part in the key."""
    return DeviceRecord(
        backend=info.backend,
        platform=info.platform,
        vendor=info.vendor,
        name=info.name,
        architecture=info.architecture,
        driver=info.driver,
        kind=info.kind,
        compute_units=info.compute_units,
        memory_bytes=info.global_memory,
        extra={
            "local_memory": info.local_memory,
            "max_block_size": info.max_block_size,
            "sub_group_sizes": list(info.sub_group_sizes),
            "vector_width_float": info.vector_width_float,
        },
    )


def toolchain_record(info: DeviceInfo) -> ToolchainRecord:
    """The device's compiler, with the options that every configuration is compiled with.

    ``DeviceInfo.compiler`` is a name and, after its last space, a version.
    """
    name, _, version = info.compiler.rpartition(" ")
    return ToolchainRecord(name or version, version if name else "", " ".join(compiler_options(traits_of(info))))


def problem_record(spec: KernelSpec, problem: Problem) -> ProblemRecord:
    """The part of a problem on which this kernel depends."""
    return ProblemRecord(problem.family, dict(problem.only(spec.parameters)))


def key_of(info: DeviceInfo, spec: KernelSpec, problem: Problem) -> Key:
    """The key of a kernel's results for a problem on a device, with the compiler of today.

    A result depends on its program too, whose digest is a part of the trial: see :func:`program_digest`.
    """
    return Key(
        device_record(info),
        toolchain_record(info),
        KernelRecord(problem.family, spec.name, PROGRAM),
        problem_record(spec, problem),
    )


def program_digest(kernels: KernelFamily, key: Key, config: Config) -> str:
    """The digest of the tokens that the program of a recorded configuration has today.

    A record whose program has another digest is a miss.  Empty where the program cannot be rendered: the kernel, one of
    its parameters or axes is gone, or a constraint refuses the configuration.  Takes 1 to 3 ms.
    """
    try:
        spec, problem = kernels.kernel(key.kernel.name), kernels.problem(**key.problem.params)
        return render(spec, problem, dict(config), recorded_traits(key.device)).digest
    except (MmsbgenError, KeyError, TypeError, ValueError):  # another version's record may have anything
        return ""


def recorded_traits(device: DeviceRecord) -> Traits:
    """What a device's constraints see, from its record."""
    extra = device.extra
    return traits_of(
        DeviceInfo(
            backend=device.backend,  # type: ignore[arg-type]
            index=0,
            name=device.name,
            vendor=device.vendor,
            platform=device.platform,
            architecture=device.architecture,
            driver=device.driver,
            kind=device.kind,  # type: ignore[arg-type]
            compiler="",
            compute_units=device.compute_units,
            global_memory=device.memory_bytes,
            max_allocation=device.memory_bytes,
            local_memory=int(extra.get("local_memory", 0)),
            max_block_size=int(extra.get("max_block_size", 1024)),
            sub_group_sizes=tuple(extra.get("sub_group_sizes", ())),
            vector_width_float=int(extra.get("vector_width_float", 1)),
        )
    )
