"""Devices by description, for tests that need no device."""

from __future__ import annotations

from mmsbgen.backends import DeviceInfo
from mmsbgen.backends.opencl.intel_runtime import find_library

#: Options for sources that are only compiled: the errors and warnings are the same, in less than half the time.
HASTY = ("--Ofast-compile=max",)
H200 = DeviceInfo(
    backend="cuda",
    index=0,
    name="NVIDIA H200",
    vendor="NVIDIA",
    platform="CUDA",
    architecture="sm_90",
    driver="580",
    kind="gpu",
    compiler="none 1",
    compute_units=132,
    global_memory=2**37,
    max_allocation=2**37,
    local_memory=2**17,
    max_block_size=1024,
    sub_group_sizes=(32,),
)

#: The OpenCL platform for checks of Python code, as the fixture ``processor`` opens it, by name.
PROCESSOR = "pocl" if find_library() is None else "intel"
