"""Checks of the shapes of buffers and of what is written to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmsbgen.backends.base import Buffer
from mmsbgen.base.errors import InputError


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
