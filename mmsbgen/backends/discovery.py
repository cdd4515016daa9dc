"""Discovery of the devices of all backends; opens one by a short name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mmsbgen.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mmsbgen.backends.base import Device, DeviceInfo

_ALIASES: dict[str, Callable[[DeviceInfo], bool]] = {
    "pocl": lambda info: "portable computing language" in info.platform.lower(),
    "intel": lambda info: info.backend == "opencl" and "intel" in info.platform.lower(),
}


def discover() -> tuple[list[DeviceInfo], list[str]]:
    """List the devices of all backends, the best first.

    Returns:
        The devices, and hints about what is missing and how to get it.  A missing library, driver or device is not an
        error.
    """
    from mmsbgen.backends.nvidia import cuda_device
    from mmsbgen.backends.opencl import opencl_device

    devices: list[DeviceInfo] = []
    hints: list[str] = []
    for module in (cuda_device, opencl_device):
        found, missing = module.discover()
        devices += found
        hints += missing
    devices.sort(key=_preference)
    return devices, hints


def select_device(spec: str | None, devices: list[DeviceInfo], hints: list[str]) -> DeviceInfo:
    """Return the device that ``spec`` denotes among ``devices``, which are sorted best first.

    ``spec`` is as for :func:`matching`, or None for the best device.

    Raises:
        InputError: No device or several devices match; the message lists the devices, or how to get one.
    """
    if not devices:
        raise InputError("\n".join(["no device to compute on was found", *hints]))
    if spec is None:
        return devices[0]
    matches = matching(spec, devices)
    if len(matches) > 1:
        raise InputError(f"{spec!r} may be several devices, name one by its first word here:\n{_listed(matches)}")
    if not matches:
        wanted = spec.strip().lower()
        related = [hint for hint in hints if wanted.split(":")[0] in hint.lower()]
        raise InputError("\n".join([f"no device matches {spec!r}; there are:", _listed(devices), *related]))
    return matches[0]


def matching(spec: str, devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """The devices that match ``spec``, in the order of ``devices``.

    ``spec`` ignores case.  It is "backend:number"; the number alone; "pocl" or "intel"; a whole backend, platform or
    device name; or a part of one.
    """
    wanted = spec.strip().lower()
    if re.fullmatch(r"[a-z]+:[0-9]+", wanted):
        return [info for info in devices if info.spec == wanted]
    if re.fullmatch(r"[0-9]+", wanted):
        return [info for info in devices if info.index == int(wanted)]
    if wanted in _ALIASES:
        return [info for info in devices if _ALIASES[wanted](info)]
    whole = [info for info in devices if wanted in map(str.lower, (info.backend, info.platform, info.name))]
    return whole or [info for info in devices if wanted and wanted in _text(info)]


def find_device(spec: str | None = None) -> DeviceInfo:
    """Return the device that ``spec`` names, without opening it; None means the best one.

    See :func:`select_device`.  "fake" or "fake:0" is a device that records launches and computes nothing.
    """
    if spec is not None and spec.strip().lower() in {"fake", "fake:0"}:
        from mmsbgen.backends.fake import FakeDevice

        return FakeDevice().info
    return select_device(spec, *discover())


def open_device(spec: str | None = None) -> Device:
    """Open the device that :func:`find_device` returns for ``spec``."""
    return opened(find_device(spec))


def opened(info: DeviceInfo) -> Device:
    """Open a device by its description."""
    if info.backend == "fake":
        from mmsbgen.backends.fake import FakeDevice

        return FakeDevice(info)
    if info.backend == "cuda":
        from mmsbgen.backends.nvidia.cuda_device import CudaDevice

        return CudaDevice(info)
    from mmsbgen.backends.opencl.opencl_device import OpenCLDevice

    return OpenCLDevice(info)


def _preference(info: DeviceInfo) -> tuple[int, int]:
    if info.backend == "cuda":
        rank = 0
    elif info.kind == "gpu":
        rank = 1
    elif _ALIASES["intel"](info):
        rank = 2
    else:
        rank = 3
    return rank, info.index


def _listed(devices: Sequence[DeviceInfo]) -> str:
    return "\n".join(f"  {info.spec}  {info.name} ({info.platform})" for info in devices)


def _text(info: DeviceInfo) -> str:
    return f"{info.backend} {info.platform} {info.name}".lower()
