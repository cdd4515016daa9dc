"""Backends: one common interface, implemented for CUDA and OpenCL.  Importing this loads no GPU library."""

from __future__ import annotations

from mmsbgen.backends.base import Argument, Buffer, Device, DeviceInfo, Event, Kernel, Program
from mmsbgen.backends.discovery import discover, find_device, open_device, opened

__all__ = [
    "Argument",
    "Buffer",
    "Device",
    "DeviceInfo",
    "Event",
    "Kernel",
    "Program",
    "discover",
    "find_device",
    "open_device",
    "opened",
]
