"""Lists of device arrays; the same list is used to count memory and to allocate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mmsbgen.backends.base import Buffer, Device
from mmsbgen.kernels.family import Array


@dataclass(frozen=True)
class Spec:
    """One array: its kernel argument name, purpose, shape, type, and initial content if any.

    ``held_out`` arrays belong to the evaluation's kernels, some of whose names the iteration uses too.
    """

    name: str
    purpose: str
    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    content: Array | None = None
    held_out: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


def content(name: str, purpose: str, array: Array, held_out: bool = False) -> Spec:
    """The spec of a device array with the content ``array``, which may be empty."""
    # A device array cannot be empty; kernels never read the padding element.
    array = np.ascontiguousarray(array if array.size else np.zeros((1, *array.shape[1:]), array.dtype))
    return Spec(name, purpose, array.shape, array.dtype, array, held_out)


def bytes_by_purpose(wanted: Iterable[Spec]) -> dict[str, int]:
    """Sum of the arrays' bytes by purpose."""
    sums: dict[str, int] = defaultdict(int)
    for spec in wanted:
        sums[spec.purpose] += spec.nbytes
    return dict(sums)


def largest(wanted: Iterable[Spec]) -> tuple[str, int]:
    """Purpose and bytes of the largest array."""
    return max(((spec.purpose, spec.nbytes) for spec in wanted), key=lambda item: item[1])


def place(device: Device, wanted: Iterable[Spec]) -> tuple[dict[str, Buffer], dict[str, Buffer]]:
    """Allocate the arrays, zero-filled without content; returns those of iterations and those of evaluations."""
    iteration: dict[str, Buffer] = {}
    held_out: dict[str, Buffer] = {}
    try:
        for spec in wanted:
            assert spec.name not in (held_out if spec.held_out else iteration), f"two arrays called {spec.name}"
            there = device.zeros(spec.shape, spec.dtype) if spec.content is None else device.upload(spec.content)
            (held_out if spec.held_out else iteration)[spec.name] = there
    except BaseException:
        release([*iteration.values(), *held_out.values()])
        raise
    return iteration, held_out


def take_counts(device: Device, buffer: Buffer) -> int:
    """The sum of the counts in a buffer, which are 0 from then on.  Waits for the queue."""
    found = int(device.download(buffer).sum(dtype=np.int64))
    if found:
        device.write(buffer, np.zeros(buffer.shape, buffer.dtype))
    return found


def release(values: Iterable[Any]) -> None:
    """Release the buffers among ``values``."""
    for value in values:
        if isinstance(value, Buffer):
            value.release()
