"""Sparse rows and links at places beyond 31 and 32 bits: the same bits as those of a small state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmsbgen.backends import Device
from mmsbgen.families import family
from mmsbgen.kernels.build import build, release, traits_of, upload
from mmsbgen.kernels.problem import Problem

MMSB = family()
ENTRIES = 64
ROWS = {"communities", "values", "new_communities", "new_values", "explained_links"}
OF_VERTICES = {"row_sums", "clip_counts", "members"}
NAMES = ("sparse_rows", "sparse_shares")


def problem_of(name: str) -> Problem:
    spec = MMSB.kernel(name)
    return spec.check_problem(MMSB.problem(K=257, entries=ENTRIES, partners="all"))


def outputs(device: Device, name: str, placed: dict[str, Any], count: int, first: int) -> dict[str, Any]:
    """What a launch leaves in the rows from vertex ``first`` on, and in arrays of other shapes."""
    spec, n = MMSB.kernel(name), problem_of(name).integer("N")
    bound = build(device, spec, problem_of(name), spec.default(problem_of(name), traits_of(device.info)))
    bound.launch(count, placed).wait()
    found = {}
    for argument in spec.arguments:
        if argument.role in ("out", "inout"):
            buffer = placed[argument.name]
            of_vertices = argument.name in ROWS | OF_VERTICES
            found[argument.name] = (
                device.download_range(buffer, first, first + n) if of_vertices else device.download(buffer)
            )
    return found


def expect_the_same_far_away(device: Device, name: str, first: int, link: int) -> None:
    """Vertex v becomes ``first`` + v, and the links begin at place ``link`` of their array."""
    workload = MMSB.kernel(name).workload(problem_of(name), 5)
    near = upload(device, workload)
    right = outputs(device, name, near, workload.count, 0)
    release(near)
    far: dict[str, Any] = {}
    try:
        for key, value in workload.arguments.items():
            array = np.asarray(value)
            if not array.ndim:
                far[key] = value
                continue
            at = 0
            if key in ROWS | OF_VERTICES:
                at = first
            elif key in ("neighbours", "vertices"):
                at, array = (link if key == "neighbours" else 0), array + np.uint32(first)
            elif key == "neighbour_offsets":
                at, array = first, array + np.uint64(link)
            far[key] = placed = device.alloc((at + len(array), *array.shape[1:]), array.dtype)
            device.write(placed, array, at)
        got = outputs(device, name, far, workload.count, first)
    finally:
        release(far)
    for key, array in right.items():
        np.testing.assert_array_equal(got[key], array, err_msg=key)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_links_beyond_two_to_the_31_on_a_processor(opencl_device: Device, name: str) -> None:
    """Memory of the system that nobody writes to is not taken, so that the array costs little."""
    link = 2**31 - 300
    if opencl_device.info.max_allocation < 4 * (link + 10_000):
        pytest.skip(f"a buffer there has at most {opencl_device.info.max_allocation} bytes")
    expect_the_same_far_away(opencl_device, name, 0, link)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bits", [31, 32])
def test_rows_and_links_far_away_on_a_gpu(cuda_device: Device, name: str, bits: int) -> None:
    """Rows and links on both sides of element 2^31 or 2^32."""
    first, link = 2**bits // ENTRIES - 100, 2**bits - 300
    needed = 5 * 4 * (2**bits + (1 << 20)) + 64 * first
    if cuda_device.info.global_memory < needed:
        pytest.skip(f"needs {needed} bytes of {cuda_device.info.global_memory}")
    expect_the_same_far_away(cuda_device, name, first, link)
