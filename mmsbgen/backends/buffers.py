"""Buffers, and checks of their shapes and of what is written to them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mmsbgen.base.errors import InputError


class Buffer(ABC):
    """An array in device memory: C order, any size that the device can allocate, indexed with 64 bits.

    ``handle`` is what the backend has for it; None once it is released.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], handle: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.handle = handle

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize

    @property
    def released(self) -> bool:
        """Whether the device memory has been released."""
        return self.handle is None

    def release(self) -> None:
        """Release the device memory.  Releasing twice does nothing; using the buffer later is an error."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._free(handle)

    @abstractmethod
    def _free(self, handle: Any) -> None:
        """Release the memory of a handle."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = ", released" if self.released else ""
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype}{state})"


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return a shape as a tuple of non-negative Python integers; raise InputError otherwise."""
    dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    result = tuple(int(dim) for dim in dims)
    if any(dim < 0 for dim in result):
        raise InputError(f"shape {result} has a negative dimension")
    return result


def checked_offset(buffer: Buffer, array: NDArray[Any], offset: int) -> int:
    """Return the byte offset of a ``write``; raise InputError when type, row shape or range do not match."""
    if array.dtype != buffer.dtype:
        raise InputError(f"cannot write {array.dtype} into {buffer!r}: convert the array to {buffer.dtype} first")
    if not buffer.shape:
        if array.shape or offset:
            raise InputError(f"cannot write shape {array.shape} at {offset} into {buffer!r}")
        return 0
    if array.shape[1:] != buffer.shape[1:] or not array.shape:
        raise InputError(f"cannot write rows of shape {array.shape[1:]} into {buffer!r}")
    if not 0 <= offset <= buffer.shape[0] - array.shape[0]:
        raise InputError(f"rows {offset}..{offset + array.shape[0]} are not within {buffer!r}")
    return offset * math.prod(buffer.shape[1:]) * buffer.dtype.itemsize


def check_rows(buffer: Buffer, rows: NDArray[np.integer[Any]]) -> None:
    """Raise InputError unless all ``rows``, of which there are some, are rows of ``buffer``."""
    if not buffer.shape or rows.min() < 0 or rows.max() >= buffer.shape[0]:
        raise InputError(f"rows {rows.min()}..{rows.max()} are not within {buffer!r}")
