"""Detection by several ranks: rank 0 does all but the sweeps, which all share; the others follow."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from mmsbgen.backends import Device, discover, find_device, opened
from mmsbgen.base.errors import InputError, MissingDependencyError, MmsbgenError
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.ranks.exchanges import Exchange, HostExchange
from mmsbgen.ranks.world import Released, World
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.ranks.following import follow
from mmsbgen.sampler.ranks.sharing import Team
from mmsbgen.sampler.saved.checkpoint import device_name

__all__ = ["check_shared", "device_of_rank", "follow_rank", "formed_team", "open_ranks"]


def device_of_rank(world: World, device: str | None, devices: list[str]) -> str | None:
    """The device of this rank: that of its place in ``devices``, else ``device``, else one of the best kind.

    Ranks of one machine take ``devices``, and devices of the best kind, in turn.
    """
    if devices:
        return devices[world.local_rank % len(devices)]
    if device is not None:
        return device
    found, _ = discover()
    alike = [info for info in found if (info.backend, info.name) == (found[0].backend, found[0].name)]
    return alike[world.local_rank % len(alike)].spec if alike else None


def check_shared(options: Options) -> None:
    """Raise :class:`InputError` if ranks cannot share the sweeps of these options, sized for the graph."""
    if not options.sparse:
        rows = f"{options.mini_batch} mini-batches" if not options.block else f"dense rows (K={options.n_communities})"
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


def formed_team(world: World, device: Device, configs: dict[str, Any], kept: dict[str, Any]) -> Team:
    """The ranks, whose devices are open, and how they exchange rows: by NCCL between distinct GPUs, else by MPI.

    ``configs`` are the configurations that the user asked for, by kernel, and ``kept`` those of a resumed run.
    """
    world.names[0] = f"rank 0 ({device.info.spec})"
    world.tell("team", configs, kept, device_name(device.info))
    able = world.answers(_place(device))
    identity = None
    if all(able) and len(set(able)) == world.size:
        from mmsbgen.ranks.nccl_exchange import new_identity

        identity = new_identity()
    world.tell("exchange", identity)
    return Team(world, _exchange(world, device, identity))


def follow_rank(world: World, device: str | None, database: str | Path | None) -> None:
    """What a rank other than 0 does: it opens its device and does what rank 0 tells.

    An error is told to rank 0, which ends the run.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        # Rank 0 ends the run, after a whole sweep.
        signal.signal(number, signal.SIG_IGN)
    try:
        if world.hear()[0] == "open":
            _opened(world, device, database)
    except Released:
        sys.stderr.flush()
        os._exit(0)
    except MmsbgenError as error:
        world.failed(str(error))
        os._exit(error.exit_code)
    except Exception:
        world.failed(traceback.format_exc())
        os._exit(1)


def _opened(world: World, name: str | None, database: str | Path | None) -> None:
    try:
        device = opened(find_device(name))
    except MmsbgenError as error:
        world.answers((name, str(error)[:2000]))
        world.hear()
        return
    with device:
        world.answers((device.info.spec, ""))
        heard = world.hear()
        if heard[0] == "end":
            return
        _, configs, kept, kept_on = heard
        world.answers(_place(device))
        _, identity = world.hear()
        exchange = _exchange(world, device, identity)
        with open_store(database, read_only=True) as store:
            same = device_name(device.info) == kept_on
            follow(world, Runtime(device, MMSB, Index(store), dict(configs), dict(kept if same else {})), exchange)
        exchange.close()


def _place(device: Device) -> str:
    """Machine and address of a GPU that NCCL can use, or ""."""
    if device.info.backend != "cuda":
        return ""
    from mmsbgen.ranks.nccl_exchange import has_nccl

    return f"{os.uname().nodename} {device.pci_address()}" if has_nccl() else ""


def _exchange(world: World, device: Device, identity: bytes | None) -> Exchange:
    if identity is None:
        return HostExchange(world, device)
    from mmsbgen.backends.nvidia.cuda_device import CudaDevice
    from mmsbgen.ranks.nccl_exchange import NcclExchange

    if not isinstance(device, CudaDevice):
        raise MissingDependencyError(f"NCCL is for NVIDIA GPUs, not for {device.info.spec}")
    return NcclExchange(world, device, identity)
