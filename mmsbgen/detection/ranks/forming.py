"""Rank 0's part in bringing the ranks of a run together: their devices, and how they exchange rows."""

from __future__ import annotations

import os
from typing import Any

from mmsbgen.backends import Device
from mmsbgen.backends.ranks.exchanges import Exchange, HostExchange
from mmsbgen.backends.ranks.starting import set_by_mpi
from mmsbgen.backends.ranks.world import World
from mmsbgen.base.errors import InputError, MissingDependencyError
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.ranks.sharing import Team
from mmsbgen.sampler.saved.checkpoint import device_name

__all__ = ["check_alike", "check_shared", "formed_team", "made_exchange", "open_ranks", "place", "why_not_nccl"]


def check_alike(world: World, arguments: dict[str, str]) -> None:
    """Raise :class:`InputError` on rank 0 if another rank has other ``arguments``: it would not do what they ask."""
    for at, found in enumerate(world.comm.allgather(arguments)):
        if world.rank == 0 and found != arguments:
            name = next(name for name in arguments if arguments[name] != found[name])
            raise InputError(
                f"ranks 0 and {at} have {name} {arguments[name]} and {found[name]}: ranks share one run, so give them "
                f"the same arguments, but for --device; to run each alone, unset {set_by_mpi()}"
            )


def check_shared(options: Options, k_auto: bool = False) -> None:
    """Raise :class:`InputError` if ranks cannot share the sweeps of these options, sized for the graph."""
    if options.block and (options.draws_noise or options.average):
        raise InputError(
            "several devices share sweeps over sparse rows: leave out --noise and --average, or give one device"
        )
    if not options.sparse:
        rows = f"dense rows (K={'auto' if k_auto else options.n_communities})"
        rows = rows if options.block else f"{options.mini_batch} mini-batches"
        raise InputError(
            f"several devices share sweeps over sparse rows, and this run has {rows}: give --rows sparse, or one device"
        )


def open_ranks(world: World) -> None:
    """Open the devices of the other ranks; raises :class:`InputError` that names the rank that cannot."""
    world.tell("open")
    for at, (name, refusal) in enumerate(world.answers(("", ""))):
        if at:
            world.names[at] += f" ({name or 'no device'})"
        if refusal:
            raise InputError(f"{world.names[at]}: {refusal}")


def formed_team(world: World, device: Device, configs: dict[str, Any]) -> Team:
    """The ranks, whose devices are open, and how they exchange rows: by NCCL between distinct GPUs, else by MPI.

    ``configs`` are the configurations that the user asked for, by kernel.
    """
    world.names[0] += f" ({device.info.spec})"
    world.tell("team", configs, device_name(device.info))
    places = world.answers(place(device))
    reason = why_not_nccl(world.names, places)
    identity = None
    if not reason:
        from mmsbgen.backends.ranks.nccl_exchange import new_identity

        identity = new_identity()
    world.tell("exchange", identity)
    # Without any GPU of NVIDIA's nobody expects NCCL.
    told = reason if any(gpu for gpu, _ in places) else ""
    return Team(world, made_exchange(world, device, identity), told)


def place(device: Device) -> tuple[str, bool]:
    """Machine and address of an NVIDIA GPU, else ""; and whether NCCL can use it."""
    if device.info.backend != "cuda":
        return "", False
    from mmsbgen.backends.ranks.nccl_exchange import has_nccl

    return f"{os.uname().nodename} {device.pci_address()}", has_nccl()


def why_not_nccl(names: list[str], places: list[tuple[str, bool]]) -> str:
    """Why ranks with these ``names`` and :func:`place` cannot exchange rows by NCCL; "" if they can."""
    first: dict[str, str] = {}
    for name, (gpu, able) in zip(names, places, strict=True):
        if not gpu:
            return f"{name} has no NVIDIA GPU"
        if not able:
            return f"{name} has no NCCL; get it with: pip install 'mmsbgen[nccl]'"
        if gpu in first:
            return f"{first[gpu]} and {name} have one GPU; give each its own for NCCL"
        first[gpu] = name
    return ""


def made_exchange(world: World, device: Device, identity: bytes | None) -> Exchange:
    """The exchange of this rank: NCCL in the group ``identity``, or MPI without."""
    if identity is None:
        return HostExchange(world, device)
    from mmsbgen.backends.nvidia.cuda_device import CudaDevice
    from mmsbgen.backends.ranks.nccl_exchange import NcclExchange

    if not isinstance(device, CudaDevice):
        raise MissingDependencyError(f"NCCL is for NVIDIA GPUs, not for {device.info.spec}")
    return NcclExchange(world, device, identity)
