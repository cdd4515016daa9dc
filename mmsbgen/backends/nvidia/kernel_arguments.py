"""What a CUDA kernel is launched with: device memory, and the layout of its parameters."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmsbgen.backends.base import Argument, Buffer
from mmsbgen.base.errors import InputError, LaunchError


class CudaBuffer(Buffer):
    """A plain allocation of device memory."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], handle: Any) -> None:
        super().__init__(shape, dtype)
        self.handle = handle
        self.address = 0 if handle is None else int(handle)

    @property
    def released(self) -> bool:
        return self.handle is None

    def release(self) -> None:
        handle, self.handle, self.address = self.handle, None, 0
        if handle is not None:
            handle.free()


def address_of(buffer: Buffer) -> int:
    """Where a buffer begins; raises :class:`InputError` for one that is released or of another backend."""
    if not isinstance(buffer, CudaBuffer) or buffer.released:
        raise InputError(f"{buffer!r} is no buffer that this device can use")
    return buffer.address


class Layout:
    """The C struct of a kernel's parameters, by the types of the arguments of a launch that ``name`` names.

    Raises :class:`LaunchError` for a scalar that no kernel takes, and :class:`InputError` for a foreign buffer.
    """

    def __init__(self, args: Sequence[Argument], name: object) -> None:
        codes = ""
        for position, arg in enumerate(args):
            if isinstance(arg, Buffer):
                address_of(arg)
                codes += "P"
            elif arg.dtype.char in "?bBhHiIlLqQefd":
                codes += arg.dtype.char
            else:
                raise LaunchError(f"{name}: argument {position} is a NumPy {arg.dtype}, which no kernel takes")
        self._types, self._buffers = [type(arg) for arg in args], [code == "P" for code in codes]
        self._struct = struct.Struct(codes)

    def pack(self, args: Sequence[Any]) -> bytes | None:
        """The arguments of another launch; None where they are of other types or a buffer was released."""
        if [type(arg) for arg in args] != self._types:
            return None
        values = []
        for arg, is_buffer in zip(args, self._buffers, strict=True):
            value = arg.address if is_buffer else arg.item()
            if is_buffer and not value:
                return None
            values.append(value)
        return self._struct.pack(*values)
