"""What the ranks other than the first do in a detection."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path

from mmsbgen.backends import discover, find_device, opened
from mmsbgen.backends.ranks.world import Ended, LostRankError, Released, World, short
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.detection.ranks.forming import made_exchange, place
from mmsbgen.detection.ranks.reading import follow_reading
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.runtime import opened_runtime
from mmsbgen.sampler.ranks.following import follow
from mmsbgen.sampler.saved.checkpoint import device_name

__all__ = ["device_of_rank", "follow_rank"]

#: Seconds that the other ranks wait for the end of rank 0, which writes a checkpoint and says why.
_OUTLASTED_S = 600.0


def device_of_rank(world: World, device: str | None, devices: list[str]) -> str | None:
    """The device of this rank: that of its place in ``devices``, else ``device``, else one of the best kind.

    Ranks of one machine take ``devices``, and devices of the best kind, in turn.

    Raises :class:`InputError` on rank 0 if a machine has more ranks than ``devices``.
    """
    if devices:
        host, most = Counter(name for name, _ in world.hosts).most_common(1)[0]
        if world.rank == 0 and most > len(devices):
            raise InputError(f"{most} ranks on {host} for --devices {','.join(devices)}: name a device for each rank")
        return devices[world.local_rank % len(devices)]
    if device is not None:
        return device
    found, _ = discover()
    alike = [info for info in found if (info.backend, info.name) == (found[0].backend, found[0].name)]
    return alike[world.local_rank % len(alike)].spec if alike else None


def follow_rank(world: World, device: str | None, database: str | Path | None) -> None:
    """What a rank other than 0 does: it opens its device and does what rank 0 tells.

    An error is told to rank 0, which ends the run.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Rank 0 ends the run, after a whole sweep.
        signal.signal(number, signal.SIG_IGN)
    try:
        world.hear()
        _opened(world, device, database)
    except Ended:
        return
    except Released as end:
        code = end.exit_code
    except LostRankError as error:
        code = error.exit_code
        sys.stderr.write(f"Error: {error}\n")
        sys.stderr.flush()
    except MmsbgenError as error:
        code = world.failed(str(error))
    except Exception:
        code = world.failed(traceback.format_exc())
    world.outlasted(_OUTLASTED_S)
    # What the device still has to do may wait for ranks that are no more.
    os._exit(code)


def _opened(world: World, name: str | None, database: str | Path | None) -> None:
    try:
        device = opened(find_device(name))
    except MmsbgenError as error:
        world.answers((name, short(str(error))))
        world.hear()
        return
    with device:
        world.answers((device.info.spec, ""))
        what, *values = world.hear()
        if what == "read":
            follow_reading(world, *values)
            what, *values = world.hear()
        configs, first = values
        world.answers(place(device))
        _, identity = world.hear()
        exchange = made_exchange(world, device, identity)
        with opened_runtime(device, MMSB, database, configs) as runtime:
            follow(world, runtime, exchange, device_name(device.info) == first)
        world.hear()
